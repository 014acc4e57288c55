//! A job as bytes.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use longshore_core::attempt::{Attempt, AttemptEnd, AttemptOutcome};
use longshore_core::dependency::{Dependencies, EndedByDependency, PendingPropagation, RequiredDependency};
use longshore_core::failure::{Category, Failure};
use longshore_core::history::{Cause, History, Transition};
use longshore_core::id::{AttemptId, JobId, JobType, LeaseToken, LeaseVersion, QueueName, Seq, WorkerName, WorkflowId};
use longshore_core::job::{Counters, IdempotencyKey, IndexedFields, Job};
use longshore_core::lease::Lease;
use longshore_core::policy::{IdempotencyScope, Policy};
use longshore_core::priority::Priority;
use longshore_core::settle::OutcomeKind;
use longshore_core::state::{State, StateKind};
use longshore_core::tags::Tags;
use longshore_core::time::{Duration, Timestamp};
use longshore_core::workflow::Membership;

use super::{DecodeError, FORMAT, Reader, Writer, append_checksum, verify_checksum};
use crate::dictionary::Dictionary;

const OWES: [PendingPropagation; 5] = [
    PendingPropagation::Nothing,
    PendingPropagation::End,
    PendingPropagation::Return,
    PendingPropagation::RevivedThenFinished,
    PendingPropagation::RestartedWithWorkflow,
];

/// Instants count from the creation of the record: small numbers, mostly.
struct TimeBase(Timestamp);

impl TimeBase {
    fn put(&self, writer: &mut Writer, at: Timestamp) {
        writer.zigzag(at.as_millis().wrapping_sub(self.0.as_millis()));
    }

    fn put_option(&self, writer: &mut Writer, at: Option<Timestamp>) {
        writer.option(at, |writer, at| self.put(writer, at));
    }

    fn get(&self, reader: &mut Reader<'_>) -> Result<Timestamp, DecodeError> {
        Ok(Timestamp::from_millis(reader.zigzag()?.wrapping_add(self.0.as_millis())))
    }

    fn get_option(&self, reader: &mut Reader<'_>) -> Result<Option<Timestamp>, DecodeError> {
        reader.option(|reader| self.get(reader))
    }
}

/// Room that a waiting record keeps for what its next claim will add.
const CLAIM_BYTES: usize = 112;
/// Sizes of live records are multiples of this.
const STEP_BYTES: usize = 64;
const CHECKSUM_BYTES: usize = 4;

/// A live record is filled up with zeroes, so that its next version mostly has the same size: SQLite then overwrites it where it lies,
/// and has no pages to balance.
fn pad(job: &Job, bytes: &mut Vec<u8>) {
    if job.is_live() {
        let room = if job.kind() == StateKind::Running { 0 } else { CLAIM_BYTES };
        let size = (bytes.len() + CHECKSUM_BYTES + room).next_multiple_of(STEP_BYTES);
        bytes.resize(size - CHECKSUM_BYTES, 0);
    }
}

/// `None`: a policy with a function in it has no bytes. `buffer` lends its memory.
pub fn encode(job: &Job, names: &Dictionary, buffer: Vec<u8>) -> Option<Vec<u8>> {
    let mut bytes = body(job, names, buffer)?;
    pad(job, &mut bytes);
    Some(append_checksum(job.seq.0, bytes))
}

/// The same without filling, for stores that never overwrite.
pub fn encode_unpadded(job: &Job, names: &Dictionary) -> Option<Vec<u8>> {
    Some(append_checksum(job.seq.0, body(job, names, Vec::with_capacity(256))?))
}

