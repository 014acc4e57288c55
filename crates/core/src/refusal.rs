//! Refusals: every reason for which the rules refuse a command. A refused command changes nothing.

use std::borrow::Cow;
use std::fmt;

use crate::ocypod::status::Status;
use crate::state::StateKind;

/// A field that is not accepted, and what would be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    pub field: Cow<'static, str>,
    pub reason: Cow<'static, str>,
}

impl Invalid {
    pub fn new(field: impl Into<Cow<'static, str>>, reason: impl Into<Cow<'static, str>>) -> Self {
        Self { field: field.into(), reason: reason.into() }
    }

    /// Returns the same refusal for another field.
    pub fn at(self, field: impl Into<Cow<'static, str>>) -> Self {
        Self { field: field.into(), ..self }
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\" {}", self.field, self.reason)
    }
}

impl std::error::Error for Invalid {}

/// Why a lease token is stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stale {
    Mismatch,
    Expired,
    NotRunning,
}

/// Why a command is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    Invalid(Invalid),
    PayloadTooLarge {
        field: &'static str,
        bytes: usize,
        bytes_max: u32,
    },
    QueueNotFound,
    JobNotFound,
    WorkflowNotFound,
    StaleLease(Stale),
    IllegalTransition {
        from: StateKind,
        verb: &'static str,
    },
    /// A status change that the Ocypod dialect does not have.
    StatusChange {
        from: Status,
        to: Status,
    },
    /// A command that the state allows and another condition forbids.
    Illegal(&'static str),
    /// The queue has unfinished jobs; only `force` deletes it.
    QueueNotEmpty {
        jobs: u64,
    },
    DuplicateId,
    QueueFull {
        max_queued: u64,
    },
    /// `name` is the id or reference as given, `field` where it was given: `after[2]`.
    DependencyUnknown {
        field: String,
        name: String,
    },
    DependencyCycle(String),
    DependencyDepth,
    DependencyBreadth {
        given: usize,
    },
}

impl Refusal {
    pub fn invalid(field: impl Into<Cow<'static, str>>, reason: impl Into<Cow<'static, str>>) -> Self {
        Self::Invalid(Invalid::new(field, reason))
    }

    /// Returns the field at fault, as a path; `None` if there is no single one.
    pub fn field(&self) -> Option<&str> {
        match self {
            Self::Invalid(invalid) => Some(&invalid.field),
            Self::PayloadTooLarge { field, .. } => Some(field),
            Self::DuplicateId => Some("external_id"),
            Self::DependencyUnknown { field, .. } => Some(field),
            Self::QueueNotFound
            | Self::JobNotFound
            | Self::WorkflowNotFound
            | Self::StaleLease(_)
            | Self::IllegalTransition { .. }
            | Self::StatusChange { .. }
            | Self::Illegal(_)
            | Self::QueueNotEmpty { .. }
            | Self::QueueFull { .. }
            | Self::DependencyCycle(_)
            | Self::DependencyDepth
            | Self::DependencyBreadth { .. } => None,
        }
    }

    /// Returns the error code of the wire.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Invalid(_) => "validation",
            Self::PayloadTooLarge { .. } => "payload_too_large",
            Self::QueueNotFound => "queue_not_found",
            Self::JobNotFound => "job_not_found",
            Self::WorkflowNotFound => "workflow_not_found",
            Self::StaleLease(_) => "stale_lease",
            Self::IllegalTransition { .. }
            | Self::StatusChange { .. }
            | Self::Illegal(_)
            | Self::QueueNotEmpty { .. } => "illegal_transition",
            Self::DuplicateId => "duplicate_id",
            Self::QueueFull { .. } => "queue_full",
            Self::DependencyUnknown { .. } => "dependency_unknown",
            Self::DependencyCycle(_) => "dependency_cycle",
            Self::DependencyDepth => "dependency_depth",
            Self::DependencyBreadth { .. } => "dependency_breadth",
        }
    }
}

impl From<Invalid> for Refusal {
    fn from(invalid: Invalid) -> Self {
        Self::Invalid(invalid)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use crate::limits::{DEPENDENCIES_MAX, DEPENDENCY_DEPTH_MAX};
        match self {
            Self::Invalid(invalid) => invalid.fmt(f),
            Self::PayloadTooLarge { field, bytes, bytes_max } => {
                write!(f, "\"{field}\" has {bytes} bytes, this queue takes at most {bytes_max}")
            }
            Self::QueueNotFound => f.write_str("there is no such queue"),
            Self::JobNotFound => f.write_str("there is no such job"),
            Self::WorkflowNotFound => f.write_str("there is no such workflow"),
            Self::StaleLease(Stale::Mismatch) => f.write_str("the lease token is not the current one"),
            Self::StaleLease(Stale::Expired) => f.write_str("the lease has expired"),
            Self::StaleLease(Stale::NotRunning) => f.write_str("the job is not running under this lease any more"),
            Self::IllegalTransition { from, verb } => write!(f, "a {from} job cannot be {verb}"),
            Self::StatusChange { from, to } => write!(f, "Cannot change status from {from} to {to}"),
            Self::Illegal(why) => f.write_str(why),
            Self::QueueNotEmpty { jobs } => {
                let jobs = counted(*jobs, "job that has not ended", "jobs that have not ended");
                write!(f, "the queue holds {jobs}; set force=true to cancel and delete")
            }
            Self::DuplicateId => f.write_str("\"external_id\" is already used in this queue"),
            Self::QueueFull { max_queued } => {
                write!(f, "the queue already holds {}", counted(*max_queued, "waiting job", "waiting jobs"))
            }
            Self::DependencyUnknown { name, .. } => write!(f, "dependency \"{name}\" does not exist"),
            Self::DependencyCycle(what) => write!(f, "the dependencies of \"{what}\" lead back to it"),
            Self::DependencyDepth => write!(f, "dependency chains may have at most {DEPENDENCY_DEPTH_MAX} jobs"),
            Self::DependencyBreadth { given } => {
                write!(f, "{given} dependencies given, at most {DEPENDENCIES_MAX} are allowed")
            }
        }
    }
}

impl std::error::Error for Refusal {}

/// Returns a number with the singular or the plural of its noun.
fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counted_noun_in_messages() {
        let text = |jobs| Refusal::QueueNotEmpty { jobs }.to_string();
        assert_eq!(text(1), "the queue holds 1 job that has not ended; set force=true to cancel and delete");
        assert!(text(2).starts_with("the queue holds 2 jobs that have not ended"));
        assert_eq!(Refusal::QueueFull { max_queued: 1 }.to_string(), "the queue already holds 1 waiting job");
    }
}
