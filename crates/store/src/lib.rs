//! What a store of Longshore is.
//!
//! A store keeps jobs durably and lets the rules of `longshore-core` decide: it fetches, locks and saves, and answers only what is durable.
//! Everything above works with `Arc<dyn Store>`; no driver's type crosses this line.
//!
//! In reading order:
//! - [`Store`] and [`Inspect`] (`store.rs`): the two traits; batches in, batches out, one verdict for each item, in the same order
//! - [`query`]: what can be asked for in a listing
//! - [`StoreError`] (`error.rs`): whether the thing may have happened
//! - [`clock`]: the time of this machine, steady and without jumps, and the virtual time of tests
//! - [`StoreHealth`] (`health.rs`): whether new jobs are taken
//! - [`StoreMetrics`] (`metrics.rs`): measurements for the metrics endpoint
//! - [`Wakeups`] (`wakeups.rs`): hints that something may have changed
//! - [`Grant`] (`grant.rs`): claimed jobs on their way to a worker; [`ParkedClaims`] (`parked.rs`): claims that wait for jobs
//! - [`Mailbox`] (`mailbox.rs`): the way of requests to the component that serves them
//! - [`Observed`] (`observed.rs`): a store that counts and times what is asked of another
//! - [`Unreliable`] (`unreliable.rs`): a store that fails at will, for tests of what is above it

mod change_feed;
pub mod clock;
mod error;
mod faulty;
mod grant;
mod health;
mod instrumented;
mod mailbox;
mod metrics;
mod parked;
pub mod query;
mod store;
#[cfg(test)]
mod stub;

pub use change_feed::{ChangeFeed, WakeupsSender};
pub use clock::{Clock, SystemClock, VirtualClock};
pub use error::{Cause, FormatError, StoreError};
pub use faulty::{Fault, Faults, FaultyStore};
pub use grant::{Grant, Park, TakeBack, await_grant};
pub use health::StoreHealth;
pub use instrumented::{InstrumentedStore, Observer, StoreCall, StoreOp};
pub use mailbox::{Letters, Mailbox, Notices, mailbox};
pub use metrics::{Histogram, HistogramSnapshot, HitCount, StoreMetrics};
pub use parked::{ParkedClaim, ParkedClaims, Ticket};
pub use query::{JobFilter, JobQuery, MemberQuery, Page, QueuePosition, StateSet, WorkflowPage, WorkflowQuery};
pub use store::{ClaimedJob, JobRef, QueueStats, Store, StoreFuture, StoreReader};
