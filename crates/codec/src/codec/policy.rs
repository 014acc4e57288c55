//! Policies, overrides and queues as bytes.

use std::sync::Arc;

use longshore_core::backoff::{Backoff, BackoffKind, Jitter, JitterKind};
use longshore_core::id::QueueName;
use longshore_core::patch::{PolicyPatch, RetentionPatch, RetryPatch, SettingsPatch};
use longshore_core::policy::*;
use longshore_core::profile::Profile;
use longshore_core::time::Duration;
use longshore_engine::{Queue, QueueDeleteMode};

use super::{DecodeError, FORMAT, Reader, Writer, append_checksum, verify_checksum};

/// A function has no bytes: such a policy cannot be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotStorable;

fn put<T: PartialEq>(writer: &mut Writer, all: &[T], value: &T) {
    let place = all.iter().position(|candidate| candidate == value);
    writer.byte(place.and_then(|place| u8::try_from(place).ok()).unwrap_or(u8::MAX));
}

const BACKOFF_KINDS: [BackoffKind; 4] =
    [BackoffKind::Constant, BackoffKind::Linear, BackoffKind::Exponential, BackoffKind::List];

fn put_length(writer: &mut Writer, length: Duration) {
    writer.varint(length.as_millis());
}

fn get_length(reader: &mut Reader<'_>) -> Result<Duration, DecodeError> {
    reader.varint().map(Duration::from_millis)
}

fn put_float(writer: &mut Writer, number: f64) {
    writer.varint(number.to_bits());
}

fn get_float(reader: &mut Reader<'_>) -> Result<f64, DecodeError> {
    reader.varint().map(f64::from_bits)
}

/// The bytes that stand for a policy; equal policies have equal bytes.
pub fn encode(policy: &Policy) -> Result<Vec<u8>, NotStorable> {
    let mut writer = Writer::default();
    writer.byte(FORMAT);
    put(&mut writer, Profile::ALL, &policy.profile);
    let retry = &policy.retry;
    writer.varint(u64::from(retry.limit));
    put(&mut writer, RetryLimitUnit::ALL, &retry.counts);
    match retry.backoff.kind {
        BackoffKind::Custom(_) => return Err(NotStorable),
        BackoffKind::Constant | BackoffKind::Linear | BackoffKind::Exponential | BackoffKind::List => {
            put(&mut writer, &BACKOFF_KINDS, &retry.backoff.kind);
        }
    }
    put_length(&mut writer, retry.backoff.base);
    put_float(&mut writer, retry.backoff.multiplier);
    writer.option(retry.backoff.cap, put_length);
    writer.varint(retry.backoff.delays.len() as u64);
    retry.backoff.delays.iter().for_each(|delay| put_length(&mut writer, *delay));
    put(&mut writer, JitterKind::ALL, &retry.jitter.kind);
    put_float(&mut writer, retry.jitter.factor);
    writer.flag(retry.honour_retry_after);
    put(&mut writer, OnPermanent::ALL, &retry.on_permanent);
    put(&mut writer, OnExhausted::ALL, &retry.on_exhausted);
    put(&mut writer, OnFailure::ALL, &retry.on_timeout);
    put(&mut writer, OnFailure::ALL, &retry.on_system);
    writer.option(policy.execution_timeout, put_length);
    writer.option(policy.lease, put_length);
    put(&mut writer, OnLeaseExpiry::ALL, &policy.on_lease_expiry);
    writer.option(policy.max_reclaims, |writer, max| writer.varint(u64::from(max)));
    put(&mut writer, Reclaim::ALL, &policy.reclaim);
    put(&mut writer, Fencing::ALL, &policy.fencing);
    let Retention { completed, failed, dead_letter, cancelled } = policy.retention;
    for length in [policy.lifetime, completed, failed, dead_letter, cancelled] {
        writer.option(length, put_length);
    }
    put(&mut writer, RequeueOrder::ALL, &policy.requeue_order);
    put(&mut writer, ManualRequeue::ALL, &policy.manual_requeue);
    put(&mut writer, CancelRunning::ALL, &policy.cancel_running);
    writer.flag(policy.clear_error_on_success);
    Ok(writer.bytes)
}

