//! Submissions in transactions of sqlx.

use sqlx::{AssertSqlSafe, PgExecutor};

use super::{DEFAULT_SCHEMA, SubmitCall, SubmitInError};
use crate::submit::JobRequest;

/// Submits a job in the transaction of `executor`, a connection or a transaction of sqlx. Returns
/// its id.
///
/// ```no_run
/// # use longshore::{Job, JobRequest};
/// # #[derive(serde::Serialize, serde::Deserialize, Job)]
/// # #[job(type = "order.confirm", queue = "mail")]
/// # struct Confirm { order: i64 }
/// # async fn example(pool: &sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
/// let mut transaction = pool.begin().await?;
/// sqlx::query("INSERT INTO orders (id) VALUES (7)").execute(&mut *transaction).await?;
/// let confirm = JobRequest::new(&Confirm { order: 7 }).key("order 7");
/// longshore::submit_in_sqlx(&mut *transaction, confirm).await?;
/// transaction.commit().await?;
/// # Ok(())
/// # }
/// ```
pub async fn submit_in_sqlx<'e>(executor: impl PgExecutor<'e>, request: JobRequest) -> Result<String, SubmitInError> {
    submit_in_sqlx_schema(executor, DEFAULT_SCHEMA, request).await
}

/// The same for tables in another schema.
pub async fn submit_in_sqlx_schema<'e>(
    executor: impl PgExecutor<'e>,
    schema: &str,
    request: JobRequest,
) -> Result<String, SubmitInError> {
    let SubmitCall { text, queue, job_type, payload, options } = SubmitCall::new(schema, request)?;
    // The text holds no input but the schema, whose characters were checked.
    let query = sqlx::query_scalar(AssertSqlSafe(text)).bind(queue).bind(job_type).bind(payload).bind(options);
    query.fetch_one(executor).await.map_err(SubmitInError::Sqlx)
}
