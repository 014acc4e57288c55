//! Rules of Longshore: pure functions without clock, I/O, async or randomness of their own.
//!
//! Every transition of a job is one total function of job, command and [`TransitionContext`], in
//! the file of its verb. A refusal is a value and changes nothing. Payloads are opaque bytes.
//!
//! Values
//! - [`id`], [`time`], [`limits`], [`priority`], [`tags`], [`target_url`]; [`rng`]: injected
//!   randomness
//! - [`refusal`]: every reason for which a command is refused
//!
//! Settings
//! - [`policy`]: the settings; [`profile`]: their values in the six profiles
//! - [`patch`]: overrides and locks; [`backoff`]: the wait before a retry
//!
//! Record
//! - [`job`]; [`state`]: nine states with their data; [`lease`], [`attempt`], [`history`]
//! - [`failure`]; [`dependency`]: waiting for other jobs
//!
//! Transitions
//! - [`context`], [`queue_context`]: what a transition gets besides the job
//! - [`submit`]: creation; [`promote`]: submission of held jobs, due times, run-now
//! - [`claim`]; [`heartbeat`]; [`settle`]: complete, fail, snooze, release
//! - [`retry`]: what follows a failure; [`expire`]: lease expiry and execution timeout
//! - [`cancel`]: also dead letter and lifetime; [`requeue`]; [`edit`]
//!
//! Access
//! - [`access`]: tokens, their actions and queues, and the decision about a call
//!
//! Observation
//! - [`attention`]: what operators should look at, from counters
//!
//! Groups and views
//! - [`error_shape`]: error messages with holes, and the groups of dead letters
//! - [`operation`]: durable operations on all jobs that match a filter
//! - [`workflow`]: record and state; [`workflow_shape`]: chains, groups and chords as dependencies
//! - [`schedule`]: cron expressions, time zones, ticks
//! - [`trace_context`]: the span that has submitted a job
//! - [`view`]: a job as each of the five specifications shows it; [`ocypod`]: the Ocypod dialect
//!
//! ```
//! use longshore_core::patch::SettingsPatch;
//! use longshore_core::profile::Profile;
//! use longshore_core::Duration;
//!
//! let patch = SettingsPatch { max_queued: Some(Some(1_000)), ..SettingsPatch::default() };
//! let settings = patch.resolve(Profile::Standard).unwrap();
//! assert_eq!(settings.admission.max_queued, Some(1_000));
//! assert_eq!(settings.policy.lease, Some(Duration::from_secs(30)), "inherited from the profile");
//! ```

pub mod access;
pub mod actions;
pub mod attempt;
pub mod attention;
pub mod backoff;
pub mod cancel;
pub mod claim;
pub mod context;
pub mod dependency;
pub mod directive;
pub mod edit;
pub mod error_shape;
pub mod expire;
pub mod failure;
pub mod hash;
pub mod heartbeat;
pub mod history;
pub mod id;
pub mod job;
pub mod lease;
pub mod limits;
pub mod ocypod;
pub mod operation;
pub mod patch;
pub mod policy;
pub mod priority;
pub mod profile;
pub mod promote;
pub mod queue_context;
pub mod rate_limit;
pub mod refusal;
pub mod requeue;
pub mod retry;
pub mod rng;
pub mod schedule;
pub mod settle;
pub mod state;
pub mod submit;
pub mod tags;
pub mod target_url;
pub mod time;
pub mod trace_context;
pub mod view;
pub mod webhook;
pub mod workflow;
pub mod workflow_shape;

pub use context::TransitionContext;
pub use job::Job;
pub use longshore_types::{QueueChange, ScheduleChange};
pub use refusal::{Invalid, Refusal};
pub use time::{Duration, Timestamp};
