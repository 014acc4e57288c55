//! Who sees a workflow without members: tokens for the queues of the token that has opened it.
//!
//! A workflow has no queue of its own, and its members decide who sees it. Before the first one
//! there is this record. Only tokens that do not see every queue write and read it.

use longshore_core::access::QueueScope;
use longshore_core::id::WorkflowId;
use longshore_engine::SystemKind;
use longshore_store::{Expected, Store, StoreError, SystemChange, SystemQuery, SystemWrite};

/// Records of which one call of [`prune`] looks at.
const PRUNE_SLICE: usize = 100;

/// Stores the queues of the creator.
pub(crate) async fn write(store: &dyn Store, id: WorkflowId, scope: &QueueScope) -> Result<(), StoreError> {
    let patterns: Vec<String> = scope.patterns().iter().map(ToString::to_string).collect();
    // No pattern has a line break.
    let value = patterns.join("\n").into_bytes();
    let change = SystemChange::put(SystemKind::WorkflowScope, id.as_bytes(), Expected::Any, value);
    drop(store.write_system(SystemWrite::unannounced(vec![change])).await?);
    Ok(())
}

/// Returns the queues of the creator, if it was confined to some.
pub(crate) async fn read(store: &dyn Store, id: WorkflowId) -> Result<Option<QueueScope>, StoreError> {
    let found = store.system_records(SystemQuery::one(SystemKind::WorkflowScope, id.as_bytes())).await?;
    Ok(found.first().and_then(|record| decode(&record.value)))
}

fn decode(value: &[u8]) -> Option<QueueScope> {
    let patterns = std::str::from_utf8(value).ok()?.lines().map(|pattern| pattern.parse().ok());
    QueueScope::new(patterns.collect::<Option<_>>()?).ok()
}

/// Deletes the records of workflows that are gone, one slice per call. Returns where the next call
/// begins.
pub(crate) async fn prune(store: &dyn Store, start: Vec<u8>) -> Result<Vec<u8>, StoreError> {
    let query = SystemQuery { start, ..SystemQuery::all(SystemKind::WorkflowScope, PRUNE_SLICE) };
    let records = store.system_records(query).await?;
    let mut gone = Vec::new();
    for record in &records {
        let id = <[u8; 16]>::try_from(record.key.as_slice()).ok().map(WorkflowId::from_bytes);
        let exists = match id {
            Some(id) => store.workflow(id).await?.is_some(),
            None => false,
        };
        if !exists {
            let expected = Expected::Revision(record.revision);
            gone.push(SystemChange::delete(SystemKind::WorkflowScope, record.key.clone(), expected));
        }
    }
    if !gone.is_empty() {
        drop(store.write_system(SystemWrite::unannounced(gone)).await?);
    }
    let last = records.last().filter(|_| records.len() == PRUNE_SLICE);
    Ok(last.map(|record| [record.key.as_slice(), &[0]].concat()).unwrap_or_default())
}
