//! What workers say about the jobs they hold.

use longshore_api::enums::OutcomeKind;
use longshore_api::work as wire;
use longshore_core::failure::ReportedFailure;
use longshore_core::heartbeat::HeartbeatData;
use longshore_core::id::{JobId, LeaseToken};
use longshore_core::refusal::Refusal;
use longshore_core::settle::Outcome;
use longshore_engine::{Heartbeat, Settlement};

use super::enums::ToCore;
use super::{length, raw, shared};
use crate::wire::problem::ItemError;

/// What is no token is a token that nobody holds: it is told so, and learns nothing more.
pub(crate) fn token(text: Option<&str>) -> Option<LeaseToken> {
    text.map(|text| text.parse().unwrap_or_else(|_| LeaseToken::from_bytes([0; 16])))
}

/// What is no id is the id of no job.
pub(crate) fn id(text: &str) -> Result<JobId, Refusal> {
    text.parse().map_err(|_| Refusal::JobNotFound)
}

pub(crate) fn reported(error: wire::ReportedError) -> ReportedFailure {
    ReportedFailure {
        category: error.category.core(),
        message: error.message.unwrap_or_default().into(),
        code: shared(error.code),
        cause: shared(error.cause),
        retry_after: error.retry_after.map(length),
        unrecoverable: error.unrecoverable.unwrap_or(false),
    }
}

/// A member of a batch of settlements. Fields that belong to another outcome are refused.
pub(crate) fn settlement(given: wire::Settlement) -> Result<Settlement, ItemError> {
    let wire::Settlement { id: job, lease, outcome: kind, result, progress, error, delay } = given;
    let stray =
        |field: &str, word: &str| ItemError::validation(field, &format!("does not go with the outcome \"{word}\""));
    let fields = [
        ("result", result.is_some(), OutcomeKind::Complete),
        ("progress", progress.is_some(), OutcomeKind::Complete),
        ("error", error.is_some(), OutcomeKind::Fail),
        ("delay", delay.is_some(), OutcomeKind::Snooze),
    ];
    for (field, present, belongs) in fields {
        if present && kind != belongs {
            return Err(stray(field, kind.as_str()));
        }
    }
    let required = |field: &str| ItemError::validation(field, "is required");
    let outcome = match kind {
        OutcomeKind::Complete => {
            Outcome::Complete { result: result.map(raw::bytes), progress: progress.map(raw::bytes) }
        }
        OutcomeKind::Fail => Outcome::Fail(reported(error.ok_or_else(|| required("error"))?)),
        OutcomeKind::Snooze => Outcome::Snooze { delay: length(delay.ok_or_else(|| required("delay"))?) },
        OutcomeKind::Release => Outcome::Release,
    };
    Ok(Settlement { id: id(&job)?, token: token(lease.as_deref()), outcome })
}

/// A member of a batch of heartbeats.
pub(crate) fn heartbeat(given: wire::BatchHeartbeat) -> Result<Heartbeat, ItemError> {
    let wire::BatchHeartbeat { id: job, lease, progress, checkpoint } = given;
    let notes = HeartbeatData { progress: progress.map(raw::bytes), checkpoint: checkpoint.map(raw::bytes) };
    Ok(Heartbeat { id: id(&job)?, token: token(lease.as_deref()), notes })
}