fn body(job: &Job, names: &Dictionary, mut buffer: Vec<u8>) -> Option<Vec<u8>> {
    buffer.clear();
    let mut writer = Writer { bytes: buffer };
    let base = TimeBase(job.created_at);
    writer.byte(FORMAT);
    writer.fixed(job.id.as_bytes());
    put_queue(&mut writer, &job.queue, names);
    put_type(&mut writer, &job.job_type, names);
    put_policy(&mut writer, &job.policy, names)?;
    writer.zigzag(job.created_at.as_millis());
    put_state(&mut writer, &job.state, &base);
    writer.byte(job.priority.level());
    writer.byte(job.inherited_priority.level());
    let Counters { starts, failures, retries_scheduled, requeues, reclaims } = job.counters;
    for count in [starts, failures, retries_scheduled, requeues, reclaims, job.unfinished_dependents] {
        writer.varint(u64::from(count));
    }
    writer.varint(job.lease_version.0);
    writer.byte(variant_index(&OWES, &job.pending_propagation));
    base.put(&mut writer, job.updated_at);
    let times = [
        job.scheduled_at,
        job.started_at,
        job.first_started_at,
        job.last_heartbeat_at,
        job.attempt_ended_at,
        job.lifetime_ends_at,
    ];
    times.into_iter().for_each(|at| base.put_option(&mut writer, at));
    put_tags(&mut writer, &job.tags);
    for text in [&job.correlation_id, &job.callback_url, &job.external_id] {
        writer.option(text.as_deref(), |writer, text| writer.text(text.as_bytes()));
    }
    writer.option(job.idempotency.as_ref(), |writer, key| {
        writer.text(key.key.as_bytes());
        writer.byte(variant_index(IdempotencyScope::ALL, &key.scope));
        put_type(writer, &key.job_type, names);
    });
    for bytes in [&job.progress, &job.checkpoint, &job.result] {
        writer.option(bytes.as_ref(), |writer, bytes| writer.text(bytes));
    }
    writer.option(job.error.as_deref(), |writer, error| put_failure(writer, error, &base));
    put_dependencies(&mut writer, &job.dependencies, &base);
    for id in [job.parent, job.requeued_from, job.requeued_as] {
        writer.option(id, |writer, id| writer.fixed(id.as_bytes()));
    }
    writer.option(job.membership.as_ref(), |writer, membership| {
        writer.fixed(membership.workflow.as_bytes());
        writer.text(membership.reference.as_bytes());
    });
    writer.option(job.last_settlement, |writer, (token, outcome)| {
        writer.fixed(token.as_bytes());
        writer.byte(variant_index(OutcomeKind::ALL, &outcome));
    });
    writer.varint(job.attempts.len() as u64);
    for attempt in &job.attempts {
        put_attempt(&mut writer, attempt, job.error.as_ref(), &base);
    }
    writer.varint(job.history.moves().len() as u64);
    for step in job.history.moves() {
        writer.option(step.from, |writer, from| writer.byte(variant_index(StateKind::ALL, &from)));
        writer.byte(variant_index(StateKind::ALL, &step.to));
        base.put(&mut writer, step.at);
        writer.byte(variant_index(Cause::ALL, &step.cause));
    }
    Some(writer.bytes)
}

/// `all` and the enumeration are written by one macro, so the place is always found.
fn variant_index<T: PartialEq>(all: &[T], value: &T) -> u8 {
    all.iter().position(|candidate| candidate == value).and_then(|place| u8::try_from(place).ok()).unwrap_or(u8::MAX)
}

/// The first part of a record: all that the order of jobs depends on. Names are lent, not counted: where one thread reads and another
/// files, both would count on the same few words of memory.
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
    live_dependents: u32,
    lease_version: LeaseVersion,
    owes: PendingPropagation,
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
            pending_propagation: self.owes,
            updated_at: self.updated_at,
        }
    }

    fn read(seq: Seq, reader: &mut Reader<'_>, names: &'a Dictionary) -> Result<Self, DecodeError> {
        if reader.byte()? != FORMAT {
            return Err(DecodeError);
        }
        let id = JobId::from_bytes(reader.fixed()?);
        let queue = get_queue(reader, names)?;
        let job_type = get_type(reader, names)?;
        let policy = get_policy(reader, names)?;
        let created_at = Timestamp::from_millis(reader.zigzag()?);
        let base = TimeBase(created_at);
        Ok(Self {
            seq,
            id,
            queue,
            job_type,
            policy,
            created_at,
            state: get_state(reader, &base)?,
            priority: get_priority(reader)?,
            inherited_priority: get_priority(reader)?,
            counters: Counters {
                starts: reader.varint_as()?,
                failures: reader.varint_as()?,
                retries_scheduled: reader.varint_as()?,
                requeues: reader.varint_as()?,
                reclaims: reader.varint_as()?,
            },
            live_dependents: reader.varint_as()?,
            lease_version: LeaseVersion(reader.varint()?),
            owes: reader.variant(&OWES)?,
            updated_at: base.get(reader)?,
            scheduled_at: base.get_option(reader)?,
            started_at: base.get_option(reader)?,
            first_started_at: base.get_option(reader)?,
            last_heartbeat_at: base.get_option(reader)?,
            attempt_ended_at: base.get_option(reader)?,
            lifetime_ends_at: base.get_option(reader)?,
        })
    }
}

