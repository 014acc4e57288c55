//! Ids, names, sequence numbers, lease tokens and lease versions.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use uuid::{Builder, Uuid};

use crate::limits::{QUEUE_NAME_CHARS_MAX, SCHEDULE_NAME_CHARS_MAX, TYPE_CHARS_MAX, WORKER_CHARS_MAX};
use crate::refusal::Invalid;
use crate::rng::Rng;
use crate::time::Timestamp;

macro_rules! uuid_v4 {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Uuid);

        impl $name {
            pub fn random(rng: &mut dyn Rng) -> Self {
                Self(Builder::from_random_bytes(rng.bytes16()).into_uuid())
            }

            pub fn from_bytes(bytes: [u8; 16]) -> Self {
                Self(Uuid::from_bytes(bytes))
            }

            pub fn as_bytes(&self) -> &[u8; 16] {
                self.0.as_bytes()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.hyphenated().fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = Invalid;

            fn from_str(text: &str) -> Result<Self, Invalid> {
                // RFC 4122: printed in lower case, read in any case. The library reads more forms.
                let is_hyphenated = text.len() == 36;
                let id = is_hyphenated.then(|| Uuid::try_parse(text).ok()).flatten();
                id.map(Self).ok_or_else(|| Invalid::new("id", "must be a UUID such as 0b7fbd3c-6a0e-4c1e-9d5b-2f1f0f6f7a10"))
            }
        }
    };
}

uuid_v4!(
    /// Id of a job: UUID version 4, chosen by the server and never reused.
    JobId
);
uuid_v4!(
    /// Id of a workflow: UUID version 4.
    WorkflowId
);
uuid_v4!(
    /// Id of an attempt. Unique, although the number of an attempt may repeat.
    AttemptId
);

uuid_v4!(
    /// Id of a durable operation: UUID version 7, so that ids sort by time of creation.
    OperationId
);

impl OperationId {
    /// Returns an id that sorts after those of earlier milliseconds, and after those of the same
    /// millisecond with a lower `number`. Only the last 12 bits of `number` count.
    pub fn at(at: Timestamp, number: u64, rng: &mut dyn Rng) -> Self {
        let random = rng.bytes16();
        let [.., high, low] = (number & 0xfff).to_be_bytes();
        let mut bytes = [0; 10];
        bytes.iter_mut().zip([high, low].iter().chain(&random)).for_each(|(byte, value)| *byte = *value);
        let millis = at.as_millis().max(0).unsigned_abs();
        Self(Builder::from_unix_timestamp_millis(millis, &bytes).into_uuid())
    }

    /// Returns the bytes that all ids of this instant and later are not less than.
    pub fn floor(at: Timestamp) -> [u8; 6] {
        let [_, _, bytes @ ..] = at.as_millis().max(0).unsigned_abs().to_be_bytes();
        bytes
    }
}

/// Sequence number of a job: the order of submission, and the key of the job in engine and stores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seq(pub u64);

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Version of a lease: grows with every claim of a job, also after a restore.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseVersion(pub u64);

impl LeaseVersion {
    /// Bits for the claims of one job in an epoch. With milliseconds as epochs, a version stays
    /// below 2^53 until 2095, so that every JSON parser reads it exactly.
    const EPOCH_BITS: u32 = 12;
    /// 2026-01-01.
    const EPOCH_ORIGIN_MS: u64 = 1_767_225_600_000;

    /// Returns the floor of an epoch: all its versions are above. The floor of the first epoch is
    /// 0.
    pub fn floor(epoch: u64) -> Self {
        Self(epoch.saturating_sub(1) << Self::EPOCH_BITS)
    }

    /// Returns the epoch for a store restored from a backup: milliseconds since 2026-01-01, so that
    /// two restores of the same backup get different, increasing epochs. If the clock is behind,
    /// falls back to `epoch + 2^20`.
    pub fn next_epoch(epoch: u64, now: Timestamp) -> u64 {
        let millis = now.as_millis().max(0).unsigned_abs();
        millis.saturating_sub(Self::EPOCH_ORIGIN_MS).max(epoch.saturating_add(1 << 20))
    }
}

/// Secret that proves a lease: unguessable, new with every claim.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct LeaseToken([u8; 16]);

impl LeaseToken {
    pub fn random(rng: &mut dyn Rng) -> Self {
        Self(rng.bytes16())
    }

    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Debug for LeaseToken {
    /// Hides the token: only one worker may know it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LeaseToken(…)")
    }
}

