//! One message to one receiver.

use std::fmt;
use std::sync::Arc;

use longshore_core::hash::fnv1a;
use longshore_core::id::{JobId, Seq};
use longshore_core::job::Job;
use longshore_core::time::Timestamp;
use longshore_core::webhook::{DeliveryState, WebhookEvent};

use super::bytes::{RecordParser, RecordWriter};
use super::subscription::{event_number, event_of_number};

const FORMAT: u8 = 1;
/// Attempts that the log of a delivery keeps: the last ones.
pub const ATTEMPTS_KEPT: usize = 50;

/// A record of the outbox is not what this program writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutboxFormatError;

impl fmt::Display for OutboxFormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a record of a webhook is corrupt or of an unknown format")
    }
}

impl std::error::Error for OutboxFormatError {}

/// A delivery with the log of its attempts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    pub endpoint: Arc<str>,
    /// The job's own callback URL. Otherwise the URL is the endpoint's at the time of the attempt.
    pub url: Option<Arc<str>>,
    pub event: WebhookEvent,
    /// `None` for a test.
    pub job: Option<JobId>,
    /// When the job ended.
    pub at: Timestamp,
    pub state: DeliveryState,
    /// Attempts of the present plan; a redelivery begins a new plan.
    pub planned_attempts: u32,
    /// When the next attempt is due.
    pub next_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    pub attempts: Vec<DeliveryAttempt>,
    /// The job as it was at the transition, in the record format of the stores.
    pub snapshot: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryAttempt {
    pub at: Timestamp,
    /// Status of the response, if there was one.
    pub status: Option<u16>,
    pub error: Option<Arc<str>>,
    pub duration_ms: u32,
}

impl Delivery {
    /// Adds an attempt to the log; drops the oldest beyond [`ATTEMPTS_KEPT`].
    pub fn log(&mut self, attempt: DeliveryAttempt) {
        if self.attempts.len() >= ATTEMPTS_KEPT {
            self.attempts.remove(0);
        }
        self.attempts.push(attempt);
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut writer = RecordWriter(Vec::with_capacity(128 + self.snapshot.len()));
        writer.byte(FORMAT);
        writer.bytes(self.endpoint.as_bytes());
        writer.option(self.url.as_deref(), |writer, url| writer.bytes(url.as_bytes()));
        writer.byte(event_number(self.event));
        writer.option(self.job, |writer, job| writer.0.extend_from_slice(job.as_bytes()));
        writer.millis(self.at.as_millis());
        writer.byte(match self.state {
            DeliveryState::Pending => 0,
            DeliveryState::Delivered => 1,
            DeliveryState::Failed => 2,
        });
        writer.number(self.planned_attempts);
        for at in [self.next_at, self.ended_at] {
            writer.option(at, |writer, at| writer.millis(at.as_millis()));
        }
        writer.number(u32::try_from(self.attempts.len()).unwrap_or(u32::MAX));
        for attempt in &self.attempts {
            writer.millis(attempt.at.as_millis());
            writer.option(attempt.status, |writer, status| writer.number(u32::from(status)));
            writer.option(attempt.error.as_deref(), |writer, error| writer.bytes(error.as_bytes()));
            writer.number(attempt.duration_ms);
        }
        writer.bytes(&self.snapshot);
        writer.0
    }

    pub fn decode(record: &[u8]) -> Result<Self, OutboxFormatError> {
        let mut parser = RecordParser(record);
        if parser.byte()? != FORMAT {
            return Err(OutboxFormatError);
        }
        let millis = |parser: &mut RecordParser<'_>| parser.millis().map(Timestamp::from_millis);
        Ok(Self {
            endpoint: parser.text()?.into(),
            url: parser.option(|parser| parser.text().map(Arc::from))?,
            event: event_of_number(parser.byte()?)?,
            job: parser.option(|parser| parser.array().map(JobId::from_bytes))?,
            at: millis(&mut parser)?,
            state: match parser.byte()? {
                0 => DeliveryState::Pending,
                1 => DeliveryState::Delivered,
                2 => DeliveryState::Failed,
                _ => return Err(OutboxFormatError),
            },
            planned_attempts: parser.number()?,
            next_at: parser.option(millis)?,
            ended_at: parser.option(millis)?,
            attempts: parser.list(|parser| {
                Ok(DeliveryAttempt {
                    at: millis(parser)?,
                    status: parser.option(|parser| parser.number()?.try_into().map_err(|_| OutboxFormatError))?,
                    error: parser.option(|parser| parser.text().map(Arc::from))?,
                    duration_ms: parser.number()?,
                })
            })?,
            snapshot: parser.bytes()?.to_vec(),
        })
    }
}

