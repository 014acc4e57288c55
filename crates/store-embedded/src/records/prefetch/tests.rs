//! The tests play the prefetch thread, so each block arrives at the worst time.

use std::collections::BTreeSet;

use bytes::Bytes;
use longshore_core::claim::ClaimOptions;
use longshore_core::edit::Edit;
use longshore_core::id::JobId;
use longshore_core::rng::{Rng, SeededRng};
use longshore_core::settle::Outcome;
use longshore_core::submit::NewJob;
use longshore_core::time::Timestamp;
use longshore_engine::{AdminCommand, Effect, EngineOptions, ExecutionContext, Settlement, Submission, SubmitRequest};
use rusqlite::Connection;

use super::*;
use crate::cache_budget::CacheBudget;
use crate::indexes::Indexes;
use crate::live_index::LiveIndex;
use crate::records::payloads::read_payload;
use crate::schema::{self, ClockMode};

/// A writer without threads.
struct Bench {
    engine: Engine,
    records: SqliteRecords,
    rng: SeededRng,
    effects: Vec<Effect>,
    connection: Connection,
    requests: Receiver<PrefetchRequest>,
    block_tx: Sender<RecordBlock>,
    /// Blocks that were read and not delivered yet.
    undelivered: Vec<RecordBlock>,
    _directory: tempfile::TempDir,
}

const NOW: Timestamp = Timestamp::from_millis(1_000);

fn queue() -> QueueName {
    QueueName::new("q").unwrap()
}

