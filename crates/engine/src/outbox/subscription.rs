//! Endpoints and what they have subscribed to.

use std::sync::Arc;

use longshore_core::id::QueueName;
use longshore_core::webhook::WebhookEvent;

use super::OutboxFormatError;
use super::bytes::{RecordParser, RecordWriter};

/// The reserved endpoint whose secret signs callbacks of jobs. It has no subscription of its own.
pub const CALLBACKS: &str = "callbacks";

const FORMAT: u8 = 1;

/// Returns the bit of an event in records.
pub(super) fn event_number(event: WebhookEvent) -> u8 {
    match event {
        WebhookEvent::Completed => 0,
        WebhookEvent::Failed => 1,
        WebhookEvent::DeadLetter => 2,
        WebhookEvent::Cancelled => 3,
        WebhookEvent::Test => 4,
    }
}

pub(super) fn event_of_number(number: u8) -> Result<WebhookEvent, OutboxFormatError> {
    WebhookEvent::ALL.iter().copied().find(|event| event_number(*event) == number).ok_or(OutboxFormatError)
}

/// A set of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventSet(u8);

impl EventSet {
    pub fn contains(self, event: WebhookEvent) -> bool {
        self.0 & (1 << event_number(event)) != 0
    }

    /// Returns the events in the order of [`WebhookEvent::ALL`].
    pub fn events(self) -> impl Iterator<Item = WebhookEvent> {
        WebhookEvent::ALL.iter().copied().filter(move |event| self.contains(*event))
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl FromIterator<WebhookEvent> for EventSet {
    fn from_iter<I: IntoIterator<Item = WebhookEvent>>(events: I) -> Self {
        Self(events.into_iter().fold(0, |bits, event| bits | 1 << event_number(event)))
    }
}

/// Queues by name: one name, or all that begin with the text before a final `*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuePattern(Arc<str>);

impl QueuePattern {
    /// Returns `None` if the text is neither a queue name nor a prefix of one with `*`.
    pub fn new(text: &str) -> Option<Self> {
        let prefix = text.strip_suffix('*').unwrap_or(text);
        let is_all = text == "*";
        (is_all || QueueName::new(prefix).is_ok()).then(|| Self(text.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn matches(&self, queue: &str) -> bool {
        match self.0.strip_suffix('*') {
            Some(prefix) => queue.starts_with(prefix),
            None => *self.0 == *queue,
        }
    }
}

/// The record of an endpoint: what the engine reads, and the part that belongs to the server.
#[derive(Clone, PartialEq, Eq)]
pub struct EndpointRecord {
    pub enabled: bool,
    pub events: EventSet,
    pub queues: Vec<QueuePattern>,
    /// URL, secrets and times, in the server's encoding. The engine does not read it.
    pub server_part: Vec<u8>,
}

impl std::fmt::Debug for EndpointRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The server's part has the secrets.
        let Self { enabled, events, queues, server_part: _ } = self;
        f.debug_struct("EndpointRecord")
            .field("enabled", enabled)
            .field("events", events)
            .field("queues", queues)
            .finish_non_exhaustive()
    }
}

impl EndpointRecord {
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = RecordWriter::default();
        writer.byte(FORMAT);
        writer.byte(u8::from(self.enabled));
        writer.byte(self.events.0);
        writer.number(u32::try_from(self.queues.len()).unwrap_or(u32::MAX));
        self.queues.iter().for_each(|pattern| writer.bytes(pattern.as_str().as_bytes()));
        writer.bytes(&self.server_part);
        writer.0
    }

    pub fn decode(record: &[u8]) -> Result<Self, OutboxFormatError> {
        let mut parser = RecordParser(record);
        if parser.byte()? != FORMAT {
            return Err(OutboxFormatError);
        }
        Ok(Self {
            enabled: parser.byte()? == 1,
            events: EventSet(parser.byte()?),
            queues: parser.list(|parser| QueuePattern::new(parser.text()?).ok_or(OutboxFormatError))?,
            server_part: parser.bytes()?.to_vec(),
        })
    }
}

/// The subscriptions of all enabled endpoints.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subscriptions(Vec<Subscription>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Subscription {
    endpoint: Arc<str>,
    events: EventSet,
    queues: Vec<QueuePattern>,
}

impl Subscriptions {
    /// Reads the records of all endpoints: their names and values.
    pub fn of_records<'a>(records: impl IntoIterator<Item = (&'a [u8], &'a [u8])>) -> Result<Self, OutboxFormatError> {
        let mut subscriptions = Vec::new();
        for (key, value) in records {
            let endpoint = std::str::from_utf8(key).map_err(|_| OutboxFormatError)?;
            let EndpointRecord { enabled, events, queues, .. } = EndpointRecord::decode(value)?;
            if enabled && endpoint != CALLBACKS && !events.is_empty() {
                subscriptions.push(Subscription { endpoint: endpoint.into(), events, queues });
            }
        }
        Ok(Self(subscriptions))
    }

