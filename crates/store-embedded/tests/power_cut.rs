//! Simulated power cuts (F03): everything after the last sync may be lost, also in part and out of
//! order. Claims, plain heartbeats and ticks are not synced before their replies.
//!
//! Each round runs requests on a store whose disk is watched, and cuts the power at a random write
//! or sync. The next round continues on what survived. `POWER_CUTS` is the number of rounds,
//! `FIRST_SEED` the first seed.

#![expect(clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "a test says no by panicking")]

mod common;

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use longshore_core::cancel::Force;
use longshore_core::claim::ClaimOptions;
use longshore_core::heartbeat::HeartbeatData;
use longshore_core::id::{JobId, JobType};
use longshore_core::rng::SeededRng;
use longshore_core::settle::Outcome;
use longshore_core::state::StateKind;
use longshore_core::submit::{NewJob, Payload};
use longshore_core::time::{Duration, Timestamp};
use longshore_engine::{AdminCommand, AdminResponse, ClaimRequest, Heartbeat, Settlement, Submission, SubmitRequest};
use longshore_store::{ClaimedJob, Store as _, VirtualClock};
use longshore_store_embedded::{ClockMode, EmbeddedOptions, EmbeddedStore, StoreLocation, examine};
use longshore_testkit::block_on::block_on;

use common::history::{Acknowledged, HeldLease, History, checkpoint};
use common::power::SimulatedDisk;
use common::workload::queue;
use common::{between, fast_directory};

/// Rounds on one store before a new one starts.
const ROUNDS_PER_STORE: u64 = 25;
const START: Timestamp = Timestamp::from_millis(1_800_000_000_000);

/// What the rounds have exercised.
#[derive(Debug, Default)]
struct Totals {
    cuts: AtomicU64,
    lost_changes: AtomicU64,
    claims: AtomicU64,
    lost_claims: AtomicU64,
}

/// One store over many lives.
struct Simulation {
    directory: tempfile::TempDir,
    clock: Arc<VirtualClock>,
    rng: SeededRng,
    history: History,
    sync_claims: bool,
    /// Checkpoints of all lives have increasing numbers.
    next_checkpoint: u64,
}

impl Simulation {
    fn new(seed: u64) -> Self {
        Self {
            directory: fast_directory(),
            clock: Arc::new(VirtualClock::new(START)),
            rng: SeededRng::new(seed),
            history: History::default(),
            sync_claims: seed % 5 == 4,
            next_checkpoint: 1,
        }
    }

    fn options(&self, disk: &Arc<SimulatedDisk>) -> EmbeddedOptions {
        let place = StoreLocation::Directory(self.directory.path().canonicalize().expect("a directory"));
        EmbeddedOptions {
            reserve_bytes: 0,
            reader_threads: 1,
            sync_claims: self.sync_claims,
            wal_chunk_bytes: 1 << 14,
            // Checkpoints run during the rounds.
            checkpoint_pages: 60,
            disk_observer: Some(disk.clone()),
            ..EmbeddedOptions::new(place, self.clock.clone(), ClockMode::Real)
        }
    }

    /// Opens the store, runs requests, cuts the power, and keeps what survived.
    fn run_round(&mut self, totals: &Totals) {
        let cut_at = match between(&mut self.rng, 0, 9) {
            0 => between(&mut self.rng, 0, 20),
            _ => between(&mut self.rng, 10, 250),
        };
        let home = self.directory.path().canonicalize().expect("a directory");
        let disk = Arc::new(SimulatedDisk::new(&home, cut_at, between(&mut self.rng, 0, u64::MAX - 1)));
        let store = match EmbeddedStore::open(self.options(&disk)) {
            Ok(store) => store,
            // The cut interrupted the creation of the store: its files are refused, not guessed at.
            Err(_) if self.history.is_empty() => {
                self.directory = fast_directory();
                return;
            }
            Err(error) => panic!("the store opens after a power cut: {error}"),
        };
        self.history.assert_survives(&store);
        let mut life = Life {
            store: &store,
            disk: &disk,
            clock: &self.clock,
            rng: &mut self.rng,
            held: self.history.latest_leases(),
            jobs: Vec::new(),
            acknowledged: Vec::new(),
            next_checkpoint: &mut self.next_checkpoint,
        };
        life.run();
        let acknowledged = std::mem::take(&mut life.acknowledged);
        // Sometimes a clean stop, and then a power cut.
        let is_clean = between(&mut self.rng, 0, 19) == 0;
        let early = (!is_clean).then(|| disk.cut());
        drop(store);
        let cut = early.unwrap_or_else(|| disk.cut());
        let known = &acknowledged[..cut.acknowledged.min(acknowledged.len())];
        self.history.add(known);
        let claims = known.iter().filter(|change| matches!(change, Acknowledged::Claimed { .. })).count();
        totals.cuts.fetch_add(1, Ordering::Relaxed);
        totals.lost_changes.fetch_add(cut.lost as u64, Ordering::Relaxed);
        totals.claims.fetch_add(claims as u64, Ordering::Relaxed);
        self.directory = fast_directory();
        cut.restore(self.directory.path());
        self.clock.advance(Duration::from_millis(between(&mut self.rng, 0, 3_000)));
        self.count_lost_claims(totals);
    }

