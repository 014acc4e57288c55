//! The encoding of the parts of a job record.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use longshore_core::attempt::{Attempt, AttemptEnd, AttemptOutcome};
use longshore_core::dependency::{Dependencies, EndedByDependency, RequiredDependency};
use longshore_core::failure::{Category, Failure};
use longshore_core::history::{Cause, Transition};
use longshore_core::id::{AttemptId, JobId, JobType, LeaseToken, LeaseVersion, QueueName, ScheduleName, WorkerName};
use longshore_core::lease::Lease;
use longshore_core::policy::Policy;
use longshore_core::priority::Priority;
use longshore_core::schedule::JobSchedule;
use longshore_core::state::{State, StateKind};
use longshore_core::tags::Tags;
use longshore_core::time::{Duration, Timestamp};
use longshore_core::trace_context::TraceParent;

use crate::dictionary::Dictionary;
use crate::record::{DecodeError, Decoder, Encoder};

/// The creation time of a record. Its other timestamps are stored relative to it, as small numbers.
pub(super) struct TimeBase(pub(super) Timestamp);

impl TimeBase {
    pub(super) fn put(&self, encoder: &mut Encoder, at: Timestamp) {
        encoder.zigzag(at.as_millis().wrapping_sub(self.0.as_millis()));
    }

    pub(super) fn put_option(&self, encoder: &mut Encoder, at: Option<Timestamp>) {
        encoder.option(at, |encoder, at| self.put(encoder, at));
    }

    pub(super) fn get(&self, decoder: &mut Decoder<'_>) -> Result<Timestamp, DecodeError> {
        Ok(Timestamp::from_millis(decoder.zigzag()?.wrapping_add(self.0.as_millis())))
    }

    pub(super) fn get_option(&self, decoder: &mut Decoder<'_>) -> Result<Option<Timestamp>, DecodeError> {
        decoder.option(|decoder| self.get(decoder))
    }
}

/// Returns the index of a variant. One macro generates the enumeration and `all`, so `all` is
/// complete.
pub(super) fn variant_index<T: PartialEq>(all: &[T], value: &T) -> u8 {
    all.iter().position(|candidate| candidate == value).and_then(|index| u8::try_from(index).ok()).unwrap_or(u8::MAX)
}

/// Encodes a dictionary number as number + 1. Without a number, a 0 precedes the value itself.
pub(super) fn put_number_or(encoder: &mut Encoder, number: Option<u32>, write: impl FnOnce(&mut Encoder)) {
    match number {
        Some(number) => encoder.varint(u64::from(number) + 1),
        None => {
            encoder.varint(0);
            write(encoder);
        }
    }
}

pub(super) fn get_number(decoder: &mut Decoder<'_>) -> Result<Option<u32>, DecodeError> {
    match decoder.varint()?.checked_sub(1) {
        None => Ok(None),
        Some(number) => u32::try_from(number).map(Some).map_err(|_| DecodeError),
    }
}

pub(super) fn put_queue(encoder: &mut Encoder, queue: &QueueName, names: &Dictionary) {
    put_number_or(encoder, names.queue_number(queue), |encoder| encoder.text(queue.as_str().as_bytes()));
}

pub(super) fn get_queue<'a>(
    decoder: &mut Decoder<'_>,
    names: &'a Dictionary,
) -> Result<Cow<'a, QueueName>, DecodeError> {
    match get_number(decoder)? {
        Some(number) => names.queue(number).map(Cow::Borrowed).ok_or(DecodeError),
        None => QueueName::new(decoder.text()?).map(Cow::Owned).map_err(|_| DecodeError),
    }
}

pub(super) fn put_type(encoder: &mut Encoder, job_type: &JobType, names: &Dictionary) {
    put_number_or(encoder, names.type_number(job_type), |encoder| encoder.text(job_type.as_str().as_bytes()));
}

pub(super) fn get_type<'a>(decoder: &mut Decoder<'_>, names: &'a Dictionary) -> Result<Cow<'a, JobType>, DecodeError> {
    match get_number(decoder)? {
        Some(number) => names.job_type(number).map(Cow::Borrowed).ok_or(DecodeError),
        None => JobType::new(decoder.text()?).map(Cow::Owned).map_err(|_| DecodeError),
    }
}

