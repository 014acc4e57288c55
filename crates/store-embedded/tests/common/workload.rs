//! The workload: batches that are reproducible from their name, and workers that settle their jobs
//! in many ways.

use std::io::Write as _;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use bytes::Bytes;
use longshore_core::cancel::Force;
use longshore_core::claim::ClaimOptions;
use longshore_core::edit::Edit;
use longshore_core::failure::{ReportedCategory, ReportedFailure};
use longshore_core::heartbeat::HeartbeatData;
use longshore_core::id::{JobId, JobType, QueueName};
use longshore_core::requeue::{Requeue, Reset};
use longshore_core::rng::{Rng as _, SeededRng};
use longshore_core::settle::Outcome;
use longshore_core::state::StateKind;
use longshore_core::submit::{DependencyRef, NewJob, Payload};
use longshore_core::tags::Tags;
use longshore_engine::{
    AdminCommand, AdminResponse, ClaimRequest, Heartbeat, Settlement, Submission, SubmitRequest, Submitted,
};
use longshore_store::{ClaimedJob, Store as _};
use longshore_store_embedded::EmbeddedStore;
use longshore_testkit::block_on::block_on;

use super::between;

pub(crate) const SUBMITTERS: u64 = 4;
const WORKERS: u64 = 3;
/// Errors of the store before a thread gives up.
const ERRORS_MAX: usize = 10;
/// Exit code of a process whose store is poisoned.
pub(crate) const POISONED: i32 = 70;
/// Exit code of a process whose store does not open.
pub(crate) const NOT_OPENED: i32 = 71;

/// In this kind of cycle the WAL grows so fast that checkpoints run during the workload.
pub(crate) fn heavy(cycle: u64) -> bool {
    cycle % 40 == HEAVY
}

/// First cycle of this kind.
pub(crate) const HEAVY: u64 = 39;

/// Name of a batch, which determines its contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct BatchName {
    pub(crate) cycle: u64,
    pub(crate) thread: u64,
    pub(crate) number: u64,
}

impl std::fmt::Display for BatchName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}-{}", self.cycle, self.thread, self.number)
    }
}

impl BatchName {
    fn rng(self, salt: u64) -> SeededRng {
        let mixed = [self.thread, self.number, salt].into_iter().fold(self.cycle, |seed, part| {
            let mut rng = SeededRng::new(seed.wrapping_mul(31).wrapping_add(part));
            rng.next_u64()
        });
        SeededRng::new(mixed)
    }

    pub(crate) fn size(self) -> u64 {
        between(&mut self.rng(0), 1, 8)
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-').map(str::parse);
        let mut next = || parts.next()?.ok();
        Some(Self { cycle: next()?, thread: next()?, number: next()? })
    }

    pub(crate) fn payload(self, index: u64) -> Payload {
        let mut rng = self.rng(1 + index);
        let length = if heavy(self.cycle) { 48 << 10 } else { between(&mut rng, 0, 400) };
        let words = (0..=length / 8).flat_map(|_| rng.next_u64().to_le_bytes());
        let bytes: Vec<u8> = words.take(usize::try_from(length).expect("a length")).collect();
        if index.is_multiple_of(2) {
            Payload::Binary(Bytes::from(bytes))
        } else {
            Payload::Json(Bytes::from(format!("{{\"key\":\"{self}-{index}\"}}")))
        }
    }

    fn tags(self) -> Tags {
        Tags::Map([("batch".into(), Some(self.to_string().into()))].into())
    }

    /// In some batches the last job depends on the first.
    pub(crate) fn request(self) -> SubmitRequest {
        let one = |index| {
            let mut job = NewJob::new(JobType::new("load").expect("a type"), self.payload(index));
            job.idempotency_key = Some(format!("{self}-{index}").into());
            job.tags = self.tags();
            if self.number % 3 == 1 && index > 0 && index + 1 == self.size() {
                job.after = vec![DependencyRef::BatchIndex(0)];
            }
            Submission { queue: queue(if self.thread.is_multiple_of(2) { "even" } else { "odd" }), job }
        };
        SubmitRequest::new((0..self.size()).map(one).collect())
    }
}