/// What most jobs have nothing of.
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
    settled: Option<(LeaseToken, OutcomeKind)>,
}

impl RecordTail {
    /// Each of them is a byte 0 where there is nothing.
    const NOTHING: [u8; 15] = [0; 15];

    #[inline]
    fn read(reader: &mut Reader<'_>, names: &Dictionary, base: &TimeBase) -> Result<Self, DecodeError> {
        if reader.skip(&Self::NOTHING) {
            return Ok(Self::default());
        }
        Ok(Self {
            tags: get_tags(reader)?,
            correlation_id: get_text(reader)?,
            callback_url: get_text(reader)?,
            external_id: get_text(reader)?,
            idempotency: reader.option(|reader| {
                Ok(IdempotencyKey {
                    key: Arc::from(reader.text()?),
                    scope: reader.variant(IdempotencyScope::ALL)?,
                    job_type: get_type(reader, names)?.into_owned(),
                })
            })?,
            progress: get_bytes(reader)?,
            checkpoint: get_bytes(reader)?,
            result: get_bytes(reader)?,
            error: reader.option(|reader| get_failure(reader, base).map(Arc::new))?,
            dependencies: get_dependencies(reader, base)?,
            parent: get_id(reader)?,
            requeued_from: get_id(reader)?,
            requeued_as: get_id(reader)?,
            membership: reader.option(|reader| {
                let workflow = WorkflowId::from_bytes(reader.fixed()?);
                Ok(Membership { workflow, reference: Arc::from(reader.text()?) })
            })?,
            settled: reader
                .option(|reader| Ok((LeaseToken::from_bytes(reader.fixed()?), reader.variant(OutcomeKind::ALL)?)))?,
        })
    }
}

/// Of a record whose checksum is known to be right: looks no further than it must, the checksum vouches for the rest.
pub fn decode_head<'a>(seq: Seq, bytes: &[u8], names: &'a Dictionary) -> Result<RecordHeader<'a>, DecodeError> {
    RecordHeader::read(seq, &mut Reader::new(bytes), names)
}

pub fn decode(seq: Seq, sealed: &[u8], names: &Dictionary) -> Result<Job, DecodeError> {
    decode_unchecked(seq, verify_checksum(seq.0, sealed)?, names)
}

/// Of a record whose checksum is known to be right.
pub fn decode_unchecked(seq: Seq, bytes: &[u8], names: &Dictionary) -> Result<Job, DecodeError> {
    let reader = &mut Reader::new(bytes);
    let head = RecordHeader::read(seq, reader, names)?;
    let base = TimeBase(head.created_at);
    let more = RecordTail::read(reader, names, &base)?;
    let attempts = reader.list(|reader| get_attempt(reader, more.error.as_ref(), &base))?;
    let moves = reader.list(|reader| get_move(reader, &base))?;
    reader.end_or_padding()?;
    // Put together in one place at the end: a job is large, and moving it costs as much as reading it.
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
        unfinished_dependents: head.live_dependents,
        lease_version: head.lease_version,
        pending_propagation: head.owes,
        updated_at: head.updated_at,
        scheduled_at: head.scheduled_at,
        started_at: head.started_at,
        first_started_at: head.first_started_at,
        last_heartbeat_at: head.last_heartbeat_at,
        attempt_ended_at: head.attempt_ended_at,
        lifetime_ends_at: head.lifetime_ends_at,
        tags: more.tags,
        correlation_id: more.correlation_id,
        callback_url: more.callback_url,
        external_id: more.external_id,
        idempotency: more.idempotency,
        progress: more.progress,
        checkpoint: more.checkpoint,
        result: more.result,
        error: more.error,
        dependencies: more.dependencies,
        parent: more.parent,
        requeued_from: more.requeued_from,
        requeued_as: more.requeued_as,
        membership: more.membership,
        last_settlement: more.settled,
        attempts,
        history: History::from_transitions(moves),
    })
}

