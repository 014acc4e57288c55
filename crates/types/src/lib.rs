//! Vocabulary of Longshore: closed enums and durations, shared by the wire types and the rules.
//!
//! A leaf crate without dependencies. `serde` adds JSON, `schema` adds OpenAPI schemas.
//!
//! - [`access`]: what tokens allow
//! - [`attention`]: what operators should look at
//! - [`lifecycle`]: states, causes of transitions, outcomes, failure categories
//! - [`events`]: changes of queues and schedules that the event stream reports
//! - [`settings`]: the values of settings that are a closed set
//! - [`profile`]: the six bundles of settings; [`priority`]: the five levels of urgency
//! - [`schedule`]: the values of schedules
//! - [`duration`]: lengths of time, with their parser and printer
//! - [`webhook`]: events and states of deliveries
//! - [`string_enum`](mod@string_enum): the macro that defines a closed set of strings
//!
//! ```
//! use longshore_types::{Duration, Priority, StateKind};
//!
//! let lease: Duration = "1h15m5s".parse().unwrap();
//! assert_eq!((lease.as_millis(), lease.to_string()), (4_505_000, "1h15m5s".to_owned()));
//!
//! assert_eq!("dead_letter".parse(), Ok(StateKind::DeadLetter));
//! assert_eq!(
//!     "gone".parse::<StateKind>().unwrap_err().to_string(),
//!     "expected one of pending, scheduled, delayed, running, retrying, completed, failed, \
//!      dead_letter, cancelled",
//! );
//! assert!(Priority::Critical < Priority::Bulk, "the more urgent priority sorts first");
//! ```

pub mod access;
pub mod attention;
pub mod duration;
pub mod events;
pub mod lifecycle;
pub mod priority;
pub mod profile;
pub mod schedule;
pub mod settings;
pub mod string_enum;
pub mod webhook;

pub use access::{AuditOutcome, TokenAction};
pub use attention::{AttentionCode, Severity};
pub use duration::{Duration, ParseError};
pub use events::{QueueChange, ScheduleChange};
pub use lifecycle::*;
pub use priority::{PRIORITY_FORMAT, Priority};
pub use profile::{Profile, View};
pub use schedule::*;
pub use settings::*;
pub use string_enum::UnknownValue;
pub use webhook::{DeliveryState, WebhookEvent};
