//! Acknowledged changes of a store over many power cuts, and what must hold after each of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use longshore_core::id::{JobId, LeaseToken};
use longshore_core::job::Job;
use longshore_core::settle::Outcome;
use longshore_core::state::StateKind;
use longshore_engine::Settlement;
use longshore_store::{JobRef, Store as _, StoreReader as _};
use longshore_store_embedded::EmbeddedStore;
use longshore_testkit::block_on::block_on;

/// A change that the store has acknowledged.
#[derive(Clone, Debug)]
pub(crate) enum Acknowledged {
    Submitted {
        id: JobId,
    },
    Claimed {
        id: JobId,
        version: u64,
        token: LeaseToken,
    },
    Checkpointed {
        id: JobId,
        number: u64,
    },
    Completed {
        id: JobId,
    },
    Cancelled {
        id: JobId,
    },
    /// A plain heartbeat or a tick: nothing has to survive.
    Nothing,
}

/// What is known about a job.
#[derive(Debug, Default)]
struct JobHistory {
    /// All leases in the order of their claims.
    leases: Vec<(u64, LeaseToken)>,
    checkpoint: u64,
    end: Option<StateKind>,
}

/// All acknowledged changes of one store.
#[derive(Debug, Default)]
pub(crate) struct History {
    jobs: BTreeMap<JobId, JobHistory>,
    versions: BTreeSet<(JobId, u64)>,
}

/// A lease that the store has granted and not ended, as far as the workers know.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldLease {
    pub(crate) id: JobId,
    pub(crate) token: LeaseToken,
}

impl History {
    /// Adds the changes that were acknowledged before the cut. Checks that each lease version is
    /// above all earlier ones of its job.
    pub(crate) fn add(&mut self, acknowledged: &[Acknowledged]) {
        for change in acknowledged {
            match change {
                Acknowledged::Submitted { id } => {
                    self.job(*id);
                }
                Acknowledged::Claimed { id, version, token } => self.add_lease(*id, *version, *token),
                Acknowledged::Checkpointed { id, number } => self.job(*id).checkpoint = *number,
                Acknowledged::Completed { id } => self.job(*id).end = Some(StateKind::Completed),
                Acknowledged::Cancelled { id } => self.job(*id).end = Some(StateKind::Cancelled),
                Acknowledged::Nothing => {}
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    fn job(&mut self, id: JobId) -> &mut JobHistory {
        self.jobs.entry(id).or_default()
    }

    fn add_lease(&mut self, id: JobId, version: u64, token: LeaseToken) {
        assert!(self.versions.insert((id, version)), "lease version {version} of job {id} was granted twice");
        let job = self.job(id);
        let last = job.leases.last().map_or(0, |(version, _)| *version);
        assert!(version > last, "lease version {version} of job {id} follows {last}");
        assert!(job.end.is_none(), "job {id} was claimed after its acknowledged end");
        job.leases.push((version, token));
    }

    /// Returns the latest lease of each job that has not ended.
    pub(crate) fn latest_leases(&self) -> Vec<HeldLease> {
        let open = self.jobs.iter().filter(|(_, job)| job.end.is_none());
        open.filter_map(|(id, job)| Some(HeldLease { id: *id, token: job.leases.last()?.1 })).collect()
    }

    /// Checks a store that was opened after a power cut.
    pub(crate) fn assert_survives(&self, store: &EmbeddedStore) {
        let ids: Vec<JobId> = self.jobs.keys().copied().collect();
        let found = block_on(store.get(ids.iter().map(|id| JobRef::Id(*id)).collect())).expect("jobs can be read");
        for ((id, history), job) in self.jobs.iter().zip(found) {
            let job = job.unwrap_or_else(|| panic!("job {id} was acknowledged and is lost"));
            assert_job(*id, history, &job);
        }
        self.assert_old_tokens_are_refused(store);
    }

    /// Counts the jobs whose last lease is not in the store.
    pub(crate) fn count_lost_leases(&self, store: &EmbeddedStore) -> u64 {
        let leased: Vec<_> = self.jobs.iter().filter_map(|(id, job)| Some((*id, job.leases.last()?.0))).collect();
        let ids = leased.iter().map(|(id, _)| JobRef::Id(*id)).collect();
        let found = block_on(store.get(ids)).expect("jobs can be read");
        let is_lost = |((_, version), job): &(&(JobId, u64), Option<Arc<Job>>)| {
            job.as_ref().is_some_and(|job| job.lease_version.0 < *version)
        };
        leased.iter().zip(found).filter(is_lost).count() as u64
    }

    /// A token that a later lease has replaced stays invalid, also if that lease is lost.
    fn assert_old_tokens_are_refused(&self, store: &EmbeddedStore) {
        for (id, job) in &self.jobs {
            let replaced = job.leases.len().saturating_sub(1);
            for (version, token) in job.leases.iter().take(replaced) {
                let outcome = Outcome::Complete { result: Some(Bytes::from_static(b"old")), progress: None };
                let settlement = Settlement { id: *id, token: Some(*token), outcome };
                let verdict = block_on(store.settle(vec![settlement])).expect("the store answers");
                assert!(
                    verdict.iter().all(Result::is_err),
                    "the token of version {version} of job {id} is valid again"
                );
            }
        }
    }
}

fn assert_job(id: JobId, history: &JobHistory, job: &Arc<Job>) {
    if let Some(end) = history.end {
        assert_eq!(job.kind(), end, "job {id} had ended");
    }
    let stored = job.checkpoint.as_ref().map_or(0, checkpoint_number);
    assert!(stored >= history.checkpoint, "checkpoint {} of job {id} is lost: {stored}", history.checkpoint);
}

/// A checkpoint that holds its number.
pub(crate) fn checkpoint(number: u64) -> Bytes {
    Bytes::from(number.to_string())
}

fn checkpoint_number(bytes: &Bytes) -> u64 {
    std::str::from_utf8(bytes).expect("digits").parse().expect("a number")
}