    /// Whether no endpoint is subscribed to anything.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the names of the endpoints that want this event of this queue.
    pub fn matching(&self, event: WebhookEvent, queue: &QueueName) -> impl Iterator<Item = &str> {
        self.0
            .iter()
            .filter(move |subscription| {
                subscription.events.contains(event)
                    && subscription.queues.iter().any(|pattern| pattern.matches(queue.as_str()))
            })
            .map(|subscription| &*subscription.endpoint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(enabled: bool, events: &[WebhookEvent], queues: &[&str]) -> Vec<u8> {
        let queues = queues.iter().map(|text| QueuePattern::new(text).unwrap()).collect();
        let server_part = b"secret".to_vec();
        EndpointRecord { enabled, events: events.iter().copied().collect(), queues, server_part }.encode()
    }

    #[test]
    fn endpoint_record_round_trips() {
        let bytes = record(true, &[WebhookEvent::Failed, WebhookEvent::Cancelled], &["mail", "reports.*", "*"]);
        let decoded = EndpointRecord::decode(&bytes).unwrap();
        assert_eq!(decoded.encode(), bytes);
        assert!(!format!("{decoded:?}").contains("115"), "the server's part is not printed");
        for length in 0..bytes.len() {
            assert_eq!(EndpointRecord::decode(&bytes[..length]), Err(OutboxFormatError), "{length}");
        }
    }

    #[test]
    fn patterns() {
        let matches = |pattern: &str, queue: &str| QueuePattern::new(pattern).unwrap().matches(queue);
        assert!(matches("*", "a") && matches("a.*", "a.b") && matches("a", "a") && matches("a*", "a"));
        assert!(!matches("a.*", "a") && !matches("a", "ab") && !matches("a.*", "A.b"));
        for invalid in ["", "a b", "*a", "a**", "a*b", "\u{e4}"] {
            assert_eq!(QueuePattern::new(invalid), None, "{invalid}");
        }
    }

    #[test]
    fn only_enabled_endpoints_match() {
        let records = [
            ("all", record(true, &WebhookEvent::OF_JOBS, &["*"])),
            ("callbacks", record(true, &WebhookEvent::OF_JOBS, &["*"])),
            ("failed", record(true, &[WebhookEvent::Failed], &["mail"])),
            ("off", record(false, &WebhookEvent::OF_JOBS, &["*"])),
        ];
        let records = records.iter().map(|(name, value)| (name.as_bytes(), value.as_slice()));
        let subscriptions = Subscriptions::of_records(records).unwrap();
        let of = |event, queue| -> Vec<String> {
            let queue = QueueName::new(queue).unwrap();
            subscriptions.matching(event, &queue).map(str::to_owned).collect()
        };
        assert_eq!(of(WebhookEvent::Failed, "mail"), ["all", "failed"]);
        assert_eq!(of(WebhookEvent::Failed, "other"), ["all"]);
        assert_eq!(of(WebhookEvent::Completed, "mail"), ["all"]);
        assert!(!subscriptions.is_empty() && Subscriptions::default().is_empty());
    }
}