pub fn decode(bytes: &[u8]) -> Result<Policy, DecodeError> {
    let mut reader = Reader::new(bytes);
    let reader = &mut reader;
    if reader.byte()? != FORMAT {
        return Err(DecodeError);
    }
    let policy = Policy {
        profile: reader.variant(Profile::ALL)?,
        retry: Retry {
            limit: reader.varint_as()?,
            counts: reader.variant(RetryLimitUnit::ALL)?,
            backoff: Backoff {
                kind: reader.variant(&BACKOFF_KINDS)?,
                base: get_length(reader)?,
                multiplier: get_float(reader)?,
                cap: reader.option(get_length)?,
                delays: reader.list(get_length)?,
            },
            jitter: Jitter { kind: reader.variant(JitterKind::ALL)?, factor: get_float(reader)? },
            honour_retry_after: reader.flag()?,
            on_permanent: reader.variant(OnPermanent::ALL)?,
            on_exhausted: reader.variant(OnExhausted::ALL)?,
            on_timeout: reader.variant(OnFailure::ALL)?,
            on_system: reader.variant(OnFailure::ALL)?,
        },
        execution_timeout: reader.option(get_length)?,
        lease: reader.option(get_length)?,
        on_lease_expiry: reader.variant(OnLeaseExpiry::ALL)?,
        max_reclaims: reader.option(Reader::varint_as)?,
        reclaim: reader.variant(Reclaim::ALL)?,
        fencing: reader.variant(Fencing::ALL)?,
        lifetime: reader.option(get_length)?,
        retention: Retention {
            completed: reader.option(get_length)?,
            failed: reader.option(get_length)?,
            dead_letter: reader.option(get_length)?,
            cancelled: reader.option(get_length)?,
        },
        requeue_order: reader.variant(RequeueOrder::ALL)?,
        manual_requeue: reader.variant(ManualRequeue::ALL)?,
        cancel_running: reader.variant(CancelRunning::ALL)?,
        clear_error_on_success: reader.flag()?,
    };
    reader.end()?;
    Ok(policy)
}

const FAREWELLS: [QueueDeleteMode; 2] = [QueueDeleteMode::Cancel, QueueDeleteMode::LetRunningFinish];

/// The checksum of a queue covers its name.
fn name_hash(name: &QueueName) -> u64 {
    u64::from(super::checksum(0, name.as_str().as_bytes()))
}

/// A queue is its name, profile and overrides; the settings follow from them.
pub fn encode_queue(queue: &Queue) -> Result<Vec<u8>, NotStorable> {
    let mut writer = Writer::default();
    writer.byte(FORMAT);
    put(&mut writer, Profile::ALL, &queue.profile);
    writer.flag(queue.paused);
    writer.option(queue.deleting.as_ref(), |writer, farewell| put(writer, &FAREWELLS, farewell));
    put_patch(&mut writer, &queue.overrides)?;
    Ok(append_checksum(name_hash(&queue.name), writer.bytes))
}

pub fn decode_queue(name: QueueName, sealed: &[u8]) -> Result<Queue, DecodeError> {
    let mut reader = Reader::new(verify_checksum(name_hash(&name), sealed)?);
    if reader.byte()? != FORMAT {
        return Err(DecodeError);
    }
    let profile = reader.variant(Profile::ALL)?;
    let paused = reader.flag()?;
    let leaving = reader.option(|reader| reader.variant(&FAREWELLS))?;
    let overrides = get_patch(&mut reader)?;
    reader.end()?;
    let queue = Queue::new(name, profile, overrides).map_err(|_| DecodeError)?;
    Ok(Queue { paused, deleting: leaving, ..queue })
}

fn put_patch(writer: &mut Writer, patch: &SettingsPatch) -> Result<(), NotStorable> {
    let PolicyPatch { retry, execution_timeout, lease, lifetime, retention, max_reclaims } = &patch.job;
    put_retry(writer, retry)?;
    let RetentionPatch { completed, failed, dead_letter, cancelled } = retention;
    for length in
        [execution_timeout, lease, lifetime, completed, failed, dead_letter, cancelled, &patch.idempotency_window]
    {
        writer.option(*length, put_length);
    }
    writer.option(*max_reclaims, |writer, max| writer.option(max, |writer, max| writer.varint(u64::from(max))));
    writer.option(patch.on_lease_expiry.as_ref(), |writer, value| put(writer, OnLeaseExpiry::ALL, value));
    writer.option(patch.reclaim.as_ref(), |writer, value| put(writer, Reclaim::ALL, value));
    writer.option(patch.fencing.as_ref(), |writer, value| put(writer, Fencing::ALL, value));
    writer.option(patch.idempotency_scope.as_ref(), |writer, value| put(writer, IdempotencyScope::ALL, value));
    for flag in [patch.external_ids, patch.priority_order, patch.delayed_start, patch.clear_error_on_success] {
        writer.option(flag, Writer::flag);
    }
    writer.option(patch.payload_max, Writer::varint);
    writer.option(patch.requeue_order.as_ref(), |writer, value| put(writer, RequeueOrder::ALL, value));
    writer.option(patch.submit.as_ref(), |writer, value| put(writer, SubmitMode::ALL, value));
    writer.option(patch.manual_requeue.as_ref(), |writer, value| put(writer, ManualRequeue::ALL, value));
    writer.option(patch.cancel_running.as_ref(), |writer, value| put(writer, CancelRunning::ALL, value));
    writer.option(patch.max_queued, |writer, max| writer.option(max, Writer::varint));
    Ok(())
}

