//! What a claim is answered with, and how a call waits for it.

use std::fmt::Debug;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use longshore_core::settle::Outcome;
use longshore_engine::Settlement;
use tokio::sync::oneshot;

use crate::store::ClaimedJob;

/// Whether a claim that finds nothing waits.
pub enum Park {
    /// It is answered at once.
    No,
    /// It waits until jobs are ready or this future ends.
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

/// Takes leases back whose jobs did not reach a worker.
pub trait TakeBack: Debug + Send + Sync {
    /// Never waits: it is called from destructors.
    fn take_back(&self, undelivered: Vec<Settlement>);
}

/// Claimed jobs on their way to a worker. Dropped before [`Grant::deliver`], it gives their leases back.
#[derive(Debug)]
pub struct Grant {
    jobs: Vec<ClaimedJob>,
    take_back: Option<Arc<dyn TakeBack>>,
}

impl Grant {
    pub fn new(jobs: Vec<ClaimedJob>, take_back: Arc<dyn TakeBack>) -> Self {
        Self { jobs, take_back: Some(take_back) }
    }

    /// Jobs that no longer need to be given back, for stores without leases to lose.
    pub fn delivered(jobs: Vec<ClaimedJob>) -> Self {
        Self { jobs, take_back: None }
    }

    pub fn jobs(&self) -> &[ClaimedJob] {
        &self.jobs
    }

    /// The answer has left: from here on the worker holds the leases.
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

/// Waits for the answer to a claim that may be parked. `unpark` is called when the wait ends first, or when the caller drops this future: the store
/// decides then whether the claim ends empty. `None`: the store went away without an answer.
pub async fn await_grant<A>(mut answer: oneshot::Receiver<A>, park: Park, unpark: impl FnMut()) -> Option<A> {
    let Park::Until(mut end) = park else { return answer.await.ok() };
    let mut unpark = CallOnDrop(Some(unpark));
    let first = std::future::poll_fn(|context| match pin!(&mut answer).poll(context) {
        Poll::Ready(answer) => Poll::Ready(Some(answer)),
        Poll::Pending => end.as_mut().poll(context).map(|()| None),
    });
    let answer = match first.await {
        Some(answer) => answer,
        None => {
            unpark.call();
            answer.await
        }
    };
    unpark.0 = None;
    answer.ok()
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
