//! Deliveries in the store.
//!
//! Each delivery has one entry by due time. It is the due time of an attempt, the end of the lease
//! of the server that attempts it, or, after its end, the time at which it is pruned. Whatever a
//! server does with a delivery, it replaces that entry by compare-and-set.

use longshore_api::webhook::{WebhookAttempt, WebhookDelivery};
use longshore_core::target_url::host_of;
use longshore_core::webhook::{DeliveryState, WebhookEvent};
use longshore_core::{Duration, Timestamp};
use longshore_engine::{Delivery, DeliveryKey, SystemKind};
use longshore_store::{Expected, Store, StoreError, SystemChange, SystemQuery, SystemRecord, SystemWrite};

use super::endpoint::Endpoint;
use crate::convert::{time, times};

/// How long a server may hold a delivery: an attempt, and writing its result.
const LEASE: Duration = Duration::from_secs(30);
/// How long a delivery is kept after its end.
const RETENTION: Duration = Duration::from_days(7);
/// The first byte in the value of an entry by due time while a server holds the delivery.
const HELD: u8 = 1;
/// Deliveries that are read at once: each has a snapshot of its job.
const RECORDS_PAGE: usize = 16;
/// Held entries that are read at once.
const HELD_PAGE: usize = 500;

/// An entry by due time.
#[derive(Clone, Debug)]
pub(crate) struct DueEntry {
    key: Vec<u8>,
    revision: u64,
    pub(crate) delivery: DeliveryKey,
    /// The name of the endpoint, or `/` and the host of a callback URL. Empty after the end.
    pub(crate) lane: String,
}

impl DueEntry {
    /// Returns when it is due: the first bytes of its key.
    pub(crate) fn due_at(&self) -> Timestamp {
        DeliveryKey::due_of(&self.key)
    }

    fn of_record(record: SystemRecord) -> Option<Self> {
        let delivery = DeliveryKey::from_suffix(&record.key)?;
        let lane = record.value.strip_prefix(&[HELD]).unwrap_or(&record.value).to_vec();
        Some(Self { key: record.key, revision: record.revision, delivery, lane: String::from_utf8(lane).ok()? })
    }
}

/// A delivery that this server holds.
#[derive(Debug)]
pub(crate) struct HeldDelivery {
    pub(crate) key: DeliveryKey,
    pub(crate) delivery: Delivery,
    /// Revision of the delivery.
    revision: u64,
    /// Its entry by due time.
    entry_key: Vec<u8>,
    entry_revision: u64,
    lane: String,
}

/// Reads the record with this key.
pub(crate) async fn read_one(
    store: &dyn Store,
    kind: SystemKind,
    key: &[u8],
) -> Result<Option<SystemRecord>, StoreError> {
    Ok(store.system_records(SystemQuery::one(kind, key)).await?.pop())
}

fn change(kind: SystemKind, key: Vec<u8>, expected: Expected, value: Option<Vec<u8>>) -> SystemChange {
    SystemChange { kind, key, expected, value, append_job_ids: false }
}

/// Returns entries that are due, in order, from `start` on. The second value is the start of the
/// next page, if there may be one.
pub(crate) async fn due(
    store: &dyn Store,
    start: Vec<u8>,
    limit: usize,
) -> Result<(Vec<DueEntry>, Option<Vec<u8>>), StoreError> {
    let end = Some(DeliveryKey::due_after(store.now()));
    let query = SystemQuery { kind: SystemKind::DueDelivery, start, end, limit, descending: false };
    let records = store.system_records(query).await?;
    let last = records.last().filter(|_| records.len() >= limit);
    let next = last.map(|record| [&*record.key, &[0]].concat());
    Ok((records.into_iter().filter_map(DueEntry::of_record).collect(), next))
}

