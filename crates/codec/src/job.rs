//! The encoding of a job.

mod fields;

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use longshore_core::dependency::{Dependencies, PendingPropagation};
use longshore_core::failure::Failure;
use longshore_core::history::{Cause, History};
use longshore_core::id::{JobId, JobType, LeaseToken, LeaseVersion, QueueName, Seq, WorkflowId};
use longshore_core::job::{Counters, IdempotencyKey, IndexedFields, Job};
use longshore_core::policy::{IdempotencyScope, Policy};
use longshore_core::priority::Priority;
use longshore_core::settle::OutcomeKind;
use longshore_core::state::{State, StateKind};
use longshore_core::tags::Tags;
use longshore_core::time::Timestamp;
use longshore_core::workflow::Membership;

use crate::dictionary::Dictionary;
use crate::record::{DecodeError, Decoder, Encoder, FORMAT, append_checksum, verify_checksum};
use fields::*;

const PROPAGATIONS: [PendingPropagation; 5] = [
    PendingPropagation::Nothing,
    PendingPropagation::End,
    PendingPropagation::Return,
    PendingPropagation::RevivedThenFinished,
    PendingPropagation::RestartedWithWorkflow,
];

/// Padding of a waiting record, for the fields that its next claim will add.
const CLAIM_BYTES: usize = 112;
/// The sizes of live records are multiples of this.
const STEP_BYTES: usize = 64;
const CHECKSUM_BYTES: usize = 4;
/// Starts the schedule of a job, behind all other fields. Zero would be padding.
const SCHEDULE_FIELD: u8 = 1;
/// Starts the trace context of a job, behind its schedule.
const TRACE_FIELD: u8 = 2;

/// Pads a live record with zeroes, so that its next version usually has the same size. SQLite then
/// overwrites it in place and does not rebalance pages.
fn pad(job: &Job, bytes: &mut Vec<u8>) {
    if job.is_live() {
        let padding = if job.kind() == StateKind::Running { 0 } else { CLAIM_BYTES };
        let size = (bytes.len() + CHECKSUM_BYTES + padding).next_multiple_of(STEP_BYTES);
        bytes.resize(size - CHECKSUM_BYTES, 0);
    }
}

/// Encodes a job, with padding. Returns `None` if its policy contains a function. The memory of
/// `buffer` is reused.
pub fn encode(job: &Job, names: &Dictionary, buffer: Vec<u8>) -> Option<Vec<u8>> {
    let mut bytes = encode_body(job, names, buffer)?;
    pad(job, &mut bytes);
    Some(append_checksum(job.seq.0, bytes))
}

/// Encodes a job without padding, for stores that do not overwrite in place.
pub fn encode_unpadded(job: &Job, names: &Dictionary) -> Option<Vec<u8>> {
    Some(append_checksum(job.seq.0, encode_body(job, names, Vec::with_capacity(256))?))
}

