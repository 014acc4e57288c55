//! Idempotency keys with their scope, as bytes: equal keys have equal bytes.

use longshore_core::id::{JobType, QueueName};
use longshore_engine::ScopedIdempotencyKey;

use super::{DecodeError, Reader, Writer};

pub fn encode(key: &ScopedIdempotencyKey) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.option(key.queue.as_ref(), |writer, queue| writer.text(queue.as_str().as_bytes()));
    writer.option(key.job_type.as_ref(), |writer, job_type| writer.text(job_type.as_str().as_bytes()));
    writer.text(key.key.as_bytes());
    writer.bytes
}

pub fn decode(bytes: &[u8]) -> Result<ScopedIdempotencyKey, DecodeError> {
    let mut reader = Reader::new(bytes);
    let queue = reader.option(|reader| QueueName::new(reader.text()?).map_err(|_| DecodeError))?;
    let job_type = reader.option(|reader| JobType::new(reader.text()?).map_err(|_| DecodeError))?;
    let key = reader.text()?.into();
    reader.end()?;
    Ok(ScopedIdempotencyKey { queue, job_type, key })
}