impl Bench {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let location = Location::File(directory.path().join("longshore.db"));
        let connection = location.open(Role::Writer).unwrap();
        schema::prepare(&connection, ClockMode::Virtual).unwrap();
        let (request_tx, requests) = channel();
        let (block_tx, blocks) = channel();
        let thread = PrefetchThread { requests: Some(request_tx), blocks: Some(blocks), thread: None };
        let prefetcher = Prefetcher { thread: Some(thread), block_jobs: Some(8), ..Prefetcher::default() };
        let dictionary = crate::dictionary::load(&connection).unwrap();
        let indexes = Arc::new(Indexes::load(&connection, dictionary, LiveIndex::default()).unwrap());
        Self {
            engine: Engine::new(EngineOptions::default()),
            records: SqliteRecords::new(connection, indexes, prefetcher, CacheBudget::new(64 << 20, 1)).unwrap(),
            rng: SeededRng::new(1),
            effects: Vec::new(),
            connection: location.open(Role::Reader).unwrap(),
            requests,
            block_tx,
            undelivered: Vec::new(),
            _directory: directory,
        }
    }

    /// Runs one batch, as the writer does.
    fn batch<T>(&mut self, work: impl FnOnce(&mut Engine, ExecutionContext<'_, SqliteRecords>) -> T) -> T {
        self.batch_of(|bench| {
            let Self { engine, records, rng, effects, .. } = bench;
            work(engine, ExecutionContext { records, rng, now: NOW, effects })
        })
    }

    fn batch_of<T>(&mut self, work: impl FnOnce(&mut Self) -> T) -> T {
        self.records.drain_prefetched();
        self.records.connection().execute_batch("BEGIN IMMEDIATE").unwrap();
        self.engine.begin();
        let done = work(self);
        self.records.flush().unwrap();
        self.records.connection().execute_batch("COMMIT").unwrap();
        self.engine.commit();
        self.records.committed();
        self.records.evict();
        self.records.request_prefetch(&self.engine);
        done
    }

    /// Clears the writer's cache and keeps the prefetch buffer.
    fn clear_cache(&mut self) {
        self.records.drain_prefetched();
        let buffer = std::mem::take(&mut self.records.prefetcher.buffer);
        self.records.rolled_back();
        self.records.prefetcher.buffer = buffer;
    }

    /// Claims with random queues and types, so that claim streams share jobs.
    fn claim_randomly(&mut self, limit: usize, rng: &mut dyn Rng) -> Vec<Claimed> {
        let types: Vec<JobType> = ["t", "u"].map(|name| JobType::new(name).unwrap()).into();
        let types = types.into_iter().take(usize::try_from(rng.uniform_inclusive(2)).unwrap()).collect();
        let queues = vec![queue(); 1 + usize::try_from(rng.uniform_inclusive(1)).unwrap()];
        self.claim_as(&ClaimRequest { queues, limit, types, terms: ClaimOptions::default() }).unwrap()
    }

    fn submit(&mut self, jobs: usize, payload_bytes: usize) -> Vec<JobId> {
        let job = |n: usize| {
            let payload = Payload::Binary(Bytes::from(vec![n.to_le_bytes()[0]; payload_bytes]));
            Submission { queue: queue(), job: NewJob::new(JobType::new("t").unwrap(), payload) }
        };
        let request = SubmitRequest::new((0..jobs).map(job).collect());
        let submitted = self.batch(|engine, context| engine.submit(&request, context).unwrap().unwrap());
        submitted.iter().map(|job| job.id).collect()
    }

    fn try_claim(&mut self, limit: usize) -> Result<Vec<Claimed>, RecordsError> {
        self.claim_as(&ClaimRequest { queues: vec![queue()], limit, types: Vec::new(), terms: ClaimOptions::default() })
    }

    fn claim_as(&mut self, request: &ClaimRequest) -> Result<Vec<Claimed>, RecordsError> {
        self.batch_of(|Self { engine, records, rng, effects, .. }| {
            records.prefetch_for_claim(engine, request)?;
            let reads = records.point_reads;
            let claimed = engine.claim(request, ExecutionContext { records, rng, now: NOW, effects })?.unwrap();
            records.record_claim(request, &claimed, reads);
            for job in &claimed {
                assert!(records.payload(job.seq)?.is_some(), "job {} has its payload", job.seq);
            }
            Ok(claimed)
        })
    }

    fn claim(&mut self, limit: usize) -> Vec<Claimed> {
        self.try_claim(limit).unwrap()
    }

    fn settle(&mut self, job: &Claimed, outcome: Outcome) {
        let settlement = Settlement { id: job.id, token: Some(job.token), outcome };
        self.batch(|engine, context| engine.settle(&settlement, context)).unwrap().unwrap();
    }

    fn admin(&mut self, command: &AdminCommand) {
        drop(self.batch(|engine, context| engine.admin(command, context)).unwrap());
    }

    fn correlate(&mut self, id: JobId, correlation_id: &str) {
        let edit = Edit { correlation_id: Some(Some(correlation_id.into())), ..Edit::default() };
        self.admin(&AdminCommand::Edit { id, edit });
    }

    /// Reads the requested blocks and delivers none.
    fn read_requests(&mut self) {
        let (block_tx, blocks) = channel();
        for request in self.requests.try_iter() {
            serve(&self.connection, request, &block_tx, &parking_lot::Mutex::new(())).unwrap();
        }
        self.undelivered.extend(blocks.try_iter());
    }

    fn deliver(&mut self) {
        for block in self.undelivered.drain(..) {
            self.block_tx.send(block).unwrap();
        }
    }

    fn buffered(&self) -> (Vec<Job>, Vec<(Seq, Payload)>) {
        let dictionary = self.records.dictionary();
        self.records.prefetcher.buffer.all(&|seq, record| codec::job::decode_unchecked(seq, record, &dictionary))
    }

    /// Checks that the buffer equals the tables and has no duplicates. Returns its records.
    fn check(&self) -> usize {
        let mut buffered = BTreeSet::new();
        let (jobs, payloads) = self.buffered();
        for job in jobs {
            let seq = job.seq;
            assert_eq!(self.records.read(seq).unwrap(), Some(job), "job {seq} equals its row");
            assert!(!self.records.jobs.contains_key(&seq), "one copy of job {seq}");
            assert!(buffered.insert(seq), "one copy of job {seq}");
        }
        let mut with_payload = BTreeSet::new();
        for (seq, payload) in payloads {
            let stored = read_payload(&self.records.connection, seq).unwrap();
            assert!(stored.is_none_or(|stored| stored == payload), "the payload of job {seq} equals its row");
            assert!(with_payload.insert(seq), "one copy of the payload of job {seq}");
        }
        buffered.len()
    }
}

#[test]
fn take_drops_a_record_that_changed_after_the_read() {
    let mut bench = Bench::new();
    let ids = bench.submit(8, 16);
    bench.clear_cache();
    bench.claim(1);
    bench.read_requests();
    bench.correlate(ids[1], "new");
    bench.deliver();
    bench.clear_cache();
    assert!(bench.check() > 0, "the other records are delivered");
    let claimed = bench.claim(1);
    assert_eq!((claimed[0].id, claimed[0].correlation_id.as_deref()), (ids[1], Some("new")));
}