const KEY_BYTES: usize = 24;

/// The key of a delivery: sequence number of the job, time, and a hash that tells apart what one
/// job owes. The deliveries of a job are neighbours, oldest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeliveryKey([u8; KEY_BYTES]);

impl DeliveryKey {
    /// Returns the key for the delivery of a job's last transition to an endpoint. An evaluation
    /// that is repeated gives the same key.
    ///
    /// Lease version, counters and history tell apart two ends of one job at one instant.
    pub(super) fn of_transition(job: &Job, endpoint: &str, at: Timestamp) -> Self {
        let history = job.history.transitions();
        let text = format!("{} {endpoint} {:?} {} {history:?}", job.id, job.counters, job.lease_version.0);
        Self::new(job.seq, at, fnv1a(&text))
    }

    /// Returns the key of a delivery without a job.
    pub fn of_test(at: Timestamp, random: u64) -> Self {
        Self::new(Seq(0), at, random)
    }

    fn new(seq: Seq, at: Timestamp, suffix: u64) -> Self {
        let mut key = [0; KEY_BYTES];
        for (place, part) in key.as_chunks_mut::<8>().0.iter_mut().zip([seq.0, sortable(at), suffix]) {
            *place = part.to_be_bytes();
        }
        Self(key)
    }

    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// Reads the key from the end of a key of another kind.
    pub fn from_suffix(bytes: &[u8]) -> Option<Self> {
        bytes.last_chunk().copied().map(Self)
    }

    /// Returns the sequence number of the job; 0 for a test.
    pub fn job(&self) -> Seq {
        Seq(self.0.first_chunk().copied().map_or(0, u64::from_be_bytes))
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the first bytes of the keys of all deliveries of a job.
    pub fn prefix_of_job(seq: Seq) -> [u8; 8] {
        seq.0.to_be_bytes()
    }

    /// Returns the key of the entry by due time.
    pub fn due_key(&self, due: Timestamp) -> Vec<u8> {
        [&sortable(due).to_be_bytes()[..], &self.0].concat()
    }

    /// Returns the time in the key of an entry by due time.
    pub fn due_of(key: &[u8]) -> Timestamp {
        let millis = key.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
        Timestamp::from_millis(i64::try_from(millis).unwrap_or(i64::MAX))
    }

    /// Returns the key of the entry by endpoint.
    pub fn endpoint_key(&self, endpoint: &str, at: Timestamp) -> Vec<u8> {
        [endpoint.as_bytes(), &[0], &sortable(at).to_be_bytes()[..], &self.0].concat()
    }

    /// Returns the first key of an entry that is due after this time.
    pub fn due_after(now: Timestamp) -> Vec<u8> {
        sortable(now).saturating_add(1).to_be_bytes().to_vec()
    }

    /// Returns the range of the entries of an endpoint.
    pub fn endpoint_range(endpoint: &str) -> (Vec<u8>, Vec<u8>) {
        ([endpoint.as_bytes(), &[0]].concat(), [endpoint.as_bytes(), &[1]].concat())
    }
}

impl fmt::Debug for DeliveryKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// The id of the delivery: `msg_` and the key as hexadecimal digits.
impl fmt::Display for DeliveryKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(ID_PREFIX)?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

const ID_PREFIX: &str = "msg_";

impl std::str::FromStr for DeliveryKey {
    type Err = OutboxFormatError;

