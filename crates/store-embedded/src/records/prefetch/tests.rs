//! The thread's part is played by the test, so that every answer comes when it does most harm.

use std::collections::BTreeSet;
use std::sync::RwLock;

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
use crate::finished_index::Chunks;
use crate::id_cipher::id_seal;
use crate::live_index::LiveIndex;
use crate::records::payloads::read_payload;
use crate::schema::{self, ClockMode};

/// A writer without its thread, and without the one that reads ahead.
struct Bench {
    engine: Engine,
    records: SqliteRecords,
    rng: SeededRng,
    effects: Vec<Effect>,
    beside: Connection,
    asked: Receiver<PrefetchRequest>,
    answers: Sender<RecordBlock>,
    /// Read, but not handed over yet.
    late: Vec<RecordBlock>,
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
        let (questions, asked) = channel();
        let (sender, answers) = channel();
        let beside = PrefetchThread { questions: Some(questions), answers: Some(answers), thread: None };
        let ahead = Prefetcher { beside: Some(beside), ..Prefetcher::default() };
        let names = Arc::new(RwLock::new(crate::dictionary::load(&connection).unwrap()));
        let chunks = Arc::new(RwLock::new(Chunks::load(&connection).unwrap()));
        let live = Arc::new(RwLock::new(LiveIndex::default()));
        let seal = id_seal(schema::id_key(&connection).unwrap());
        Self {
            engine: Engine::new(EngineOptions::default()),
            records: SqliteRecords::new(connection, names, live, chunks, seal, ahead).unwrap(),
            rng: SeededRng::new(1),
            effects: Vec::new(),
            beside: location.open(Role::Reader).unwrap(),
            asked,
            answers: sender,
            late: Vec::new(),
            _directory: directory,
        }
    }

    /// One batch, as the writer does it.
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

    /// Nothing is left in the writer's own cache.
    fn cool_down(&mut self) {
        self.records.drain_prefetched();
        let shelf = std::mem::take(&mut self.records.ahead.shelf);
        self.records.rolled_back();
        self.records.ahead.shelf = shelf;
    }

    /// A claim of one of several kinds, which share their jobs.
    fn claim_some_way(&mut self, limit: usize, rng: &mut dyn Rng) -> Vec<Claimed> {
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
        let submitted = self.batch(|engine, outside| engine.submit(&request, outside).unwrap().unwrap());
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
        self.batch(|engine, outside| engine.settle(&settlement, outside)).unwrap().unwrap();
    }

    fn admin(&mut self, command: &AdminCommand) {
        drop(self.batch(|engine, outside| engine.admin(command, outside)).unwrap());
    }

    fn correlate(&mut self, id: JobId, word: &str) {
        let edit = Edit { correlation_id: Some(Some(word.into())), ..Edit::default() };
        self.admin(&AdminCommand::Edit { id, edit });
    }

    /// The thread reads what it was asked for; nobody hears of it yet.
    fn read_beside(&mut self) {
        let (sender, answers) = channel();
        for question in self.asked.try_iter() {
            answer(&self.beside, question, &sender, &std::sync::Mutex::new(())).unwrap();
        }
        self.late.extend(answers.try_iter());
    }

    fn hand_over(&mut self) {
        for answer in self.late.drain(..) {
            self.answers.send(answer).unwrap();
        }
    }

    fn held(&self) -> (Vec<Job>, Vec<(Seq, Payload)>) {
        let names = self.records.names();
        self.records.ahead.shelf.all(&|seq, record| codec::job::decode_unchecked(seq, record, &names))
    }

    /// What is held is what the table says, and nothing is held twice. Answers how many records are held.
    fn check(&self) -> usize {
        let mut held = BTreeSet::new();
        let (jobs, payloads) = self.held();
        for job in jobs {
            let seq = job.seq;
            assert_eq!(self.records.read(seq).unwrap(), Some(job), "job {seq} as it is on disk");
            assert!(!self.records.jobs.contains_key(&seq), "job {seq} is held once");
            assert!(held.insert(seq), "job {seq} is held once");
        }
        let mut with_payload = BTreeSet::new();
        for (seq, payload) in payloads {
            let there = read_payload(&self.records.connection, seq).unwrap();
            assert!(there.is_none_or(|there| there == payload), "the payload of job {seq} as it is on disk");
            assert!(with_payload.insert(seq), "the payload of job {seq} is held once");
        }
        held.len()
    }
}

