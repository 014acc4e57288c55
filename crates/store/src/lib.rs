//! The interface of a store: traits, queries, errors and the parts that every store needs.
//!
//! A store keeps jobs durably and lets the rules of `longshore-core` decide. It loads records,
//! locks them, saves them, and responds when the change is durable. The server uses only
//! `Arc<dyn Store>`: no type of a database driver appears in this crate.
//!
//! In reading order:
//! - [`Store`], [`StoreReader`] (`store.rs`): the two traits; verdicts keep the order of items
//! - [`query`]: filters, cursors and pages of listings
//! - [`StoreError`] (`error.rs`): failures, and whether the change may have been applied
//! - [`clock`]: the system clock without jumps, and the virtual clock of tests
//! - [`OsRng`] (`os_rng.rs`): random numbers of the operating system, for tokens and ids
//! - [`StoreHealth`] (`health.rs`): whether submissions are accepted, and the state of the disk
//! - [`StoreMetrics`] (`metrics.rs`): measurements for the metrics endpoint
//! - [`ChangeFeed`] (`change_feed.rs`): hints about committed changes and the next deadline
//! - [`Grant`] (`grant.rs`): claimed jobs on their way to a worker
//! - [`ParkedClaims`] (`parked.rs`): claims that wait for jobs
//! - [`Mailbox`] (`mailbox.rs`): the bounded channel from callers to the serving component
//! - [`WakeQueue`] (`wake_queue.rs`): wakes the callers of a commit with one system call
//! - [`SystemWrite`], [`SystemQuery`] (`system.rs`): records beside the jobs
//! - [`StoreLayer`] (`layer.rs`): a store that wraps another store
//! - [`InstrumentedStore`] (`instrumented.rs`): a layer that counts and times every call

mod change_feed;
pub mod clock;
mod error;
mod error_message;
mod grant;
mod health;
mod instrumented;
mod layer;
mod mailbox;
mod metrics;
mod os_rng;
mod parked;
pub mod query;
mod store;
#[cfg(test)]
mod stub;
mod system;
mod wake_queue;
mod workers;

pub use change_feed::{Change, ChangeFeed, WakeupsSender};
pub use clock::{Clock, SystemClock, VirtualClock};
pub use error::{Cause, FormatError, StoreError};
pub use error_message::ErrorMessage;
pub use grant::{Grant, Park, SettledGrant, TakeBack, await_grant};
pub use health::StoreHealth;
pub use instrumented::{InstrumentedStore, Observer, StoreCall, StoreOp};
pub use layer::StoreLayer;
pub use longshore_engine::SystemKind;
pub use mailbox::{Mailbox, MailboxReceiver, NoticeSender, mailbox};
pub use metrics::{Histogram, HistogramSnapshot, HitCount, StoreMetrics};
pub use os_rng::OsRng;
pub use parked::{ParkedClaim, ParkedClaims, Ticket};
pub use query::{JobFilter, JobQuery, MemberQuery, Page, QueuePosition, StateSet, WorkflowPage, WorkflowQuery};
pub use store::{ClaimedJob, DIRECTIVE_LAG_MAX, EVENTS_WATCH, JobRef, QueueStats, Store, StoreFuture, StoreReader};
pub use system::{
    Expected, SYSTEM_KEY_BYTES_MAX, SystemChange, SystemQuery, SystemRecord, SystemRefusal, SystemWrite, SystemWritten,
};
pub use wake_queue::{QueuedWakeups, WakeQueue, batch_wakeups};
pub use workers::{DirectiveCache, ReportedWorker, SeenWorker};
