//! Threads that race for the same resource, started at the same instant.

use std::collections::{BTreeSet, HashSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Barrier, mpsc};

use longshore_core::Duration;
use longshore_core::cancel::Force;
use longshore_core::failure::ReportedCategory;
use longshore_core::id::JobId;
use longshore_core::patch::SettingsPatch;
use longshore_core::profile::Profile;
use longshore_core::settle::Outcome;
use longshore_core::state::StateKind;
use longshore_core::submit::NewJob;
use longshore_engine::{Claimed, Submission, SubmitRequest};
use longshore_store::{JobFilter, JobRef, Store};

use super::harness::*;

/// Runs the same closure on many threads at once. Returns the results by thread number.
fn race<T: Send>(h: &Harness, threads: usize, run: impl Fn(usize, &dyn Store) -> T + Sync) -> Vec<T> {
    let (start, store) = (Barrier::new(threads), &**h.store());
    std::thread::scope(|scope| {
        let racer = |number| {
            let (start, run) = (&start, &run);
            scope.spawn(move || {
                start.wait();
                run(number, store)
            })
        };
        let racers: Vec<_> = (0..threads).map(racer).collect();
        racers.into_iter().map(|racer| racer.join().expect("no racer fell")).collect()
    })
}

fn batch(name: &str, jobs: Vec<NewJob>) -> SubmitRequest {
    SubmitRequest::new(jobs.into_iter().map(|job| Submission { queue: queue(name), job }).collect())
}

pub(super) fn concurrent_submits_share_one_key(h: &mut Harness) {
    for round in 0..3 {
        let answers = race(h, 64, |_, store| {
            answered(store.submit(batch("q", vec![keyed(&format!("key {round}"))]))).unwrap().remove(0)
        });
        let ids: HashSet<JobId> = answers.iter().map(|answer| answer.id).collect();
        assert_eq!(ids.len(), 1, "one key, one job");
        assert_eq!(answers.iter().filter(|answer| !answer.duplicate).count(), 1, "and one of them made it");
    }
    assert_eq!(h.jobs().len(), 3);
}

pub(super) fn concurrent_submits_share_one_external_id(h: &mut Harness) {
    h.put_queue("q", Profile::Weave);
    let answers = race(h, 16, |_, store| {
        answered(store.submit(batch("q", vec![work_with(|job| job.external_id = Some("x".into()))])))
    });
    let won = answers.iter().filter(|answer| answer.is_ok()).count();
    assert_eq!((won, h.jobs().len()), (1, 1));
    assert!(answers.iter().flat_map(|answer| answer.as_ref().err()).all(|lost| lost.first.code() == "duplicate_id"));
}

pub(super) fn concurrent_submits_respect_queue_limit(h: &mut Harness) {
    let bounded = SettingsPatch { max_queued: Some(Some(10)), ..SettingsPatch::default() };
    h.put_queue_with("q", Profile::Standard, bounded);
    let answers = race(h, 16, |_, store| {
        let submit = |_| answered(store.submit(batch("q", vec![work()]))).map_err(|refused| refused.first.code());
        (0..4).map(submit).collect::<Vec<_>>()
    });
    let all: Vec<_> = answers.into_iter().flatten().collect();
    assert_eq!(all.iter().filter(|answer| answer.is_ok()).count(), 10);
    assert!(all.iter().flat_map(|answer| answer.as_ref().err()).all(|code| *code == "queue_full"));
    assert_eq!(h.count("q", StateKind::Scheduled), 10);
}

pub(super) fn concurrent_claims_are_disjoint(h: &mut Harness) {
    let submitted: BTreeSet<JobId> = h.submit_all("q", vec![work(); 600]).iter().map(|job| job.id).collect();
    let claimed = race(h, 8, |number, store| {
        let mut mine: Vec<Claimed> = Vec::new();
        loop {
            let some = answered(store.claim(request("q", 1 + number % 5))).unwrap();
            if some.is_empty() {
                return mine;
            }
            mine.extend(some.into_iter().map(|job| job.claimed));
        }
    });
    let all: Vec<&Claimed> = claimed.iter().flatten().collect();
    assert_eq!(all.len(), 600, "each is handed out, and once");
    assert_eq!(all.iter().map(|job| job.id).collect::<BTreeSet<_>>(), submitted);
    assert_eq!(all.iter().map(|job| job.token).collect::<HashSet<_>>().len(), 600);
    for mine in &claimed {
        assert!(mine.is_sorted_by_key(|job| job.seq), "each sees the line in order");
    }
}

