//! One connection, and many statements on their way over it at once.

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

/// How statements reach the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatementMode {
    /// Once for each connection.
    Yes,
    /// Each time: for poolers that hand out another connection with every transaction.
    No,
}

pub(crate) type Value = Box<dyn ToSql + Sync + Send>;

/// A statement with its values.
pub(crate) struct StatementCall<'a> {
    pub sql: &'a Sql,
    pub values: Vec<Value>,
}

macro_rules! stmt {
    ($sql:expr $(, $value:expr)* $(,)?) => {
        crate::connection::StatementCall { sql: &$sql, values: vec![$(Box::new($value) as crate::connection::Value),*] }
    };
}
pub(crate) use stmt;

/// What goes before and after the statements of one trip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TxBoundary {
    Begin,
    /// All looks see the same moment.
    BeginReadOnly,
    Inside,
    Commit,
    /// Nothing: the only statement is the whole transaction.
    SingleStatement,
    /// Nothing: each statement is a transaction of its own.
    None,
}

pub(crate) struct Connection {
    client: Object,
    prepared: StatementMode,
    /// Sent with every beginning.
    begin: String,
    /// How long any answer is waited for.
    response_timeout: Duration,
    /// Failovers that the server has seen: lease versions begin anew above all that were given before.
    pub lease_floor: u64,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Link")
    }
}

/// A statement on its way.
type StatementFuture<'a> = Pin<Box<dyn Future<Output = Result<Vec<Row>, Error>> + Send + 'a>>;

enum Ready<'a> {
    Statement(Statement),
    Text(&'a str, Vec<Type>),
}

impl Connection {
    pub(crate) fn new(client: Object, prepared: StatementMode, settings: &str, response_timeout: Duration) -> Self {
        Self { client, prepared, begin: settings.to_owned(), response_timeout, lease_floor: 0 }
    }

    /// A server may hold its peace while its machine still acknowledges every byte: only this ends the wait.
    async fn in_time<T>(&self, answer: impl Future<Output = Result<T, Error>>) -> Result<T, TxError> {
        match tokio::time::timeout(self.response_timeout, answer).await {
            Ok(answer) => Ok(answer?),
            Err(_) => {
                Err(TxError::ConnectionLost(ErrorMessage(format!("no answer within {:?}", self.response_timeout))))
            }
        }
    }

    async fn ready<'a>(&self, sql: &'a Sql) -> Result<Ready<'a>, Error> {
        match self.prepared {
            StatementMode::Yes => self.client.prepare_typed_cached(&sql.text, sql.types).await.map(Ready::Statement),
            StatementMode::No => Ok(Ready::Text(&sql.text, sql.types.to_vec())),
        }
    }

    /// Sends all of it at once and waits for all answers; the first error in order is the one that counts.
    pub(crate) async fn pipeline(
        &self,
        orders: &[StatementCall<'_>],
        bounds: TxBoundary,
    ) -> Result<Vec<Vec<Row>>, TxError> {
        if self.client.is_closed() {
            // Before the commit is sent: nothing of this transaction can have been committed.
            return Err(TxError::ConnectionLost(ErrorMessage("the connection to PostgreSQL was closed".to_owned())));
        }
        let mut statements = Vec::with_capacity(orders.len());
        for order in orders {
            // Statements that are not prepared yet must not come after the commit.
            statements.push(self.in_time(self.ready(order.sql)).await?);
        }
        let mut trips: Vec<StatementFuture<'_>> = Vec::new();
        let opening = match bounds {
            TxBoundary::Begin => Some(format!("BEGIN;{}", self.begin)),
            TxBoundary::BeginReadOnly => {
                Some(format!("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;{}", self.begin))
            }
            TxBoundary::Inside | TxBoundary::Commit | TxBoundary::SingleStatement | TxBoundary::None => None,
        };
        let opens = opening.is_some();
        if let Some(opening) = opening {
            trips.push(Box::pin(async move { self.client.batch_execute(&opening).await.map(|()| Vec::new()) }));
        }
        for (order, statement) in orders.iter().zip(statements) {
            trips.push(Box::pin(self.one(statement, &order.values)));
        }
        if bounds == TxBoundary::Commit {
            trips.push(Box::pin(async move { self.client.batch_execute("COMMIT").await.map(|()| Vec::new()) }));
        }
        let answers = async { join_all(trips).await.into_iter().collect::<Result<Vec<_>, _>>() };
        let mut rows = self.in_time(answers).await.map_err(|trouble| match bounds {
            TxBoundary::Commit | TxBoundary::SingleStatement => trouble.with_commit(),
            TxBoundary::Begin | TxBoundary::BeginReadOnly | TxBoundary::Inside | TxBoundary::None => trouble,
        })?;
        if opens {
            rows.remove(0);
        }
        rows.truncate(orders.len());
        Ok(rows)
    }

    async fn one(&self, ready: Ready<'_>, values: &[Value]) -> Result<Vec<Row>, Error> {
        match ready {
            Ready::Statement(statement) => {
                let values: Vec<&(dyn ToSql + Sync)> =
                    values.iter().map(|value| &**value as &(dyn ToSql + Sync)).collect();
                self.client.query(&statement, &values).await
            }
            Ready::Text(text, types) => {
                let values: Vec<_> = values.iter().map(|value| &**value as &(dyn ToSql + Sync)).zip(types).collect();
                self.client.query_typed(text, &values).await
            }
        }
    }

    /// How often this server, or one before it, was promoted: whatever was lost then must not come back under the same lease version.
    pub(crate) async fn read_timeline(&mut self) -> Result<(), TxError> {
        let text = "SELECT ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::bigint - 1";
        let rows = self.in_time(self.client.query_typed(text, &[])).await?;
        self.lease_floor = rows.first().map_or(Ok(0), |row| get::<i64>(row, 0))?.max(0).unsigned_abs();
        Ok(())
    }

    pub(crate) fn supports_copy(&self) -> bool {
        self.prepared == StatementMode::Yes
    }

    /// Many rows at once, inside of the transaction.
    pub(crate) async fn copy<'r>(
        &self,
        sql: &Sql,
        types: &[Type],
        rows: impl Iterator<Item = Vec<&'r (dyn ToSql + Sync)>>,
    ) -> Result<(), TxError> {
        self.in_time(async {
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

    /// One statement inside of the transaction.
    pub(crate) async fn query(&self, order: StatementCall<'_>) -> Result<Vec<Row>, TxError> {
        Ok(self.pipeline(&[order], TxBoundary::Inside).await?.pop().unwrap_or_default())
    }

    /// Back to where nothing was begun. Says whether the connection is good for more.
    pub(crate) async fn roll_back(&self) -> bool {
        self.in_time(self.client.batch_execute("ROLLBACK")).await.is_ok()
    }

    pub(crate) fn closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Not to be given to anybody else.
    pub(crate) fn discard(self) {
        drop(Object::take(self.client));
    }
}

/// A value of a row; a column that is not there is damage, not a panic.
pub(crate) fn get<'a, T: tokio_postgres::types::FromSql<'a>>(row: &'a Row, column: usize) -> Result<T, TxError> {
    row.try_get(column).map_err(|error| TxError::ConnectionLost(ErrorMessage(error_chain(&error))))
}

/// Bytes that are shared, not copied.
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
