//! The events of one commit, serialized once for all listeners.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use bytes::{Bytes, BytesMut};
use longshore_engine::Effect;

use super::cursor::Cursor;
use crate::wire::json_writer::JsonWriter;

/// Consecutive events of a log.
#[derive(Debug)]
pub(super) struct EventBatch {
    epoch: u64,
    /// Number of the first event.
    pub(super) first: u64,
    /// Empty: events are missing here. This takes one number.
    pub(super) events: Arc<[Effect]>,
    /// Written when the first listener needs it.
    text: OnceLock<BatchText>,
}

#[derive(Debug)]
struct BatchText {
    bytes: Bytes,
    /// Where the text of each event ends.
    ends: Vec<usize>,
}

impl EventBatch {
    pub(super) fn new(epoch: u64, first: u64, events: Arc<[Effect]>) -> Self {
        Self { epoch, first, events, text: OnceLock::new() }
    }

    /// How many numbers the batch takes.
    pub(super) fn len(&self) -> usize {
        self.events.len().max(1)
    }

    pub(super) fn is_gap(&self) -> bool {
        self.events.is_empty()
    }

    /// Returns the number after the last event.
    pub(super) fn end(&self) -> u64 {
        self.first + self.len() as u64
    }

    /// Returns the text of some events, by their index.
    pub(super) fn text(&self, events: Range<usize>) -> Bytes {
        let text = self.text.get_or_init(|| self.write());
        let end_of = |index: usize| text.ends.get(index).copied().unwrap_or(text.bytes.len());
        let start = events.start.checked_sub(1).map_or(0, end_of);
        let end = events.end.checked_sub(1).map_or(0, end_of);
        text.bytes.slice(start..end.max(start))
    }

    fn write(&self) -> BatchText {
        let mut bytes = BytesMut::with_capacity(self.len() * TEXT_BYTES);
        let mut ends = Vec::with_capacity(self.len());
        let cursor = |index: usize| Cursor { epoch: self.epoch, number: self.first + index as u64 };
        if self.is_gap() {
            bytes.extend_from_slice(&gap_text(cursor(0)));
            ends.push(bytes.len());
        }
        for (index, event) in self.events.iter().enumerate() {
            write_event(&mut bytes, cursor(index), event);
            ends.push(bytes.len());
        }
        BatchText { bytes: bytes.freeze(), ends }
    }
}

/// Usual size of an event.
pub(super) const TEXT_BYTES: usize = 320;

/// Returns the text that tells a client that events are missing before this position.
pub(super) fn gap_text(cursor: Cursor) -> Bytes {
    format!("event: gap\nid: {cursor}\ndata: {{}}\n\n").into()
}

fn write_event(bytes: &mut BytesMut, cursor: Cursor, event: &Effect) {
    let mut json = JsonWriter::with_capacity(TEXT_BYTES);
    let kind = match event {
        Effect::Moved { id, queue, job_type, workflow, step, .. } => {
            json.object(|json| {
                json.field("id").uuid(id.as_bytes());
                json.field("queue").text(queue.as_str());
                json.field("type").text(job_type.as_str());
                match workflow {
                    Some(workflow) => json.field("workflow").uuid(workflow.as_bytes()),
                    None => json.field("workflow").null(),
                }
                match step.from {
                    Some(from) => json.field("from").word(from.as_str()),
                    None => json.field("from").null(),
                }
                json.field("to").word(step.to.as_str());
                json.field("at").time(step.at);
                json.field("cause").word(step.cause.as_str());
            });
            "job"
        }
        Effect::Queue { name, change, at } => {
            json.object(|json| {
                json.field("name").text(name.as_str());
                json.field("change").word(change.as_str());
                json.field("at").time(*at);
            });
            "queue"
        }
        Effect::Schedule { name, queue: _, change, at } => {
            json.object(|json| {
                json.field("name").text(name);
                json.field("change").word(change.as_str());
                json.field("at").time(*at);
            });
            "schedule"
        }
        Effect::Claimable(_) => return,
    };
    bytes.extend_from_slice(format!("event: {kind}\nid: {cursor}\ndata: ").as_bytes());
    bytes.extend_from_slice(&json.finish().unwrap_or_default());
    bytes.extend_from_slice(b"\n\n");
}
