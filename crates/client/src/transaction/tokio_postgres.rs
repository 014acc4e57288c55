//! Submissions in transactions of tokio-postgres.

use tokio_postgres::GenericClient;
use tokio_postgres::types::{ToSql, Type};

use super::{DEFAULT_SCHEMA, SubmitCall, SubmitInError};
use crate::error::Error;
use crate::submit::JobRequest;

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
    let call = SubmitCall::new(schema, request)?;
    let values: [(&(dyn ToSql + Sync), Type); 4] = [
        (&call.queue, Type::TEXT),
        (&call.job_type, Type::TEXT),
        (&call.payload, Type::TEXT),
        (&call.options, Type::TEXT),
    ];
    let rows = client.query_typed(&call.text, &values).await.map_err(SubmitInError::Database)?;
    let row = rows.first().ok_or_else(|| {
        let detail = "the SQL function returned no row".to_owned();
        SubmitInError::Request(Error::UnexpectedResponse { status: 200, detail })
    })?;
    row.try_get(0).map_err(SubmitInError::Database)
}