/// Takes a due delivery: until the end of the lease no other server attempts it.
///
/// Returns `None` if another server has taken it, or if there is nothing to attempt.
pub(crate) async fn take(store: &dyn Store, entry: DueEntry) -> Result<Option<HeldDelivery>, StoreError> {
    let key = entry.delivery;
    let record = read_one(store, SystemKind::Delivery, key.as_bytes()).await?;
    let Some(record) = record else { return prune(store, entry, None).await.map(|()| None) };
    let delivery = match Delivery::decode(&record.value) {
        Ok(delivery) if delivery.state == DeliveryState::Pending => delivery,
        Ok(_) => return prune(store, entry, Some(record)).await.map(|()| None),
        // A newer server of the fleet has written it, and attempts it.
        Err(_) => return Ok(None),
    };
    let revision = record.revision;
    let entry_key = key.due_key(store.now() + LEASE);
    let value = [&[HELD], entry.lane.as_bytes()].concat();
    let changes = vec![
        change(SystemKind::DueDelivery, entry.key, Expected::Revision(entry.revision), None),
        change(SystemKind::DueDelivery, entry_key.clone(), Expected::Absent, Some(value)),
    ];
    let written = store.write_system(SystemWrite::unannounced(changes)).await?;
    Ok(written.ok().map(|written| HeldDelivery {
        key,
        delivery,
        revision,
        entry_key,
        entry_revision: written.revision,
        lane: entry.lane,
    }))
}

/// Removes a delivery whose retention has ended, or an entry without a delivery.
async fn prune(store: &dyn Store, entry: DueEntry, record: Option<SystemRecord>) -> Result<(), StoreError> {
    let mut changes = vec![change(SystemKind::DueDelivery, entry.key, Expected::Revision(entry.revision), None)];
    if let Some(record) = record {
        if let Ok(delivery) = Delivery::decode(&record.value) {
            let key = entry.delivery.endpoint_key(&delivery.endpoint, delivery.at);
            changes.push(change(SystemKind::EndpointDelivery, key, Expected::Any, None));
        }
        changes.push(change(SystemKind::Delivery, record.key, Expected::Revision(record.revision), None));
    }
    // A conflict means that another server was faster, or that an operator asked for a redelivery.
    store.write_system(SystemWrite::unannounced(changes)).await.map(drop)
}

/// Writes the result of an attempt and gives the delivery up. Returns whether it was still held.
pub(crate) async fn finish(store: &dyn Store, held: HeldDelivery) -> Result<bool, StoreError> {
    let HeldDelivery { key, delivery, revision, entry_key, entry_revision, lane } = held;
    let (due, lane) = next_entry(&delivery, &lane);
    let changes = vec![
        change(SystemKind::Delivery, key.as_bytes().to_vec(), Expected::Revision(revision), Some(delivery.encode())),
        change(SystemKind::DueDelivery, entry_key, Expected::Revision(entry_revision), None),
        change(SystemKind::DueDelivery, key.due_key(due), Expected::Absent, Some(lane)),
    ];
    Ok(store.write_system(SystemWrite::unannounced(changes)).await?.is_ok())
}

/// Returns time and value of the entry of a delivery that no server holds.
fn next_entry(delivery: &Delivery, lane: &str) -> (Timestamp, Vec<u8>) {
    match (delivery.state, delivery.next_at) {
        (DeliveryState::Pending, Some(next_at)) => (next_at, lane.as_bytes().to_vec()),
        (DeliveryState::Pending | DeliveryState::Delivered | DeliveryState::Failed, _) => {
            (delivery.ended_at.unwrap_or(delivery.at) + RETENTION, Vec::new())
        }
    }
}

fn lane_of(delivery: &Delivery) -> String {
    delivery.url.as_ref().map_or_else(|| delivery.endpoint.to_string(), |url| format!("/{}", host_of(url)))
}