fn encode_body(job: &Job, names: &Dictionary, mut buffer: Vec<u8>) -> Option<Vec<u8>> {
    buffer.clear();
    let mut encoder = Encoder { bytes: buffer };
    let base = TimeBase(job.created_at);
    encoder.byte(FORMAT);
    encoder.fixed(job.id.as_bytes());
    put_queue(&mut encoder, &job.queue, names);
    put_type(&mut encoder, &job.job_type, names);
    put_policy(&mut encoder, &job.policy, names)?;
    encoder.zigzag(job.created_at.as_millis());
    put_state(&mut encoder, &job.state, &base);
    encoder.byte(job.priority.level());
    encoder.byte(job.inherited_priority.level());
    let Counters { starts, failures, retries_scheduled, requeues, reclaims } = job.counters;
    for count in [starts, failures, retries_scheduled, requeues, reclaims, job.unfinished_dependents] {
        encoder.varint(u64::from(count));
    }
    encoder.varint(job.lease_version.0);
    encoder.byte(variant_index(&PROPAGATIONS, &job.pending_propagation));
    base.put(&mut encoder, job.updated_at);
    let times = [
        job.scheduled_at,
        job.started_at,
        job.first_started_at,
        job.last_heartbeat_at,
        job.attempt_ended_at,
        job.lifetime_ends_at,
    ];
    times.into_iter().for_each(|at| base.put_option(&mut encoder, at));
    put_tags(&mut encoder, &job.tags);
    for text in [&job.correlation_id, &job.callback_url, &job.external_id] {
        encoder.option(text.as_deref(), |encoder, text| encoder.text(text.as_bytes()));
    }
    encoder.option(job.idempotency.as_ref(), |encoder, key| {
        encoder.text(key.key.as_bytes());
        encoder.byte(variant_index(IdempotencyScope::ALL, &key.scope));
        put_type(encoder, &key.job_type, names);
    });
    for bytes in [&job.progress, &job.checkpoint, &job.result] {
        encoder.option(bytes.as_ref(), |encoder, bytes| encoder.text(bytes));
    }
    encoder.option(job.error.as_deref(), |encoder, error| put_failure(encoder, error, &base));
    put_dependencies(&mut encoder, &job.dependencies, &base);
    for id in [job.parent, job.requeued_from, job.requeued_as] {
        encoder.option(id, |encoder, id| encoder.fixed(id.as_bytes()));
    }
    encoder.option(job.membership.as_ref(), |encoder, membership| {
        encoder.fixed(membership.workflow.as_bytes());
        encoder.text(membership.reference.as_bytes());
    });
    encoder.option(job.last_settlement, |encoder, (token, outcome)| {
        encoder.fixed(token.as_bytes());
        encoder.byte(variant_index(OutcomeKind::ALL, &outcome));
    });
    put_attempts_and_history(&mut encoder, job, &base);
    put_later_fields(&mut encoder, job, &base);
    Some(encoder.bytes)
}

fn put_attempts_and_history(encoder: &mut Encoder, job: &Job, base: &TimeBase) {
    encoder.varint(job.attempts.len() as u64);
    for attempt in &job.attempts {
        put_attempt(encoder, attempt, job.error.as_ref(), base);
    }
    encoder.varint(job.history.transitions().len() as u64);
    for transition in job.history.transitions() {
        encoder.option(transition.from, |encoder, from| encoder.byte(variant_index(StateKind::ALL, &from)));
        encoder.byte(variant_index(StateKind::ALL, &transition.to));
        base.put(encoder, transition.at);
        encoder.byte(variant_index(Cause::ALL, &transition.cause));
    }
}

/// Fields that were added later are absent, or one byte that is not zero and their value.
fn put_later_fields(encoder: &mut Encoder, job: &Job, base: &TimeBase) {
    if let Some(schedule) = &job.schedule {
        encoder.byte(SCHEDULE_FIELD);
        encoder.text(schedule.name.as_str().as_bytes());
        base.put_option(encoder, schedule.due_at);
    }
    if let Some(parent) = &job.traceparent {
        encoder.byte(TRACE_FIELD);
        put_traceparent(encoder, parent);
    }
}

/// The first part of a record: all fields that the order of jobs depends on.
///
/// Names are borrowed. Cloning their `Arc`s would make two threads contend for the same counters.
#[derive(Debug)]
pub struct RecordHeader<'a> {
    pub seq: Seq,
    id: JobId,
    pub queue: Cow<'a, QueueName>,
    pub job_type: Cow<'a, JobType>,
    policy: Cow<'a, Arc<Policy>>,
    created_at: Timestamp,
    pub state: State,
    pub priority: Priority,
    inherited_priority: Priority,
    counters: Counters,
    unfinished_dependents: u32,
    lease_version: LeaseVersion,
    pending_propagation: PendingPropagation,
    updated_at: Timestamp,
    scheduled_at: Option<Timestamp>,
    started_at: Option<Timestamp>,
    first_started_at: Option<Timestamp>,
    last_heartbeat_at: Option<Timestamp>,
    attempt_ended_at: Option<Timestamp>,
    lifetime_ends_at: Option<Timestamp>,
}