pub(super) fn put_policy(encoder: &mut Encoder, policy: &Arc<Policy>, names: &Dictionary) -> Option<()> {
    match names.policy_number(policy) {
        Some(number) => encoder.varint(u64::from(number) + 1),
        None => {
            let bytes = crate::policy::encode(policy).ok()?;
            encoder.varint(0);
            encoder.text(&bytes);
        }
    }
    Some(())
}

pub(super) fn get_policy<'a>(
    decoder: &mut Decoder<'_>,
    names: &'a Dictionary,
) -> Result<Cow<'a, Arc<Policy>>, DecodeError> {
    match get_number(decoder)? {
        Some(number) => names.policy(number).map(Cow::Borrowed).ok_or(DecodeError),
        None => crate::policy::decode(decoder.bytes()?).map(|policy| Cow::Owned(Arc::new(policy))),
    }
}

pub(super) fn get_transition(decoder: &mut Decoder<'_>, base: &TimeBase) -> Result<Transition, DecodeError> {
    Ok(Transition {
        from: decoder.option(|decoder| decoder.variant(StateKind::ALL))?,
        to: decoder.variant(StateKind::ALL)?,
        at: base.get(decoder)?,
        cause: decoder.variant(Cause::ALL)?,
    })
}

pub(super) fn get_text(decoder: &mut Decoder<'_>) -> Result<Option<Arc<str>>, DecodeError> {
    decoder.option(|decoder| decoder.text().map(Arc::from))
}

pub(super) fn get_bytes(decoder: &mut Decoder<'_>) -> Result<Option<Bytes>, DecodeError> {
    decoder.option(|decoder| decoder.bytes().map(Bytes::copy_from_slice))
}

pub(super) fn get_id(decoder: &mut Decoder<'_>) -> Result<Option<JobId>, DecodeError> {
    decoder.option(|decoder| decoder.fixed().map(JobId::from_bytes))
}

pub(super) fn get_priority(decoder: &mut Decoder<'_>) -> Result<Priority, DecodeError> {
    Priority::from_level(decoder.byte()?).ok_or(DecodeError)
}

pub(super) fn put_worker(encoder: &mut Encoder, worker: Option<&WorkerName>) {
    encoder.option(worker, |encoder, worker| encoder.text(worker.as_str().as_bytes()));
}

pub(super) fn get_worker(decoder: &mut Decoder<'_>) -> Result<Option<WorkerName>, DecodeError> {
    decoder.option(|decoder| WorkerName::new(decoder.text()?).map_err(|_| DecodeError))
}

pub(super) fn put_state(encoder: &mut Encoder, state: &State, base: &TimeBase) {
    encoder.byte(variant_index(StateKind::ALL, &state.kind()));
    match state {
        State::Pending { held, run_at } => {
            encoder.flag(*held);
            base.put_option(encoder, *run_at);
        }
        State::Scheduled { position } => encoder.varint(*position),
        State::Delayed { until } | State::Retrying { until } => base.put(encoder, *until),
        State::Running(lease) => {
            encoder.fixed(lease.token.as_bytes());
            put_worker(encoder, lease.worker.as_ref());
            encoder.option(lease.length, |encoder, length| encoder.varint(length.as_millis()));
            base.put_option(encoder, lease.expires_at);
            base.put_option(encoder, lease.deadline_at);
            encoder.option(lease.cancel_requested.as_deref(), |encoder, reason| encoder.text(reason.as_bytes()));
            encoder.varint(lease.position);
        }
        State::Completed { at } | State::Failed { at } | State::DeadLetter { at } | State::Cancelled { at } => {
            base.put(encoder, *at);
        }
    }
}