/// Makes deliveries due that this server held when it was killed. Precondition: no other server
/// uses the store.
pub(crate) async fn release_held(store: &dyn Store) -> Result<(), StoreError> {
    let now = store.now();
    let (mut start, end) = (DeliveryKey::due_after(now), DeliveryKey::due_after(now + LEASE));
    loop {
        let query = SystemQuery {
            kind: SystemKind::DueDelivery,
            start,
            end: Some(end.clone()),
            limit: HELD_PAGE,
            descending: false,
        };
        let records = store.system_records(query).await?;
        let is_last = records.len() < HELD_PAGE;
        start = records.last().map(|record| [&*record.key, &[0]].concat()).unwrap_or_default();
        let held = records.into_iter().filter(|record| record.value.first() == Some(&HELD));
        let changes: Vec<SystemChange> = held
            .filter_map(|record| {
                let key = DeliveryKey::from_suffix(&record.key)?;
                let lane = record.value.get(1..).unwrap_or_default().to_vec();
                Some([
                    change(SystemKind::DueDelivery, record.key, Expected::Revision(record.revision), None),
                    change(SystemKind::DueDelivery, key.due_key(now), Expected::Any, Some(lane)),
                ])
            })
            .flatten()
            .collect();
        if !changes.is_empty() {
            store.write_system(SystemWrite::unannounced(changes)).await?.ok();
        }
        if is_last {
            return Ok(());
        }
    }
}

/// Stores a delivery that no transition has caused. Returns its key.
pub(crate) async fn add_test(
    store: &dyn Store,
    endpoint: &Endpoint,
    random: u64,
) -> Result<(DeliveryKey, Delivery), StoreError> {
    let at = store.now();
    let key = DeliveryKey::of_test(at, random);
    let delivery = Delivery {
        endpoint: endpoint.name.clone(),
        url: None,
        event: WebhookEvent::Test,
        job: None,
        at,
        state: DeliveryState::Pending,
        planned_attempts: 0,
        next_at: Some(at),
        ended_at: None,
        attempts: Vec::new(),
        snapshot: Vec::new(),
    };
    let endpoint_key = key.endpoint_key(&delivery.endpoint, at);
    let lane = lane_of(&delivery).into_bytes();
    let changes = vec![
        change(SystemKind::Delivery, key.as_bytes().to_vec(), Expected::Any, Some(delivery.encode())),
        change(SystemKind::DueDelivery, key.due_key(at), Expected::Any, Some(lane)),
        change(SystemKind::EndpointDelivery, endpoint_key, Expected::Any, Some(Vec::new())),
    ];
    store.write_system(SystemWrite::unannounced(changes)).await?.ok();
    Ok((key, delivery))
}

/// Reads a delivery.
pub(crate) async fn find(store: &dyn Store, key: DeliveryKey) -> Result<Option<Delivery>, StoreError> {
    let record = read_one(store, SystemKind::Delivery, key.as_bytes()).await?;
    Ok(record.and_then(|record| Delivery::decode(&record.value).ok()))
}

/// Makes a delivery due now, with a new plan. A delivery that is being attempted stays as it is.
/// Returns `None` if there is no such delivery.
pub(crate) async fn redeliver(store: &dyn Store, key: DeliveryKey) -> Result<Option<Delivery>, StoreError> {
    loop {
        let Some(record) = read_one(store, SystemKind::Delivery, key.as_bytes()).await? else { return Ok(None) };
        let Ok(mut delivery) = Delivery::decode(&record.value) else { return Ok(None) };
        let (due, _) = next_entry(&delivery, "");
        let Some(entry) = read_one(store, SystemKind::DueDelivery, &key.due_key(due)).await? else {
            if delivery.state == DeliveryState::Pending {
                // A server attempts it at this moment.
                return Ok(Some(delivery));
            }
            // The record is older than its entry: another call has changed both since.
            continue;
        };
        let now = store.now();
        delivery.state = DeliveryState::Pending;
        (delivery.planned_attempts, delivery.next_at, delivery.ended_at) = (0, Some(now), None);
        let lane = lane_of(&delivery).into_bytes();
        let mut changes = vec![change(
            SystemKind::Delivery,
            record.key,
            Expected::Revision(record.revision),
            Some(delivery.encode()),
        )];
        if entry.key == key.due_key(now) {
            changes.push(change(SystemKind::DueDelivery, entry.key, Expected::Revision(entry.revision), Some(lane)));
        } else {
            changes.push(change(SystemKind::DueDelivery, entry.key, Expected::Revision(entry.revision), None));
            changes.push(change(SystemKind::DueDelivery, key.due_key(now), Expected::Absent, Some(lane)));
        }
        if store.write_system(SystemWrite::unannounced(changes)).await?.is_ok() {
            return Ok(Some(delivery));
        }
    }
}