    /// Counts the claims that the cut has undone, to show that the rounds test something.
    fn count_lost_claims(&mut self, totals: &Totals) {
        if between(&mut self.rng, 0, 9) != 0 {
            return;
        }
        let copy = common::copy_of(self.directory.path());
        let diagnosis = match examine(copy.path()) {
            Ok(diagnosis) => diagnosis,
            // The cut interrupted the creation of the store, as in `run_round`.
            Err(_) if self.history.is_empty() => return,
            Err(error) => panic!("the store can be examined: {error}"),
        };
        assert_eq!(diagnosis.problems, Vec::<String>::new());
        let place = StoreLocation::Directory(copy.path().canonicalize().expect("a directory"));
        let options = EmbeddedOptions {
            reserve_bytes: 0,
            ..EmbeddedOptions::new(place, Arc::new(VirtualClock::new(START)), ClockMode::Real)
        };
        let store = EmbeddedStore::open(options).expect("the copy opens");
        let lost = self.history.count_lost_leases(&store);
        totals.lost_claims.fetch_add(lost, Ordering::Relaxed);
    }
}

/// Requests between a start and a power cut.
struct Life<'a> {
    store: &'a EmbeddedStore,
    disk: &'a SimulatedDisk,
    clock: &'a VirtualClock,
    rng: &'a mut SeededRng,
    held: Vec<HeldLease>,
    jobs: Vec<JobId>,
    acknowledged: Vec<Acknowledged>,
    next_checkpoint: &'a mut u64,
}

