//! Closed enums of the wire, under the names that the wire uses. They live in [`longshore_types`].

pub use longshore_types::{
    AttemptOutcome, BackoffKind, BulkAction, CancelRunning, Category, Cause, Fencing, IdempotencyScope, JitterKind,
    JobAction, ManualRequeue, Misfire, OnExhausted, OnFailure, OnLeaseExpiry, OnPermanent, OutcomeKind, Overlap,
    PRIORITY_FORMAT as PRIORITIES, Priority, Profile, Reclaim, ReportedCategory, RequeueOrder, RetryLimitUnit,
    StateKind as State, SubmitMode, TickOutcome, View, WorkerDirective, WorkflowState,
};