pub(crate) fn queue(name: &str) -> QueueName {
    QueueName::new(name).expect("a name")
}

/// Returns the payload of a job by its key.
pub(crate) fn payload_of_key(key: &str) -> Option<Payload> {
    let (batch, index) = key.rsplit_once('-')?;
    Some(BatchName::parse(batch)?.payload(index.parse().ok()?))
}

/// Prints one line about an acknowledged change, before the next request.
fn tell(line: &str) {
    let mut out = std::io::stdout().lock();
    if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
        std::process::exit(3);
    }
}

/// State that the threads of a workload share.
struct Scene<'a> {
    store: &'a EmbeddedStore,
    cycle: u64,
    /// Batches per submitter before the workload ends.
    batches: u64,
    /// All submitters are done.
    done: AtomicBool,
}

/// A thread's handle of the store. Reports unexpected answers.
struct Asker<'a> {
    store: &'a EmbeddedStore,
    errors: usize,
}

/// Result of a request without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unanswered {
    NotApplied,
    Unknown,
}

impl Asker<'_> {
    fn ask<T>(
        &mut self,
        call: impl FnOnce(&EmbeddedStore) -> longshore_store::StoreFuture<'_, T>,
    ) -> Result<T, Unanswered> {
        let poisoned = self.store.poisoned();
        match block_on(call(self.store)) {
            Ok(answer) => {
                if poisoned {
                    tell("wrong: an answer from a poisoned store");
                }
                Ok(answer)
            }
            Err(error) => {
                self.errors += 1;
                let unknown = error.may_have_applied();
                if poisoned && unknown {
                    tell("wrong: a poisoned store does not know what it did");
                }
                tell(&format!("error {} {error}", if unknown { "unknown" } else { "not-applied" }));
                Err(if unknown { Unanswered::Unknown } else { Unanswered::NotApplied })
            }
        }
    }

    fn tired(&self) -> bool {
        self.errors >= ERRORS_MAX
    }
}

/// Runs until the process is killed, the store fails, or each submitter has sent its batches.
pub(crate) fn run(directory: &Path, cycle: u64, batches: u64) {
    // The test runner may have printed a partial line.
    tell("");
    let store = match super::open(directory) {
        Ok(store) => store,
        Err(error) => {
            tell(&format!("error open {error}"));
            std::process::exit(NOT_OPENED);
        }
    };
    tell("open");
    let watch = store.wait_poisoned();
    let watcher = thread::Builder::new().spawn(|| {
        let poisoned = block_on(watch);
        if poisoned {
            tell("poisoned");
        }
        poisoned
    });
    play(&Scene { store: &store, cycle, batches, done: AtomicBool::new(false) });
    drop(store);
    if watcher.expect("a thread").join().expect("it ends") {
        std::process::exit(POISONED);
    }
    tell("end");
}

fn play(scene: &Scene<'_>) {
    let (failed, to_operate) = channel();
    thread::scope(|scope| {
        for worker in 0..WORKERS {
            let failed = failed.clone();
            scope.spawn(move || work(scene, worker, &failed));
        }
        drop(failed);
        scope.spawn(move || operate(scene, &to_operate));
        scope.spawn(|| {
            let mut asker = Asker { store: scene.store, errors: 0 };
            while !asker.tired() && !scene.done.load(Ordering::SeqCst) {
                let budget = NonZeroUsize::new(50).expect("not zero");
                let _ = asker.ask(|store| store.tick(budget));
                thread::yield_now();
            }
        });
        let submitters: Vec<_> = (0..SUBMITTERS).map(|thread| scope.spawn(move || submit(scene, thread))).collect();
        submitters.into_iter().for_each(|submitter| submitter.join().expect("it ends"));
        scene.done.store(true, Ordering::SeqCst);
    });
}

