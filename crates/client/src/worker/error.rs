//! Why a worker could not run, or ended early.

use std::fmt;
use std::io;

use super::report::WorkerReport;
use crate::error::Error;

/// Most types of one claim.
pub(super) const TYPES_MAX: usize = 100;

/// Why a worker could not run, or ended early.
#[derive(Debug)]
pub enum WorkerError {
    /// The server refuses the claims of this worker.
    Refused(Error),
    /// The server refuses a schedule.
    Schedule {
        name: String,
        error: Error,
    },
    NoHandler,
    /// Two handlers have the same job type.
    DuplicateHandler {
        job_type: String,
    },
    /// A handler has an argument `State<T>`, and the worker has no state of this type.
    MissingState {
        job_type: String,
        state: &'static str,
    },
    /// A claim names at most 100 types. Use several workers, or one handler of all types.
    TooManyTypes {
        count: usize,
    },
    /// The limit of stuck handlers was reached: the process should end, so that it is restarted.
    StuckHandlers {
        report: WorkerReport,
    },
    /// The thread of the lease keeper, or the listener for signals, could not be started.
    Start(io::Error),
}

impl fmt::Display for WorkerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(error) => write!(f, "the server refuses the claim: {error}"),
            Self::Schedule { name, error } => write!(f, "cannot create the schedule {name:?}: {error}"),
            Self::NoHandler => f.write_str("the worker has no handler (add one with `Worker::on`)"),
            Self::DuplicateHandler { job_type } => write!(f, "two handlers for the job type {job_type:?}"),
            Self::MissingState { job_type, state } => {
                write!(f, "the handler of {job_type:?} needs a state of type {state} (add it with `Worker::state`)")
            }
            Self::TooManyTypes { count } => {
                write!(f, "the worker has handlers of {count} job types, and a claim names at most {TYPES_MAX} ")?;
                f.write_str("(use several workers, or one handler of all types)")
            }
            Self::StuckHandlers { report } => {
                write!(f, "the worker has ended because {} handlers are stuck: {report}", report.abandoned)
            }
            Self::Start(error) => write!(f, "cannot start the worker: {error}"),
        }
    }
}

impl std::error::Error for WorkerError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Refused(error) | Self::Schedule { error, .. } => Some(error),
            Self::Start(error) => Some(error),
            Self::NoHandler
            | Self::DuplicateHandler { .. }
            | Self::MissingState { .. }
            | Self::TooManyTypes { .. }
            | Self::StuckHandlers { .. } => None,
        }
    }
}