    fn from_str(text: &str) -> Result<Self, OutboxFormatError> {
        let digits = text.strip_prefix(ID_PREFIX).ok_or(OutboxFormatError)?.as_bytes();
        let is_digit = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
        if digits.len() != 2 * KEY_BYTES || !digits.iter().all(is_digit) {
            return Err(OutboxFormatError);
        }
        let mut key = [0; KEY_BYTES];
        for (place, pair) in key.iter_mut().zip(digits.as_chunks::<2>().0) {
            let text = std::str::from_utf8(pair).map_err(|_| OutboxFormatError)?;
            *place = u8::from_str_radix(text, 16).map_err(|_| OutboxFormatError)?;
        }
        Ok(Self(key))
    }
}

/// Returns milliseconds whose big-endian bytes sort like the time.
fn sortable(at: Timestamp) -> u64 {
    at.as_millis().max(0).cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delivery() -> Delivery {
        Delivery {
            endpoint: "billing".into(),
            url: Some("https://example.org/x".into()),
            event: WebhookEvent::DeadLetter,
            job: Some(JobId::from_bytes([7; 16])),
            at: Timestamp::from_millis(5),
            state: DeliveryState::Failed,
            planned_attempts: 3,
            next_at: None,
            ended_at: Some(Timestamp::from_millis(9)),
            attempts: vec![DeliveryAttempt {
                at: Timestamp::from_millis(6),
                status: Some(503),
                error: Some("status 503".into()),
                duration_ms: 17,
            }],
            snapshot: vec![1, 2, 3],
        }
    }

    #[test]
    fn record_round_trips_and_is_checked() {
        let bytes = delivery().encode();
        assert_eq!(Delivery::decode(&bytes), Ok(delivery()));
        for length in 0..bytes.len() {
            assert_eq!(Delivery::decode(&bytes[..length]), Err(OutboxFormatError), "{length}");
        }
        let test =
            Delivery { url: None, job: None, event: WebhookEvent::Test, state: DeliveryState::Pending, ..delivery() };
        assert_eq!(Delivery::decode(&test.encode()), Ok(test));
    }

    #[test]
    fn log_is_bounded() {
        let mut delivery = delivery();
        for number in 0..100 {
            delivery.log(DeliveryAttempt {
                at: Timestamp::from_millis(number),
                status: None,
                error: None,
                duration_ms: 0,
            });
        }
        assert_eq!(delivery.attempts.len(), ATTEMPTS_KEPT);
        assert_eq!(delivery.attempts.last().map(|attempt| attempt.at), Some(Timestamp::from_millis(99)));
    }

    #[test]
    fn keys_sort_and_round_trip() {
        let at = Timestamp::from_millis;
        let key = DeliveryKey::new(Seq(300), at(1_000), 0xfeed);
        let text = key.to_string();
        assert_eq!((text.len(), text.parse()), (52, Ok(key)));
        for invalid in ["", "msg_", &text[1..], &text[..51], &text.to_uppercase(), &text.replace('e', "+")] {
            assert_eq!(invalid.parse::<DeliveryKey>(), Err(OutboxFormatError), "{invalid}");
        }
        assert!(key.due_key(at(255)) < key.due_key(at(256)));
        assert_eq!(DeliveryKey::due_of(&key.due_key(at(257))), at(257));
        assert!(key.due_key(at(256)) < DeliveryKey::due_after(at(256)));
        assert!(key.due_key(at(257)) > DeliveryKey::due_after(at(256)));
        let (start, end) = DeliveryKey::endpoint_range("a");
        let inside = |name: &str| (start.clone()..end.clone()).contains(&key.endpoint_key(name, at(1)));
        assert!(inside("a") && !inside("ab") && !inside("A"));
        assert!(key.as_bytes().starts_with(&DeliveryKey::prefix_of_job(Seq(300))));
        assert_eq!(DeliveryKey::from_suffix(&key.due_key(at(9))), Some(key));
    }
}
