//! Submissions inside a transaction of the application: the job exists if the transaction commits.

use std::fmt;

use longshore_api::job::NewJob;
use serde_json::{Map, Value, json};
use tokio_postgres::GenericClient;
use tokio_postgres::types::{ToSql, Type};

use crate::error::Error;
use crate::submit::JobRequest;

/// Schema of the tables of Longshore, unless the server was started with another one.
const DEFAULT_SCHEMA: &str = "longshore";

/// Why a job was not submitted. After a refusal of PostgreSQL the transaction is aborted.
#[derive(Debug)]
pub enum SubmitInError {
    /// The payload cannot be written, or an option is not available in a transaction.
    Request(Error),
    /// The name of the schema is invalid.
    Schema,
    Database(tokio_postgres::Error),
}

impl fmt::Display for SubmitInError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request(error) => write!(f, "{error}"),
            Self::Schema => f.write_str("invalid schema name (use 1-40 characters of a-z 0-9 _)"),
            Self::Database(error) => match error.as_db_error() {
                Some(refused) => write!(f, "the database refused the job: {}", refused.message()),
                None => write!(f, "the database failed: {error}"),
            },
        }
    }
}

impl std::error::Error for SubmitInError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Request(error) => Some(error),
            Self::Schema => None,
            Self::Database(error) => Some(error),
        }
    }
}

/// Submits a job in the transaction of `client`, a client or a transaction of tokio-postgres.
/// Returns its id.
///
/// ```no_run
/// # use longshore::{Job, JobRequest};
/// # #[derive(serde::Serialize, serde::Deserialize, Job)]
/// # #[job(type = "order.confirm", queue = "mail")]
/// # struct Confirm { order: i64 }
/// # async fn example(
/// #     client: &mut tokio_postgres::Client,
/// # ) -> Result<(), Box<dyn std::error::Error>> {
/// let transaction = client.transaction().await?;
/// transaction.execute("INSERT INTO orders (id) VALUES (7)", &[]).await?;
/// let confirm = JobRequest::new(&Confirm { order: 7 }).key("order 7");
/// longshore::submit_in(&transaction, confirm).await?;
/// transaction.commit().await?;
/// # Ok(())
/// # }
/// ```
pub async fn submit_in(client: &impl GenericClient, request: JobRequest) -> Result<String, SubmitInError> {
    submit_in_schema(client, DEFAULT_SCHEMA, request).await
}

/// The same for tables in another schema.
pub async fn submit_in_schema(
    client: &impl GenericClient,
    schema: &str,
    request: JobRequest,
) -> Result<String, SubmitInError> {
    let is_valid = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    if schema.is_empty() || schema.len() > 40 || !schema.bytes().all(is_valid) {
        return Err(SubmitInError::Schema);
    }
    let (queue, job) = request.into_parts().map_err(SubmitInError::Request)?;
    let options = options_of(&job).map_err(SubmitInError::Request)?.to_string();
    let payload = job.payload.as_ref().map_or("null", |payload| payload.get());
    let text = format!("SELECT {schema}.submit($1, $2, $3::text::jsonb, $4::text::jsonb)::text");
    let values: [(&(dyn ToSql + Sync), Type); 4] =
        [(&queue, Type::TEXT), (&job.job_type, Type::TEXT), (&payload, Type::TEXT), (&options, Type::TEXT)];
    let rows = client.query_typed(&text, &values).await.map_err(SubmitInError::Database)?;
    let row = rows.first().ok_or_else(|| {
        let detail = "the SQL function returned no row".to_owned();
        SubmitInError::Request(Error::UnexpectedResponse { status: 200, detail })
    })?;
    row.try_get(0).map_err(SubmitInError::Database)
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