pub(super) fn concurrent_settlements_apply_once(h: &mut Harness) {
    for _ in 0..10 {
        h.submit("q", work());
        let claimed = h.claim_one("q");
        let outcomes = [
            complete(),
            fail(ReportedCategory::Permanent),
            Outcome::Snooze { delay: Duration::from_hours(9) },
            fail(ReportedCategory::Temporary),
        ];
        let verdicts = race(h, 12, |number, store| {
            let outcome = outcomes[number % 4].clone();
            let verdict = answered(store.settle(vec![settlement(&claimed, outcome.clone())])).remove(0);
            (outcome.kind(), verdict)
        });
        let job = h.job(claimed.id);
        assert_eq!((job.attempts.len(), job.history.transitions().len()), (1, 4), "one settlement had an effect");
        let won: HashSet<_> = verdicts.iter().filter(|(_, verdict)| verdict.is_ok()).map(|(kind, _)| *kind).collect();
        assert_eq!(won.len(), 1, "all that were accepted say the same");
        for (kind, verdict) in verdicts {
            match verdict {
                Ok(state) => assert_eq!(state, job.kind()),
                Err(refusal) => assert!(!won.contains(&kind) && refusal.code() == "stale_lease", "{refusal}"),
            }
        }
    }
}

pub(super) fn concurrent_cancel_and_complete_have_one_winner(h: &mut Harness) {
    for _ in 0..10 {
        h.submit("q", work());
        let claimed = h.claim_one("q");
        let ended = race(h, 8, |number, store| {
            if number % 2 == 0 {
                answered(store.settle(vec![settlement(&claimed, complete())])).remove(0).is_ok()
            } else {
                answered(store.admin(super::admin::cancel(claimed.id, Force::Now))).is_ok()
            }
        });
        let (completes, cancels) = (ended.iter().step_by(2), ended.iter().skip(1).step_by(2));
        let cancels = cancels.filter(|ended| **ended).count();
        match h.state(claimed.id) {
            StateKind::Completed => assert!(cancels == 0 && completes.into_iter().all(|ended| *ended)),
            StateKind::Cancelled => assert!(cancels == 1 && completes.into_iter().all(|ended| !*ended)),
            other => panic!("ended as {other}"),
        }
    }
}

/// All batches use the same external id, each at another index, so a batch succeeds or fails as a
/// whole.
pub(super) fn concurrent_batches_are_atomic(h: &mut Harness) {
    h.put_queue("q", Profile::Weave);
    for round in 0..5 {
        let answers = race(h, 8, |number, store| {
            let named = |place: usize| {
                let own = format!("{round} {number} {place}");
                let name = if place == number { format!("{round}") } else { own };
                work_with(|job| job.external_id = Some(name.into()))
            };
            answered(store.submit(batch("q", (0..10).map(named).collect())))
        });
        let won: Vec<_> = answers.iter().flat_map(|answer| answer.as_ref().ok()).collect();
        assert_eq!((won.len(), won[0].len()), (1, 10));
        assert_eq!(h.jobs().len(), 10 * (round + 1), "the others left nothing behind");
    }
}

/// A reader that gets an id from the submitter finds the job, although other threads write.
pub(super) fn responses_are_visible_to_all_readers(h: &mut Harness) {
    let store = &**h.store();
    let (sender, receiver) = mpsc::sync_channel::<Vec<JobId>>(4);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..100 {
                answered(store.submit(batch("noise", vec![work(); 3]))).unwrap();
                for job in answered(store.claim(request("noise", 3))).unwrap() {
                    answered(store.settle(vec![settlement(&job.claimed, complete())])).remove(0).unwrap();
                }
            }
        });
        scope.spawn(move || {
            for _ in 0..60 {
                let jobs = answered(store.submit(batch("q", vec![work(); 5]))).unwrap();
                sender.send(jobs.iter().map(|job| job.id).collect()).unwrap();
            }
        });
        let (mut seen, mut missing) = (0, 0);
        for ids in receiver {
            seen += ids.len();
            let found = answered(store.get(ids.iter().map(|id| JobRef::Id(*id)).collect()));
            let seqs = found.iter().flatten().map(|job| job.seq).collect();
            let payloads = answered(store.payloads(seqs));
            let listed: HashSet<JobId> =
                walk(store, &filter("q", StateKind::Scheduled), 100).iter().map(|job| job.id).collect();
            missing += ids.len() - payloads.iter().flatten().count();
            missing += ids.iter().filter(|id| !listed.contains(*id)).count();
        }
        assert_eq!((seen, missing), (300, 0));
    });
}

