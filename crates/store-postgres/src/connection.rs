//! One connection, with pipelined statements.

use std::pin::Pin;
use std::time::Duration;

use deadpool_postgres::Object;
use futures_util::future::join_all;
use tokio_postgres::binary_copy::BinaryCopyInWriter;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Error, Row, Statement};

use crate::error::{TxError, error_chain};
use crate::statements::Sql;
use longshore_store::ErrorMessage;

/// How statements are sent to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatementMode {
    /// Each statement is prepared once per connection.
    Prepared,
    /// Each statement is sent as text, for poolers that change the session with every transaction.
    Unprepared,
}

pub(crate) type SqlValue = Box<dyn ToSql + Sync + Send>;

/// A statement with its values.
pub(crate) struct StatementCall<'a> {
    pub sql: &'a Sql,
    pub values: Vec<SqlValue>,
}

macro_rules! stmt {
    ($sql:expr $(, $value:expr)* $(,)?) => {
        crate::connection::StatementCall { sql: &$sql, values: vec![$(Box::new($value) as crate::connection::SqlValue),*] }
    };
}
pub(crate) use stmt;

/// What a pipeline sends before and after its statements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TxBoundary {
    Begin,
    /// All reads use one snapshot.
    BeginReadOnly,
    Inside,
    Commit,
    /// Nothing: the only statement is the transaction.
    SingleStatement,
    /// Nothing: each statement is its own transaction.
    None,
}

pub(crate) struct Connection {
    client: Object,
    statement_mode: StatementMode,
    /// Settings that follow every BEGIN.
    settings: String,
    /// Longest wait for any response.
    response_timeout: Duration,
    /// Number of promotions so far. Lease versions start above those of earlier timelines.
    pub lease_floor: u64,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Connection")
    }
}

/// A statement in flight.
type StatementFuture<'a> = Pin<Box<dyn Future<Output = Result<Vec<Row>, Error>> + Send + 'a>>;

enum PreparedCall<'a> {
    Statement(Statement),
    Text(&'a str, Vec<Type>),
}

impl Connection {
    pub(crate) fn new(
        client: Object,
        statement_mode: StatementMode,
        settings: &str,
        response_timeout: Duration,
    ) -> Self {
        Self { client, statement_mode, settings: settings.to_owned(), response_timeout, lease_floor: 0 }
    }

    /// Gives up after the response timeout. TCP timeouts do not help: a frozen server still
    /// acknowledges every packet.
    async fn with_timeout<T>(&self, response: impl Future<Output = Result<T, Error>>) -> Result<T, TxError> {
        match tokio::time::timeout(self.response_timeout, response).await {
            Ok(response) => Ok(response?),
            Err(_) => {
                Err(TxError::ConnectionLost(ErrorMessage(format!("no response within {:?}", self.response_timeout))))
            }
        }
    }