impl<'a> RecordHeader<'a> {
    pub fn outline(&self) -> IndexedFields<'_> {
        IndexedFields {
            seq: self.seq,
            queue: &self.queue,
            job_type: &self.job_type,
            effective_priority: self.priority.more_urgent(self.inherited_priority),
            state: &self.state,
            policy: &self.policy,
            scheduled_at: self.scheduled_at,
            lifetime_ends_at: self.lifetime_ends_at,
            pending_propagation: self.pending_propagation,
            updated_at: self.updated_at,
        }
    }

    fn read(seq: Seq, decoder: &mut Decoder<'_>, names: &'a Dictionary) -> Result<Self, DecodeError> {
        if decoder.byte()? != FORMAT {
            return Err(DecodeError);
        }
        let id = JobId::from_bytes(decoder.fixed()?);
        let queue = get_queue(decoder, names)?;
        let job_type = get_type(decoder, names)?;
        let policy = get_policy(decoder, names)?;
        let created_at = Timestamp::from_millis(decoder.zigzag()?);
        let base = TimeBase(created_at);
        Ok(Self {
            seq,
            id,
            queue,
            job_type,
            policy,
            created_at,
            state: get_state(decoder, &base)?,
            priority: get_priority(decoder)?,
            inherited_priority: get_priority(decoder)?,
            counters: Counters {
                starts: decoder.varint_as()?,
                failures: decoder.varint_as()?,
                retries_scheduled: decoder.varint_as()?,
                requeues: decoder.varint_as()?,
                reclaims: decoder.varint_as()?,
            },
            unfinished_dependents: decoder.varint_as()?,
            lease_version: LeaseVersion(decoder.varint()?),
            pending_propagation: decoder.variant(&PROPAGATIONS)?,
            updated_at: base.get(decoder)?,
            scheduled_at: base.get_option(decoder)?,
            started_at: base.get_option(decoder)?,
            first_started_at: base.get_option(decoder)?,
            last_heartbeat_at: base.get_option(decoder)?,
            attempt_ended_at: base.get_option(decoder)?,
            lifetime_ends_at: base.get_option(decoder)?,
        })
    }
}

/// The optional fields, which most jobs do not have.
#[derive(Default)]
struct RecordTail {
    tags: Tags,
    correlation_id: Option<Arc<str>>,
    callback_url: Option<Arc<str>>,
    external_id: Option<Arc<str>>,
    idempotency: Option<IdempotencyKey>,
    progress: Option<Bytes>,
    checkpoint: Option<Bytes>,
    result: Option<Bytes>,
    error: Option<Arc<Failure>>,
    dependencies: Dependencies,
    parent: Option<JobId>,
    requeued_from: Option<JobId>,
    requeued_as: Option<JobId>,
    membership: Option<Membership>,
    last_settlement: Option<(LeaseToken, OutcomeKind)>,
}

impl RecordTail {
    /// The encoding of a tail without any field: one zero byte per field.
    const EMPTY: [u8; 15] = [0; 15];

