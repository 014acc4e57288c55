//! A heartbeat: the worker is alive, and may leave word of its progress.

use bytes::Bytes;

use crate::id::LeaseToken;
use crate::job::{Job, Moment};
use crate::lease::{self, Lease};
use crate::refusal::{Refusal, Stale};
use crate::retry::Home;
use crate::settle::check_note;
use crate::state::State;
use crate::time::Timestamp;

/// What a heartbeat brings along.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Notes {
    pub progress: Option<Bytes>,
    pub checkpoint: Option<Bytes>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extended {
    pub expires_at: Option<Timestamp>,
    pub cancel_requested: bool,
}

/// Moves the expiry to now + lease, never past the execution deadline. The token stays the same.
pub fn extend(
    job: &mut Job,
    token: Option<LeaseToken>,
    notes: &Notes,
    home: Home<'_>,
    moment: &Moment<'_>,
) -> Result<Extended, Refusal> {
    lease::check(job, token, moment.now)?;
    check_note("progress", notes.progress.as_ref(), job, home)?;
    check_note("checkpoint", notes.checkpoint.as_ref(), job, home)?;
    let State::Running(lease) = &mut job.state else {
        return Err(Refusal::StaleLease(Stale::NotRunning));
    };
    lease.expires_at = Lease::expiry(lease.length, lease.deadline_at, moment.now);
    let extended = Extended { expires_at: lease.expires_at, cancel_requested: lease.cancel_requested.is_some() };
    job.last_heartbeat_at = Some(moment.now);
    if let Some(progress) = &notes.progress {
        job.progress = Some(progress.clone());
    }
    if let Some(checkpoint) = &notes.checkpoint {
        job.checkpoint = Some(checkpoint.clone());
    }
    Ok(extended)
}
