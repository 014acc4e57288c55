//! The stored form of operations and of their chunks: a version byte, then JSON.

use std::collections::BTreeMap;
use std::sync::Arc;

use longshore_api::operation::OperationFilter;
use longshore_core::Timestamp;
use longshore_core::failure::{Category, Failure};
use longshore_core::id::{JobId, LeaseVersion, OperationId, Seq};
use longshore_core::job::Counters;
use longshore_core::operation::planned::{PlannedJob, TreatedJob};
use longshore_core::operation::{
    Canary, CanaryJob, CanaryOutcome, Count, OperationAction, OperationProgress, OperationState, PlannedSlice,
    TreatedChunks, UndoProgress, UndoState,
};
use longshore_core::requeue::{EndError, EndedJob};
use longshore_core::state::{StateKind, TerminalState};
use serde::{Deserialize, Serialize};

use super::storage::{Chunk, StoredOperation};

const VERSION: u8 = 1;

/// The value has another version or is corrupt.
#[derive(Debug)]
pub(super) struct InvalidOperation;

#[derive(Serialize, Deserialize)]
struct OperationForm {
    filter: OperationFilter,
    action: OperationAction,
    rate: Option<u32>,
    dry_run: bool,
    state: OperationState,
    matched: u64,
    count_before: u64,
    counted: bool,
    before: u64,
    exhausted: bool,
    changed: u64,
    refused: u64,
    refusals: BTreeMap<String, u64>,
    slice: Option<SliceForm>,
    next_at: i64,
    canary: Option<CanaryForm>,
    undo: Option<UndoForm>,
    chunks: (u64, u64, i64, i64),
    created_at: i64,
    updated_at: i64,
    ended_at: Option<i64>,
    holder: Option<(u64, i64)>,
}

#[derive(Serialize, Deserialize)]
struct SliceForm {
    jobs: Vec<JobForm>,
    at: i64,
    before: u64,
    last: bool,
}

#[derive(Serialize, Deserialize)]
struct JobForm {
    seq: u64,
    id: String,
    state: StateKind,
    at: i64,
    lease: u64,
    steps: usize,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    held: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    asked: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    cloned: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    run_at: Option<i64>,
    /// Counters and error of an ended job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ended: Option<([u32; 5], ErrorForm)>,
    /// The clone of a treated job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    clone: Option<String>,
}

#[derive(Serialize, Deserialize)]
enum ErrorForm {
    None,
    Last,
    Given(FailureForm),
}

#[derive(Serialize, Deserialize)]
struct FailureForm {
    category: Category,
    code: Option<String>,
    message: String,
    cause: Option<String>,
    at: i64,
}

#[derive(Serialize, Deserialize)]
struct CanaryForm {
    size: u32,
    treated: u32,
    complete: bool,
    jobs: Vec<(String, Option<OutcomeForm>)>,
    continued_at: Option<i64>,
}