impl fmt::Display for LeaseToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl FromStr for LeaseToken {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let lower_hex = |c: u8| c.is_ascii_digit() || (b'a'..=b'f').contains(&c);
        let well_formed = text.len() == 32 && text.bytes().all(lower_hex);
        let bits = well_formed.then(|| u128::from_str_radix(text, 16).ok()).flatten();
        bits.map(|bits| Self(bits.to_be_bytes())).ok_or_else(|| Invalid::new("lease", "is not a lease token"))
    }
}

macro_rules! shared_text {
    ($(#[$doc:meta])* $name:ident, $check:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            pub fn new(text: &str) -> Result<Self, Invalid> {
                let check: fn(&str) -> Result<(), Invalid> = $check;
                check(text).map(|()| Self(text.into()))
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    };
}

shared_text!(
    /// Name of a queue.
    QueueName, |text| validate_name("queue", text, QUEUE_NAME_CHARS_MAX)
);
shared_text!(
    /// Name of a schedule.
    ScheduleName, |text| validate_name("schedule", text, SCHEDULE_NAME_CHARS_MAX)
);
shared_text!(
    /// Kind of work, chosen by the client.
    JobType, |text| validate_printable("type", text, TYPE_CHARS_MAX)
);
shared_text!(
    /// Name of a worker.
    WorkerName, |text| validate_printable("worker", text, WORKER_CHARS_MAX)
);

/// Checks a name: letters, digits, `_ . - :`.
pub fn validate_name(field: &'static str, text: &str, chars_max: usize) -> Result<(), Invalid> {
    let allowed = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'.' | b'-' | b':');
    if (1..=chars_max).contains(&text.len()) && text.bytes().all(allowed) {
        return Ok(());
    }
    Err(Invalid::new(field, format!("must be 1-{chars_max} characters of A-Z a-z 0-9 _ . - :")))
}

/// Checks a text for people: no control characters, so that it can be shown anywhere.
pub fn validate_printable(field: &'static str, text: &str, chars_max: usize) -> Result<(), Invalid> {
    if !text.is_empty() && text.chars().count() <= chars_max && !text.chars().any(char::is_control) {
        return Ok(());
    }
    Err(Invalid::new(field, format!("must be 1-{chars_max} printable characters")))
}

/// Checks the length of a text, in characters (code points).
pub fn validate_length(field: &'static str, text: &str, chars_max: usize) -> Result<(), Invalid> {
    if text.chars().count() <= chars_max {
        return Ok(());
    }
    Err(Invalid::new(field, format!("must be at most {chars_max} characters")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::SeededRng;

    /// Proves G-1.2, G-1.5, L-32.
    #[test]
    fn job_id_is_unique_uuid_v4() {
        let mut rng = SeededRng::new(1);
        let mut seen = std::collections::HashSet::new();
        for _ in 0..10_000 {
            let id = JobId::random(&mut rng);
            assert_eq!(id.0.get_version_num(), 4);
            assert_eq!(id.0.get_variant(), uuid::Variant::RFC4122);
            assert_eq!(id.to_string().parse::<JobId>().unwrap(), id);
            assert_eq!(id.to_string().to_uppercase().parse::<JobId>().unwrap(), id);
            assert!(seen.insert(id));
        }
        let odd = ["", "x", "0b7fbd3c6a0e4c1e9d5b2f1f0f6f7a10", "{0b7fbd3c-6a0e-4c1e-9d5b-2f1f0f6f7a10}"];
        assert!(odd.iter().all(|text| text.parse::<JobId>().is_err()));
    }

    #[test]
    fn lease_token_round_trips_and_is_hidden_in_debug() {
        let token = LeaseToken::random(&mut SeededRng::new(1));
        assert_eq!(token.to_string().parse::<LeaseToken>().unwrap(), token);
        assert_eq!(format!("{token:?}"), "LeaseToken(…)");
        assert!("+0000000000000000000000000000000".parse::<LeaseToken>().is_err());
    }

    #[test]
    fn name_alphabet() {
        assert!(QueueName::new(&"q".repeat(128)).is_ok());
        for bad in ["", "a b", "ä", "a/b", &"q".repeat(129)] {
            assert!(QueueName::new(bad).is_err(), "{bad:?}");
        }
        assert!(JobType::new("Größe ändern").is_ok());
        assert!(JobType::new(&"ä".repeat(256)).is_ok());
        assert!(JobType::new(&"ä".repeat(257)).is_err());
        assert!(JobType::new("a\nb").is_err());
    }
}