fn put_retry(writer: &mut Writer, retry: &RetryPatch) -> Result<(), NotStorable> {
    writer.option(retry.limit, |writer, limit| writer.varint(u64::from(limit)));
    writer.option(retry.counts.as_ref(), |writer, value| put(writer, RetryLimitUnit::ALL, value));
    if matches!(retry.backoff_kind, Some(BackoffKind::Custom(_))) {
        return Err(NotStorable);
    }
    writer.option(retry.backoff_kind.as_ref(), |writer, value| put(writer, &BACKOFF_KINDS, value));
    writer.option(retry.base, put_length);
    writer.option(retry.multiplier, put_float);
    writer.option(retry.cap, put_length);
    writer.option(retry.delays.as_ref(), |writer, delays| {
        writer.varint(delays.len() as u64);
        delays.iter().for_each(|delay| put_length(writer, *delay));
    });
    writer.option(retry.jitter_kind.as_ref(), |writer, value| put(writer, JitterKind::ALL, value));
    writer.option(retry.jitter_factor, put_float);
    writer.option(retry.honour_retry_after, Writer::flag);
    writer.option(retry.on_permanent.as_ref(), |writer, value| put(writer, OnPermanent::ALL, value));
    writer.option(retry.on_exhausted.as_ref(), |writer, value| put(writer, OnExhausted::ALL, value));
    writer.option(retry.on_timeout.as_ref(), |writer, value| put(writer, OnFailure::ALL, value));
    writer.option(retry.on_system.as_ref(), |writer, value| put(writer, OnFailure::ALL, value));
    Ok(())
}

fn get_retry(reader: &mut Reader<'_>) -> Result<RetryPatch, DecodeError> {
    Ok(RetryPatch {
        limit: reader.option(Reader::varint_as)?,
        counts: reader.option(|reader| reader.variant(RetryLimitUnit::ALL))?,
        backoff_kind: reader.option(|reader| reader.variant(&BACKOFF_KINDS))?,
        base: reader.option(get_length)?,
        multiplier: reader.option(get_float)?,
        cap: reader.option(get_length)?,
        delays: reader.option(|reader| reader.list(get_length))?,
        jitter_kind: reader.option(|reader| reader.variant(JitterKind::ALL))?,
        jitter_factor: reader.option(get_float)?,
        honour_retry_after: reader.option(Reader::flag)?,
        on_permanent: reader.option(|reader| reader.variant(OnPermanent::ALL))?,
        on_exhausted: reader.option(|reader| reader.variant(OnExhausted::ALL))?,
        on_timeout: reader.option(|reader| reader.variant(OnFailure::ALL))?,
        on_system: reader.option(|reader| reader.variant(OnFailure::ALL))?,
    })
}

fn get_patch(reader: &mut Reader<'_>) -> Result<SettingsPatch, DecodeError> {
    let retry = get_retry(reader)?;
    let job = PolicyPatch {
        retry,
        execution_timeout: reader.option(get_length)?,
        lease: reader.option(get_length)?,
        lifetime: reader.option(get_length)?,
        retention: RetentionPatch {
            completed: reader.option(get_length)?,
            failed: reader.option(get_length)?,
            dead_letter: reader.option(get_length)?,
            cancelled: reader.option(get_length)?,
        },
        max_reclaims: None,
    };
    let idempotency_window = reader.option(get_length)?;
    let max_reclaims = reader.option(|reader| reader.option(Reader::varint_as))?;
    let job = PolicyPatch { max_reclaims, ..job };
    let on_lease_expiry = reader.option(|reader| reader.variant(OnLeaseExpiry::ALL))?;
    let reclaim = reader.option(|reader| reader.variant(Reclaim::ALL))?;
    let fencing = reader.option(|reader| reader.variant(Fencing::ALL))?;
    let idempotency_scope = reader.option(|reader| reader.variant(IdempotencyScope::ALL))?;
    let external_ids = reader.option(Reader::flag)?;
    let priority_order = reader.option(Reader::flag)?;
    let delayed_start = reader.option(Reader::flag)?;
    let clear_error_on_success = reader.option(Reader::flag)?;
    Ok(SettingsPatch {
        job,
        idempotency_window,
        on_lease_expiry,
        reclaim,
        fencing,
        idempotency_scope,
        external_ids,
        priority_order,
        delayed_start,
        clear_error_on_success,
        payload_max: reader.option(Reader::varint)?,
        requeue_order: reader.option(|reader| reader.variant(RequeueOrder::ALL))?,
        submit: reader.option(|reader| reader.variant(SubmitMode::ALL))?,
        manual_requeue: reader.option(|reader| reader.variant(ManualRequeue::ALL))?,
        cancel_running: reader.option(|reader| reader.variant(CancelRunning::ALL))?,
        max_queued: reader.option(|reader| reader.option(Reader::varint))?,
    })
}

/// Policies are compared by address first: most jobs of a queue share one.
pub fn arc_address(policy: &Arc<Policy>) -> usize {
    Arc::as_ptr(policy).addr()
}
