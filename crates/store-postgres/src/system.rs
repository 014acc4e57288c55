//! Reads of system records. Each uses a connection of the pool.

use longshore_engine::SystemKind;
use longshore_store::{SystemQuery, SystemRecord};
use tokio_postgres::Row;

use crate::connection::{StatementCall, TxBoundary, get, stmt};
use crate::error::TxError;
use crate::node::Node;

/// Reads a range of records, in order of their keys.
pub(crate) async fn records(node: &Node, query: SystemQuery) -> Result<Vec<SystemRecord>, TxError> {
    let SystemQuery { kind, start, end, limit, descending } = query;
    let (kind, limit) = (i16::from(kind.number()), i64::try_from(limit).unwrap_or(i64::MAX));
    let call = if descending {
        stmt!(node.sql.system_records_descending, kind, start, end, limit)
    } else {
        stmt!(node.sql.system_records, kind, start, end, limit)
    };
    read(node, call).await?.iter().map(record_of).collect()
}

/// Returns the version of a kind; 0 before its first announced write.
pub(crate) async fn version(node: &Node, kind: SystemKind) -> Result<u64, TxError> {
    let rows = read(node, stmt!(node.sql.system_version, i16::from(kind.number()))).await?;
    rows.first().map_or(Ok(0), |row| Ok(get::<i64>(row, 0)?.cast_unsigned()))
}

fn record_of(row: &Row) -> Result<SystemRecord, TxError> {
    Ok(SystemRecord { key: get(row, 0)?, revision: get::<i64>(row, 1)?.cast_unsigned(), value: get(row, 2)? })
}

async fn read(node: &Node, call: StatementCall<'_>) -> Result<Vec<Row>, TxError> {
    let connection = node.read_connection().await?;
    match connection.pipeline(&[call], TxBoundary::None).await {
        Ok(rows) => Ok(rows.into_iter().flatten().collect()),
        Err(error) => {
            connection.discard();
            Err(error)
        }
    }
}
