//! Settlements and heartbeats.

use longshore_api::enums::OutcomeKind;
use longshore_api::work as wire;
use longshore_core::failure::ReportedFailure;
use longshore_core::heartbeat::HeartbeatData;
use longshore_core::id::{JobId, LeaseToken};
use longshore_core::refusal::Refusal;
use longshore_core::settle::Outcome;
use longshore_engine::{Heartbeat, Settlement};

use super::{raw, shared};
use crate::wire::problem::ItemError;

/// Parses a lease token. A malformed one becomes the nil token, which matches no lease.
pub(crate) fn token(text: Option<&str>) -> Option<LeaseToken> {
    text.map(|text| text.parse().unwrap_or_else(|_| LeaseToken::from_bytes([0; 16])))
}

/// Parses a job id. A malformed one is `job_not_found`.
pub(crate) fn id(text: &str) -> Result<JobId, Refusal> {
    text.parse().map_err(|_| Refusal::JobNotFound)
}

pub(crate) fn reported(error: wire::ReportedError) -> ReportedFailure {
    ReportedFailure {
        category: error.category,
        message: error.message.unwrap_or_default().into(),
        code: shared(error.code),
        cause: shared(error.cause),
        retry_after: error.retry_after,
        unrecoverable: error.unrecoverable.unwrap_or(false),
    }
}

/// Converts an item of a batch. Rejects fields of another outcome.
pub(crate) fn settlement(item: wire::Settlement) -> Result<Settlement, ItemError> {
    let wire::Settlement { id: job, lease, outcome: kind, result, progress, error, delay } = item;
    let misplaced = |field: &str, word: &str| {
        ItemError::validation(field, &format!("cannot be combined with the outcome \"{word}\""))
    };
    let fields = [
        ("result", result.is_some(), OutcomeKind::Complete),
        ("progress", progress.is_some(), OutcomeKind::Complete),
        ("error", error.is_some(), OutcomeKind::Fail),
        ("delay", delay.is_some(), OutcomeKind::Snooze),
    ];
    for (field, is_present, allowed_kind) in fields {
        if is_present && kind != allowed_kind {
            return Err(misplaced(field, kind.as_str()));
        }
    }
    let required = |field: &str| ItemError::validation(field, "is required");
    let outcome = match kind {
        OutcomeKind::Complete => {
            Outcome::Complete { result: result.map(raw::bytes), progress: progress.map(raw::bytes) }
        }
        OutcomeKind::Fail => Outcome::Fail(reported(error.ok_or_else(|| required("error"))?)),
        OutcomeKind::Snooze => Outcome::Snooze { delay: delay.ok_or_else(|| required("delay"))? },
        OutcomeKind::Release => Outcome::Release,
    };
    Ok(Settlement { id: id(&job)?, token: token(lease.as_deref()), outcome })
}

/// Converts an item of a batch.
pub(crate) fn heartbeat(item: wire::BatchHeartbeat) -> Result<Heartbeat, ItemError> {
    let wire::BatchHeartbeat { id: job, lease, progress, checkpoint } = item;
    let notes = HeartbeatData { progress: progress.map(raw::bytes), checkpoint: checkpoint.map(raw::bytes) };
    Ok(Heartbeat { id: id(&job)?, token: token(lease.as_deref()), notes })
}
