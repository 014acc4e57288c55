//! Submissions inside a transaction of the application: the job exists if the transaction commits.

#[cfg(feature = "sqlx")]
mod sqlx;
#[cfg(feature = "postgres")]
mod tokio_postgres;

use std::fmt;

use longshore_api::job::NewJob;
use serde_json::{Map, Value, json};

use crate::error::Error;
use crate::submit::JobRequest;

#[cfg(feature = "sqlx")]
pub use self::sqlx::{submit_in_sqlx, submit_in_sqlx_schema};
#[cfg(feature = "postgres")]
pub use self::tokio_postgres::{submit_in, submit_in_schema};

/// Schema of the tables of Longshore, unless the server was started with another one.
const DEFAULT_SCHEMA: &str = "longshore";

/// Why a job was not submitted. After a refusal of PostgreSQL the transaction is aborted.
#[derive(Debug)]
#[non_exhaustive]
pub enum SubmitInError {
    /// The payload cannot be written, or an option is not available in a transaction.
    Request(Error),
    /// The name of the schema is invalid.
    Schema,
    /// An error of tokio-postgres.
    #[cfg(feature = "postgres")]
    Database(::tokio_postgres::Error),
    /// An error of sqlx.
    #[cfg(feature = "sqlx")]
    Sqlx(::sqlx::Error),
}

impl fmt::Display for SubmitInError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request(error) => write!(f, "{error}"),
            Self::Schema => f.write_str("invalid schema name (use 1-40 characters of a-z 0-9 _)"),
            #[cfg(feature = "postgres")]
            Self::Database(error) => write_database(f, error.as_db_error().map(|refused| refused.message()), error),
            #[cfg(feature = "sqlx")]
            Self::Sqlx(error) => write_database(f, error.as_database_error().map(|refused| refused.message()), error),
        }
    }
}

/// Writes the refusal of the database, or the failure of the connection.
fn write_database(f: &mut fmt::Formatter<'_>, refused: Option<&str>, error: &dyn std::error::Error) -> fmt::Result {
    match refused {
        Some(message) => write!(f, "the database refused the job: {message}"),
        None => write!(f, "the database failed: {error}"),
    }
}

impl std::error::Error for SubmitInError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Request(error) => Some(error),
            Self::Schema => None,
            #[cfg(feature = "postgres")]
            Self::Database(error) => Some(error),
            #[cfg(feature = "sqlx")]
            Self::Sqlx(error) => Some(error),
        }
    }
}

/// A call of the SQL function `submit`, which returns the id of the job as text.
struct SubmitCall {
    text: String,
    queue: String,
    job_type: String,
    /// The payload as JSON.
    payload: String,
    /// The options as JSON.
    options: String,
}

impl SubmitCall {
    fn new(schema: &str, request: JobRequest) -> Result<Self, SubmitInError> {
        let is_valid = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        if schema.is_empty() || schema.len() > 40 || !schema.bytes().all(is_valid) {
            return Err(SubmitInError::Schema);
        }
        let (queue, job) = request.into_parts().map_err(SubmitInError::Request)?;
        let options = options_of(&job).map_err(SubmitInError::Request)?.to_string();
        let payload = job.payload.as_ref().map_or("null", |payload| payload.get()).to_owned();
        let text = format!("SELECT {schema}.submit($1, $2, $3::text::jsonb, $4::text::jsonb)::text");
        Ok(Self { text, queue, job_type: job.job_type, payload, options })
    }
}

/// The options of the SQL function. Other options of a job need the HTTP API.
fn options_of(job: &NewJob) -> Result<Value, Error> {
    let unavailable = [
        ("after", job.after.is_some() || job.after_any.is_some()),
        ("reference", job.reference.is_some()),
        ("retry", job.retry.is_some()),
        ("execution_timeout", job.execution_timeout.is_some()),
        ("lease", job.lease.is_some()),
        ("lifetime", job.lifetime.is_some()),
    ];
    if let Some((name, _)) = unavailable.into_iter().find(|(_, is_given)| *is_given) {
        let message = format!("{name} is not available inside a transaction (set it on the queue, or use the client)");
        return Err(Error::InvalidRequest(message));
    }
    let mut options = Map::new();
    let mut set = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            options.insert(name.to_owned(), value);
        }
    };
    set("priority", job.priority.map(|priority| json!(priority.as_str())));
    set("delay", job.delay.map(|delay| json!(format!("{} milliseconds", delay.as_millis()))));
    set("run_at", job.run_at.map(|at| json!(at.to_string())));
    set("idempotency_key", job.idempotency_key.as_ref().map(|key| json!(key)));
    set("correlation_id", job.correlation_id.as_ref().map(|id| json!(id)));
    set("callback_url", job.callback_url.as_ref().map(|url| json!(url)));
    set("hold", job.hold.map(|hold| json!(hold)));
    set("tags", job.tags.as_ref().map(|tags| json!(tags)));
    Ok(Value::Object(options))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use longshore_derive::Job;

    #[derive(serde::Serialize, serde::Deserialize, Job)]
    #[job(type = "t")]
    struct Empty;

    #[test]
    fn options_have_the_form_of_the_sql_function() {
        let request = JobRequest::new(&Empty).key("k").delay(Duration::from_secs(90)).tag("tenant", "acme");
        let (_, job) = request.into_parts().unwrap();
        let expected = json!({"delay": "90000 milliseconds", "idempotency_key": "k", "tags": {"tenant": "acme"}});
        assert_eq!(options_of(&job).unwrap(), expected);
    }

    #[test]
    fn an_option_of_the_api_alone_is_an_error() {
        let (_, job) = JobRequest::new(&Empty).lease(Duration::from_secs(1)).into_parts().unwrap();
        assert!(options_of(&job).unwrap_err().to_string().contains("lease"));
    }
}
