//! The rules of Longshore, pure: no clock, no I/O, no async, no randomness of its own.
//!
//! Every transition of a job is one total function of (job, command, now), in the file of its verb; every refusal is a value
//! that changes nothing. Time, chance and places in line come in with a [`Moment`]. Payloads are opaque bytes.
//!
//! In reading order:
//! - words and numbers: [`id`], [`time`], [`limits`], [`priority`], [`tags`], [`rng`], [`refusal`]
//! - settings: [`policy`] (what there is), [`profile`] (the six bundles), [`patch`] (overrides and locks), [`backoff`]
//! - the record: [`state`] (nine states, each with its data), [`lease`], [`job`], [`attempt`], [`history`], [`failure`], [`dependency`]
//! - the verbs: [`submit`], [`promote`] (submit what was held, due, run now), [`claim`], [`settle`] (complete, fail, snooze, release), [`retry`]
//!   (what follows a failure), [`heartbeat`], [`expire`] (lease expiry, execution timeout), [`cancel`] (also dead letter and lifetime), [`requeue`], [`edit`]
//! - many jobs as one: [`workflow`] (the record and its state), [`shape`] (chains, groups and chords as dependencies)
//! - the words of the five specifications: [`view`]; the statuses and totals of the Ocypod dialect: [`ocypod`]

pub mod attempt;
pub mod backoff;
pub mod cancel;
pub mod claim;
pub mod dependency;
pub mod edit;
pub mod expire;
pub mod failure;
pub mod heartbeat;
pub mod history;
pub mod id;
pub mod job;
pub mod lease;
pub mod limits;
pub mod ocypod;
pub mod patch;
pub mod policy;
pub mod priority;
pub mod profile;
pub mod promote;
pub mod refusal;
pub mod requeue;
pub mod retry;
pub mod rng;
pub mod settle;
pub mod state;
pub mod submit;
pub mod tags;
pub mod time;
pub mod view;
pub mod workflow;
pub mod workflow_shape;

pub use job::{Job, TransitionContext};
pub use refusal::{Invalid, Refusal};
pub use time::{Duration, Timestamp};
