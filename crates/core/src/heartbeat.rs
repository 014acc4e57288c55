//! A heartbeat: the worker is alive, and may leave word of its progress.

use bytes::Bytes;

use crate::id::LeaseToken;
use crate::job::{Job, TransitionContext};
use crate::lease::{self, Lease};
use crate::refusal::{Refusal, Stale};
use crate::retry::{QueueContext, is_last_attempt};
use crate::settle::check_output_size;
use crate::state::State;
use crate::time::Timestamp;

/// What a heartbeat brings along.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HeartbeatData {
    pub progress: Option<Bytes>,
    pub checkpoint: Option<Bytes>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseRenewal {
    pub expires_at: Option<Timestamp>,
    pub cancel_requested: bool,
    /// A failure now would end the job.
    pub last_attempt: bool,
}

/// Moves the expiry to now + lease, never past the execution deadline. The token stays the same.
pub fn heartbeat(
    job: &mut Job,
    token: Option<LeaseToken>,
    notes: &HeartbeatData,
    home: QueueContext<'_>,
    moment: &TransitionContext<'_>,
) -> Result<LeaseRenewal, Refusal> {
    lease::check(job, token, moment.now)?;
    check_output_size("progress", notes.progress.as_ref(), job, home)?;
    check_output_size("checkpoint", notes.checkpoint.as_ref(), job, home)?;
    let State::Running(lease) = &mut job.state else {
        return Err(Refusal::StaleLease(Stale::NotRunning));
    };
    lease.expires_at = Lease::expiry(lease.length, lease.deadline_at, moment.now);
    let (expires_at, cancel_requested) = (lease.expires_at, lease.cancel_requested.is_some());
    job.last_heartbeat_at = Some(moment.now);
    if let Some(progress) = &notes.progress {
        job.progress = Some(progress.clone());
    }
    if let Some(checkpoint) = &notes.checkpoint {
        job.checkpoint = Some(checkpoint.clone());
    }
    // A retry needs a queue to go back to.
    let last_attempt = home == QueueContext::Deleted || is_last_attempt(job);
    Ok(LeaseRenewal { expires_at, cancel_requested, last_attempt })
}