fn submit(scene: &Scene<'_>, thread: u64) {
    let mut asker = Asker { store: scene.store, errors: 0 };
    for number in 0..scene.batches {
        let name = BatchName { cycle: scene.cycle, thread, number };
        match asker.ask(|store| store.submit(name.request())) {
            Ok(Ok(submitted)) => {
                let seqs: Vec<String> = submitted.iter().map(|one| one.seq.to_string()).collect();
                tell(&format!("submitted {name} {}", seqs.join(" ")));
                change(&mut asker, name, &submitted);
            }
            Ok(Err(refusal)) => tell(&format!("wrong: a batch was refused: {refusal:?}")),
            Err(Unanswered::NotApplied) => tell(&format!("refused {name}")),
            Err(Unanswered::Unknown) => {}
        }
        if asker.tired() {
            return;
        }
    }
}

/// Deletes or edits some jobs right after their submission.
fn change(asker: &mut Asker<'_>, name: BatchName, submitted: &[Submitted]) {
    let (Some(first), Some(last)) = (submitted.first(), submitted.last()) else { return };
    match name.number % 5 {
        2 => {
            let Tags::Map(mut tags) = name.tags() else { return };
            tags.insert("edited".into(), None);
            let edit = Edit { tags: Some(Tags::Map(tags)), ..Edit::default() };
            if let Ok(Ok(_)) = asker.ask(|store| store.admin(AdminCommand::Edit { id: first.id, edit })) {
                tell(&format!("edited {}", first.seq));
            }
        }
        4 => {
            let cancel = AdminCommand::Cancel { id: last.id, reason: None, force: Force::ByPolicy };
            if let Ok(Ok(AdminResponse::State { .. })) = asker.ask(|store| store.admin(cancel)) {
                tell(&format!("cancelled {}", last.seq));
            }
        }
        _ => {}
    }
}

/// A failed job and its lease version.
struct Failed {
    id: JobId,
    seq: u64,
    version: u64,
}

/// Operators who repair failed jobs. They print each operation first, because its effects may be
/// visible before its answer.
fn operate(scene: &Scene<'_>, failed: &Receiver<Failed>) {
    let (mut asker, mut rng) = (Asker { store: scene.store, errors: 0 }, SeededRng::new(scene.cycle));
    // The channel stays open after the operators have stopped; later messages are ignored.
    for Failed { id, seq, version } in failed {
        if asker.tired() {
            continue;
        }
        match between(&mut rng, 0, 9) {
            0..5 => {
                tell(&format!("requeueing {seq}:{version}"));
                let how = Requeue { counters: Reset::Keep, run_at: None };
                if let Ok(Ok(_)) = asker.ask(|store| store.admin(AdminCommand::Requeue { id, how })) {
                    tell(&format!("requeued {seq}:{version}"));
                }
            }
            5..8 => {
                tell(&format!("deleting {seq}"));
                if let Ok(Ok(_)) = asker.ask(|store| store.admin(AdminCommand::Delete { id })) {
                    tell(&format!("deleted {seq}"));
                }
            }
            _ => {}
        }
    }
}

fn work(scene: &Scene<'_>, worker: u64, failed: &Sender<Failed>) {
    let (mut asker, mut rng) = (Asker { store: scene.store, errors: 0 }, SeededRng::new(scene.cycle * 100 + worker));
    while !asker.tired() && !scene.done.load(Ordering::SeqCst) {
        let limit = usize::try_from(between(&mut rng, 1, 8)).expect("small");
        let queues = vec![queue("even"), queue("odd")];
        let request = ClaimRequest { queues, limit, types: Vec::new(), terms: ClaimOptions::default() };
        let Ok(Ok(claimed)) = asker.ask(|store| store.claim(request)) else { continue };
        if claimed.is_empty() {
            thread::yield_now();
            continue;
        }
        let key = |job: &ClaimedJob| job.claimed.idempotency_key.as_deref().unwrap_or_default().to_owned();
        let jobs: Vec<String> = claimed.iter().map(|job| format!("{}:{}", pair(job), key(job))).collect();
        tell(&format!("claimed {}", jobs.join(" ")));
        for job in &claimed {
            if job.claimed.idempotency_key.as_deref().and_then(payload_of_key).as_ref() != Some(&job.payload) {
                tell(&format!("wrong: the payload of job {}", job.claimed.seq));
            }
        }
        let heartbeats = between(&mut rng, 0, 2);
        for beat in 1..=heartbeats {
            extend(&mut asker, &claimed, beat);
        }
        settle(&mut asker, &claimed, &mut rng, failed);
    }
}