/// A name with a number is written as number + 1; 0 says that the name itself follows.
fn put_number_or(writer: &mut Writer, number: Option<u32>, write: impl FnOnce(&mut Writer)) {
    match number {
        Some(number) => writer.varint(u64::from(number) + 1),
        None => {
            writer.varint(0);
            write(writer);
        }
    }
}

fn get_number(reader: &mut Reader<'_>) -> Result<Option<u32>, DecodeError> {
    match reader.varint()?.checked_sub(1) {
        None => Ok(None),
        Some(number) => u32::try_from(number).map(Some).map_err(|_| DecodeError),
    }
}

fn put_queue(writer: &mut Writer, queue: &QueueName, names: &Dictionary) {
    put_number_or(writer, names.queue_number(queue), |writer| writer.text(queue.as_str().as_bytes()));
}

fn get_queue<'a>(reader: &mut Reader<'_>, names: &'a Dictionary) -> Result<Cow<'a, QueueName>, DecodeError> {
    match get_number(reader)? {
        Some(number) => names.queue(number).map(Cow::Borrowed).ok_or(DecodeError),
        None => QueueName::new(reader.text()?).map(Cow::Owned).map_err(|_| DecodeError),
    }
}

fn put_type(writer: &mut Writer, job_type: &JobType, names: &Dictionary) {
    put_number_or(writer, names.type_number(job_type), |writer| writer.text(job_type.as_str().as_bytes()));
}

fn get_type<'a>(reader: &mut Reader<'_>, names: &'a Dictionary) -> Result<Cow<'a, JobType>, DecodeError> {
    match get_number(reader)? {
        Some(number) => names.job_type(number).map(Cow::Borrowed).ok_or(DecodeError),
        None => JobType::new(reader.text()?).map(Cow::Owned).map_err(|_| DecodeError),
    }
}

fn put_policy(writer: &mut Writer, policy: &Arc<Policy>, names: &Dictionary) -> Option<()> {
    match names.policy_number(policy) {
        Some(number) => writer.varint(u64::from(number) + 1),
        None => {
            let bytes = super::policy::encode(policy).ok()?;
            writer.varint(0);
            writer.text(&bytes);
        }
    }
    Some(())
}

fn get_policy<'a>(reader: &mut Reader<'_>, names: &'a Dictionary) -> Result<Cow<'a, Arc<Policy>>, DecodeError> {
    match get_number(reader)? {
        Some(number) => names.policy(number).map(Cow::Borrowed).ok_or(DecodeError),
        None => super::policy::decode(reader.bytes()?).map(|policy| Cow::Owned(Arc::new(policy))),
    }
}

fn get_move(reader: &mut Reader<'_>, base: &TimeBase) -> Result<Transition, DecodeError> {
    Ok(Transition {
        from: reader.option(|reader| reader.variant(StateKind::ALL))?,
        to: reader.variant(StateKind::ALL)?,
        at: base.get(reader)?,
        cause: reader.variant(Cause::ALL)?,
    })
}

fn get_text(reader: &mut Reader<'_>) -> Result<Option<Arc<str>>, DecodeError> {
    reader.option(|reader| reader.text().map(Arc::from))
}

fn get_bytes(reader: &mut Reader<'_>) -> Result<Option<Bytes>, DecodeError> {
    reader.option(|reader| reader.bytes().map(Bytes::copy_from_slice))
}

fn get_id(reader: &mut Reader<'_>) -> Result<Option<JobId>, DecodeError> {
    reader.option(|reader| reader.fixed().map(JobId::from_bytes))
}

fn get_priority(reader: &mut Reader<'_>) -> Result<Priority, DecodeError> {
    Priority::from_level(reader.byte()?).ok_or(DecodeError)
}

fn put_worker(writer: &mut Writer, worker: Option<&WorkerName>) {
    writer.option(worker, |writer, worker| writer.text(worker.as_str().as_bytes()));
}

