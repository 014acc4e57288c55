//! Schedules: recurring sources of jobs.
//!
//! - `expression`: the syntax of cron; `due_times`: when a schedule is due
//! - [`ticks`]: which ticks are processed now, and how
//! - [`record`]: the record of a schedule, and what a change of it does
//!
//! A tick is identified by (schedule, due time). The progress of a schedule says up to which due
//! time its ticks were processed. A store changes the progress by compare-and-set, so each tick is
//! processed once, whatever nodes, restarts and clocks do.

pub mod due_times;
mod expression;
pub mod record;
pub mod ticks;

pub use due_times::{DueTimes, find_time_zone, format_local, time_zone_names};
pub use record::{DefinitionChange, JobSchedule, Progress, Recurrence, Schedule, Tick};