fn pair(job: &ClaimedJob) -> String {
    format!("{}:{}", job.claimed.seq, job.claimed.version.0)
}

fn extend(asker: &mut Asker<'_>, claimed: &[ClaimedJob], beat: u64) {
    let heartbeat = |job: &ClaimedJob| {
        let progress = Some(Bytes::from(format!("{} {beat}", job.claimed.version.0)));
        let notes = HeartbeatData { progress, checkpoint: None };
        Heartbeat { id: job.claimed.id, token: Some(job.claimed.token), notes }
    };
    let heartbeats = claimed.iter().map(heartbeat).collect();
    let Ok(verdicts) = asker.ask(|store| store.heartbeat(heartbeats)) else { return };
    let kept = claimed.iter().zip(verdicts).filter(|(_, verdict)| verdict.is_ok());
    let lines: Vec<String> = kept.map(|(job, _)| format!("{}:{beat}", pair(job))).collect();
    tell(&format!("extended {}", lines.join(" ")));
}

fn settle(asker: &mut Asker<'_>, claimed: &[ClaimedJob], rng: &mut SeededRng, failed: &Sender<Failed>) {
    let mut settled = Vec::new();
    for job in claimed {
        let outcome = match between(rng, 0, 99) {
            0..70 => Outcome::Complete { result: Some(Bytes::from(pair(job))), progress: None },
            70..80 => Outcome::Fail(ReportedFailure::new(ReportedCategory::Temporary, "not now")),
            80..90 => Outcome::Fail(ReportedFailure::new(ReportedCategory::Permanent, "never")),
            90..95 => Outcome::Release,
            // Simulates a worker that crashes.
            _ => continue,
        };
        settled.push((job, Settlement { id: job.claimed.id, token: Some(job.claimed.token), outcome }));
    }
    let settlements = settled.iter().map(|(_, settlement)| settlement.clone()).collect();
    let Ok(verdicts) = asker.ask(|store| store.settle(settlements)) else { return };
    let kept: Vec<_> =
        settled.iter().zip(verdicts).filter_map(|((job, _), verdict)| Some((job, verdict.ok()?))).collect();
    let lines: Vec<String> = kept.iter().map(|(job, state)| format!("{}:{}", pair(job), state.as_str())).collect();
    tell(&format!("settled {}", lines.join(" ")));
    for (job, state) in kept {
        if matches!(state, StateKind::Failed | StateKind::DeadLetter) {
            let (seq, version) = (job.claimed.seq.0, job.claimed.version.0);
            drop(failed.send(Failed { id: job.claimed.id, seq, version }));
        }
    }
}

/// Repeats a batch, which exists completely or not at all. Returns whether it existed, and its
/// numbers.
pub(crate) fn ask_again(store: &EmbeddedStore, name: BatchName) -> (bool, Vec<u64>) {
    let submitted = block_on(store.submit(name.request())).expect("the store takes it").expect("the rules allow it");
    let known = submitted.iter().filter(|one| one.duplicate).count();
    assert!(known == 0 || known == submitted.len(), "batch {name}: {known} of {} were there", submitted.len());
    (known > 0, submitted.iter().map(|one| one.seq.0).collect())
}

/// Checks a payload against the submitted one.
pub(crate) fn assert_payload(job: &longshore_core::job::Job, payload: Option<&Payload>) {
    let key = job.idempotency.as_ref().map(|key| Arc::clone(&key.key)).expect("every job of the load has a key");
    let expected = payload_of_key(&key).expect("a key of the load");
    assert!(payload == Some(&expected), "the payload of job {} ({key}) is another one", job.seq);
}

/// Reads payloads and checks them against the submitted ones.
pub(crate) fn assert_payloads(store: &EmbeddedStore, jobs: &[Arc<longshore_core::job::Job>]) {
    let payloads = super::payloads_of(store, jobs).expect("payloads can be read");
    for (job, payload) in jobs.iter().zip(payloads) {
        assert_payload(job, payload.as_ref());
    }
}