#[test]
fn a_record_that_changed_after_it_was_read_is_not_used() {
    let mut bench = Bench::new();
    let ids = bench.submit(8, 16);
    bench.cool_down();
    bench.claim(1);
    bench.read_beside();
    bench.correlate(ids[1], "new");
    bench.hand_over();
    bench.cool_down();
    assert!(bench.check() > 0, "the others are taken in");
    let claimed = bench.claim(1);
    assert_eq!((claimed[0].id, claimed[0].correlation_id.as_deref()), (ids[1], Some("new")));
}

#[test]
fn a_record_is_let_go_as_soon_as_it_is_used() {
    let mut bench = Bench::new();
    let ids = bench.submit(8, 16);
    bench.cool_down();
    bench.claim(1);
    bench.read_beside();
    bench.hand_over();
    bench.correlate(ids[1], "new");
    bench.cool_down();
    bench.check();
    let claimed = bench.claim(1);
    assert_eq!((claimed[0].id, claimed[0].correlation_id.as_deref()), (ids[1], Some("new")));
}

/// Whatever happens between question, reading and answer.
#[test]
fn what_is_held_is_what_the_table_says_in_random_histories() {
    let (mut held, mut refused) = (0, 0);
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
                    running.extend(bench.claim_some_way(limit, rng));
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
                7 => bench.read_beside(),
                8 => {
                    let late: usize = bench.late.iter().map(RecordBlock::records).sum();
                    let before = bench.check();
                    bench.hand_over();
                    bench.records.drain_prefetched();
                    refused += late - (bench.check() - before);
                }
                9 => drop(bench.records.decode_prefetched()),
                _ => bench.cool_down(),
            }
            held += bench.check();
        }
    }
    assert!(held > 100 && refused > 10, "both happen: {held} held, {refused} refused");
}

#[test]
fn claims_from_a_long_line_find_their_records_in_memory() {
    let mut bench = Bench::new();
    for _ in 0..30 {
        bench.submit(1_000, 16);
    }
    bench.cool_down();
    let mut last = Seq(0);
    for _ in 0..120 {
        for job in bench.claim(250) {
            assert!(job.seq > last, "in order");
            last = job.seq;
        }
        bench.read_beside();
        bench.hand_over();
        assert!(bench.records.ahead.shelf.parts() <= 2 * WINDOW);
    }
    assert!(last >= Seq(30_000), "all of them");
    assert!(bench.records.point_reads <= 250, "{} were looked up one by one", bench.records.point_reads);
}

#[test]
fn large_payloads_are_held_within_bounds() {
    let mut bench = Bench::new();
    for _ in 0..20 {
        bench.submit(16, 256 << 10);
    }
    bench.cool_down();
    let mut most = 0;
    for _ in 0..20 {
        bench.claim(16);
        bench.read_beside();
        bench.hand_over();
        bench.records.drain_prefetched();
        let (_, payloads) = bench.held();
        let held: usize = payloads.iter().map(|(_, payload)| payload.bytes().len()).sum();
        assert!(held <= BYTES_MAX, "{held} bytes");
        assert!((held..=BYTES_MAX).contains(&bench.records.ahead.shelf.bytes()), "the sum is kept");
        most = most.max(payloads.len());
    }
    assert!(most > 16, "more than one claim wants: {most}");
}

#[test]
fn damage_is_left_for_the_writer_to_find() {
    let mut bench = Bench::new();
    bench.submit(16, 16);
    bench.records.connection().execute_batch("UPDATE live SET record = zeroblob(99) WHERE seq = 3").unwrap();
    bench.cool_down();
    bench.claim(1);
    bench.read_beside();
    bench.hand_over();
    assert_eq!(bench.claim(1).len(), 1, "the others can be had");
    assert!(matches!(bench.try_claim(1), Err(RecordsError::Damaged(Seq(3)))));
}
