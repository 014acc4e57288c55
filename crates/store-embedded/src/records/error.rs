//! Error of the record tables, and its meaning for the store.

use longshore_core::id::{JobId, Seq};
use longshore_store::StoreError;

use crate::error::sql;

/// Error of a record access.
#[derive(Debug)]
pub(crate) enum RecordsError {
    Sql(rusqlite::Error),
    /// A record fails its checks.
    CorruptJob(Seq),
    CorruptWorkflow(Seq),
    CorruptPayload(JobId),
    /// The record of a webhook endpoint.
    CorruptEndpoint,
    /// A policy with a custom backoff function has no stored form.
    NotStorable,
}

impl std::fmt::Display for RecordsError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Sql(error) => write!(f, "{error}"),
            Self::CorruptJob(seq) => write!(f, "corrupt record of job {seq}"),
            Self::CorruptWorkflow(number) => write!(f, "corrupt record of workflow {number}"),
            Self::CorruptPayload(id) => write!(f, "corrupt payload of job {id}"),
            Self::CorruptEndpoint => f.write_str("corrupt record of a webhook endpoint"),
            Self::NotStorable => f.write_str("a custom backoff cannot be stored"),
        }
    }
}

impl std::error::Error for RecordsError {}

impl From<RecordsError> for StoreError {
    fn from(error: RecordsError) -> Self {
        match error {
            RecordsError::Sql(error) => sql(error),
            RecordsError::CorruptEndpoint => Self::corrupt("the record of a webhook endpoint"),
            RecordsError::CorruptJob(seq) => Self::corrupt(format!("the record of job {seq}")),
            RecordsError::CorruptWorkflow(number) => Self::corrupt(format!("the record of workflow {number}")),
            RecordsError::CorruptPayload(id) => {
                Self::corrupt(format!("the payload of job {id} (cancel the job: it blocks its queue)"))
            }
            RecordsError::NotStorable => Self::not_applied(error),
        }
    }
}

impl From<rusqlite::Error> for RecordsError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}
