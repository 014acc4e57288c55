//! Closed sets of words.

use std::fmt;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

macro_rules! string_enum {
    ($(#[$doc:meta])* $name:ident { $($variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        pub enum $name { $(#[serde(rename = $word)] $variant),+ }

        // The derived one would name the variants as Rust does.
        #[cfg(feature = "schema")]
        impl utoipa::PartialSchema for $name {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
                words_schema(&[$($word),+]).into()
            }
        }

        #[cfg(feature = "schema")]
        impl utoipa::ToSchema for $name {}

        // serde's own way takes more than text, and complains about the rest as if it were no JSON.
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_str(EnumVisitor { words: &[$($word),+], read: Self::parse })
            }
        }

        impl $name {
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];
            /// All words, in the same order.
            pub const WORDS: &'static [&'static str] = &[$($word),+];

            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }

            pub fn parse(word: &str) -> Option<Self> {
                match word { $($word => Some(Self::$variant),)+ _ => None }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

#[cfg(feature = "schema")]
fn words_schema(words: &[&'static str]) -> utoipa::openapi::schema::Object {
    use utoipa::openapi::schema::{ObjectBuilder, Type};
    ObjectBuilder::new().schema_type(Type::String).enum_values(Some(words.iter().copied())).build()
}

/// Reads a word of a closed set.
struct EnumVisitor<T: 'static> {
    words: &'static [&'static str],
    read: fn(&str) -> Option<T>,
}

impl<T> Visitor<'_> for EnumVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "one of {}", self.words.join(", "))
    }

    fn visit_str<E: Error>(self, word: &str) -> Result<T, E> {
        (self.read)(word).ok_or_else(|| E::custom(format_args!("expected one of {}", self.words.join(", "))))
    }
}

string_enum!(
    /// What a workflow is, as a whole.
    WorkflowState {
        Running = "running",
        Completed = "completed",
        Failed = "failed",
        Cancelled = "cancelled",
    }
);
string_enum!(
    /// A named bundle of settings.
    Profile {
        Standard = "standard",
        Gopherqueue = "gopherqueue",
        Taskharbor = "taskharbor",
        Ocypod = "ocypod",
        Weave = "weave",
        Document = "document",
    }
);
string_enum!(
    /// The nine states of a job.
    State {
        Pending = "pending",
        Scheduled = "scheduled",
        Delayed = "delayed",
        Running = "running",
        Retrying = "retrying",
        Completed = "completed",
        Failed = "failed",
        DeadLetter = "dead_letter",
        Cancelled = "cancelled",
    }
);
string_enum!(
    /// What `retry.limit` is a number of.
    RetryLimitUnit { Starts = "starts", Failures = "failures", Retries = "retries" }
);
string_enum!(
    /// The formula of the wait before a retry.
    BackoffKind { Constant = "constant", Linear = "linear", Exponential = "exponential", List = "list" }
);
string_enum!(
    /// The shape of the randomness of that wait.
    JitterKind { None = "none", Symmetric = "symmetric", Full = "full" }
);
string_enum!(
    /// Where a permanent error sends the job.
    OnPermanent { Failed = "failed", DeadLetter = "dead_letter", Retry = "retry" }
);
string_enum!(
    /// Where a job goes that may not be retried any more.
    OnExhausted { DeadLetter = "dead_letter", Failed = "failed" }
);
string_enum!(
    /// Whether an execution timeout, or a failure of the system, is retried.
    OnFailure { Retry = "retry", Final = "final" }
);
string_enum!(
    /// What the end of a lease means.
    OnLeaseExpiry {
        ReclaimCounted = "reclaim_counted",
        ReclaimFree = "reclaim_free",
        FailTimeout = "fail_timeout",
        FailRetryable = "fail_retryable",
    }
);
string_enum!(
    /// Who takes an orphan back: time, or the next claim.
    Reclaim { Eager = "eager", Lazy = "lazy" }
);
string_enum!(
    /// Whether a settlement must prove its lease.
    Fencing { Required = "required", Optional = "optional" }
);
string_enum!(
    /// Among which jobs an idempotency key is unique.
    IdempotencyScope { Type = "type", Queue = "queue", Global = "global", Off = "off" }
);
string_enum!(
    /// Where a job that comes back stands in line.
    RequeueOrder { Submission = "submission", Tail = "tail" }
);
string_enum!(
    /// Whether creating a job also submits it.
    SubmitMode { Auto = "auto", Explicit = "explicit" }
);
string_enum!(
    /// Whether a requeue revives the job itself or makes a copy.
    ManualRequeue { InPlace = "in_place", Clone = "clone" }
);
string_enum!(
    /// Whether a running job is cancelled at once, or asked to stop.
    CancelRunning { Cooperative = "cooperative", Immediate = "immediate" }
);
string_enum!(
    /// Every failure belongs to exactly one.
    Category {
        Temporary = "temporary",
        Permanent = "permanent",
        Timeout = "timeout",
        Cancelled = "cancelled",
        System = "system",
    }
);
string_enum!(
    /// The categories that a worker may report.
    ReportedCategory { Temporary = "temporary", Permanent = "permanent", Timeout = "timeout", System = "system" }
);
string_enum!(
    /// How a run ended.
    AttemptOutcome {
        Completed = "completed",
        Failed = "failed",
        TimedOut = "timed_out",
        LeaseExpired = "lease_expired",
        Snoozed = "snoozed",
        Released = "released",
        Cancelled = "cancelled",
    }
);
string_enum!(
    /// Why a job moved from state to state.
    Cause {
        Create = "create",
        Submit = "submit",
        Dependencies = "dependencies",
        Due = "due",
        Claim = "claim",
        Complete = "complete",
        Fail = "fail",
        Timeout = "timeout",
        LeaseExpired = "lease_expired",
        Snooze = "snooze",
        Release = "release",
        RunNow = "run_now",
        Cancel = "cancel",
        DeadLetter = "dead_letter",
        Lifetime = "lifetime",
        Exhausted = "exhausted",
        DependencyFailed = "dependency_failed",
        ResourceExhausted = "resource_exhausted",
        QueueDeleted = "queue_deleted",
        Requeue = "requeue",
        Revive = "revive",
    }
);
string_enum!(
    /// How a worker ends its lease.
    OutcomeKind { Complete = "complete", Fail = "fail", Snooze = "snooze", Release = "release" }
);
string_enum!(
    /// What is done to many jobs at once.
    BulkAction { Requeue = "requeue", Cancel = "cancel", Delete = "delete" }
);
string_enum!(
    /// Whose words a job is shown in.
    View {
        Gopherqueue = "gopherqueue",
        Taskharbor = "taskharbor",
        Ocypod = "ocypod",
        Weave = "weave",
        Document = "document",
    }
);

