//! The encoding of a job that is read without the dictionary of its store, and without the store.
//!
//! A snapshot is the sequence number (8 bytes, big endian) and a record whose queue, type and
//! policy are written out. It has no attempts and no history.

use longshore_core::history::History;
use longshore_core::id::Seq;
use longshore_core::job::Job;

use crate::dictionary::Dictionary;
use crate::job;
use crate::record::DecodeError;

/// Encodes a job. Returns `None` if its policy contains a function.
pub fn encode(job: &Job) -> Option<Vec<u8>> {
    let job = Job { attempts: Vec::new(), history: History::default(), ..job.clone() };
    let record = job::encode_unpadded(&job, &Dictionary::default())?;
    Some([&job.seq.0.to_be_bytes()[..], &record].concat())
}

pub fn decode(snapshot: &[u8]) -> Result<Job, DecodeError> {
    let (seq, record) = snapshot.split_first_chunk().ok_or(DecodeError)?;
    job::decode(Seq(u64::from_be_bytes(*seq)), record, &Dictionary::default())
}