#[test]
fn take_removes_a_record_from_the_buffer() {
    let mut bench = Bench::new();
    let ids = bench.submit(8, 16);
    bench.clear_cache();
    bench.claim(1);
    bench.read_requests();
    bench.deliver();
    bench.correlate(ids[1], "new");
    bench.clear_cache();
    bench.check();
    let claimed = bench.claim(1);
    assert_eq!((claimed[0].id, claimed[0].correlation_id.as_deref()), (ids[1], Some("new")));
}

/// Random operations between request, read and delivery.
#[test]
fn buffer_equals_the_tables_in_random_histories() {
    let (mut buffered, mut dropped) = (0, 0);
    for seed in 0..30 {
        let mut bench = Bench::new();
        let mut rng = SeededRng::new(seed);
        let (mut ids, mut running) = (bench.submit(40, 16), Vec::new());
        for step in 0..120 {
            let rng: &mut dyn Rng = &mut rng;
            let any = |rng: &mut dyn Rng, ids: &[JobId]| {
                ids[usize::try_from(rng.uniform_inclusive(ids.len() as u64 - 1)).unwrap()]
            };
            match rng.uniform_inclusive(11) {
                0 => ids.extend(bench.submit(8, 16)),
                1 | 2 => {
                    let limit = 1 + usize::try_from(rng.uniform_inclusive(20)).unwrap();
                    running.extend(bench.claim_randomly(limit, rng));
                }
                3 if !running.is_empty() => {
                    let job = running.swap_remove(0);
                    bench.settle(&job, Outcome::Release);
                }
                4 if !running.is_empty() => {
                    let job = running.swap_remove(0);
                    bench.settle(&job, Outcome::Complete { result: None, progress: None });
                }
                5 => bench.correlate(any(rng, &ids), &step.to_string()),
                6 => {
                    let edit =
                        Edit { priority: longshore_core::priority::Priority::ALL.first().copied(), ..Edit::default() };
                    bench.admin(&AdminCommand::Edit { id: any(rng, &ids), edit });
                }
                7 => bench.read_requests(),
                8 => {
                    let undelivered: usize = bench.undelivered.iter().map(RecordBlock::records).sum();
                    let before = bench.check();
                    bench.deliver();
                    bench.records.drain_prefetched();
                    dropped += undelivered - (bench.check() - before);
                }
                9 => drop(bench.records.decode_prefetched()),
                _ => bench.clear_cache(),
            }
            buffered += bench.check();
        }
    }
    assert!(buffered > 100 && dropped > 10, "both happen: {buffered} buffered, {dropped} dropped");
}

#[test]
fn claims_from_a_long_queue_find_their_records_in_memory() {
    let mut bench = Bench::new();
    for _ in 0..30 {
        bench.submit(1_000, 16);
    }
    bench.clear_cache();
    let mut last = Seq(0);
    for _ in 0..120 {
        for job in bench.claim(250) {
            assert!(job.seq > last, "in order");
            last = job.seq;
        }
        bench.read_requests();
        bench.deliver();
        assert!(bench.records.prefetcher.buffer.parts() <= 2 * WINDOW);
    }
    assert!(last >= Seq(30_000), "all of them");
    assert!(bench.records.point_reads <= 250, "{} point reads", bench.records.point_reads);
}

#[test]
fn buffer_of_large_payloads_is_bounded() {
    let mut bench = Bench::new();
    for _ in 0..20 {
        bench.submit(16, 256 << 10);
    }
    bench.clear_cache();
    let mut most = 0;
    for _ in 0..20 {
        bench.claim(16);
        bench.read_requests();
        bench.deliver();
        bench.records.drain_prefetched();
        let (_, payloads) = bench.buffered();
        let bytes: usize = payloads.iter().map(|(_, payload)| payload.bytes().len()).sum();
        assert!(bytes <= BYTES_MAX, "{bytes} bytes");
        assert!((bytes..=BYTES_MAX).contains(&bench.records.prefetcher.buffer.bytes()), "the total is current");
        most = most.max(payloads.len());
    }
    assert!(most > 16, "more than one claim: {most}");
}

#[test]
fn corrupt_record_is_reported_by_the_writer() {
    let mut bench = Bench::new();
    bench.submit(16, 16);
    bench.records.connection().execute_batch("UPDATE live_jobs SET record = zeroblob(99) WHERE seq = 3").unwrap();
    bench.clear_cache();
    bench.claim(1);
    bench.read_requests();
    bench.deliver();
    assert_eq!(bench.claim(1).len(), 1, "other jobs are claimed");
    assert!(matches!(bench.try_claim(1), Err(RecordsError::CorruptJob(Seq(3)))));
}