impl State {
    pub fn terminal(self) -> bool {
        match self {
            Self::Completed | Self::Failed | Self::DeadLetter | Self::Cancelled => true,
            Self::Pending | Self::Scheduled | Self::Delayed | Self::Running | Self::Retrying => false,
        }
    }
}

/// Five levels of urgency. Read as a name or as 0 to 4, written as a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Priority {
    Critical,
    High,
    Normal,
    Low,
    Bulk,
}

impl Priority {
    pub const ALL: &'static [Self] = &[Self::Critical, Self::High, Self::Normal, Self::Low, Self::Bulk];
    /// All names, in the same order.
    pub const WORDS: &'static [&'static str] = &["critical", "high", "normal", "low", "bulk"];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::High => "high",
            Self::Normal => "normal",
            Self::Low => "low",
            Self::Bulk => "bulk",
        }
    }

    pub fn from_level(level: u64) -> Option<Self> {
        Self::ALL.get(usize::try_from(level).ok()?).copied()
    }

    /// A name, or the digit of a level, as in a query string.
    pub fn parse(word: &str) -> Option<Self> {
        let named = Self::ALL.iter().copied().find(|priority| priority.as_str() == word);
        let level = || (word.len() == 1).then(|| word.parse().ok()).flatten();
        named.or_else(|| Self::from_level(level()?))
    }
}

#[cfg(feature = "schema")]
impl utoipa::PartialSchema for Priority {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
        use utoipa::openapi::schema::{ObjectBuilder, OneOfBuilder, Type};
        let words: Vec<&'static str> = Self::ALL.iter().map(|priority| priority.as_str()).collect();
        let level = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(0)).maximum(Some(4));
        OneOfBuilder::new().item(words_schema(&words)).item(level).into()
    }
}

#[cfg(feature = "schema")]
impl utoipa::ToSchema for Priority {}

/// The complaint about a priority that is none.
pub const PRIORITIES: &str = "critical, high, normal, low or bulk, or a number from 0 to 4";

impl<'de> Deserialize<'de> for Priority {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NameOrLevel;
        fn wrong<E: Error>() -> E {
            E::custom(format_args!("expected {PRIORITIES}"))
        }
        impl Visitor<'_> for NameOrLevel {
            type Value = Priority;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(PRIORITIES)
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<Priority, E> {
                Priority::ALL.iter().copied().find(|priority| priority.as_str() == name).ok_or_else(wrong)
            }

            fn visit_u64<E: Error>(self, level: u64) -> Result<Priority, E> {
                Priority::from_level(level).ok_or_else(wrong)
            }

            fn visit_i64<E: Error>(self, _: i64) -> Result<Priority, E> {
                Err(wrong())
            }
        }
        deserializer.deserialize_any(NameOrLevel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priorities_are_names_or_levels() {
        let read = |json: &str| serde_json::from_str::<Priority>(json).ok();
        assert_eq!(
            (read("\"high\""), read("1"), read("4")),
            (Some(Priority::High), Some(Priority::High), Some(Priority::Bulk))
        );
        assert!(Priority::ALL.iter().map(|priority| priority.as_str()).eq(Priority::WORDS.iter().copied()));
        for bad in ["5", "-1", "1.0", "\"1\"", "\"High\"", "null", "true"] {
            assert_eq!(read(bad), None, "{bad}");
        }
        assert_eq!(serde_json::to_string(&Priority::Bulk).unwrap(), "\"bulk\"");
        assert_eq!((Priority::parse("3"), Priority::parse("+3")), (Some(Priority::Low), None));
    }

    #[test]
    fn words_are_written_as_they_are_read() {
        for state in State::ALL {
            let text = serde_json::to_string(state).unwrap();
            assert_eq!(text, format!("\"{state}\""));
            assert_eq!(State::parse(state.as_str()), Some(*state));
            assert_eq!(serde_json::from_str::<State>(&text).unwrap(), *state);
        }
        for bad in ["true", "7", "{\"running\":null}", "[]", "null", "\"Running\""] {
            assert!(serde_json::from_str::<State>(bad).unwrap_err().is_data(), "{bad}");
        }
    }
}