pub(super) fn get_state(decoder: &mut Decoder<'_>, base: &TimeBase) -> Result<State, DecodeError> {
    Ok(match decoder.variant(StateKind::ALL)? {
        StateKind::Pending => State::Pending { held: decoder.flag()?, run_at: base.get_option(decoder)? },
        StateKind::Scheduled => State::Scheduled { position: decoder.varint()? },
        StateKind::Delayed => State::Delayed { until: base.get(decoder)? },
        StateKind::Retrying => State::Retrying { until: base.get(decoder)? },
        StateKind::Running => State::Running(Lease {
            token: LeaseToken::from_bytes(decoder.fixed()?),
            worker: get_worker(decoder)?,
            length: decoder.option(|decoder| decoder.varint().map(Duration::from_millis))?,
            expires_at: base.get_option(decoder)?,
            deadline_at: base.get_option(decoder)?,
            cancel_requested: get_text(decoder)?,
            position: decoder.varint()?,
        }),
        StateKind::Completed => State::Completed { at: base.get(decoder)? },
        StateKind::Failed => State::Failed { at: base.get(decoder)? },
        StateKind::DeadLetter => State::DeadLetter { at: base.get(decoder)? },
        StateKind::Cancelled => State::Cancelled { at: base.get(decoder)? },
    })
}

pub(super) fn put_tags(encoder: &mut Encoder, tags: &Tags) {
    match tags {
        Tags::None => encoder.byte(0),
        Tags::Map(map) => {
            encoder.byte(1);
            encoder.varint(map.len() as u64);
            for (key, value) in map {
                encoder.text(key.as_bytes());
                encoder.option(value.as_deref(), |encoder, value| encoder.text(value.as_bytes()));
            }
        }
        Tags::List(list) => {
            encoder.byte(2);
            encoder.varint(list.len() as u64);
            list.iter().for_each(|tag| encoder.text(tag.as_bytes()));
        }
    }
}

pub(super) fn get_tags(decoder: &mut Decoder<'_>) -> Result<Tags, DecodeError> {
    match decoder.byte()? {
        0 => Ok(Tags::None),
        1 => {
            let pairs = decoder.list(|decoder| Ok((Arc::from(decoder.text()?), get_text(decoder)?)))?;
            Ok(Tags::Map(BTreeMap::from_iter(pairs)))
        }
        2 => Ok(Tags::List(decoder.list(|decoder| decoder.text().map(Arc::from))?)),
        _ => Err(DecodeError),
    }
}

pub(super) fn put_failure(encoder: &mut Encoder, failure: &Failure, base: &TimeBase) {
    encoder.byte(variant_index(Category::ALL, &failure.category));
    encoder.option(failure.code.as_deref(), |encoder, code| encoder.text(code.as_bytes()));
    encoder.text(failure.message.as_bytes());
    encoder.option(failure.cause.as_deref(), |encoder, cause| encoder.text(cause.as_bytes()));
    base.put(encoder, failure.at);
}

pub(super) fn get_failure(decoder: &mut Decoder<'_>, base: &TimeBase) -> Result<Failure, DecodeError> {
    Ok(Failure {
        category: decoder.variant(Category::ALL)?,
        code: get_text(decoder)?,
        message: Arc::from(decoder.text()?),
        cause: get_text(decoder)?,
        at: base.get(decoder)?,
    })
}

/// Encodes dependencies: one byte for the many jobs that have none.
pub(super) fn put_dependencies(encoder: &mut Encoder, dependencies: &Dependencies, base: &TimeBase) {
    let some = (*dependencies != Dependencies::default()).then_some(dependencies);
    encoder.option(some, |encoder, dependencies| {
        encoder.varint(dependencies.after.len() as u64);
        for after in &dependencies.after {
            encoder.fixed(after.id.as_bytes());
            encoder.flag(after.met);
        }
        encoder.varint(dependencies.after_any.len() as u64);
        dependencies.after_any.iter().for_each(|id| encoder.fixed(id.as_bytes()));
        encoder.varint(u64::from(dependencies.unmet));
        encoder.flag(dependencies.any_satisfied);
        encoder.varint(u64::from(dependencies.depth));
        encoder.option(dependencies.ended_by, |encoder, ended_by| {
            encoder.fixed(ended_by.dependency.as_bytes());
            encoder.flag(ended_by.held);
            base.put_option(encoder, ended_by.run_at);
        });
    });
}

