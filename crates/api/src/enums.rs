//! Closed enums of the wire, under the names that the wire uses. They live in [`longshore_types`].

pub use longshore_types::{
    AttemptOutcome, AuditOutcome, BackoffKind, BulkAction, CancelRunning, Category, Cause, Fencing, IdempotencyScope,
    JitterKind, JobAction, ManualRequeue, OnExhausted, OnFailure, OnLeaseExpiry, OnPermanent, OutcomeKind,
    PRIORITY_FORMAT as PRIORITIES, Priority, Profile, Reclaim, ReportedCategory, RequeueOrder, RetryLimitUnit,
    StateKind as State, SubmitMode, TokenAction, View, WorkerDirective, WorkflowState,
};
