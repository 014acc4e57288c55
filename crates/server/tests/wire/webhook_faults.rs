//! Deliveries of webhooks while the store or the fleet fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use longshore_core::Timestamp;
use longshore_core::id::QueueName;
use longshore_engine::{DeliveryKey, SystemKind};
use longshore_server::ServerClock;
use longshore_store::{
    Clock, Expected, QueueStats, Store, StoreError, StoreFuture, StoreLayer, SystemChange, SystemQuery, SystemWrite,
    VirtualClock,
};
use longshore_store_embedded::{ClockMode, EmbeddedOptions as StoreOptions, EmbeddedStore, StoreLocation};
use serde_json::json;
use tokio::sync::watch;

use crate::common::client::lease;
use crate::common::json_receiver::JsonReceiver;
use crate::common::{Client, Setup, TestServer};

/// A store whose queues cannot be read while it fails.
#[derive(Debug)]
struct FailingQueues {
    store: Arc<dyn Store>,
    is_failing: AtomicBool,
    failures: watch::Sender<usize>,
}

impl StoreLayer for FailingQueues {
    fn inner(&self) -> &dyn Store {
        &*self.store
    }

    fn queue(&self, name: QueueName) -> StoreFuture<'_, Option<QueueStats>> {
        if self.is_failing.load(Ordering::SeqCst) {
            self.failures.send_modify(|failures| *failures += 1);
            let error = std::io::Error::other("the database fails over");
            return Box::pin(async { Err(StoreError::not_applied(error)) });
        }
        self.store.queue(name)
    }
}

fn setup() -> (Setup, Arc<dyn Store>, ServerClock) {
    let clock = Arc::new(VirtualClock::new(Timestamp::from_millis(1_794_700_800_000)));
    let mut options = StoreOptions::new(
        StoreLocation::Memory,
        Arc::<VirtualClock>::clone(&clock) as Arc<dyn Clock>,
        ClockMode::Virtual,
    );
    options.reserve_bytes = 0;
    let store = Arc::new(EmbeddedStore::open(options).unwrap());
    let mut setup = Setup::memory();
    setup.webhook_allow = vec!["127.0.0.0/8".parse().unwrap()];
    (setup, store, ServerClock::Virtual { clock, save: None })
}

async fn complete(c: &mut Client) -> String {
    let id = c.submit("q", r#"{"type":"t"}"#).await;
    let claimed = c.post("/v1/claims", r#"{"queues":["q"],"worker":"w"}"#).await.ok(200);
    let (_, token) = lease(&claimed["jobs"][0]);
    c.post(&format!("/v1/jobs/{id}/complete"), &json!({ "lease": token }).to_string()).await.ok(200);
    id
}

/// An error of the store is no end of a delivery: it is attempted again after its lease.
///
/// Rules Webhooks.
#[tokio::test]
async fn a_store_that_fails_during_an_attempt_loses_no_delivery() {
    let (setup, store, time) = setup();
    let failing =
        Arc::new(FailingQueues { store, is_failing: AtomicBool::new(false), failures: watch::Sender::new(0) });
    let server: TestServer = setup.serve(failing.clone(), time).await;
    let (mut c, mut receiver) = (server.client().await, JsonReceiver::start(200).await);
    c.put("/v1/webhooks/all", &json!({ "url": receiver.url }).to_string()).await.ok(201);
    failing.is_failing.store(true, Ordering::SeqCst);
    let id = complete(&mut c).await;
    failing.failures.subscribe().wait_for(|failures| *failures > 0).await.unwrap();
    failing.is_failing.store(false, Ordering::SeqCst);
    let listed = c.get(&format!("/v1/jobs/{id}/deliveries")).await.ok(200);
    assert_eq!(listed["deliveries"][0]["state"], "pending", "{listed}");
    c.advance("31s").await;
    assert_eq!(receiver.next().await.1["data"]["id"], id.as_str());
    server.stop().await;
}

/// During a rolling upgrade an old server leaves the records of a newer one alone.
///
/// Rules Webhooks.
#[tokio::test]
async fn a_delivery_of_a_newer_format_is_left_to_a_newer_server() {
    let (setup, store, time) = setup();
    let server = setup.serve(Arc::clone(&store), time).await;
    let (mut c, mut receiver) = (server.client().await, JsonReceiver::start(200).await);
    let key = DeliveryKey::of_test(store.now(), 7);
    let put = |kind, key: Vec<u8>, value: Vec<u8>| SystemChange::put(kind, key, Expected::Absent, value);
    let changes = vec![
        put(SystemKind::Delivery, key.as_bytes().to_vec(), vec![250, 1, 2, 3]),
        put(SystemKind::DueDelivery, key.due_key(store.now()), b"all".to_vec()),
    ];
    store.write_system(SystemWrite::unannounced(changes)).await.unwrap().unwrap();
    // The list of due deliveries is read in order: after this message it has been read.
    c.put("/v1/webhooks/all", &json!({ "url": receiver.url }).to_string()).await.ok(201);
    for _ in 0..2 {
        c.advance("1s").await;
        let id = complete(&mut c).await;
        assert_eq!(receiver.next().await.1["data"]["id"], id.as_str());
    }
    for kind in [SystemKind::Delivery, SystemKind::DueDelivery] {
        let kept = store.system_records(SystemQuery::all(kind, 100)).await.unwrap();
        assert!(kept.iter().any(|record| DeliveryKey::from_suffix(&record.key) == Some(key)), "{kind:?}");
    }
    server.stop().await;
}
