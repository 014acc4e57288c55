//! A job as a row: its record, and the index columns derived from it.

use longshore_core::dependency::PendingPropagation;
use longshore_core::id::Seq;
use longshore_core::job::Job;
use longshore_core::policy::{OnLeaseExpiry, Reclaim};
use longshore_core::state::{State, StateKind};
use longshore_core::submit::Payload;
use longshore_core::time::Timestamp;
use longshore_engine::ReadyKey;
use longshore_store::query::has_terms;
use tokio_postgres::Row;

use crate::connection::get;
use crate::error::TxError;

/// The table that a row was read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Jobs,
    Archive,
}

/// A row as it was read.
#[derive(Clone, Debug)]
pub(crate) struct JobRow {
    pub origin: Origin,
    pub state: i16,
    pub lease_version: i64,
    pub ready_position: Option<i64>,
    pub due: Option<(i64, i16)>,
    pub record: Vec<u8>,
    /// Last dependent that the completion has been propagated to; `None`: not in progress.
    pub propagation_cursor: Option<i64>,
    pub payload: Option<Payload>,
    /// Size of the payload; `None`: not known.
    pub payload_bytes: Option<usize>,
}

impl JobRow {
    /// Columns: seq, state, lease_version, ready_position, due_at, timer_kind, record,
    /// propagation_cursor.
    pub(crate) fn live(row: &Row) -> Result<(Seq, Self), TxError> {
        let due: (Option<i64>, Option<i16>) = (get(row, 4)?, get(row, 5)?);
        let job = Self {
            origin: Origin::Jobs,
            state: get(row, 1)?,
            lease_version: get(row, 2)?,
            ready_position: get(row, 3)?,
            due: due.0.map(|at| (at, due.1.unwrap_or(0))),
            record: get(row, 6)?,
            propagation_cursor: get(row, 7)?,
            payload: None,
            payload_bytes: None,
        };
        Ok((seq(row)?, job))
    }

    /// As [`Self::claimable`], without the bytes of a large payload, then its size.
    pub(crate) fn scanned(row: &Row) -> Result<(Seq, Self), TxError> {
        let (seq, mut job) = Self::live(row)?;
        let (kind, bytes): (i16, Option<Vec<u8>>) = (get(row, 8)?, get(row, 9)?);
        job.payload = bytes.map(|bytes| payload(kind, bytes, seq)).transpose()?;
        job.payload_bytes = usize::try_from(get::<i32>(row, 10)?).ok();
        Ok((seq, job))
    }

    /// As [`Self::live`], then kind and bytes of the payload.
    pub(crate) fn claimable(row: &Row) -> Result<(Seq, Self), TxError> {
        let (seq, mut job) = Self::live(row)?;
        job.payload = Some(payload(get(row, 8)?, get(row, 9)?, seq)?);
        Ok((seq, job))
    }

    /// Columns: seq, state, lease_version, record.
    pub(crate) fn archived(row: &Row) -> Result<(Seq, Self), TxError> {
        let job = Self {
            origin: Origin::Archive,
            state: get(row, 1)?,
            lease_version: get(row, 2)?,
            ready_position: None,
            due: None,
            record: get(row, 3)?,
            propagation_cursor: None,
            payload: None,
            payload_bytes: None,
        };
        Ok((seq(row)?, job))
    }

    /// A running job that the next claim may take over.
    pub(crate) fn is_reclaimable(&self) -> bool {
        self.ready_position.is_some() && self.state == number_of(StateKind::Running)
    }
}

pub(crate) fn seq(row: &Row) -> Result<Seq, TxError> {
    Ok(Seq(get::<i64>(row, 0)?.cast_unsigned()))
}

pub(crate) fn payload(kind: i16, bytes: Vec<u8>, seq: Seq) -> Result<Payload, TxError> {
    match kind {
        0 => Ok(Payload::Json(bytes.into())),
        1 => Ok(Payload::Binary(bytes.into())),
        _ => Err(TxError::Damaged(format!("payload of job {seq}"))),
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

/// 64-bit FNV-1a. Types with the same hash share index entries; the record tells them apart.
pub(crate) fn type_hash(job_type: &str) -> i64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in job_type.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash.cast_signed()
}

/// Timer kind of a pending propagation; it follows the kinds of the rules.
const TIMER_PROPAGATION: i16 = 5;

/// The columns next to the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IndexColumns {
    pub ready_position: Option<i64>,
    pub due: Option<(i64, i16)>,
    pub type_hash: i64,
    pub lease_version: i64,
    pub enqueued_at: Option<i64>,
    pub ended_at: Option<i64>,
    pub prune_at: Option<i64>,
    pub state: i16,
    pub effective_priority: i16,
    pub priority: i16,
    pub archivable: bool,
    pub standalone: bool,
}

impl IndexColumns {
    pub(crate) fn of(job: &Job, ordering: ReadyKey) -> Self {
        let ready_position = ordering.place.map(u64::cast_signed);
        let timer = ordering.timer.map(|(at, kind)| (at.as_millis(), kind as i16));
        let propagation = (job.pending_propagation != PendingPropagation::Nothing)
            .then(|| (job.updated_at.as_millis(), TIMER_PROPAGATION));
        let enqueued_at = job.scheduled_at.filter(|at| ready_position.is_some() && *at != job.created_at);
        Self {
            ready_position,
            due: timer.into_iter().chain(propagation).min(),
            type_hash: type_hash(job.job_type.as_str()),
            lease_version: job.lease_version.0.cast_signed(),
            enqueued_at: enqueued_at.filter(|_| job.kind() == StateKind::Scheduled).map(Timestamp::as_millis),
            ended_at: job.state.completed_at().map(Timestamp::as_millis),
            prune_at: job.prune_at().map(Timestamp::as_millis),
            state: number_of(job.kind()),
            effective_priority: i16::from(job.effective_priority().level()),
            priority: i16::from(job.priority.level()),
            archivable: !job.is_live() && job.unfinished_dependents == 0,
            standalone: !has_terms(job)
                && job.external_id.is_none()
                && job.dependencies.all().is_empty()
                && job.parent.is_none()
                && job.membership.is_none(),
        }
    }
}

/// Whether a running job that the next claim could take over still can be.
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
