//! The encoding of policies, overrides and queues.

use std::sync::Arc;

use longshore_core::backoff::{Backoff, BackoffKind, Jitter, JitterKind};
use longshore_core::id::QueueName;
use longshore_core::patch::{PolicyPatch, RetentionPatch, RetryPatch, SettingsPatch};
use longshore_core::policy::*;
use longshore_core::profile::Profile;
use longshore_core::time::Duration;
use longshore_engine::{Queue, QueueDeleteMode};

use crate::record::{DecodeError, Decoder, Encoder, FORMAT, append_checksum, verify_checksum};

/// The policy contains a function, which cannot be encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotStorable;

fn put<T: PartialEq>(encoder: &mut Encoder, all: &[T], value: &T) {
    let index = all.iter().position(|candidate| candidate == value);
    encoder.byte(index.and_then(|index| u8::try_from(index).ok()).unwrap_or(u8::MAX));
}

const BACKOFF_KINDS: [BackoffKind; 4] =
    [BackoffKind::Constant, BackoffKind::Linear, BackoffKind::Exponential, BackoffKind::List];

fn put_length(encoder: &mut Encoder, length: Duration) {
    encoder.varint(length.as_millis());
}

fn get_length(decoder: &mut Decoder<'_>) -> Result<Duration, DecodeError> {
    decoder.varint().map(Duration::from_millis)
}

fn put_float(encoder: &mut Encoder, number: f64) {
    encoder.varint(number.to_bits());
}

fn get_float(decoder: &mut Decoder<'_>) -> Result<f64, DecodeError> {
    decoder.varint().map(f64::from_bits)
}

/// Encodes a policy. Equal policies have equal bytes.
pub fn encode(policy: &Policy) -> Result<Vec<u8>, NotStorable> {
    let mut encoder = Encoder::default();
    encoder.byte(FORMAT);
    put(&mut encoder, Profile::ALL, &policy.profile);
    let retry = &policy.retry;
    encoder.varint(u64::from(retry.limit));
    put(&mut encoder, RetryLimitUnit::ALL, &retry.counts);
    match retry.backoff.kind {
        BackoffKind::Custom(_) => return Err(NotStorable),
        BackoffKind::Constant | BackoffKind::Linear | BackoffKind::Exponential | BackoffKind::List => {
            put(&mut encoder, &BACKOFF_KINDS, &retry.backoff.kind);
        }
    }
    put_length(&mut encoder, retry.backoff.base);
    put_float(&mut encoder, retry.backoff.multiplier);
    encoder.option(retry.backoff.cap, put_length);
    encoder.varint(retry.backoff.delays.len() as u64);
    retry.backoff.delays.iter().for_each(|delay| put_length(&mut encoder, *delay));
    put(&mut encoder, JitterKind::ALL, &retry.jitter.kind);
    put_float(&mut encoder, retry.jitter.factor);
    encoder.flag(retry.honour_retry_after);
    put(&mut encoder, OnPermanent::ALL, &retry.on_permanent);
    put(&mut encoder, OnExhausted::ALL, &retry.on_exhausted);
    put(&mut encoder, OnFailure::ALL, &retry.on_timeout);
    put(&mut encoder, OnFailure::ALL, &retry.on_system);
    encoder.option(policy.execution_timeout, put_length);
    encoder.option(policy.lease, put_length);
    put(&mut encoder, OnLeaseExpiry::ALL, &policy.on_lease_expiry);
    encoder.option(policy.max_reclaims, |encoder, max| encoder.varint(u64::from(max)));
    put(&mut encoder, Reclaim::ALL, &policy.reclaim);
    put(&mut encoder, Fencing::ALL, &policy.fencing);
    let Retention { completed, failed, dead_letter, cancelled } = policy.retention;
    for length in [policy.lifetime, completed, failed, dead_letter, cancelled] {
        encoder.option(length, put_length);
    }
    put(&mut encoder, RequeueOrder::ALL, &policy.requeue_order);
    put(&mut encoder, ManualRequeue::ALL, &policy.manual_requeue);
    put(&mut encoder, CancelRunning::ALL, &policy.cancel_running);
    encoder.flag(policy.clear_error_on_success);
    Ok(encoder.bytes)
}

