//! Reads and changes of one operation.
//!
//! An operation is one record, changed by compare-and-set. Beside it are a marker while there is
//! work to do, and one record per slice with the jobs that an undo would take back.

use longshore_api::operation::OperationFilter;
use longshore_core::id::OperationId;
use longshore_core::operation::OperationProgress;
use longshore_core::operation::planned::TreatedJob;
use longshore_core::{Duration, Timestamp};
use longshore_engine::SystemKind;
use longshore_store::{Expected, Store, StoreError, SystemChange, SystemQuery, SystemRecord, SystemWrite};

use super::record::{InvalidOperation, decode, decode_chunk, encode, encode_chunk};

/// How long an ended operation is listed.
const KEPT: Duration = Duration::from_days(30);
/// Old operations that one start removes.
const PRUNED_MAX: usize = 100;
/// Changes that other servers may make in between, before the request fails.
const CONFLICTS_MAX: usize = 100;

const RECORD: u8 = b'o';
const MARKER: u8 = b'a';
const CHUNK: u8 = b'u';

/// An operation as it is stored.
#[derive(Clone, Debug)]
pub(crate) struct StoredOperation {
    pub(crate) id: OperationId,
    pub(crate) filter: OperationFilter,
    pub(crate) operation: OperationProgress,
    /// The server that works on it, and until when.
    pub(super) holder: Option<(u64, Timestamp)>,
    pub(super) revision: u64,
}

impl StoredOperation {
    pub(crate) fn new(id: OperationId, filter: OperationFilter, operation: OperationProgress) -> Self {
        Self { id, filter, operation, holder: None, revision: 0 }
    }
}

/// The jobs of a slice that were changed, and when.
#[derive(Clone, Debug)]
pub(super) struct Chunk {
    pub(super) treated_at: Timestamp,
    pub(super) jobs: Vec<TreatedJob>,
}

fn key(prefix: u8, id: OperationId) -> Vec<u8> {
    [&[prefix], id.as_bytes().as_slice()].concat()
}

fn chunk_key(id: OperationId, number: u64) -> Vec<u8> {
    [key(CHUNK, id), number.to_be_bytes().to_vec()].concat()
}

fn corrupt(_: InvalidOperation) -> StoreError {
    StoreError::corrupt("the record of an operation is invalid")
}

fn id_of(key: &[u8]) -> Option<OperationId> {
    key.get(1..).and_then(|bytes| bytes.try_into().ok()).map(OperationId::from_bytes)
}

fn decode_record(record: &SystemRecord) -> Result<StoredOperation, StoreError> {
    let id = id_of(&record.key).ok_or(InvalidOperation).map_err(corrupt)?;
    decode(id, &record.value, record.revision).map_err(corrupt)
}

/// Reads an operation; `None` if there is none.
pub(crate) async fn read(store: &dyn Store, id: OperationId) -> Result<Option<StoredOperation>, StoreError> {
    let found = store.system_records(SystemQuery::one(SystemKind::Operation, key(RECORD, id))).await?;
    found.first().map(decode_record).transpose()
}

/// Lists operations, newest first, before one.
pub(crate) async fn list(
    store: &dyn Store,
    before: Option<OperationId>,
    limit: usize,
) -> Result<Vec<StoredOperation>, StoreError> {
    let mut query = SystemQuery::prefix(SystemKind::Operation, [RECORD], limit).descending();
    if let Some(before) = before {
        query.end = Some(key(RECORD, before));
    }
    store.system_records(query).await?.iter().map(decode_record).collect()
}

/// Returns the operations with work to do, now or later.
pub(crate) async fn active(store: &dyn Store, limit: usize) -> Result<Vec<OperationId>, StoreError> {
    let found = store.system_records(SystemQuery::prefix(SystemKind::Operation, [MARKER], limit)).await?;
    Ok(found.iter().filter_map(|record| id_of(&record.key)).collect())
}

/// Stores a new operation, and removes old ones.
pub(crate) async fn create(store: &dyn Store, new: &StoredOperation) -> Result<(), StoreError> {
    let now = new.operation.created_at;
    let mut changes =
        vec![SystemChange::put(SystemKind::Operation, key(RECORD, new.id), Expected::Absent, encode(new))];
    if !new.operation.is_settled() {
        changes.push(SystemChange::put(SystemKind::Operation, key(MARKER, new.id), Expected::Any, Vec::new()));
    }
    let cutoff = Timestamp::from_millis(now.as_millis() - i64::try_from(KEPT.as_millis()).unwrap_or(i64::MAX));
    let mut old = SystemQuery::prefix(SystemKind::Operation, [RECORD], PRUNED_MAX);
    old.end = Some([&[RECORD], OperationId::floor(cutoff).as_slice()].concat());
    for record in store.system_records(old).await? {
        if decode_record(&record).is_ok_and(|old| old.operation.is_settled()) {
            changes.push(SystemChange::delete(SystemKind::Operation, record.key, Expected::Any));
        }
    }
    match store.write_system(SystemWrite::new(changes)).await? {
        Ok(_) => Ok(()),
        Err(_) => Err(StoreError::not_applied(std::io::Error::other("the id of the operation is taken"))),
    }
}

/// Writes the progress of an operation with some of its chunks: new ones, or `None` for dropped
/// ones. Returns `false` if another server has changed it since it was read.
pub(super) async fn write(
    store: &dyn Store,
    changed: &mut StoredOperation,
    chunks: impl IntoIterator<Item = (u64, Option<Chunk>)>,
    announce: bool,
) -> Result<bool, StoreError> {
    let (kind, id) = (SystemKind::Operation, changed.id);
    let mut changes =
        vec![SystemChange::put(kind, key(RECORD, id), Expected::Revision(changed.revision), encode(changed))];
    for (number, chunk) in chunks {
        changes.push(match chunk {
            Some(chunk) => SystemChange::put(kind, chunk_key(id, number), Expected::Any, encode_chunk(&chunk)),
            None => SystemChange::delete(kind, chunk_key(id, number), Expected::Any),
        });
    }
    if changed.operation.is_settled() {
        changes.push(SystemChange::delete(kind, key(MARKER, id), Expected::Any));
    }
    let write = if announce { SystemWrite::new(changes) } else { SystemWrite::unannounced(changes) };
    match store.write_system(write).await? {
        Ok(written) => {
            changed.revision = written.revision;
            Ok(true)
        }
        Err(_) => Ok(false),
    }
}

/// Changes an operation by a command of a client; `None` if there is none. `change` returns whether
/// anything changed.
pub(crate) async fn change<E: From<StoreError>>(
    store: &dyn Store,
    id: OperationId,
    mut change: impl FnMut(&mut StoredOperation, Timestamp) -> Result<bool, E>,
) -> Result<Option<StoredOperation>, E> {
    for _ in 0..CONFLICTS_MAX {
        let Some(mut present) = read(store, id).await? else { return Ok(None) };
        if !change(&mut present, store.now())? || write(store, &mut present, [], true).await? {
            return Ok(Some(present));
        }
    }
    Err(StoreError::not_applied(std::io::Error::other("other servers keep changing the operation")).into())
}

/// Reads a chunk.
pub(super) async fn chunk(store: &dyn Store, id: OperationId, number: u64) -> Result<Option<Chunk>, StoreError> {
    let found = store.system_records(SystemQuery::one(SystemKind::Operation, chunk_key(id, number))).await?;
    found.first().map(|record| decode_chunk(&record.value).map_err(corrupt)).transpose()
}
