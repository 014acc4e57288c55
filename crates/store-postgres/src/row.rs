//! A job as a row: its record, and the columns that follow from it.

use longshore_codec::type_hash;
use longshore_core::dependency::PendingPropagation;
use longshore_core::id::Seq;
use longshore_core::job::Job;
use longshore_core::policy::{OnLeaseExpiry, Reclaim};
use longshore_core::state::{State, StateKind};
use longshore_core::submit::Payload;
use longshore_core::time::Timestamp;
use longshore_engine::ReadyKey;
use longshore_store::query::has_words;
use tokio_postgres::Row;

use crate::connection::get;
use crate::error::TxError;

/// Where a record lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Jobs,
    Archive,
}

/// A row as it was read, and locked.
#[derive(Clone, Debug)]
pub(crate) struct JobRow {
    pub origin: Origin,
    pub state: i16,
    pub lease_version: i64,
    pub place: Option<i64>,
    pub due: Option<(i64, i16)>,
    pub record: Vec<u8>,
    /// How far its news have come.
    pub told: Option<i64>,
    pub payload: Option<Payload>,
}

impl JobRow {
    /// Columns: seq, state, lease_version, place, due_at, timer, record, told.
    pub(crate) fn live(row: &Row) -> Result<(Seq, Self), TxError> {
        let due: (Option<i64>, Option<i16>) = (get(row, 4)?, get(row, 5)?);
        let found = Self {
            origin: Origin::Jobs,
            state: get(row, 1)?,
            lease_version: get(row, 2)?,
            place: get(row, 3)?,
            due: due.0.map(|at| (at, due.1.unwrap_or(0))),
            record: get(row, 6)?,
            told: get(row, 7)?,
            payload: None,
        };
        Ok((seq(row)?, found))
    }

    /// The same with kind and bytes of the payload.
    pub(crate) fn claimable(row: &Row) -> Result<(Seq, Self), TxError> {
        let (seq, mut found) = Self::live(row)?;
        found.payload = Some(payload(get(row, 8)?, get(row, 9)?, seq)?);
        Ok((seq, found))
    }

    /// Columns: seq, state, lease_version, record.
    pub(crate) fn archived(row: &Row) -> Result<(Seq, Self), TxError> {
        let found = Self {
            origin: Origin::Archive,
            state: get(row, 1)?,
            lease_version: get(row, 2)?,
            place: None,
            due: None,
            record: get(row, 3)?,
            told: None,
            payload: None,
        };
        Ok((seq(row)?, found))
    }

    /// A running job that the next claim may take over.
    pub(crate) fn is_reclaimable(&self) -> bool {
        self.place.is_some() && self.state == number_of(StateKind::Running)
    }
}

pub(crate) fn seq(row: &Row) -> Result<Seq, TxError> {
    Ok(Seq(get::<i64>(row, 0)?.cast_unsigned()))
}

pub(crate) fn payload(kind: i16, bytes: Vec<u8>, seq: Seq) -> Result<Payload, TxError> {
    match kind {
        0 => Ok(Payload::Json(bytes.into())),
        1 => Ok(Payload::Binary(bytes.into())),
        _ => Err(TxError::Damaged(format!("the payload of job {seq}"))),
    }
}

pub(crate) fn kind_of(payload: &Payload) -> i16 {
    match payload {
        Payload::Json(_) => 0,
        Payload::Binary(_) => 1,
    }
}

pub(crate) fn number_of(state: StateKind) -> i16 {
    state as i16
}

/// News that a job owes come after the timers in the list of what may be due.
const TIMER_PROPAGATION: i16 = 5;

/// The columns beside the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IndexColumns {
    pub place: Option<i64>,
    pub due: Option<(i64, i16)>,
    pub job_type: i64,
    pub lease_version: i64,
    pub came_at: Option<i64>,
    pub ended_at: Option<i64>,
    pub prune_at: Option<i64>,
    pub state: i16,
    pub urgency: i16,
    pub priority: i16,
    pub over: bool,
    pub plain: bool,
}

impl IndexColumns {
    pub(crate) fn of(job: &Job, ordering: ReadyKey) -> Self {
        let place = ordering.place.map(u64::cast_signed);
        let timer = ordering.timer.map(|(at, kind)| (at.as_millis(), kind as i16));
        let news = (job.pending_propagation != PendingPropagation::Nothing)
            .then(|| (job.updated_at.as_millis(), TIMER_PROPAGATION));
        let came_at = job.scheduled_at.filter(|at| place.is_some() && *at != job.created_at);
        Self {
            place,
            due: timer.into_iter().chain(news).min(),
            job_type: type_hash(job.job_type.as_str()),
            lease_version: job.lease_version.0.cast_signed(),
            came_at: came_at.filter(|_| job.kind() == StateKind::Scheduled).map(Timestamp::as_millis),
            ended_at: job.state.completed_at().map(Timestamp::as_millis),
            prune_at: job.prune_at().map(Timestamp::as_millis),
            state: number_of(job.kind()),
            urgency: i16::from(job.effective_priority().level()),
            priority: i16::from(job.priority.level()),
            over: !job.is_live() && job.unfinished_dependents == 0,
            plain: !has_words(job)
                && job.external_id.is_none()
                && job.dependencies.all().is_empty()
                && job.parent.is_none()
                && job.membership.is_none(),
        }
    }
}

/// Whether a job that was offered to the next claim still is.
pub(crate) fn remains_reclaimable(job: &Job, now: Timestamp) -> bool {
    let lazy = job.policy.reclaim == Reclaim::Lazy
        && match job.policy.on_lease_expiry {
            OnLeaseExpiry::ReclaimCounted | OnLeaseExpiry::ReclaimFree => true,
            OnLeaseExpiry::FailTimeout | OnLeaseExpiry::FailRetryable => false,
        };
    match &job.state {
        State::Running(lease) => lazy && lease.expired(now),
        State::Pending { .. }
        | State::Scheduled { .. }
        | State::Delayed { .. }
        | State::Retrying { .. }
        | State::Completed { .. }
        | State::Failed { .. }
        | State::DeadLetter { .. }
        | State::Cancelled { .. } => false,
    }
}