pub(super) fn get_dependencies(decoder: &mut Decoder<'_>, base: &TimeBase) -> Result<Dependencies, DecodeError> {
    let dependencies = decoder.option(|decoder| {
        Ok(Dependencies {
            after: decoder.list(|decoder| {
                Ok(RequiredDependency { id: JobId::from_bytes(decoder.fixed()?), met: decoder.flag()? })
            })?,
            after_any: decoder.list(|decoder| decoder.fixed().map(JobId::from_bytes))?,
            unmet: decoder.varint_as()?,
            any_satisfied: decoder.flag()?,
            depth: decoder.varint_as()?,
            ended_by: decoder.option(|decoder| {
                Ok(EndedByDependency {
                    dependency: JobId::from_bytes(decoder.fixed()?),
                    held: decoder.flag()?,
                    run_at: base.get_option(decoder)?,
                })
            })?,
        })
    })?;
    Ok(dependencies.unwrap_or_default())
}

/// Encodes an attempt. An error equal to the job's own error is stored as a reference to it.
pub(super) fn put_attempt(encoder: &mut Encoder, attempt: &Attempt, job_error: Option<&Arc<Failure>>, base: &TimeBase) {
    encoder.fixed(attempt.id.as_bytes());
    encoder.option(attempt.previous_id, |encoder, id| encoder.fixed(id.as_bytes()));
    encoder.varint(u64::from(attempt.number));
    put_worker(encoder, attempt.worker.as_ref());
    encoder.varint(attempt.lease_version.0);
    base.put(encoder, attempt.started_at);
    encoder.option(attempt.end.as_ref(), |encoder, end| {
        base.put(encoder, end.at);
        encoder.byte(variant_index(AttemptOutcome::ALL, &end.outcome));
        match (&end.error, job_error) {
            (None, _) => encoder.byte(0),
            (Some(error), Some(job_error)) if error == job_error => encoder.byte(2),
            (Some(error), _) => {
                encoder.byte(1);
                put_failure(encoder, error, base);
            }
        }
        encoder.option(end.next_delay, |encoder, delay| encoder.varint(delay.as_millis()));
    });
}

pub(super) fn get_attempt(
    decoder: &mut Decoder<'_>,
    job_error: Option<&Arc<Failure>>,
    base: &TimeBase,
) -> Result<Attempt, DecodeError> {
    Ok(Attempt {
        id: AttemptId::from_bytes(decoder.fixed()?),
        previous_id: decoder.option(|decoder| decoder.fixed().map(AttemptId::from_bytes))?,
        number: decoder.varint_as()?,
        worker: get_worker(decoder)?,
        lease_version: LeaseVersion(decoder.varint()?),
        started_at: base.get(decoder)?,
        end: decoder.option(|decoder| {
            Ok(AttemptEnd {
                at: base.get(decoder)?,
                outcome: decoder.variant(AttemptOutcome::ALL)?,
                error: match decoder.byte()? {
                    0 => None,
                    1 => Some(Arc::new(get_failure(decoder, base)?)),
                    2 => Some(Arc::clone(job_error.ok_or(DecodeError)?)),
                    _ => return Err(DecodeError),
                },
                next_delay: decoder.option(|decoder| decoder.varint().map(Duration::from_millis))?,
            })
        })?,
    })
}

pub(super) fn get_schedule(decoder: &mut Decoder<'_>, base: &TimeBase) -> Result<Box<JobSchedule>, DecodeError> {
    let name = ScheduleName::new(decoder.text()?).map_err(|_| DecodeError)?;
    Ok(Box::new(JobSchedule { name, due_at: base.get_option(decoder)? }))
}

/// The flags come first: the ids are not zero, so the record does not end in zeroes.
pub(super) fn put_traceparent(encoder: &mut Encoder, parent: &TraceParent) {
    encoder.byte(parent.flags);
    encoder.fixed(&parent.trace_id);
    encoder.fixed(&parent.span_id);
}

pub(super) fn get_traceparent(decoder: &mut Decoder<'_>) -> Result<Box<TraceParent>, DecodeError> {
    let flags = decoder.byte()?;
    Ok(Box::new(TraceParent { flags, trace_id: decoder.fixed()?, span_id: decoder.fixed()? }))
}