fn get_worker(reader: &mut Reader<'_>) -> Result<Option<WorkerName>, DecodeError> {
    reader.option(|reader| WorkerName::new(reader.text()?).map_err(|_| DecodeError))
}

fn put_state(writer: &mut Writer, state: &State, base: &TimeBase) {
    writer.byte(variant_index(StateKind::ALL, &state.kind()));
    match state {
        State::Pending { held, run_at } => {
            writer.flag(*held);
            base.put_option(writer, *run_at);
        }
        State::Scheduled { position } => writer.varint(*position),
        State::Delayed { until } | State::Retrying { until } => base.put(writer, *until),
        State::Running(lease) => {
            writer.fixed(lease.token.as_bytes());
            put_worker(writer, lease.worker.as_ref());
            writer.option(lease.length, |writer, length| writer.varint(length.as_millis()));
            base.put_option(writer, lease.expires_at);
            base.put_option(writer, lease.deadline_at);
            writer.option(lease.cancel_requested.as_deref(), |writer, reason| writer.text(reason.as_bytes()));
            writer.varint(lease.position);
        }
        State::Completed { at } | State::Failed { at } | State::DeadLetter { at } | State::Cancelled { at } => {
            base.put(writer, *at);
        }
    }
}

fn get_state(reader: &mut Reader<'_>, base: &TimeBase) -> Result<State, DecodeError> {
    Ok(match reader.variant(StateKind::ALL)? {
        StateKind::Pending => State::Pending { held: reader.flag()?, run_at: base.get_option(reader)? },
        StateKind::Scheduled => State::Scheduled { position: reader.varint()? },
        StateKind::Delayed => State::Delayed { until: base.get(reader)? },
        StateKind::Retrying => State::Retrying { until: base.get(reader)? },
        StateKind::Running => State::Running(Lease {
            token: LeaseToken::from_bytes(reader.fixed()?),
            worker: get_worker(reader)?,
            length: reader.option(|reader| reader.varint().map(Duration::from_millis))?,
            expires_at: base.get_option(reader)?,
            deadline_at: base.get_option(reader)?,
            cancel_requested: get_text(reader)?,
            position: reader.varint()?,
        }),
        StateKind::Completed => State::Completed { at: base.get(reader)? },
        StateKind::Failed => State::Failed { at: base.get(reader)? },
        StateKind::DeadLetter => State::DeadLetter { at: base.get(reader)? },
        StateKind::Cancelled => State::Cancelled { at: base.get(reader)? },
    })
}

fn put_tags(writer: &mut Writer, tags: &Tags) {
    match tags {
        Tags::None => writer.byte(0),
        Tags::Map(map) => {
            writer.byte(1);
            writer.varint(map.len() as u64);
            for (key, value) in map {
                writer.text(key.as_bytes());
                writer.option(value.as_deref(), |writer, value| writer.text(value.as_bytes()));
            }
        }
        Tags::List(list) => {
            writer.byte(2);
            writer.varint(list.len() as u64);
            list.iter().for_each(|tag| writer.text(tag.as_bytes()));
        }
    }
}

fn get_tags(reader: &mut Reader<'_>) -> Result<Tags, DecodeError> {
    match reader.byte()? {
        0 => Ok(Tags::None),
        1 => {
            let pairs = reader.list(|reader| Ok((Arc::from(reader.text()?), get_text(reader)?)))?;
            Ok(Tags::Map(BTreeMap::from_iter(pairs)))
        }
        2 => Ok(Tags::List(reader.list(|reader| reader.text().map(Arc::from))?)),
        _ => Err(DecodeError),
    }
}

fn put_failure(writer: &mut Writer, failure: &Failure, base: &TimeBase) {
    writer.byte(variant_index(Category::ALL, &failure.category));
    writer.option(failure.code.as_deref(), |writer, code| writer.text(code.as_bytes()));
    writer.text(failure.message.as_bytes());
    writer.option(failure.cause.as_deref(), |writer, cause| writer.text(cause.as_bytes()));
    base.put(writer, failure.at);
}

fn get_failure(reader: &mut Reader<'_>, base: &TimeBase) -> Result<Failure, DecodeError> {
    Ok(Failure {
        category: reader.variant(Category::ALL)?,
        code: get_text(reader)?,
        message: Arc::from(reader.text()?),
        cause: get_text(reader)?,
        at: base.get(reader)?,
    })
}

