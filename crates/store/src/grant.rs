//! The response to a claim, and how a call waits for it.

use std::fmt::Debug;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use longshore_core::refusal::Refusal;
use longshore_core::settle::Outcome;
use longshore_core::state::StateKind;
use longshore_engine::Settlement;
use tokio::sync::oneshot;

use crate::store::ClaimedJob;

/// Whether a claim that finds no job waits.
pub enum Park {
    /// The claim returns empty.
    No,
    /// The claim waits until jobs are ready or this future completes.
    Until(Pin<Box<dyn Future<Output = ()> + Send>>),
}

impl Debug for Park {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::No => "Park::No",
            Self::Until(_) => "Park::Until",
        })
    }
}

/// Takes back leases whose jobs did not reach a worker.
pub trait TakeBack: Debug + Send + Sync {
    /// Must not block: destructors call it.
    fn take_back(&self, undelivered: Vec<Settlement>);
}

/// Claimed jobs on their way to a worker. If it is dropped before [`Grant::deliver`], it returns
/// the leases to the store.
#[derive(Debug)]
pub struct Grant {
    jobs: Vec<ClaimedJob>,
    take_back: Option<Arc<dyn TakeBack>>,
}

/// The response to a claim that carries settlements. Both parts are of one commit.
#[derive(Debug)]
pub struct SettledGrant {
    /// One verdict for each settlement, in order.
    pub verdicts: Vec<Result<StateKind, Refusal>>,
    pub grant: Grant,
}

impl Grant {
    pub fn new(jobs: Vec<ClaimedJob>, take_back: Arc<dyn TakeBack>) -> Self {
        Self { jobs, take_back: Some(take_back) }
    }

    /// Makes a grant that does not return its leases when it is dropped.
    pub fn delivered(jobs: Vec<ClaimedJob>) -> Self {
        Self { jobs, take_back: None }
    }

    pub fn jobs(&self) -> &[ClaimedJob] {
        &self.jobs
    }

    /// Returns the jobs. From here on the worker holds the leases.
    pub fn deliver(mut self) -> Vec<ClaimedJob> {
        self.take_back = None;
        std::mem::take(&mut self.jobs)
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        let Some(take_back) = self.take_back.take().filter(|_| !self.jobs.is_empty()) else { return };
        let undelivered = |job: &ClaimedJob| Settlement {
            id: job.claimed.id,
            token: Some(job.claimed.token),
            outcome: Outcome::Undelivered,
        };
        take_back.take_back(self.jobs.iter().map(undelivered).collect());
    }
}

/// Waits for the response to a claim that may be parked.
///
/// When the wait ends first, or the caller drops this future, `unpark` is called. The store then
/// decides whether the claim ends empty, because a grant may have been made meanwhile. Returns
/// `None` if the store closed without a response.
pub async fn await_grant<A>(mut response: oneshot::Receiver<A>, park: Park, unpark: impl FnMut()) -> Option<A> {
    let Park::Until(mut end) = park else { return response.await.ok() };
    let mut unpark = CallOnDrop(Some(unpark));
    let first = std::future::poll_fn(|context| match pin!(&mut response).poll(context) {
        Poll::Ready(response) => Poll::Ready(Some(response)),
        Poll::Pending => end.as_mut().poll(context).map(|()| None),
    });
    let outcome = match first.await {
        Some(outcome) => outcome,
        None => {
            unpark.call();
            response.await
        }
    };
    unpark.0 = None;
    outcome.ok()
}

struct CallOnDrop<F: FnMut()>(Option<F>);

impl<F: FnMut()> CallOnDrop<F> {
    fn call(&mut self) {
        if let Some(call) = &mut self.0 {
            call();
        }
    }
}

impl<F: FnMut()> Drop for CallOnDrop<F> {
    fn drop(&mut self) {
        self.call();
    }
}
