//! Closed enums of the wire, under the names that the wire uses. They live in [`longshore_types`].

pub use longshore_types::{
    AttemptOutcome, BackoffKind, BulkAction, CancelRunning, Category, Cause, DeliveryState, Fencing, IdempotencyScope,
    JitterKind, JobAction, ManualRequeue, OnExhausted, OnFailure, OnLeaseExpiry, OnPermanent, OutcomeKind,
    PRIORITY_FORMAT as PRIORITIES, Priority, Profile, Reclaim, ReportedCategory, RequeueOrder, RetryLimitUnit,
    StateKind as State, SubmitMode, View, WebhookEvent, WorkerDirective, WorkflowState,
};