#[derive(Serialize, Deserialize)]
struct OutcomeForm {
    /// `None`: the record is gone.
    state: Option<StateKind>,
    code: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct UndoForm {
    state: UndoState,
    at: i64,
    undone: u64,
    kept: u64,
}

#[derive(Serialize, Deserialize)]
struct ChunkForm {
    at: i64,
    jobs: Vec<JobForm>,
}

fn to_bytes(value: &impl Serialize) -> Vec<u8> {
    let mut bytes = vec![VERSION];
    // Texts and numbers: serializing them cannot fail.
    bytes.extend(serde_json::to_vec(value).unwrap_or_default());
    bytes
}

fn from_bytes<T: for<'de> Deserialize<'de>>(bytes: &[u8]) -> Result<T, InvalidOperation> {
    let (version, json) = bytes.split_first().ok_or(InvalidOperation)?;
    let value = serde_json::from_slice(json).map_err(|_| InvalidOperation)?;
    if *version == VERSION { Ok(value) } else { Err(InvalidOperation) }
}

fn instant(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

pub(super) fn encode(stored: &StoredOperation) -> Vec<u8> {
    let op = &stored.operation;
    to_bytes(&OperationForm {
        filter: stored.filter.clone(),
        action: op.action,
        rate: op.rate,
        dry_run: op.dry_run,
        state: op.state,
        matched: op.count.matched,
        count_before: op.count.before.0,
        counted: op.count.is_complete,
        before: op.before.0,
        exhausted: op.is_exhausted,
        changed: op.changed,
        refused: op.refused,
        refusals: op.refusals.iter().map(|(code, number)| (code.to_string(), *number)).collect(),
        slice: op.slice.as_ref().map(|slice| SliceForm {
            jobs: slice.jobs.iter().map(|job| job_form(job, None)).collect(),
            at: slice.planned_at.as_millis(),
            before: slice.before.0,
            last: slice.is_last,
        }),
        next_at: op.next_at.as_millis(),
        canary: op.canary.as_ref().map(canary_form),
        undo: op.undo.map(|undo| UndoForm {
            state: undo.state,
            at: undo.at.as_millis(),
            undone: undo.undone,
            kept: undo.kept,
        }),
        chunks: (op.chunks.first, op.chunks.next, op.chunks.first_at.as_millis(), op.chunks.last_at.as_millis()),
        created_at: op.created_at.as_millis(),
        updated_at: op.updated_at.as_millis(),
        ended_at: op.ended_at.map(Timestamp::as_millis),
        holder: stored.holder.map(|(server, until)| (server, until.as_millis())),
    })
}

pub(super) fn decode(id: OperationId, bytes: &[u8], revision: u64) -> Result<StoredOperation, InvalidOperation> {
    let form: OperationForm = from_bytes(bytes)?;
    let slice = form.slice.map(|slice| {
        let jobs = slice
            .jobs
            .into_iter()
            .map(|job| Ok(to_treated_job(job)?.planned))
            .collect::<Result<_, InvalidOperation>>()?;
        Ok(PlannedSlice { jobs, planned_at: instant(slice.at), before: Seq(slice.before), is_last: slice.last })
    });
    let (first, next, first_at, last_at) = form.chunks;
    let operation = OperationProgress {
        action: form.action,
        rate: form.rate,
        dry_run: form.dry_run,
        state: form.state,
        count: Count { matched: form.matched, before: Seq(form.count_before), is_complete: form.counted },
        before: Seq(form.before),
        is_exhausted: form.exhausted,
        changed: form.changed,
        refused: form.refused,
        refusals: form.refusals.into_iter().map(|(code, number)| (Arc::from(code), number)).collect(),
        slice: slice.transpose()?,
        next_at: instant(form.next_at),
        canary: form.canary.map(canary).transpose()?,
        undo: form.undo.map(|undo| UndoProgress {
            state: undo.state,
            at: instant(undo.at),
            undone: undo.undone,
            kept: undo.kept,
        }),
        chunks: TreatedChunks { first, next, first_at: instant(first_at), last_at: instant(last_at) },
        created_at: instant(form.created_at),
        updated_at: instant(form.updated_at),
        ended_at: form.ended_at.map(instant),
    };
    let holder = form.holder.map(|(server, until)| (server, instant(until)));
    Ok(StoredOperation { id, filter: form.filter, operation, holder, revision })
}

pub(super) fn encode_chunk(chunk: &Chunk) -> Vec<u8> {
    let jobs = chunk.jobs.iter().map(|job| job_form(&job.planned, job.clone)).collect();
    to_bytes(&ChunkForm { at: chunk.treated_at.as_millis(), jobs })
}

pub(super) fn decode_chunk(bytes: &[u8]) -> Result<Chunk, InvalidOperation> {
    let form: ChunkForm = from_bytes(bytes)?;
    let jobs = form.jobs.into_iter().map(to_treated_job).collect::<Result<_, _>>()?;
    Ok(Chunk { treated_at: instant(form.at), jobs })
}

fn job_form(job: &PlannedJob, clone: Option<JobId>) -> JobForm {
    JobForm {
        seq: job.seq.0,
        id: job.id.to_string(),
        state: job.state,
        at: job.updated_at.as_millis(),
        lease: job.lease_version.0,
        steps: job.transitions,
        held: job.held,
        asked: job.cancel_requested,
        cloned: job.was_cloned,
        run_at: job.run_at.map(Timestamp::as_millis),
        ended: job.ended.as_ref().map(|ended| (counters_form(&ended.counters), error_form(&ended.error))),
        clone: clone.map(|id| id.to_string()),
    }
}

fn to_treated_job(form: JobForm) -> Result<TreatedJob, InvalidOperation> {
    let lease_version = LeaseVersion(form.lease);
    let ended = form.ended.map(|([starts, failures, retries_scheduled, requeues, reclaims], error)| {
        let counters = Counters { starts, failures, retries_scheduled, requeues, reclaims };
        let ending = TerminalState::of(form.state).ok_or(InvalidOperation)?;
        Ok(EndedJob { ending, lease_version, counters, error: end_error(error) })
    });
    let planned = PlannedJob {
        seq: Seq(form.seq),
        id: form.id.parse().map_err(|_| InvalidOperation)?,
        state: form.state,
        updated_at: instant(form.at),
        lease_version,
        transitions: form.steps,
        held: form.held,
        cancel_requested: form.asked,
        was_cloned: form.cloned,
        run_at: form.run_at.map(instant),
        ended: ended.transpose()?,
    };
    let clone = form.clone.map(|id| id.parse()).transpose().map_err(|_| InvalidOperation)?;
    Ok(TreatedJob { planned, clone })
}

fn counters_form(counters: &Counters) -> [u32; 5] {
    let Counters { starts, failures, retries_scheduled, requeues, reclaims } = *counters;
    [starts, failures, retries_scheduled, requeues, reclaims]
}

fn error_form(error: &EndError) -> ErrorForm {
    match error {
        EndError::None => ErrorForm::None,
        EndError::OfLastAttempt => ErrorForm::Last,
        EndError::Given(error) => ErrorForm::Given(FailureForm {
            category: error.category,
            code: error.code.as_deref().map(str::to_owned),
            message: error.message.to_string(),
            cause: error.cause.as_deref().map(str::to_owned),
            at: error.at.as_millis(),
        }),
    }
}

fn end_error(form: ErrorForm) -> EndError {
    match form {
        ErrorForm::None => EndError::None,
        ErrorForm::Last => EndError::OfLastAttempt,
        ErrorForm::Given(error) => EndError::Given(Arc::new(Failure {
            category: error.category,
            code: error.code.map(Arc::from),
            message: error.message.into(),
            cause: error.cause.map(Arc::from),
            at: instant(error.at),
        })),
    }
}

fn canary_form(canary: &Canary) -> CanaryForm {
    let outcome = |outcome: &CanaryOutcome| match outcome {
        CanaryOutcome::Ended { state, error_code } => {
            OutcomeForm { state: Some(*state), code: error_code.as_deref().map(str::to_owned) }
        }
        CanaryOutcome::Gone => OutcomeForm { state: None, code: None },
    };
    CanaryForm {
        size: canary.size,
        treated: canary.treated,
        complete: canary.is_complete,
        jobs: canary.jobs.iter().map(|job| (job.id.to_string(), job.outcome.as_ref().map(outcome))).collect(),
        continued_at: canary.continued_at.map(Timestamp::as_millis),
    }
}

fn canary(form: CanaryForm) -> Result<Canary, InvalidOperation> {
    let outcome = |form: OutcomeForm| match form.state {
        Some(state) => CanaryOutcome::Ended { state, error_code: form.code.map(Arc::from) },
        None => CanaryOutcome::Gone,
    };
    let job = |(id, form): (String, Option<OutcomeForm>)| {
        Ok(CanaryJob { id: id.parse().map_err(|_| InvalidOperation)?, outcome: form.map(outcome) })
    };
    Ok(Canary {
        size: form.size,
        treated: form.treated,
        is_complete: form.complete,
        jobs: form.jobs.into_iter().map(job).collect::<Result<_, _>>()?,
        continued_at: form.continued_at.map(instant),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned() -> PlannedJob {
        let failure = Failure::detected(Category::Timeout, "lifetime", "it is over", instant(7));
        let counters = Counters { starts: 3, failures: 2, ..Counters::default() };
        let (ending, lease_version) = (TerminalState::DeadLetter, LeaseVersion(4));
        PlannedJob {
            seq: Seq(9),
            id: JobId::from_bytes([3; 16]),
            state: StateKind::DeadLetter,
            updated_at: instant(8),
            lease_version,
            transitions: 5,
            held: false,
            cancel_requested: true,
            was_cloned: true,
            run_at: Some(instant(11)),
            ended: Some(EndedJob { ending, lease_version, counters, error: EndError::Given(Arc::new(failure)) }),
        }
    }

    #[test]
    fn records_decode_to_themselves() {
        let mut operation = OperationProgress::new(OperationAction::Requeue, Some(Seq(9)), None, instant(1));
        let jobs = vec![planned()];
        operation.slice = Some(PlannedSlice { jobs, planned_at: instant(2), before: Seq(9), is_last: true });
        operation.refusals.insert("illegal_transition".into(), 2);
        let outcome = CanaryOutcome::Ended { state: StateKind::Failed, error_code: Some("smtp".into()) };
        let id = JobId::from_bytes([1; 16]);
        let jobs = [None, Some(CanaryOutcome::Gone), Some(outcome)].map(|outcome| CanaryJob { id, outcome }).to_vec();
        operation.canary = Some(Canary { size: 3, treated: 3, is_complete: true, jobs, continued_at: None });
        operation.undo = Some(UndoProgress { state: UndoState::Done, at: instant(4), undone: 1, kept: 2 });
        operation.chunks = TreatedChunks { first: 1, next: 2, first_at: instant(5), last_at: instant(6) };
        let filter = OperationFilter { group: Some("0123456789abcdef".to_owned()), ..OperationFilter::default() };
        let id = OperationId::from_bytes([2; 16]);
        let stored = StoredOperation { id, filter, operation, holder: Some((u64::MAX, instant(3))), revision: 12 };
        let decoded = decode(id, &encode(&stored), 12).unwrap();
        assert_eq!((&decoded.operation, &decoded.filter), (&stored.operation, &stored.filter));
        assert_eq!((decoded.holder, decoded.revision), (stored.holder, 12));
        assert!(decode(id, &[9], 1).is_err() && decode(id, &[], 1).is_err());
    }

    #[test]
    fn chunks_decode_to_themselves() {
        let clone = Some(JobId::from_bytes([8; 16]));
        let jobs = vec![TreatedJob { planned: planned(), clone }];
        let chunk = Chunk { treated_at: instant(3), jobs };
        let decoded = decode_chunk(&encode_chunk(&chunk)).unwrap();
        assert_eq!((decoded.treated_at, decoded.jobs), (chunk.treated_at, chunk.jobs));
    }
}