/// Nearly all jobs have none: one byte.
fn put_dependencies(writer: &mut Writer, dependencies: &Dependencies, base: &TimeBase) {
    let some = (*dependencies != Dependencies::default()).then_some(dependencies);
    writer.option(some, |writer, dependencies| {
        writer.varint(dependencies.after.len() as u64);
        for after in &dependencies.after {
            writer.fixed(after.id.as_bytes());
            writer.flag(after.met);
        }
        writer.varint(dependencies.after_any.len() as u64);
        dependencies.after_any.iter().for_each(|id| writer.fixed(id.as_bytes()));
        writer.varint(u64::from(dependencies.unmet));
        writer.flag(dependencies.any_satisfied);
        writer.varint(u64::from(dependencies.depth));
        writer.option(dependencies.ended_by, |writer, through| {
            writer.fixed(through.dependency.as_bytes());
            writer.flag(through.held);
            base.put_option(writer, through.run_at);
        });
    });
}

fn get_dependencies(reader: &mut Reader<'_>, base: &TimeBase) -> Result<Dependencies, DecodeError> {
    let read = reader.option(|reader| {
        Ok(Dependencies {
            after: reader.list(|reader| {
                Ok(RequiredDependency { id: JobId::from_bytes(reader.fixed()?), met: reader.flag()? })
            })?,
            after_any: reader.list(|reader| reader.fixed().map(JobId::from_bytes))?,
            unmet: reader.varint_as()?,
            any_satisfied: reader.flag()?,
            depth: reader.varint_as()?,
            ended_by: reader.option(|reader| {
                Ok(EndedByDependency {
                    dependency: JobId::from_bytes(reader.fixed()?),
                    held: reader.flag()?,
                    run_at: base.get_option(reader)?,
                })
            })?,
        })
    })?;
    Ok(read.unwrap_or_default())
}

/// The error of the last attempt is mostly the job's own, and is then not written twice.
fn put_attempt(writer: &mut Writer, attempt: &Attempt, job_error: Option<&Arc<Failure>>, base: &TimeBase) {
    writer.fixed(attempt.id.as_bytes());
    writer.option(attempt.previous_id, |writer, id| writer.fixed(id.as_bytes()));
    writer.varint(u64::from(attempt.number));
    put_worker(writer, attempt.worker.as_ref());
    writer.varint(attempt.lease_version.0);
    base.put(writer, attempt.started_at);
    writer.option(attempt.end.as_ref(), |writer, end| {
        base.put(writer, end.at);
        writer.byte(variant_index(AttemptOutcome::ALL, &end.outcome));
        match (&end.error, job_error) {
            (None, _) => writer.byte(0),
            (Some(error), Some(job_error)) if error == job_error => writer.byte(2),
            (Some(error), _) => {
                writer.byte(1);
                put_failure(writer, error, base);
            }
        }
        writer.option(end.next_delay, |writer, delay| writer.varint(delay.as_millis()));
    });
}

fn get_attempt(
    reader: &mut Reader<'_>,
    job_error: Option<&Arc<Failure>>,
    base: &TimeBase,
) -> Result<Attempt, DecodeError> {
    Ok(Attempt {
        id: AttemptId::from_bytes(reader.fixed()?),
        previous_id: reader.option(|reader| reader.fixed().map(AttemptId::from_bytes))?,
        number: reader.varint_as()?,
        worker: get_worker(reader)?,
        lease_version: LeaseVersion(reader.varint()?),
        started_at: base.get(reader)?,
        end: reader.option(|reader| {
            Ok(AttemptEnd {
                at: base.get(reader)?,
                outcome: reader.variant(AttemptOutcome::ALL)?,
                error: match reader.byte()? {
                    0 => None,
                    1 => Some(Arc::new(get_failure(reader, base)?)),
                    2 => Some(Arc::clone(job_error.ok_or(DecodeError)?)),
                    _ => return Err(DecodeError),
                },
                next_delay: reader.option(|reader| reader.varint().map(Duration::from_millis))?,
            })
        })?,
    })
}
