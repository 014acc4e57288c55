//! Ledger of acknowledged changes, compared with a store.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use longshore_core::dependency::PendingPropagation;
use longshore_core::history::Cause;
use longshore_core::id::Seq;
use longshore_core::job::Job;
use longshore_core::state::StateKind;
use longshore_store::{JobRef, StoreReader as _};
use longshore_store_embedded::EmbeddedStore;
use longshore_testkit::block_on::block_on;

use super::workload::{self, BatchName};
use super::{assert_counts, jobs_above};

#[derive(Clone, Debug, Default)]
struct Known {
    key: Option<String>,
    /// Highest lease version that was reported or read.
    version: u64,
    /// Last heartbeat: lease version and count.
    beat: (u64, u64),
    /// Acknowledged outcome and its lease version.
    end: Option<(u64, StateKind)>,
    failures: u32,
    /// A requeue was sent after the outcome under this lease.
    requeue_asked: u64,
    /// A requeue was acknowledged.
    requeued: u64,
    requeues: usize,
    edited: bool,
    /// A delete was sent.
    delete_asked: bool,
    deleted: bool,
}

impl Known {
    /// Outcome that must be visible.
    fn standing_end(&self) -> Option<StateKind> {
        self.end.filter(|(version, _)| *version > self.requeue_asked).map(|(_, state)| state)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Ledger {
    jobs: HashMap<u64, Known>,
    /// Acknowledged claims: a lease version is used once.
    claims: BTreeSet<(u64, u64)>,
    touched: BTreeSet<u64>,
    /// Last acknowledged batch of each thread in this cycle.
    last: BTreeMap<u64, BatchName>,
    /// Batches that failed with `NotApplied`.
    refused: BTreeSet<BatchName>,
    /// All jobs up to this number are checked.
    seen: u64,
    pub(crate) acknowledged: u64,
    pub(crate) errors: Vec<String>,
    /// The store has reported that it is poisoned.
    pub(crate) poisoned: bool,
    /// The workload has ended by itself.
    pub(crate) ended: bool,
}

impl Ledger {
    /// Processes one line of the workload's output.
    pub(crate) fn hear(&mut self, line: &str) {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "submitted" => {
                let (name, seqs) = rest.split_once(' ').expect("a batch has jobs");
                let name = BatchName::parse(name).expect("a name");
                let seqs: Vec<u64> = seqs.split(' ').map(number).collect();
                assert_eq!(seqs.len() as u64, name.size(), "batch {name} was answered in part");
                self.submitted(name, &seqs);
                self.last.insert(name.thread, name);
            }
            "refused" => drop(self.refused.insert(BatchName::parse(rest).expect("a name"))),
            "claimed" => {
                for [seq, version, key] in items(rest) {
                    self.claimed(number(seq), number(version), key);
                }
            }
            "extended" => {
                for [seq, version, beat] in items(rest) {
                    self.touch(number(seq)).beat = (number(version), number(beat));
                }
            }
            "settled" => {
                for [seq, version, state] in items(rest) {
                    let state = StateKind::ALL.iter().find(|kind| kind.as_str() == state).expect("a state");
                    self.settled(number(seq), number(version), *state);
                }
            }
            "poisoned" => self.poisoned = true,
            "end" => self.ended = true,
            "wrong:" => panic!("{line}"),
            "error" => self.errors.push(rest.to_owned()),
            _ => self.hear_operator(word, rest),
        }
    }

    fn claimed(&mut self, seq: u64, version: u64, key: &str) {
        assert!(self.claims.insert((seq, version)), "job {seq} was given twice under version {version}");
        let known = self.touch(seq);
        assert!(version > known.version, "job {seq}: version {version} after {}", known.version);
        assert!(known.standing_end().is_none(), "job {seq} was given after its end");
        assert!(!known.deleted, "job {seq} was given after it was deleted");
        assert!(known.key.as_ref().is_none_or(|known| known == key), "job {seq} is {key} and {:?}", known.key);
        known.key = Some(key.to_owned());
        known.version = version;
    }

    fn settled(&mut self, seq: u64, version: u64, state: StateKind) {
        let known = self.touch(seq);
        if state.terminal() {
            assert!(known.end.is_none_or(|(before, _)| before < version), "job {seq} has ended twice");
            known.end = Some((version, state));
        }
        if matches!(state, StateKind::Retrying | StateKind::Failed | StateKind::DeadLetter) {
            known.failures += 1;
        }
    }

    /// Processes operations on single jobs.
    fn hear_operator(&mut self, word: &str, rest: &str) {
        let pair = || rest.split_once(':').map(|(seq, version)| (number(seq), number(version))).expect("a pair");
        match word {
            "requeueing" => self.touch(pair().0).requeue_asked = pair().1,
            "requeued" => {
                let known = self.touch(pair().0);
                known.requeued = pair().1;
                known.requeues += 1;
            }
            "deleting" => self.touch(number(rest)).delete_asked = true,
            "deleted" => self.touch(number(rest)).deleted = true,
            "edited" => self.touch(number(rest)).edited = true,
            "cancelled" => {
                let known = self.touch(number(rest));
                // Above every earlier lease: the previous holder has released it.
                known.end = Some((known.version.max(known.requeue_asked) + 1, StateKind::Cancelled));
            }
            _ => {}
        }
    }

    fn submitted(&mut self, name: BatchName, seqs: &[u64]) {
        for (index, seq) in seqs.iter().enumerate() {
            let key = format!("{name}-{index}");
            let known = self.touch(*seq);
            assert!(known.key.as_ref().is_none_or(|known| *known == key), "job {seq} is {key} and {:?}", known.key);
            known.key = Some(key);
        }
    }

    fn touch(&mut self, seq: u64) -> &mut Known {
        self.acknowledged += 1;
        self.touched.insert(seq);
        self.jobs.entry(seq).or_default()
    }

    /// Checks all jobs that the last workload has created or changed.
    pub(crate) fn check_recent(&mut self, store: &EmbeddedStore) {
        let touched: Vec<Seq> = std::mem::take(&mut self.touched).into_iter().map(Seq).collect();
        for some in touched.chunks(1_000) {
            let jobs = block_on(store.get(some.iter().map(|seq| JobRef::Seq(*seq)).collect())).expect("jobs are read");
            let there: Vec<Arc<Job>> = jobs.into_iter().flatten().collect();
            let numbers: BTreeSet<u64> = there.iter().map(|job| job.seq.0).collect();
            self.assert_none_lost(&numbers, &some.iter().map(|seq| seq.0).collect::<Vec<_>>());
            there.iter().for_each(|job| self.check(job));
            workload::assert_payloads(store, &there);
        }
        let new = jobs_above(store, Seq(self.seen)).expect("jobs are listed");
        self.assert_batches_are_whole(&new, Some(self.seen));
        self.seen = new.first().map_or(self.seen, |job| job.seq.0);
        workload::assert_payloads(store, &new);
        new.iter().for_each(|job| self.check(job));
    }

    /// Checks all jobs.
    pub(crate) fn check_all(&mut self, store: &EmbeddedStore) {
        let all = jobs_above(store, Seq(0)).expect("jobs are listed");
        assert_counts(store, &all);
        assert_dependents(&all);
        self.assert_batches_are_whole(&all, None);
        workload::assert_payloads(store, &all);
        let there: BTreeSet<u64> = all.iter().map(|job| job.seq.0).collect();
        self.assert_none_lost(&there, &self.jobs.keys().copied().collect::<Vec<_>>());
        all.iter().for_each(|job| self.check(job));
    }

    fn assert_none_lost(&self, there: &BTreeSet<u64>, expected: &[u64]) {
        let gone = |seq: &&u64| !there.contains(seq) && !self.jobs.get(seq).is_some_and(|known| known.delete_asked);
        let lost: Vec<&u64> = expected.iter().filter(gone).collect();
        assert!(lost.is_empty(), "{} acknowledged jobs are gone: {lost:?}", lost.len());
    }

    fn check(&mut self, job: &Job) {
        let seq = job.seq;
        let known = self.jobs.entry(seq.0).or_default();
        let key = job.idempotency.as_ref().map(|key| key.key.to_string());
        assert!(known.key.is_none() || known.key == key, "job {seq} is {key:?} and was {:?}", known.key);
        assert!(!known.deleted, "job {seq} was deleted");
        let version = job.lease_version.0;
        assert!(version >= known.version, "job {seq}: lease version {version} after {}", known.version);
        if let Some(end) = known.standing_end() {
            assert_eq!(job.kind(), end, "job {seq} had ended");
        }
        assert!(job.counters.failures >= known.failures, "job {seq} has forgotten a failure");
        let requeues = job.history.transitions().iter().filter(|step| step.cause == Cause::Requeue).count();
        assert!(requeues >= known.requeues, "job {seq} has forgotten that it was requeued");
        if known.requeued > 0 && known.requeued == version {
            // Only a cancel ends a job that was never claimed.
            let ended = job.state.terminal() && job.kind() != StateKind::Cancelled;
            assert!(!ended, "job {seq} was requeued, and has ended without a new lease");
        }
        let tagged = job.tags.pairs().any(|(tag, _)| tag == "edited");
        assert!(tagged || !known.edited, "job {seq} has forgotten an edit");
        let given_back = job.counters.reclaims > 0 || job.attempts.last().is_some_and(|last| last.end.is_some());
        if known.version > 0 && job.kind() == StateKind::Scheduled {
            assert!(given_back, "job {seq} is ready although it was claimed");
        }
        if known.beat.0 == version && version > 0 {
            let progress = job.progress.as_ref().map(|note| String::from_utf8_lossy(note).into_owned());
            let (lease, beat) = progress.as_deref().and_then(|note| note.split_once(' ')).expect("progress was noted");
            let (lease, beat) = (number(lease), number(beat));
            assert!((lease, beat) >= known.beat, "job {seq} has forgotten a heartbeat");
        }
        known.key = key;
        known.version = version;
    }

    /// Checks that every batch is complete, except for deleted jobs, and that refused batches do
    /// not exist.
    fn assert_batches_are_whole(&self, jobs: &[Arc<Job>], above: Option<u64>) {
        let mut members = BTreeMap::<BatchName, u64>::new();
        for job in jobs {
            let key = job.idempotency.as_ref().expect("every job of the load has a key");
            *members.entry(BatchName::parse(&key.key).expect("a name")).or_default() += 1;
        }
        let there: BTreeSet<u64> = jobs.iter().map(|job| job.seq.0).collect();
        let unwanted = self.jobs.iter().filter(|(seq, known)| known.delete_asked && !there.contains(seq));
        for (_, known) in unwanted.filter(|(seq, _)| above.is_none_or(|above| **seq > above)) {
            let name = known.key.as_deref().and_then(BatchName::parse).expect("it was claimed");
            *members.entry(name).or_default() += 1;
        }
        for (name, members) in members {
            assert_eq!(members, name.size(), "batch {name} is there in part");
            assert!(!self.refused.contains(&name), "batch {name} is there although it was refused");
        }
    }

    /// Starts another workload without a check. Unanswered batches of the last one are ignored.
    pub(crate) fn next_load(&mut self) {
        self.last.clear();
    }

    /// Repeats answered and unanswered batches: there are no duplicates and no partial batches.
    pub(crate) fn ask_again(&mut self, store: &EmbeddedStore, cycle: u64) -> u64 {
        let mut unanswered_but_there = 0;
        for thread in 0..workload::SUBMITTERS {
            let last = self.last.remove(&thread);
            if let Some(last) = last {
                let (was_there, seqs) = workload::ask_again(store, last);
                assert!(was_there, "batch {last} was acknowledged, and its keys are gone");
                self.submitted(last, &seqs);
            }
            let next = BatchName { cycle, thread, number: last.map_or(0, |last| last.number + 1) };
            let (was_there, seqs) = workload::ask_again(store, next);
            unanswered_but_there += u64::from(was_there);
            self.submitted(next, &seqs);
        }
        unanswered_but_there
    }
}

/// Checks that no job waits for a finished one, unless propagation is pending.
fn assert_dependents(all: &[Arc<Job>]) {
    let by_id: HashMap<_, _> = all.iter().map(|job| (job.id, job)).collect();
    for job in all.iter().filter(|job| job.kind() == StateKind::Pending) {
        for after in &job.dependencies.after {
            let Some(dependency) = by_id.get(&after.id) else { panic!("job {} waits for nothing", job.seq) };
            let is_propagated =
                dependency.state.terminal() && dependency.pending_propagation == PendingPropagation::Nothing;
            assert!(!is_propagated, "job {} still waits for {}, which has ended", job.seq, dependency.seq);
        }
    }
}

fn number(text: &str) -> u64 {
    text.parse().expect("a number")
}

fn items<const N: usize>(rest: &str) -> Vec<[&str; N]> {
    let words = rest.split(' ').filter(|word| !word.is_empty());
    words.map(|word| word.split(':').collect::<Vec<_>>().try_into().expect("so many parts")).collect()
}
