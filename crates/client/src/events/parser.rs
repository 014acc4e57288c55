//! Parses server-sent events.

use std::collections::VecDeque;

/// A block of the stream: an event, a comment, or both.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct EventBlock {
    /// `id` of the event, or the position that a comment names.
    pub(super) cursor: Option<String>,
    /// Name and data.
    pub(super) event: Option<(String, String)>,
}

/// Collects bytes until they are whole blocks.
#[derive(Debug, Default)]
pub(super) struct EventParser {
    /// The last line, as far as it has arrived.
    line: Vec<u8>,
    blocks: VecDeque<EventBlock>,
    cursor: Option<String>,
    name: Option<String>,
    data: Option<String>,
}

impl EventParser {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if *byte == b'\n' {
                let line = std::mem::take(&mut self.line);
                let line = String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(&line)).into_owned();
                self.end_line(&line);
            } else {
                self.line.push(*byte);
            }
        }
    }

    pub(super) fn next_block(&mut self) -> Option<EventBlock> {
        self.blocks.pop_front()
    }

    fn end_line(&mut self, line: &str) {
        if line.is_empty() {
            let (name, data) = (self.name.take(), self.data.take());
            let event = data.map(|data| (name.unwrap_or_else(|| "message".to_owned()), data));
            let block = EventBlock { cursor: self.cursor.take(), event };
            if block != EventBlock::default() {
                self.blocks.push_back(block);
            }
            return;
        }
        // The server names its position in comments, so that a client can resume without an event.
        if let Some(cursor) = line.strip_prefix(": cursor ") {
            self.cursor = Some(cursor.to_owned());
            return;
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "id" => self.cursor = Some(value.to_owned()),
            "event" => self.name = Some(value.to_owned()),
            "data" => match &mut self.data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                None => self.data = Some(value.to_owned()),
            },
            // A comment, or a field of a newer server.
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(text: &str, part: usize) -> Vec<EventBlock> {
        let mut parser = EventParser::default();
        text.as_bytes().chunks(part).for_each(|bytes| parser.push(bytes));
        std::iter::from_fn(|| parser.next_block()).collect()
    }

    #[test]
    fn blocks_are_the_same_however_they_arrive() {
        let text = ": hello\n\n: cursor a-1\n\nevent: job\r\nid: a-2\r\ndata: {\"x\":\r\ndata: \"é\"}\r\n\r\ndata:bare\n\nevent: cut";
        let event = |cursor: Option<&str>, name: &str, data: &str| EventBlock {
            cursor: cursor.map(str::to_owned),
            event: Some((name.to_owned(), data.to_owned())),
        };
        let expected = [
            EventBlock { cursor: Some("a-1".to_owned()), event: None },
            event(Some("a-2"), "job", "{\"x\":\n\"é\"}"),
            event(None, "message", "bare"),
        ];
        for part in [1, 2, 3, 7, 1_000] {
            assert_eq!(blocks(text, part), expected, "{part}");
        }
    }
}
