//! Heartbeat: extends a lease, and stores progress and checkpoint.

use bytes::Bytes;

use crate::context::TransitionContext;
use crate::id::{LeaseToken, WorkerName};
use crate::job::Job;
use crate::lease::{self, Lease};
use crate::queue_context::QueueContext;
use crate::refusal::{Refusal, Stale};
use crate::retry::is_last_attempt;
use crate::settle::check_output_size;
use crate::state::State;
use crate::time::Timestamp;

/// Data of a heartbeat. Absent fields keep the stored values.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HeartbeatData {
    pub progress: Option<Bytes>,
    pub checkpoint: Option<Bytes>,
}

/// Result of a heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRenewal {
    pub expires_at: Option<Timestamp>,
    pub cancel_requested: bool,
    /// Whether a failure of this attempt ends the job.
    pub last_attempt: bool,
    /// The worker that holds the lease.
    pub worker: Option<WorkerName>,
}

/// Moves the expiry to now plus the lease, at most to the execution deadline. The token stays the
/// same.
pub fn heartbeat(
    job: &mut Job,
    token: Option<LeaseToken>,
    data: &HeartbeatData,
    queue: QueueContext<'_>,
    context: &TransitionContext<'_>,
) -> Result<LeaseRenewal, Refusal> {
    lease::check(job, token, context.now)?;
    check_output_size("progress", data.progress.as_ref(), job, queue)?;
    check_output_size("checkpoint", data.checkpoint.as_ref(), job, queue)?;
    let State::Running(lease) = &mut job.state else {
        return Err(Refusal::StaleLease(Stale::NotRunning));
    };
    lease.expires_at = Lease::expiry(lease.length, lease.deadline_at, context.now);
    let (expires_at, cancel_requested) = (lease.expires_at, lease.cancel_requested.is_some());
    let worker = lease.worker.clone();
    job.last_heartbeat_at = Some(context.now);
    if let Some(progress) = &data.progress {
        job.progress = Some(progress.clone());
    }
    if let Some(checkpoint) = &data.checkpoint {
        job.checkpoint = Some(checkpoint.clone());
    }
    // A retry needs an existing queue.
    let last_attempt = queue == QueueContext::Deleted || is_last_attempt(job);
    Ok(LeaseRenewal { expires_at, cancel_requested, last_attempt, worker })
}
