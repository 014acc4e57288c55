//! The queue of a job, as a transition sees it.

use crate::policy::AdmissionSettings;

/// The queue of a job at the time of a command.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum QueueContext<'a> {
    Exists(&'a AdmissionSettings),
    /// The queue was deleted: a retry or a released job cannot become ready again.
    Deleted,
}