pub fn decode(bytes: &[u8]) -> Result<Policy, DecodeError> {
    let mut decoder = Decoder::new(bytes);
    let decoder = &mut decoder;
    if decoder.byte()? != FORMAT {
        return Err(DecodeError);
    }
    let policy = Policy {
        profile: decoder.variant(Profile::ALL)?,
        retry: Retry {
            limit: decoder.varint_as()?,
            counts: decoder.variant(RetryLimitUnit::ALL)?,
            backoff: Backoff {
                kind: decoder.variant(&BACKOFF_KINDS)?,
                base: get_length(decoder)?,
                multiplier: get_float(decoder)?,
                cap: decoder.option(get_length)?,
                delays: decoder.list(get_length)?,
            },
            jitter: Jitter { kind: decoder.variant(JitterKind::ALL)?, factor: get_float(decoder)? },
            honour_retry_after: decoder.flag()?,
            on_permanent: decoder.variant(OnPermanent::ALL)?,
            on_exhausted: decoder.variant(OnExhausted::ALL)?,
            on_timeout: decoder.variant(OnFailure::ALL)?,
            on_system: decoder.variant(OnFailure::ALL)?,
        },
        execution_timeout: decoder.option(get_length)?,
        lease: decoder.option(get_length)?,
        on_lease_expiry: decoder.variant(OnLeaseExpiry::ALL)?,
        max_reclaims: decoder.option(Decoder::varint_as)?,
        reclaim: decoder.variant(Reclaim::ALL)?,
        fencing: decoder.variant(Fencing::ALL)?,
        lifetime: decoder.option(get_length)?,
        retention: Retention {
            completed: decoder.option(get_length)?,
            failed: decoder.option(get_length)?,
            dead_letter: decoder.option(get_length)?,
            cancelled: decoder.option(get_length)?,
        },
        requeue_order: decoder.variant(RequeueOrder::ALL)?,
        manual_requeue: decoder.variant(ManualRequeue::ALL)?,
        cancel_running: decoder.variant(CancelRunning::ALL)?,
        clear_error_on_success: decoder.flag()?,
    };
    decoder.end()?;
    Ok(policy)
}

/// Precedes the `wait_target` of overrides.
const WAIT_TARGET_FIELD: u8 = 1;

const DELETE_MODES: [QueueDeleteMode; 2] = [QueueDeleteMode::Cancel, QueueDeleteMode::LetRunningFinish];

/// Returns the key of a queue's checksum, so that the checksum covers the name.
fn name_hash(name: &QueueName) -> u64 {
    u64::from(crate::record::checksum(0, name.as_str().as_bytes()))
}

/// Encodes profile, flags and overrides of a queue. The settings are derived from them.
pub fn encode_queue(queue: &Queue) -> Result<Vec<u8>, NotStorable> {
    let mut encoder = Encoder::default();
    encoder.byte(FORMAT);
    put(&mut encoder, Profile::ALL, &queue.profile);
    encoder.flag(queue.paused);
    encoder.option(queue.deleting.as_ref(), |encoder, mode| put(encoder, &DELETE_MODES, mode));
    put_patch(&mut encoder, &queue.overrides)?;
    Ok(append_checksum(name_hash(&queue.name), encoder.bytes))
}

pub fn decode_queue(name: QueueName, record: &[u8]) -> Result<Queue, DecodeError> {
    let mut decoder = Decoder::new(verify_checksum(name_hash(&name), record)?);
    if decoder.byte()? != FORMAT {
        return Err(DecodeError);
    }
    let profile = decoder.variant(Profile::ALL)?;
    let paused = decoder.flag()?;
    let deleting = decoder.option(|decoder| decoder.variant(&DELETE_MODES))?;
    let overrides = get_patch(&mut decoder)?;
    decoder.end()?;
    let queue = Queue::new(name, profile, overrides).map_err(|_| DecodeError)?;
    Ok(Queue { paused, deleting, ..queue })
}