    async fn prepare<'a>(&self, sql: &'a Sql) -> Result<PreparedCall<'a>, Error> {
        match self.statement_mode {
            StatementMode::Prepared => {
                self.client.prepare_typed_cached(&sql.text, sql.types).await.map(PreparedCall::Statement)
            }
            StatementMode::Unprepared => Ok(PreparedCall::Text(&sql.text, sql.types.to_vec())),
        }
    }

    /// Sends all statements at once, and waits for all responses. Returns the first error.
    pub(crate) async fn pipeline(
        &self,
        calls: &[StatementCall<'_>],
        boundary: TxBoundary,
    ) -> Result<Vec<Vec<Row>>, TxError> {
        if self.client.is_closed() {
            // The commit was not sent, so the transaction cannot have been committed.
            return Err(TxError::ConnectionLost(ErrorMessage("connection to PostgreSQL is closed".to_owned())));
        }
        let mut statements = Vec::with_capacity(calls.len());
        for call in calls {
            // All statements are prepared before the first is sent.
            statements.push(self.with_timeout(self.prepare(call.sql)).await?);
        }
        let mut futures: Vec<StatementFuture<'_>> = Vec::new();
        let begin = match boundary {
            TxBoundary::Begin => Some(format!("BEGIN;{}", self.settings)),
            TxBoundary::BeginReadOnly => {
                Some(format!("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;{}", self.settings))
            }
            TxBoundary::Inside | TxBoundary::Commit | TxBoundary::SingleStatement | TxBoundary::None => None,
        };
        let has_begin = begin.is_some();
        if let Some(begin) = begin {
            futures.push(Box::pin(async move { self.client.batch_execute(&begin).await.map(|()| Vec::new()) }));
        }
        for (call, statement) in calls.iter().zip(statements) {
            futures.push(Box::pin(self.run(statement, &call.values)));
        }
        if boundary == TxBoundary::Commit {
            futures.push(Box::pin(async move { self.client.batch_execute("COMMIT").await.map(|()| Vec::new()) }));
        }
        let responses = async { join_all(futures).await.into_iter().collect::<Result<Vec<_>, _>>() };
        let mut rows = self.with_timeout(responses).await.map_err(|error| match boundary {
            TxBoundary::Commit | TxBoundary::SingleStatement => error.with_commit(),
            TxBoundary::Begin | TxBoundary::BeginReadOnly | TxBoundary::Inside | TxBoundary::None => error,
        })?;
        if has_begin {
            rows.remove(0);
        }
        rows.truncate(calls.len());
        Ok(rows)
    }

    async fn run(&self, call: PreparedCall<'_>, values: &[SqlValue]) -> Result<Vec<Row>, Error> {
        match call {
            PreparedCall::Statement(statement) => {
                let values: Vec<&(dyn ToSql + Sync)> =
                    values.iter().map(|value| &**value as &(dyn ToSql + Sync)).collect();
                self.client.query(&statement, &values).await
            }
            PreparedCall::Text(text, types) => {
                let values: Vec<_> = values.iter().map(|value| &**value as &(dyn ToSql + Sync)).zip(types).collect();
                self.client.query_typed(text, &values).await
            }
        }
    }

    /// Reads how often the server was promoted. Leases that a failover has lost must not be issued
    /// again under the same version.
    pub(crate) async fn read_timeline(&mut self) -> Result<(), TxError> {
        let text = "SELECT ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::bigint - 1";
        let rows = self.with_timeout(self.client.query_typed(text, &[])).await?;
        self.lease_floor = rows.first().map_or(Ok(0), |row| get::<i64>(row, 0))?.max(0).unsigned_abs();
        Ok(())
    }

    pub(crate) fn supports_copy(&self) -> bool {
        self.statement_mode == StatementMode::Prepared
    }

    /// Copies rows into a table, inside the transaction.
    pub(crate) async fn copy<'r>(
        &self,
        sql: &Sql,
        types: &[Type],
        rows: impl Iterator<Item = Vec<&'r (dyn ToSql + Sync)>>,
    ) -> Result<(), TxError> {
        self.with_timeout(async {
            let statement = self.client.prepare_typed_cached(&sql.text, sql.types).await?;
            let sink = self.client.copy_in(&statement).await?;
            let mut writer = std::pin::pin!(BinaryCopyInWriter::new(sink, types));
            for row in rows {
                writer.as_mut().write(&row).await?;
            }
            writer.as_mut().finish().await.map(drop)
        })
        .await
    }

    /// Runs one statement inside the transaction.
    pub(crate) async fn query(&self, call: StatementCall<'_>) -> Result<Vec<Row>, TxError> {
        Ok(self.pipeline(&[call], TxBoundary::Inside).await?.pop().unwrap_or_default())
    }

    /// Returns whether the connection can be used again.
    pub(crate) async fn roll_back(&self) -> bool {
        self.with_timeout(self.client.batch_execute("ROLLBACK")).await.is_ok()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Closes the connection instead of returning it to the pool.
    pub(crate) fn discard(self) {
        drop(Object::take(self.client));
    }
}

/// Reads a column. A missing column is an error, not a panic.
pub(crate) fn get<'a, T: tokio_postgres::types::FromSql<'a>>(row: &'a Row, column: usize) -> Result<T, TxError> {
    row.try_get(column).map_err(|error| TxError::ConnectionLost(ErrorMessage(error_chain(&error))))
}

/// Shared bytes as a parameter, without a copy.
#[derive(Debug)]
pub(crate) struct Blob(pub bytes::Bytes);

impl ToSql for Blob {
    fn to_sql(
        &self,
        _: &Type,
        out: &mut bytes::BytesMut,
    ) -> Result<tokio_postgres::types::IsNull, Box<dyn std::error::Error + Sync + Send>> {
        out.extend_from_slice(&self.0);
        Ok(tokio_postgres::types::IsNull::No)
    }

    fn accepts(kind: &Type) -> bool {
        *kind == Type::BYTEA
    }

    tokio_postgres::types::to_sql_checked!();
}
