//! The encoding of the Ocypod totals: numbers in the order of their fields.

use longshore_core::ocypod::totals::Totals;

use crate::record::{DecodeError, Decoder, Encoder};

pub fn encode(totals: &Totals) -> Vec<u8> {
    let Totals { created, completed, retried, failed, timed_out, cancelled } = *totals;
    let mut encoder = Encoder::default();
    [created, completed, retried, failed, timed_out, cancelled].into_iter().for_each(|number| encoder.varint(number));
    encoder.bytes
}

pub fn decode(bytes: &[u8]) -> Result<Totals, DecodeError> {
    let mut decoder = Decoder::new(bytes);
    Ok(Totals {
        created: decoder.varint()?,
        completed: decoder.varint()?,
        retried: decoder.varint()?,
        failed: decoder.varint()?,
        timed_out: decoder.varint()?,
        cancelled: decoder.varint()?,
    })
}