fn put_patch(encoder: &mut Encoder, patch: &SettingsPatch) -> Result<(), NotStorable> {
    let PolicyPatch { retry, execution_timeout, lease, lifetime, retention, max_reclaims } = &patch.job;
    put_retry(encoder, retry)?;
    let RetentionPatch { completed, failed, dead_letter, cancelled } = retention;
    for length in
        [execution_timeout, lease, lifetime, completed, failed, dead_letter, cancelled, &patch.idempotency_window]
    {
        encoder.option(*length, put_length);
    }
    encoder.option(*max_reclaims, |encoder, max| encoder.option(max, |encoder, max| encoder.varint(u64::from(max))));
    encoder.option(patch.on_lease_expiry.as_ref(), |encoder, value| put(encoder, OnLeaseExpiry::ALL, value));
    encoder.option(patch.reclaim.as_ref(), |encoder, value| put(encoder, Reclaim::ALL, value));
    encoder.option(patch.fencing.as_ref(), |encoder, value| put(encoder, Fencing::ALL, value));
    encoder.option(patch.idempotency_scope.as_ref(), |encoder, value| put(encoder, IdempotencyScope::ALL, value));
    for flag in [patch.external_ids, patch.priority_order, patch.delayed_start, patch.clear_error_on_success] {
        encoder.option(flag, Encoder::flag);
    }
    encoder.option(patch.payload_max, Encoder::varint);
    encoder.option(patch.requeue_order.as_ref(), |encoder, value| put(encoder, RequeueOrder::ALL, value));
    encoder.option(patch.submit.as_ref(), |encoder, value| put(encoder, SubmitMode::ALL, value));
    encoder.option(patch.manual_requeue.as_ref(), |encoder, value| put(encoder, ManualRequeue::ALL, value));
    encoder.option(patch.cancel_running.as_ref(), |encoder, value| put(encoder, CancelRunning::ALL, value));
    encoder.option(patch.max_queued, |encoder, max| encoder.option(max, Encoder::varint));
    // Fields that were added later are absent, or one byte that is not zero and their value.
    if let Some(target) = patch.wait_target {
        encoder.byte(WAIT_TARGET_FIELD);
        put_length(encoder, target);
    }
    Ok(())
}

fn put_retry(encoder: &mut Encoder, retry: &RetryPatch) -> Result<(), NotStorable> {
    encoder.option(retry.limit, |encoder, limit| encoder.varint(u64::from(limit)));
    encoder.option(retry.counts.as_ref(), |encoder, value| put(encoder, RetryLimitUnit::ALL, value));
    if matches!(retry.backoff_kind, Some(BackoffKind::Custom(_))) {
        return Err(NotStorable);
    }
    encoder.option(retry.backoff_kind.as_ref(), |encoder, value| put(encoder, &BACKOFF_KINDS, value));
    encoder.option(retry.base, put_length);
    encoder.option(retry.multiplier, put_float);
    encoder.option(retry.cap, put_length);
    encoder.option(retry.delays.as_ref(), |encoder, delays| {
        encoder.varint(delays.len() as u64);
        delays.iter().for_each(|delay| put_length(encoder, *delay));
    });
    encoder.option(retry.jitter_kind.as_ref(), |encoder, value| put(encoder, JitterKind::ALL, value));
    encoder.option(retry.jitter_factor, put_float);
    encoder.option(retry.honour_retry_after, Encoder::flag);
    encoder.option(retry.on_permanent.as_ref(), |encoder, value| put(encoder, OnPermanent::ALL, value));
    encoder.option(retry.on_exhausted.as_ref(), |encoder, value| put(encoder, OnExhausted::ALL, value));
    encoder.option(retry.on_timeout.as_ref(), |encoder, value| put(encoder, OnFailure::ALL, value));
    encoder.option(retry.on_system.as_ref(), |encoder, value| put(encoder, OnFailure::ALL, value));
    Ok(())
}