impl Life<'_> {
    fn run(&mut self) {
        for _ in 0..between(self.rng, 10, 60) {
            if self.disk.is_cut() {
                return;
            }
            match between(self.rng, 0, 99) {
                0..20 => self.submit(),
                20..50 => self.claim(),
                50..60 => self.heartbeat(false),
                60..66 => self.heartbeat(true),
                66..80 => self.complete(),
                80..84 => self.cancel(),
                84..92 => self.tick(),
                92..96 => self.submit_and_claim(),
                _ => {
                    self.clock.advance(Duration::from_millis(between(self.rng, 1, 1_500)));
                }
            }
        }
    }

    fn acknowledge(&mut self, change: Acknowledged) {
        // The list grows first: the disk counts only what the list holds.
        self.acknowledged.push(change);
        self.disk.acknowledge();
    }

    fn request(&mut self) -> SubmitRequest {
        let count = between(self.rng, 1, 3);
        let one = |_| {
            let payload =
                Payload::Binary(Bytes::from(vec![7; usize::try_from(between(self.rng, 0, 900)).expect("small")]));
            Submission { queue: queue("even"), job: NewJob::new(JobType::new("load").expect("a type"), payload) }
        };
        SubmitRequest::new((0..count).map(one).collect())
    }

    fn claim_request(&mut self) -> ClaimRequest {
        let lease = Some(Duration::from_millis(between(self.rng, 200, 4_000)));
        ClaimRequest {
            queues: vec![queue("even")],
            limit: usize::try_from(between(self.rng, 1, 3)).expect("small"),
            types: Vec::new(),
            terms: ClaimOptions { lease, ..ClaimOptions::default() },
        }
    }

    fn submit(&mut self) {
        let request = self.request();
        let submitted = block_on(self.store.submit(request)).expect("the store answers").expect("the rules allow it");
        submitted.iter().for_each(|job| self.add_submitted(job.id));
    }

    fn add_submitted(&mut self, id: JobId) {
        self.jobs.push(id);
        self.acknowledge(Acknowledged::Submitted { id });
    }

    fn claim(&mut self) {
        let request = self.claim_request();
        let claimed = block_on(self.store.claim(request)).expect("the store answers").expect("the rules allow it");
        self.add_claimed(&claimed);
    }

    fn add_claimed(&mut self, claimed: &[ClaimedJob]) {
        for ClaimedJob { claimed, .. } in claimed {
            let (id, token) = (claimed.id, claimed.token);
            self.held.retain(|lease| lease.id != id);
            self.held.push(HeldLease { id, token });
            self.acknowledge(Acknowledged::Claimed { id, version: claimed.version.0, token });
        }
    }

    /// Both requests may share a commit.
    fn submit_and_claim(&mut self) {
        let (submit, claim) = (self.request(), self.claim_request());
        let (submitted, claimed) = std::thread::scope(|scope| {
            let submitting = scope.spawn(|| block_on(self.store.submit(submit)));
            let claimed = block_on(self.store.claim(claim));
            (submitting.join().expect("it ends"), claimed)
        });
        let submitted = submitted.expect("the store answers").expect("the rules allow it");
        submitted.iter().for_each(|job| self.add_submitted(job.id));
        self.add_claimed(&claimed.expect("the store answers").expect("the rules allow it"));
    }

    fn pick_lease(&mut self) -> Option<HeldLease> {
        let last = u64::try_from(self.held.len()).ok()?.checked_sub(1)?;
        let index = usize::try_from(between(self.rng, 0, last)).ok()?;
        self.held.get(index).copied()
    }

    fn heartbeat(&mut self, has_checkpoint: bool) {
        let Some(HeldLease { id, token }) = self.pick_lease() else { return };
        *self.next_checkpoint += 1;
        let number = *self.next_checkpoint;
        let notes = HeartbeatData { progress: None, checkpoint: has_checkpoint.then(|| checkpoint(number)) };
        let heartbeat = Heartbeat { id, token: Some(token), notes };
        let verdicts = block_on(self.store.heartbeat(vec![heartbeat])).expect("the store answers");
        match (verdicts.first().expect("a verdict"), has_checkpoint) {
            (Ok(_), true) => self.acknowledge(Acknowledged::Checkpointed { id, number }),
            (Ok(_), false) => self.acknowledge(Acknowledged::Nothing),
            (Err(_), _) => self.held.retain(|lease| lease.token != token),
        }
    }

    fn complete(&mut self) {
        let Some(HeldLease { id, token }) = self.pick_lease() else { return };
        self.held.retain(|lease| lease.token != token);
        let outcome = Outcome::Complete { result: None, progress: None };
        let settlement = Settlement { id, token: Some(token), outcome };
        let verdicts = block_on(self.store.settle(vec![settlement])).expect("the store answers");
        if verdicts.first().expect("a verdict").is_ok() {
            self.acknowledge(Acknowledged::Completed { id });
        }
    }

    fn cancel(&mut self) {
        let Some(id) = self.jobs.pop() else { return };
        let command = AdminCommand::Cancel { id, reason: None, force: Force::ByPolicy };
        if let Ok(AdminResponse::State { id, state: StateKind::Cancelled }) =
            block_on(self.store.admin(command)).expect("the store answers")
        {
            self.held.retain(|lease| lease.id != id);
            self.acknowledge(Acknowledged::Cancelled { id });
        }
    }

    fn tick(&mut self) {
        let budget = NonZeroUsize::new(50).expect("not zero");
        let _ticked = block_on(self.store.tick(budget)).expect("the store answers");
        self.acknowledge(Acknowledged::Nothing);
    }
}

/// No acknowledged change is lost, no lease version is granted twice, and replaced tokens stay
/// invalid.
/// Rules What is synced.
#[test]
fn acknowledged_changes_survive_power_cuts() {
    let number =
        |name: &str, default: u64| std::env::var(name).map_or(default, |value| value.parse().expect("a number"));
    let (cuts, first_seed) = (number("POWER_CUTS", 300), number("FIRST_SEED", 0));
    let stores = cuts.div_ceil(ROUNDS_PER_STORE);
    let (next, totals) = (AtomicU64::new(0), Totals::default());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let store = next.fetch_add(1, Ordering::Relaxed);
                    if store >= stores {
                        return;
                    }
                    let seed = first_seed + store;
                    let mut simulation = Simulation::new(seed);
                    for round in 0..ROUNDS_PER_STORE {
                        let run = std::panic::AssertUnwindSafe(|| simulation.run_round(&totals));
                        if let Err(panic) = std::panic::catch_unwind(run) {
                            println!("seed {seed}, round {round}");
                            std::panic::resume_unwind(panic);
                        }
                    }
                }
            });
        }
    });
    println!("{totals:?}");
    let simulated = totals.cuts.into_inner();
    assert!(simulated >= cuts * 9 / 10, "{simulated} of {cuts}");
    assert!(totals.lost_changes.into_inner() > 0 && totals.claims.into_inner() > 0);
    assert!(totals.lost_claims.into_inner() > 0, "claims were lost: the rounds test their loss");
}
