//! Submits a job inside a transaction of the application: the job exists if that commits.

use longshore_core::id::JobId;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Error, GenericClient};

use crate::migrate::check_schema;

/// Parameters of the SQL function `submit`.
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

#[derive(Debug)]
pub enum SqlSubmitError {
    /// The name of the schema is invalid.
    Schema,
    /// PostgreSQL refused the job; the message names the field. The transaction is aborted.
    Refused(Error),
    /// The response was not a job id.
    NoId,
}

impl std::fmt::Display for SqlSubmitError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Schema => f.write_str("invalid schema name (use 1-40 characters of a-z 0-9 _)"),
            Self::Refused(error) => f.write_str(&crate::error::error_chain(error)),
            Self::NoId => f.write_str("the database returned no job id"),
        }
    }
}

impl std::error::Error for SqlSubmitError {}

/// Submits a job with a client or a transaction of tokio-postgres. Returns its id.
pub async fn submit_in_transaction(
    client: &impl GenericClient,
    job: &SqlSubmission<'_>,
) -> Result<JobId, SqlSubmitError> {
    check_schema(job.schema).map_err(|_| SqlSubmitError::Schema)?;
    let text = format!("SELECT {}.submit($1, $2, $3::text::jsonb, $4::text::jsonb)::text", job.schema);
    let values: [(&(dyn ToSql + Sync), Type); 4] =
        [(&job.queue, Type::TEXT), (&job.job_type, Type::TEXT), (&job.payload, Type::TEXT), (&job.options, Type::TEXT)];
    let rows = client.query_typed(&text, &values).await.map_err(SqlSubmitError::Refused)?;
    let id: Option<String> = rows.first().and_then(|row| row.try_get(0).ok());
    id.and_then(|id| id.parse().ok()).ok_or(SqlSubmitError::NoId)
}