pub(super) fn concurrent_ticks_process_jobs_once(h: &mut Harness) {
    h.submit_all("q", vec![delayed(Duration::from_secs(1)); 300]);
    h.clock().advance(Duration::from_secs(1));
    let done = race(h, 4, |_, store| {
        let mut done = 0;
        loop {
            let ticked = answered(store.tick(std::num::NonZeroUsize::new(7).unwrap()));
            done += ticked.done;
            if ticked.next.is_none() {
                return done;
            }
        }
    });
    assert_eq!(done.iter().sum::<usize>(), 300, "each promotion is done once");
    assert_eq!(h.count("q", StateKind::Scheduled), 300);
}

/// Shared state of the threads.
#[derive(Default)]
struct ConcurrentLoad {
    ended: AtomicUsize,
    /// A thread has failed: the others do not wait for its jobs.
    failed_thread: AtomicBool,
}

/// Records a panic of its thread.
struct StopOnPanic<'a>(&'a ConcurrentLoad);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.failed_thread.store(true, Ordering::SeqCst);
        }
    }
}

impl ConcurrentLoad {
    const JOBS: usize = 400;

    fn over(&self) -> bool {
        self.ended.load(Ordering::SeqCst) >= Self::JOBS || self.failed_thread.load(Ordering::SeqCst)
    }

    fn submit(&self, store: &dyn Store, number: usize) {
        let _alarm = StopOnPanic(self);
        for n in 0..Self::JOBS / 20 {
            let key = |m: usize| keyed(&format!("{number} {n} {m}"));
            answered(store.submit(batch("q", (0..10).map(key).collect()))).unwrap();
        }
    }

    /// Of three jobs one is released, one fails and goes to the operator, one completes. The second
    /// run completes all.
    fn work(&self, store: &dyn Store, limit: usize, failed: &mpsc::Sender<JobId>) {
        let _alarm = StopOnPanic(self);
        while !self.over() {
            let claimed = answered(store.claim(request("q", limit))).unwrap();
            let heartbeats = claimed.iter().map(|job| heartbeat(&job.claimed)).collect();
            assert!(answered(store.heartbeat(heartbeats)).iter().all(Result::is_ok));
            for job in claimed.into_iter().map(|job| job.claimed) {
                let outcome = match (job.version.0, job.seq.0 % 3) {
                    (1, 0) => Outcome::Release,
                    (1, 1) => fail(ReportedCategory::Permanent),
                    _ => complete(),
                };
                let state = answered(store.settle(vec![settlement(&job, outcome)])).remove(0).unwrap();
                match state {
                    StateKind::Failed => failed.send(job.id).unwrap(),
                    StateKind::Completed => drop(self.ended.fetch_add(1, Ordering::SeqCst)),
                    _ => {}
                }
            }
        }
    }

    fn requeue(&self, store: &dyn Store, failed: mpsc::Receiver<JobId>) {
        let _alarm = StopOnPanic(self);
        for id in failed {
            answered(store.admin(super::admin::requeue(id))).unwrap();
        }
    }

    fn look_on(&self, store: &dyn Store) {
        let _alarm = StopOnPanic(self);
        for _ in 0..20 {
            answered(store.tick(std::num::NonZeroUsize::new(10).unwrap()));
            assert!(walk(store, &JobFilter::default(), 100).len() <= Self::JOBS);
        }
    }
}

/// Submitters, workers, an operator and a reader run at once. In the end every job is completed.
pub(super) fn random_concurrent_load(h: &mut Harness) {
    let (load, store) = (&ConcurrentLoad::default(), &**h.store());
    let (failed_sender, failed) = mpsc::channel();
    std::thread::scope(|scope| {
        for number in 0..2 {
            scope.spawn(move || load.submit(store, number));
        }
        for limit in [1, 2, 5, 9] {
            let failed_sender = failed_sender.clone();
            scope.spawn(move || load.work(store, limit, &failed_sender));
        }
        drop(failed_sender);
        scope.spawn(move || load.requeue(store, failed));
        scope.spawn(move || load.look_on(store));
    });
    assert_eq!(h.count("q", StateKind::Completed), ConcurrentLoad::JOBS as u64);
    let starts: u64 = h.jobs().iter().map(|job| job.lease_version.0).sum();
    let second_runs = h.jobs().iter().filter(|job| job.seq.0 % 3 != 2).count();
    assert_eq!(starts as usize, ConcurrentLoad::JOBS + second_runs, "every run was handed out once");
}
