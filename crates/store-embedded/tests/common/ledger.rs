//! What was acknowledged, and whether a store still knows it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use longshore_core::id::Seq;
use longshore_core::job::Job;
use longshore_core::state::StateKind;
use longshore_store::{Inspect as _, JobRef};
use longshore_store_embedded::EmbeddedStore;
use longshore_testkit::block_on::block_on;

use super::load::{self, BatchName};
use super::{assert_counts, jobs_above};

#[derive(Clone, Debug, Default)]
struct Known {
    key: Option<String>,
    /// The highest lease version that anybody was told or has seen.
    version: u64,
    /// The last heartbeat: under which lease, and the how manyth.
    beat: (u64, u64),
    /// The end that was acknowledged.
    end: Option<StateKind>,
    failures: u32,
}

#[derive(Debug, Default)]
pub(crate) struct Ledger {
    jobs: HashMap<u64, Known>,
    /// Claims that were answered: a lease version is given once.
    claims: BTreeSet<(u64, u64)>,
    touched: BTreeSet<u64>,
    /// The last batch that each thread of this cycle has had an answer for.
    last: BTreeMap<u64, BatchName>,
    /// Every job up to here was looked at.
    seen: u64,
    pub(crate) acknowledged: u64,
    pub(crate) errors: Vec<String>,
}

impl Ledger {
    /// Takes in one line of the load.
    pub(crate) fn hear(&mut self, line: &str) {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "submitted" => {
                let (name, seqs) = rest.split_once(' ').expect("a batch has jobs");
                let name = BatchName::parse(name).expect("a name");
                let seqs: Vec<u64> = seqs.split(' ').map(|seq| seq.parse().expect("a number")).collect();
                assert_eq!(seqs.len() as u64, name.size(), "batch {name} was answered in part");
                self.submitted(name, &seqs);
                self.last.insert(name.thread, name);
            }
            "claimed" => {
                for [seq, version] in items(rest) {
                    let (seq, version) = (number(seq), number(version));
                    assert!(self.claims.insert((seq, version)), "job {seq} was given twice under version {version}");
                    let known = self.touch(seq);
                    assert!(version > known.version, "job {seq}: version {version} after {}", known.version);
                    assert!(known.end.is_none(), "job {seq} was given after its end");
                    known.version = version;
                }
            }
            "extended" => {
                for [seq, version, beat] in items(rest) {
                    self.touch(number(seq)).beat = (number(version), number(beat));
                }
            }
            "settled" => {
                for [seq, _, state] in items(rest) {
                    let known = self.touch(number(seq));
                    let state = StateKind::ALL.iter().find(|kind| kind.word() == state).expect("a state");
                    // Another worker's line about a later lease may have come first; an end stays an end.
                    known.end = known.end.or(state.terminal().then_some(*state));
                    if *state != StateKind::Completed && *state != StateKind::Scheduled {
                        known.failures += 1;
                    }
                }
            }
            "wrong:" => panic!("{line}"),
            "error" => self.errors.push(rest.to_owned()),
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

    /// Looks at everything that the last load has touched or made.
    pub(crate) fn check_recent(&mut self, store: &EmbeddedStore) {
        let touched: Vec<Seq> = std::mem::take(&mut self.touched).into_iter().map(Seq).collect();
        for some in touched.chunks(1_000) {
            let jobs = block_on(store.get(some.iter().map(|seq| JobRef::Seq(*seq)).collect())).expect("jobs are read");
            let there: Vec<Arc<Job>> = jobs.into_iter().flatten().collect();
            assert_eq!(there.len(), some.len(), "acknowledged jobs are gone");
            there.iter().for_each(|job| self.check(job));
            load::assert_payloads(store, &there);
        }
        let new = jobs_above(store, Seq(self.seen)).expect("jobs are listed");
        self.seen = new.first().map_or(self.seen, |job| job.seq.0);
        assert_batches_are_whole(&new);
        load::assert_payloads(store, &new);
        new.iter().for_each(|job| self.check(job));
    }

    /// Looks at every job there is.
    pub(crate) fn check_all(&mut self, store: &EmbeddedStore) {
        let all = jobs_above(store, Seq(0)).expect("jobs are listed");
        assert_counts(store, &all);
        assert_batches_are_whole(&all);
        load::assert_payloads(store, &all);
        let there: BTreeSet<u64> = all.iter().map(|job| job.seq.0).collect();
        let lost: Vec<&u64> = self.jobs.keys().filter(|seq| !there.contains(seq)).collect();
        assert!(lost.is_empty(), "{} acknowledged jobs are gone: {lost:?}", lost.len());
        all.iter().for_each(|job| self.check(job));
    }

    fn check(&mut self, job: &Job) {
        let seq = job.seq;
        let known = self.jobs.entry(seq.0).or_default();
        let key = job.idempotency.as_ref().map(|key| key.key.to_string());
        assert!(known.key.is_none() || known.key == key, "job {seq} is {key:?} and was {:?}", known.key);
        let version = job.lease_version.0;
        assert!(version >= known.version, "job {seq}: lease version {version} after {}", known.version);
        if let Some(end) = known.end {
            assert_eq!(job.kind(), end, "job {seq} had ended");
        }
        assert!(job.counters.failures >= known.failures, "job {seq} has forgotten a failure");
        let given_back = job.counters.reclaims > 0 || job.attempts.last().is_some_and(|last| last.end.is_some());
        if known.version > 0 && job.kind() == StateKind::Scheduled {
            assert!(given_back, "job {seq} is in line although it was given away");
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

    /// Asks again for what was answered, and for what was not: there is never a second job, and never half a batch.
    pub(crate) fn ask_again(&mut self, store: &EmbeddedStore, cycle: u64) -> u64 {
        let mut unanswered_but_there = 0;
        for thread in 0..load::SUBMITTERS {
            let last = self.last.remove(&thread);
            if let Some(last) = last {
                let (was_there, seqs) = load::ask_again(store, last);
                assert!(was_there, "batch {last} was acknowledged, and its keys are gone");
                self.submitted(last, &seqs);
            }
            let next = BatchName { cycle, thread, number: last.map_or(0, |last| last.number + 1) };
            let (was_there, seqs) = load::ask_again(store, next);
            unanswered_but_there += u64::from(was_there);
            self.submitted(next, &seqs);
        }
        unanswered_but_there
    }
}

fn assert_batches_are_whole(jobs: &[Arc<Job>]) {
    let mut members = BTreeMap::<BatchName, u64>::new();
    for job in jobs {
        let key = job.idempotency.as_ref().expect("every job of the load has a key");
        *members.entry(BatchName::parse(&key.key).expect("a name")).or_default() += 1;
    }
    for (name, members) in members {
        assert_eq!(members, name.size(), "batch {name} is there in part");
    }
}

fn number(text: &str) -> u64 {
    text.parse().expect("a number")
}

fn items<const N: usize>(rest: &str) -> Vec<[&str; N]> {
    let words = rest.split(' ').filter(|word| !word.is_empty());
    words.map(|word| word.split(':').collect::<Vec<_>>().try_into().expect("so many parts")).collect()
}
