//! Names and numbers that identify things.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use uuid::{Builder, Uuid};

use crate::limits::{QUEUE_NAME_CHARS_MAX, TYPE_CHARS_MAX, WORKER_CHARS_MAX};
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
                // Only the canonical spelling: one job, one address.
                let id = Uuid::try_parse(text).ok().filter(|id| text.len() == 36 && id.to_string() == text);
                id.map(Self).ok_or_else(|| Invalid::new("id", "must be a UUID such as 0b7fbd3c-6a0e-4c1e-9d5b-2f1f0f6f7a10"))
            }
        }
    };
}

uuid_v4!(
    /// The server's name for a job: UUID version 4, never chosen by a client, never used twice.
    JobId
);
uuid_v4!(
    /// The server's name for a workflow: UUID version 4.
    WorkflowId
);
uuid_v4!(
    /// One start of a job. Never repeats, although an attempt's number may.
    AttemptId
);

/// A job's place in the order of submission, and the short name by which the engine and the stores know it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seq(pub u64);

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How often a job was claimed. Only grows, whatever happens to the job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseVersion(pub u64);

impl LeaseVersion {
    /// Room for the claims of one job in an epoch. With milliseconds as epochs, a version stays below 2^53 until 2095: JSON has no larger numbers for everybody.
    const EPOCH_BITS: u32 = 12;
    const EPOCH_ORIGIN_MS: u64 = 1_767_225_600_000;

    /// What all versions of an epoch are above. The first one begins at nothing.
    pub fn floor(epoch: u64) -> Self {
        Self(epoch.saturating_sub(1) << Self::EPOCH_BITS)
    }

    /// The epoch of a store that goes on, now, from an earlier moment: what was given since that moment is not known to it. Epochs are milliseconds since
    /// 2026, so that whoever goes on later is above whoever went on before, also from the same moment; should the clock be behind, it is far above that moment's own.
    pub fn next_epoch(epoch: u64, now: Timestamp) -> u64 {
        let millis = now.as_millis().max(0).unsigned_abs();
        millis.saturating_sub(Self::EPOCH_ORIGIN_MS).max(epoch.saturating_add(1 << 20))
    }
}

/// Proof of a lease: unguessable, new with every claim.
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
    /// A token is a secret between the server and one worker.
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
        let wide = well_formed.then(|| u128::from_str_radix(text, 16).ok()).flatten();
        wide.map(|wide| Self(wide.to_be_bytes())).ok_or_else(|| Invalid::new("lease", "is not a lease token"))
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
    /// A named line of jobs.
    QueueName, |text| validate_name("queue", text, QUEUE_NAME_CHARS_MAX)
);
shared_text!(
    /// What sort of work a job is, chosen by whoever submits it.
    JobType, |text| validate_printable("type", text, TYPE_CHARS_MAX)
);
shared_text!(
    /// Who claims.
    WorkerName, |text| validate_printable("worker", text, WORKER_CHARS_MAX)
);

/// The alphabet of names: letters, digits, `_ . - :`.
pub fn validate_name(field: &'static str, text: &str, chars_max: usize) -> Result<(), Invalid> {
    let allowed = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'.' | b'-' | b':');
    if (1..=chars_max).contains(&text.len()) && text.bytes().all(allowed) {
        return Ok(());
    }
    Err(Invalid::new(field, format!("must be 1-{chars_max} characters of A-Z a-z 0-9 _ . - :")))
}

/// Text for people: no control characters, so that it can be shown anywhere.
pub fn validate_printable(field: &'static str, text: &str, chars_max: usize) -> Result<(), Invalid> {
    if !text.is_empty() && text.chars().count() <= chars_max && !text.chars().any(char::is_control) {
        return Ok(());
    }
    Err(Invalid::new(field, format!("must be 1-{chars_max} printable characters")))
}

/// Free text of bounded length, counted in characters (code points), not bytes.
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
    fn job_ids_are_unique_uuids_of_version_4() {
        let mut rng = SeededRng::new(1);
        let mut seen = std::collections::HashSet::new();
        for _ in 0..10_000 {
            let id = JobId::random(&mut rng);
            assert_eq!(id.0.get_version_num(), 4);
            assert_eq!(id.0.get_variant(), uuid::Variant::RFC4122);
            assert_eq!(id.to_string().parse::<JobId>().unwrap(), id);
            assert!(seen.insert(id));
        }
        let odd = ["", "x", "0B7FBD3C-6A0E-4C1E-9D5B-2F1F0F6F7A10", "{0b7fbd3c-6a0e-4c1e-9d5b-2f1f0f6f7a10}"];
        assert!(odd.iter().all(|text| text.parse::<JobId>().is_err()));
    }

    #[test]
    fn lease_tokens_round_trip_and_stay_out_of_logs() {
        let token = LeaseToken::random(&mut SeededRng::new(1));
        assert_eq!(token.to_string().parse::<LeaseToken>().unwrap(), token);
        assert_eq!(format!("{token:?}"), "LeaseToken(…)");
        assert!("+0000000000000000000000000000000".parse::<LeaseToken>().is_err());
    }

    #[test]
    fn names_keep_to_their_alphabet() {
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