fn get_retry(decoder: &mut Decoder<'_>) -> Result<RetryPatch, DecodeError> {
    Ok(RetryPatch {
        limit: decoder.option(Decoder::varint_as)?,
        counts: decoder.option(|decoder| decoder.variant(RetryLimitUnit::ALL))?,
        backoff_kind: decoder.option(|decoder| decoder.variant(&BACKOFF_KINDS))?,
        base: decoder.option(get_length)?,
        multiplier: decoder.option(get_float)?,
        cap: decoder.option(get_length)?,
        delays: decoder.option(|decoder| decoder.list(get_length))?,
        jitter_kind: decoder.option(|decoder| decoder.variant(JitterKind::ALL))?,
        jitter_factor: decoder.option(get_float)?,
        honour_retry_after: decoder.option(Decoder::flag)?,
        on_permanent: decoder.option(|decoder| decoder.variant(OnPermanent::ALL))?,
        on_exhausted: decoder.option(|decoder| decoder.variant(OnExhausted::ALL))?,
        on_timeout: decoder.option(|decoder| decoder.variant(OnFailure::ALL))?,
        on_system: decoder.option(|decoder| decoder.variant(OnFailure::ALL))?,
    })
}

fn get_patch(decoder: &mut Decoder<'_>) -> Result<SettingsPatch, DecodeError> {
    let retry = get_retry(decoder)?;
    let job = PolicyPatch {
        retry,
        execution_timeout: decoder.option(get_length)?,
        lease: decoder.option(get_length)?,
        lifetime: decoder.option(get_length)?,
        retention: RetentionPatch {
            completed: decoder.option(get_length)?,
            failed: decoder.option(get_length)?,
            dead_letter: decoder.option(get_length)?,
            cancelled: decoder.option(get_length)?,
        },
        max_reclaims: None,
    };
    let idempotency_window = decoder.option(get_length)?;
    let max_reclaims = decoder.option(|decoder| decoder.option(Decoder::varint_as))?;
    let job = PolicyPatch { max_reclaims, ..job };
    let on_lease_expiry = decoder.option(|decoder| decoder.variant(OnLeaseExpiry::ALL))?;
    let reclaim = decoder.option(|decoder| decoder.variant(Reclaim::ALL))?;
    let fencing = decoder.option(|decoder| decoder.variant(Fencing::ALL))?;
    let idempotency_scope = decoder.option(|decoder| decoder.variant(IdempotencyScope::ALL))?;
    let external_ids = decoder.option(Decoder::flag)?;
    let priority_order = decoder.option(Decoder::flag)?;
    let delayed_start = decoder.option(Decoder::flag)?;
    let clear_error_on_success = decoder.option(Decoder::flag)?;
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
        payload_max: decoder.option(Decoder::varint)?,
        requeue_order: decoder.option(|decoder| decoder.variant(RequeueOrder::ALL))?,
        submit: decoder.option(|decoder| decoder.variant(SubmitMode::ALL))?,
        manual_requeue: decoder.option(|decoder| decoder.variant(ManualRequeue::ALL))?,
        cancel_running: decoder.option(|decoder| decoder.variant(CancelRunning::ALL))?,
        max_queued: decoder.option(|decoder| decoder.option(Decoder::varint))?,
        wait_target: get_wait_target(decoder)?,
    })
}

/// Reads a field that older records lack.
fn get_wait_target(decoder: &mut Decoder<'_>) -> Result<Option<Duration>, DecodeError> {
    if decoder.end().is_ok() {
        return Ok(None);
    }
    match decoder.byte()? {
        WAIT_TARGET_FIELD => get_length(decoder).map(Some),
        _ => Err(DecodeError),
    }
}

/// Returns the address of a policy. Most jobs of a queue share one allocation, so comparing
/// addresses avoids comparing policies.
pub fn arc_address(policy: &Arc<Policy>) -> usize {
    Arc::as_ptr(policy).addr()
}
