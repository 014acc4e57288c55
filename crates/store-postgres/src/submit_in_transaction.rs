//! Submitting inside of a transaction of the application's own: the job is there when that commits, and never was if it does not.

use longshore_core::id::JobId;
use tokio_postgres::types::Type;
use tokio_postgres::{Error, GenericClient};

use crate::migrate::check_schema;

/// What may be said of a job besides its queue, type and payload: the options of the SQL function, as JSON.
#[derive(Clone, Debug)]
pub struct SqlSubmission<'a> {
    pub schema: &'a str,
    pub queue: &'a str,
    pub job_type: &'a str,
    /// JSON.
    pub payload: &'a str,
    /// A JSON object; see docs/postgresql.md.
    pub options: &'a str,
}

/// Why a job was not taken in.
#[derive(Debug)]
pub enum EnqueueError {
    /// The name of the schema is none.
    Schema,
    /// PostgreSQL's word, with the field that was wrong; the transaction is of no use any more.
    Refused(Error),
    /// The answer was no id.
    NoId,
}

impl std::fmt::Display for EnqueueError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Schema => f.write_str("the schema must be a plain name"),
            Self::Refused(error) => f.write_str(&crate::error::error_chain(error)),
            Self::NoId => f.write_str("the database answered no id"),
        }
    }
}

impl std::error::Error for EnqueueError {}

/// Submits on a client or a transaction of tokio-postgres.
pub async fn enqueue(client: &impl GenericClient, job: &SqlSubmission<'_>) -> Result<JobId, EnqueueError> {
    check_schema(job.schema).map_err(|_| EnqueueError::Schema)?;
    let text = format!("SELECT {}.submit($1, $2, $3::text::jsonb, $4::text::jsonb)::text", job.schema);
    let values: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 4] =
        [(&job.queue, Type::TEXT), (&job.job_type, Type::TEXT), (&job.payload, Type::TEXT), (&job.options, Type::TEXT)];
    let rows = client.query_typed(&text, &values).await.map_err(EnqueueError::Refused)?;
    let id: Option<String> = rows.first().and_then(|row| row.try_get(0).ok());
    id.and_then(|id| id.parse().ok()).ok_or(EnqueueError::NoId)
}
