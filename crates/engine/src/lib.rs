//! The queue engine: all jobs of all queues, one command at a time.
//!
//! The engine keeps the settings of the queues and index entries of the jobs. The records are
//! behind [`JobRecords`]. It has no I/O, no clock and no threads: time and randomness are
//! arguments. A refusal is a response; `Err` is an error of the records. [`Engine::rebuild`]
//! restores it from the records.
//!
//! In reading order:
//! - `engine`: [`Engine`], its [`EngineOptions`], and the [`Effect`]s of a command
//! - `command`: every command and its response; `records`: what the engine needs of a store
//! - `context`: how a command reads and changes records
//! - one file a verb: `submit`, `claim`, `settle`, `heartbeat`, `admin`, `queue`, `workflow`
//! - `tick`: timers, retention and pending work; `gap`: leases after the store was closed
//! - `cascade`, `propagation_queue`: the end of a job propagates to its dependents
//! - `outbox`: deliveries to webhooks, written in the commit of the transition
//! - `system`: kinds of records beside the jobs
//! - `index`: ready jobs, timers and counts; `undo_log`: rollback after a failed commit

mod admin;
mod cascade;
mod claim;
mod command;
mod context;
mod engine;
mod gap;
mod heartbeat;
mod index;
mod outbox;
mod propagation_queue;
mod queue;
mod records;
mod settle;
mod submit;
mod system;
mod tick;
mod undo_log;
mod workflow;

pub use claim::{ClaimRequest, Claimed};
pub use command::{AdminCommand, AdminResponse, Command, ExecutionContext, Heartbeat, Response, Settlement};
pub use engine::{Effect, Engine, EngineOptions};
pub use index::{ReadyKey, StateCounts, TimerKind, count_of, ordering};
pub use outbox::{
    ATTEMPTS_KEPT, CALLBACKS, Delivery, DeliveryAttempt, DeliveryKey, EndpointRecord, EventSet, OutboxFormatError,
    QueuePattern, Subscriptions,
};
pub use queue::{DeleteQueue, Queue, QueueDeleteMode};
pub use records::{JobRecords, KeyEntry, PayloadSource, PruneTarget, ScopedIdempotencyKey};
pub use submit::{
    BatchRefusal, InvalidSubmission, ParsedSubmission, Submission, SubmitRequest, Submitted, WorkflowTarget,
};
pub use system::SystemKind;
pub use tick::Ticked;
