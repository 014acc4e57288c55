//! Closed enums of the wire, under the names that the wire uses. They live in [`longshore_types`].

pub use longshore_types::{
    AttemptOutcome, AttentionCode, AuditOutcome, BackoffKind, BulkAction, CancelRunning, Category, Cause,
    DeliveryState, Fencing, IdempotencyScope, JitterKind, JobAction, ManualRequeue, Misfire, OnExhausted, OnFailure,
    OnLeaseExpiry, OnPermanent, OperationAction, OperationState, OutcomeKind, Overlap, PRIORITY_FORMAT as PRIORITIES,
    Priority, Profile, QueueChange, Reclaim, ReportedCategory, RequeueOrder, RetryLimitUnit, ScheduleChange, Severity,
    StateKind as State, SubmitMode, TickOutcome, TokenAction, UndoState, View, WebhookEvent, WorkerDirective,
    WorkflowState,
};