    #[inline]
    fn read(decoder: &mut Decoder<'_>, names: &Dictionary, base: &TimeBase) -> Result<Self, DecodeError> {
        if decoder.skip(&Self::EMPTY) {
            return Ok(Self::default());
        }
        Ok(Self {
            tags: get_tags(decoder)?,
            correlation_id: get_text(decoder)?,
            callback_url: get_text(decoder)?,
            external_id: get_text(decoder)?,
            idempotency: decoder.option(|decoder| {
                Ok(IdempotencyKey {
                    key: Arc::from(decoder.text()?),
                    scope: decoder.variant(IdempotencyScope::ALL)?,
                    job_type: get_type(decoder, names)?.into_owned(),
                })
            })?,
            progress: get_bytes(decoder)?,
            checkpoint: get_bytes(decoder)?,
            result: get_bytes(decoder)?,
            error: decoder.option(|decoder| get_failure(decoder, base).map(Arc::new))?,
            dependencies: get_dependencies(decoder, base)?,
            parent: get_id(decoder)?,
            requeued_from: get_id(decoder)?,
            requeued_as: get_id(decoder)?,
            membership: decoder.option(|decoder| {
                let workflow = WorkflowId::from_bytes(decoder.fixed()?);
                Ok(Membership { workflow, reference: Arc::from(decoder.text()?) })
            })?,
            last_settlement: decoder
                .option(|decoder| Ok((LeaseToken::from_bytes(decoder.fixed()?), decoder.variant(OutcomeKind::ALL)?)))?,
        })
    }
}

/// Decodes the first part of a record whose checksum was verified. The rest is not decoded.
pub fn decode_head<'a>(seq: Seq, bytes: &[u8], names: &'a Dictionary) -> Result<RecordHeader<'a>, DecodeError> {
    RecordHeader::read(seq, &mut Decoder::new(bytes), names)
}

pub fn decode(seq: Seq, record: &[u8], names: &Dictionary) -> Result<Job, DecodeError> {
    decode_unchecked(seq, verify_checksum(seq.0, record)?, names)
}

/// Decodes a record whose checksum was verified.
pub fn decode_unchecked(seq: Seq, bytes: &[u8], names: &Dictionary) -> Result<Job, DecodeError> {
    let decoder = &mut Decoder::new(bytes);
    let head = RecordHeader::read(seq, decoder, names)?;
    let base = TimeBase(head.created_at);
    let tail = RecordTail::read(decoder, names, &base)?;
    let attempts = decoder.list(|decoder| get_attempt(decoder, tail.error.as_ref(), &base))?;
    let transitions = decoder.list(|decoder| get_transition(decoder, &base))?;
    let schedule = if decoder.skip(&[SCHEDULE_FIELD]) { Some(get_schedule(decoder, &base)?) } else { None };
    let traceparent = if decoder.skip(&[TRACE_FIELD]) { Some(get_traceparent(decoder)?) } else { None };
    decoder.end_or_padding()?;
    // The job is built in one expression: it is large, and moving it costs as much as decoding it.
    Ok(Job {
        id: head.id,
        seq,
        queue: head.queue.into_owned(),
        job_type: head.job_type.into_owned(),
        policy: head.policy.into_owned(),
        created_at: head.created_at,
        state: head.state,
        priority: head.priority,
        inherited_priority: head.inherited_priority,
        counters: head.counters,
        unfinished_dependents: head.unfinished_dependents,
        lease_version: head.lease_version,
        pending_propagation: head.pending_propagation,
        updated_at: head.updated_at,
        scheduled_at: head.scheduled_at,
        started_at: head.started_at,
        first_started_at: head.first_started_at,
        last_heartbeat_at: head.last_heartbeat_at,
        attempt_ended_at: head.attempt_ended_at,
        lifetime_ends_at: head.lifetime_ends_at,
        tags: tail.tags,
        correlation_id: tail.correlation_id,
        callback_url: tail.callback_url,
        external_id: tail.external_id,
        idempotency: tail.idempotency,
        progress: tail.progress,
        checkpoint: tail.checkpoint,
        result: tail.result,
        error: tail.error,
        dependencies: tail.dependencies,
        parent: tail.parent,
        requeued_from: tail.requeued_from,
        requeued_as: tail.requeued_as,
        schedule,
        traceparent,
        membership: tail.membership,
        last_settlement: tail.last_settlement,
        attempts,
        history: History::from_transitions(transitions),
    })
}
