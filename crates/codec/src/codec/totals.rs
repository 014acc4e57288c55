//! The totals of the Ocypod dialect: numbers in the order of their fields.

use longshore_core::totals::Totals;

use super::{Damaged, Reader, Writer};

pub fn encode(totals: &Totals) -> Vec<u8> {
    let Totals { created, completed, retried, failed, timed_out, cancelled } = *totals;
    let mut writer = Writer::default();
    [created, completed, retried, failed, timed_out, cancelled].into_iter().for_each(|number| writer.number(number));
    writer.bytes
}

pub fn decode(bytes: &[u8]) -> Result<Totals, Damaged> {
    let mut reader = Reader::new(bytes);
    Ok(Totals {
        created: reader.number()?,
        completed: reader.number()?,
        retried: reader.number()?,
        failed: reader.number()?,
        timed_out: reader.number()?,
        cancelled: reader.number()?,
    })
}
