//! The encoding of idempotency keys with their scope. Equal keys have equal bytes.

use longshore_core::id::{JobType, QueueName};
use longshore_engine::ScopedIdempotencyKey;

use crate::record::{DecodeError, Decoder, Encoder};

pub fn encode(key: &ScopedIdempotencyKey) -> Vec<u8> {
    let mut encoder = Encoder::default();
    encoder.option(key.queue.as_ref(), |encoder, queue| encoder.text(queue.as_str().as_bytes()));
    encoder.option(key.job_type.as_ref(), |encoder, job_type| encoder.text(job_type.as_str().as_bytes()));
    encoder.text(key.key.as_bytes());
    encoder.bytes
}

pub fn decode(bytes: &[u8]) -> Result<ScopedIdempotencyKey, DecodeError> {
    let mut decoder = Decoder::new(bytes);
    let queue = decoder.option(|decoder| QueueName::new(decoder.text()?).map_err(|_| DecodeError))?;
    let job_type = decoder.option(|decoder| JobType::new(decoder.text()?).map_err(|_| DecodeError))?;
    let key = decoder.text()?.into();
    decoder.end()?;
    Ok(ScopedIdempotencyKey { queue, job_type, key })
}