/// Returns the deliveries of a range of keys, oldest first.
pub(crate) async fn of_job(
    store: &dyn Store,
    prefix: [u8; 8],
    limit: usize,
) -> Result<Vec<(DeliveryKey, Delivery)>, StoreError> {
    let end = u64::from_be_bytes(prefix).checked_add(1).map(|next| next.to_be_bytes().to_vec());
    let (mut start, mut found) = (prefix.to_vec(), Vec::new());
    while found.len() < limit {
        let (page, end) = (RECORDS_PAGE.min(limit - found.len()), end.clone());
        let query = SystemQuery { kind: SystemKind::Delivery, start, end, limit: page, descending: false };
        let records = store.system_records(query).await?;
        found.extend(records.iter().filter_map(decode_for_list));
        match records.last().filter(|_| records.len() == page) {
            Some(last) => start = [&*last.key, &[0]].concat(),
            None => break,
        }
    }
    Ok(found)
}

/// Returns the deliveries of an endpoint, newest first, before `before`; and the key at which the
/// next page begins.
pub(crate) async fn of_endpoint(
    store: &dyn Store,
    endpoint: &str,
    before: Option<Vec<u8>>,
    limit: usize,
) -> Result<(Vec<(DeliveryKey, Delivery)>, Option<Vec<u8>>), StoreError> {
    let (start, end) = DeliveryKey::endpoint_range(endpoint);
    let end = Some(before.filter(|before| (&start..=&end).contains(&before)).unwrap_or(end));
    let query = SystemQuery { kind: SystemKind::EndpointDelivery, start, end, limit, descending: true };
    let entries = store.system_records(query).await?;
    let next = entries.last().filter(|_| entries.len() >= limit).map(|entry| entry.key.clone());
    let mut deliveries = Vec::with_capacity(entries.len());
    for key in entries.iter().filter_map(|entry| DeliveryKey::from_suffix(&entry.key)) {
        let record = read_one(store, SystemKind::Delivery, key.as_bytes()).await?;
        deliveries.extend(record.as_ref().and_then(decode_for_list));
    }
    Ok((deliveries, next))
}

/// Decodes a delivery without its snapshot, which may have megabytes and is not shown.
fn decode_for_list(record: &SystemRecord) -> Option<(DeliveryKey, Delivery)> {
    let delivery = Delivery::decode(&record.value).ok()?;
    Some((DeliveryKey::from_bytes(&record.key)?, Delivery { snapshot: Vec::new(), ..delivery }))
}

/// Converts a delivery. `endpoint_url` is that of its endpoint, if the endpoint exists.
pub(crate) fn to_wire(key: DeliveryKey, delivery: &Delivery, endpoint_url: Option<&str>) -> WebhookDelivery {
    WebhookDelivery {
        id: key.to_string(),
        job: delivery.job.map(|job| job.to_string()),
        webhook: delivery.endpoint.to_string(),
        url: delivery.url.as_deref().or(endpoint_url).map(str::to_owned),
        event: delivery.event,
        state: delivery.state,
        created_at: time(delivery.at),
        attempts: delivery
            .attempts
            .iter()
            .map(|attempt| WebhookAttempt {
                at: time(attempt.at),
                status: attempt.status,
                error: attempt.error.as_ref().map(ToString::to_string),
                duration_ms: attempt.duration_ms,
            })
            .collect(),
        next_at: times(delivery.next_at.filter(|_| delivery.state == DeliveryState::Pending)),
    }
}
