//! Words of the wire and of the rules: the same sets, each written out once more, so that neither can gain a word unnoticed.

use longshore_api::enums as wire;
use longshore_core::{attempt, backoff, failure, history, policy, priority, profile, settle, state, workflow};

/// To the rules.
pub(crate) trait ToCore {
    type Core;
    fn core(self) -> Self::Core;
}

/// To the wire.
pub(crate) trait ToWire {
    type Wire;
    fn wire(self) -> Self::Wire;
}

macro_rules! to_core {
    ($wire:path, $core:path, $($variant:ident),+) => {
        impl ToCore for $wire {
            type Core = $core;
            fn core(self) -> $core {
                use $core as Core;
                use $wire as Wire;
                match self { $(Wire::$variant => Core::$variant),+ }
            }
        }
    };
}

macro_rules! to_wire {
    ($wire:path, $core:path, $($variant:ident),+) => {
        impl ToWire for $core {
            type Wire = $wire;
            fn wire(self) -> $wire {
                use $core as Core;
                use $wire as Wire;
                match self { $(Core::$variant => Wire::$variant),+ }
            }
        }
    };
}

macro_rules! both {
    ($wire:path, $core:path, $($variant:ident),+) => {
        to_core!($wire, $core, $($variant),+);
        to_wire!($wire, $core, $($variant),+);
    };
}

both!(wire::Profile, profile::Profile, Standard, Gopherqueue, Taskharbor, Ocypod, Weave, Document);
both!(wire::WorkflowState, workflow::WorkflowState, Running, Completed, Failed, Cancelled);
both!(
    wire::State,
    state::StateKind,
    Pending,
    Scheduled,
    Delayed,
    Running,
    Retrying,
    Completed,
    Failed,
    DeadLetter,
    Cancelled
);
both!(wire::Priority, priority::Priority, Critical, High, Normal, Low, Bulk);
both!(wire::RetryLimitUnit, policy::RetryLimitUnit, Starts, Failures, Retries);
both!(wire::JitterKind, backoff::JitterKind, None, Symmetric, Full);
both!(wire::OnPermanent, policy::OnPermanent, Failed, DeadLetter, Retry);
both!(wire::OnExhausted, policy::OnExhausted, DeadLetter, Failed);
both!(wire::OnFailure, policy::OnFailure, Retry, Final);
both!(wire::OnLeaseExpiry, policy::OnLeaseExpiry, ReclaimCounted, ReclaimFree, FailTimeout, FailRetryable);
both!(wire::Reclaim, policy::Reclaim, Eager, Lazy);
both!(wire::Fencing, policy::Fencing, Required, Optional);
both!(wire::IdempotencyScope, policy::IdempotencyScope, Type, Queue, Global, Off);
both!(wire::RequeueOrder, policy::RequeueOrder, Submission, Tail);
both!(wire::SubmitMode, policy::SubmitMode, Auto, Explicit);
both!(wire::ManualRequeue, policy::ManualRequeue, InPlace, Clone);
both!(wire::CancelRunning, policy::CancelRunning, Cooperative, Immediate);
both!(wire::OutcomeKind, settle::OutcomeKind, Complete, Fail, Snooze, Release);
to_core!(wire::ReportedCategory, failure::ReportedCategory, Temporary, Permanent, Timeout, System);
to_core!(wire::BackoffKind, backoff::BackoffKind, Constant, Linear, Exponential, List);
to_wire!(wire::Category, failure::Category, Temporary, Permanent, Timeout, Cancelled, System);
to_wire!(
    wire::AttemptOutcome,
    attempt::AttemptOutcome,
    Completed,
    Failed,
    TimedOut,
    LeaseExpired,
    Snoozed,
    Released,
    Cancelled
);
to_wire!(
    wire::Cause,
    history::Cause,
    Create,
    Submit,
    Dependencies,
    Due,
    Claim,
    Complete,
    Fail,
    Timeout,
    LeaseExpired,
    Snooze,
    Release,
    RunNow,
    Cancel,
    DeadLetter,
    Lifetime,
    Exhausted,
    DependencyFailed,
    ResourceExhausted,
    QueueDeleted,
    Requeue,
    Revive
);

impl ToWire for backoff::BackoffKind {
    type Wire = Option<wire::BackoffKind>;

    /// A function of an application has no name on the wire.
    fn wire(self) -> Self::Wire {
        match self {
            Self::Constant => Some(wire::BackoffKind::Constant),
            Self::Linear => Some(wire::BackoffKind::Linear),
            Self::Exponential => Some(wire::BackoffKind::Exponential),
            Self::List => Some(wire::BackoffKind::List),
            Self::Custom(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Not only the names in Rust: the words themselves are the same.
    #[test]
    fn the_words_are_the_same() {
        macro_rules! same {
            ($($wire:ty),+) => {
                $(for word in <$wire>::ALL {
                    assert_eq!(word.as_str(), word.core().as_str());
                    assert_eq!(word.core().wire(), *word);
                })+
            };
        }
        same!(wire::Profile, wire::State, wire::Priority, wire::RetryLimitUnit, wire::JitterKind, wire::OnPermanent);
        same!(wire::OnExhausted, wire::OnFailure, wire::OnLeaseExpiry, wire::Reclaim, wire::Fencing);
        same!(wire::IdempotencyScope, wire::RequeueOrder, wire::SubmitMode, wire::ManualRequeue, wire::CancelRunning);
        same!(wire::OutcomeKind, wire::WorkflowState);
        assert!(wire::BackoffKind::ALL.iter().all(|kind| kind.as_str() == kind.core().as_str()));
        assert!(wire::ReportedCategory::ALL.iter().all(|category| category.as_str() == category.core().as_str()));
        assert!(history::Cause::ALL.iter().all(|cause| cause.as_str() == cause.wire().as_str()));
        assert!(attempt::AttemptOutcome::ALL.iter().all(|outcome| outcome.as_str() == outcome.wire().as_str()));
        assert!(failure::Category::ALL.iter().all(|category| category.as_str() == category.wire().as_str()));
    }
}
