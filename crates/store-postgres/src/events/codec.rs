//! The events of one transaction as bytes.

use std::sync::Arc;

use longshore_core::history::{Cause, Transition};
use longshore_core::id::{JobId, JobType, QueueName, Seq, WorkflowId};
use longshore_core::state::StateKind;
use longshore_core::time::Timestamp;
use longshore_core::{QueueChange, ScheduleChange};
use longshore_engine::Effect;

/// First byte of every body. A node that does not know it reports a gap.
const VERSION: u8 = 2;
const JOB: u8 = 1;
const QUEUE: u8 = 2;
const SCHEDULE: u8 = 3;
/// In place of a state: the job is new.
const NO_STATE: u8 = u8::MAX;

/// Returns `None` if no effect is an event.
pub(crate) fn encode(effects: &[Effect]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(1 + effects.len() * 80);
    bytes.push(VERSION);
    for effect in effects {
        match effect {
            Effect::Moved { id, seq, queue, job_type, workflow, step, since: _ } => {
                bytes.push(JOB);
                bytes.extend_from_slice(id.as_bytes());
                bytes.extend_from_slice(&seq.0.to_le_bytes());
                put_text(&mut bytes, queue.as_str());
                put_text(&mut bytes, job_type.as_str());
                bytes.push(u8::from(workflow.is_some()));
                workflow.iter().for_each(|workflow| bytes.extend_from_slice(workflow.as_bytes()));
                bytes.push(step.from.map_or(NO_STATE, |from| index_of(StateKind::ALL, &from)));
                bytes.push(index_of(StateKind::ALL, &step.to));
                bytes.push(index_of(Cause::ALL, &step.cause));
                bytes.extend_from_slice(&step.at.as_millis().to_le_bytes());
            }
            Effect::Queue { name, change, at } => {
                put_change(&mut bytes, QUEUE, name.as_str(), index_of(QueueChange::ALL, change), *at);
            }
            Effect::Schedule { name, queue, change, at } => {
                put_change(&mut bytes, SCHEDULE, name, index_of(ScheduleChange::ALL, change), *at);
                put_text(&mut bytes, queue.as_str());
            }
            Effect::Claimable(_) => {}
        }
    }
    (bytes.len() > 1).then_some(bytes)
}

fn put_change(bytes: &mut Vec<u8>, tag: u8, name: &str, change: u8, at: Timestamp) {
    bytes.push(tag);
    put_text(bytes, name);
    bytes.push(change);
    bytes.extend_from_slice(&at.as_millis().to_le_bytes());
}

/// Names are limited to a few hundred bytes.
fn put_text(bytes: &mut Vec<u8>, text: &str) {
    let length = u16::try_from(text.len()).unwrap_or(u16::MAX);
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend(text.bytes().take(length.into()));
}

/// The enums are closed and have few values. Their order never changes.
fn index_of<T: PartialEq>(all: &[T], value: &T) -> u8 {
    all.iter().position(|one| one == value).and_then(|index| u8::try_from(index).ok()).unwrap_or(NO_STATE)
}

/// Returns `None` if the bytes are not what [`encode`] writes.
pub(crate) fn decode(bytes: &[u8]) -> Option<Vec<Effect>> {
    let mut reader = Reader(bytes);
    if reader.byte()? != VERSION {
        return None;
    }
    let mut effects = Vec::new();
    while !reader.0.is_empty() {
        effects.push(match reader.byte()? {
            JOB => reader.moved()?,
            QUEUE => Effect::Queue {
                name: QueueName::new(reader.text()?).ok()?,
                change: reader.one_of(QueueChange::ALL)?,
                at: reader.time()?,
            },
            SCHEDULE => Effect::Schedule {
                name: Arc::from(reader.text()?),
                change: reader.one_of(ScheduleChange::ALL)?,
                at: reader.time()?,
                queue: QueueName::new(reader.text()?).ok()?,
            },
            _ => return None,
        });
    }
    Some(effects)
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*array)
    }

    fn byte(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn text(&mut self) -> Option<&'a str> {
        let length = u16::from_le_bytes(self.array()?).into();
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        std::str::from_utf8(text).ok()
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> Option<T> {
        let index = self.byte()?;
        all.get(usize::from(index)).copied()
    }

    fn time(&mut self) -> Option<Timestamp> {
        self.array().map(|bytes| Timestamp::from_millis(i64::from_le_bytes(bytes)))
    }

    fn moved(&mut self) -> Option<Effect> {
        let id = JobId::from_bytes(self.array()?);
        let seq = Seq(u64::from_le_bytes(self.array()?));
        let (queue, job_type) = (QueueName::new(self.text()?).ok()?, JobType::new(self.text()?).ok()?);
        let workflow = match self.byte()? {
            0 => None,
            _ => Some(WorkflowId::from_bytes(self.array()?)),
        };
        let from = match self.byte()? {
            NO_STATE => None,
            index => Some(*StateKind::ALL.get(usize::from(index))?),
        };
        let (to, cause) = (self.one_of(StateKind::ALL)?, self.one_of(Cause::ALL)?);
        Some(Effect::Moved {
            id,
            seq,
            queue,
            job_type,
            workflow,
            step: Transition { from, to, at: self.time()?, cause },
            since: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_decoded_as_they_were_encoded() {
        let (queue, at) = (QueueName::new("q").unwrap(), Timestamp::from_millis(-5));
        let moved = |workflow, from| Effect::Moved {
            id: JobId::from_bytes([7; 16]),
            seq: Seq(9),
            queue: queue.clone(),
            job_type: JobType::new("täsk").unwrap(),
            workflow,
            step: Transition { from, to: StateKind::Cancelled, at, cause: Cause::Cancel },
            since: None,
        };
        let effects = vec![
            moved(None, None),
            moved(Some(WorkflowId::from_bytes([8; 16])), Some(StateKind::Pending)),
            Effect::Queue { name: queue.clone(), change: QueueChange::Deleted, at },
            Effect::Schedule { name: "nightly".into(), queue: queue.clone(), change: ScheduleChange::Skipped, at },
        ];
        let bytes = encode(&effects).unwrap();
        assert_eq!(decode(&bytes), Some(effects));
        for length in 2..bytes.len() - 1 {
            // A prefix is whole events, or nothing.
            assert!(decode(&bytes[..length]).is_none_or(|events| events.len() < 4), "{length}");
        }
        assert_eq!(decode(&[]), None);
        assert_eq!(decode(&[9]), None);
        assert_eq!(encode(&[Effect::Claimable(queue)]), None);
    }
}
