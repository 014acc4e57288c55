//! The totals of the Ocypod dialect: numbers in the order of their fields.

use longshore_core::ocypod::totals::Totals;

use super::{DecodeError, Reader, Writer};

pub fn encode(totals: &Totals) -> Vec<u8> {
    let Totals { created, completed, retried, failed, timed_out, cancelled } = *totals;
    let mut writer = Writer::default();
    [created, completed, retried, failed, timed_out, cancelled].into_iter().for_each(|number| writer.varint(number));
    writer.bytes
}

pub fn decode(bytes: &[u8]) -> Result<Totals, DecodeError> {
    let mut reader = Reader::new(bytes);
    Ok(Totals {
        created: reader.varint()?,
        completed: reader.varint()?,
        retried: reader.varint()?,
        failed: reader.varint()?,
        timed_out: reader.varint()?,
        cancelled: reader.varint()?,
    })
}
