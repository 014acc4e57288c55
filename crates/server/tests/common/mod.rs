//! A server in the test process on its own port, and a small client with real sockets.

#![allow(dead_code, reason = "each test binary uses a part of this module")]

pub(crate) mod client;
pub(crate) mod delayed_store;
pub(crate) mod event_stream;
pub(crate) mod json_receiver;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use longshore_core::Timestamp;
use longshore_core::profile::Profile;
use longshore_server::{Limits, Server, ServerClock, ServerError, ServerOptions, StoreInfo};
use longshore_store::{Clock, Store, SystemClock, VirtualClock};
use longshore_store_embedded::{ClockMode, EmbeddedOptions as StoreOptions, EmbeddedStore, StoreLocation};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub(crate) use client::Client;
pub(crate) use event_stream::EventStream;

/// Start of virtual time in tests.
pub(crate) const EPOCH: &str = "2026-11-15T00:00:00.000Z";
const EPOCH_MILLIS: i64 = 1_794_700_800_000;

pub(crate) struct Setup {
    location: StoreLocation,
    virtual_time: bool,
    start: i64,
    pub(crate) limits: Limits,
    pub(crate) default_profile: Profile,
    pub(crate) auto_queues: bool,
    pub(crate) webhook_allow: Vec<longshore_webhooks::network::Cidr>,
    pub(crate) tls: Option<Arc<longshore_tls::ServerTls>>,
    pub(crate) cors_origins: Vec<String>,
    pub(crate) otlp: Option<longshore_server::OtlpConfig>,
}

/// Whether this test binary runs on PostgreSQL, by its name.
pub(crate) fn on_postgres() -> bool {
    env!("CARGO_CRATE_NAME").ends_with("_on_postgres")
}

impl Setup {
    /// A store in memory with a virtual clock, for most tests.
    pub(crate) fn memory() -> Self {
        Self {
            location: StoreLocation::Memory,
            virtual_time: true,
            start: EPOCH_MILLIS,
            limits: Limits::default(),
            default_profile: Profile::Standard,
            auto_queues: true,
            webhook_allow: Vec::new(),
            tls: None,
            cors_origins: Vec::new(),
            otlp: None,
        }
    }

    pub(crate) fn directory(path: &Path) -> Self {
        Self { location: StoreLocation::Directory(path.to_owned()), ..Self::memory() }
    }

    pub(crate) fn real_time(self) -> Self {
        Self { virtual_time: false, ..self }
    }

    /// Sets the start of virtual time.
    pub(crate) fn starting_at(self, start: i64) -> Self {
        Self { start, ..self }
    }

    pub(crate) async fn start(self) -> TestServer {
        let virtual_clock = Arc::new(VirtualClock::new(Timestamp::from_millis(self.start)));
        let (clock, time, kind): (Arc<dyn Clock>, _, _) = if self.virtual_time {
            (virtual_clock.clone(), ServerClock::Virtual { clock: virtual_clock, save: None }, ClockMode::Virtual)
        } else {
            (Arc::new(SystemClock::new()), ServerClock::Real, ClockMode::Real)
        };
        if let (StoreLocation::Memory, true) = (&self.location, on_postgres()) {
            let store = self.open_postgres(clock).await;
            return self.serve(store, time).await;
        }
        let mut store = StoreOptions::new(self.location.clone(), clock, kind);
        store.engine.default_profile = self.default_profile;
        store.engine.auto_queues = self.auto_queues;
        store.reserve_bytes = 0;
        let store = EmbeddedStore::open(store).unwrap();
        self.serve(Arc::new(store), time).await
    }

    /// Opens a store in a new schema.
    async fn open_postgres(&self, clock: Arc<dyn Clock>) -> Arc<dyn Store> {
        let mut options = longshore_store_postgres::PostgresOptions::new(longshore_testkit::postgres::shared_url());
        options.schema = longshore_testkit::postgres::new_schema();
        options.clock = self.virtual_time.then_some(clock);
        options.engine.default_profile = self.default_profile;
        options.engine.auto_queues = self.auto_queues;
        options.retention_slack = longshore_core::Duration::ZERO;
        options.writers = 1;
        let handle = tokio::runtime::Handle::current();
        Arc::new(longshore_store_postgres::PostgresStore::start(options, handle).await.unwrap())
    }

    /// Serves a store of the test.
    pub(crate) async fn serve(self, store: Arc<dyn Store>, time: ServerClock) -> TestServer {
        let about = StoreInfo { kind: "test".to_owned(), durability: "none".to_owned() };
        let mut options = ServerOptions::new(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), store, about);
        options.time = time;
        options.default_profile = self.default_profile;
        options.auto_queues = self.auto_queues;
        options.limits = self.limits;
        options.webhook_allow = self.webhook_allow;
        options.tls = self.tls;
        options.cors_origins = self.cors_origins;
        options.otlp = self.otlp;
        // Every second connection is served by another thread.
        options.io_threads = 2;
        let server = Server::bind(options).await.unwrap();
        let address = server.address();
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = tokio::spawn(server.serve(async move { drop(stopped.await) }));
        TestServer { address, stop: Some(stop), serving }
    }
}

pub(crate) struct TestServer {
    pub(crate) address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    serving: JoinHandle<Result<(), ServerError>>,
}

impl TestServer {
    pub(crate) async fn client(&self) -> Client {
        Client::connect(self.address).await
    }

    /// Opens an event stream.
    pub(crate) async fn events(&self, query: &str) -> EventStream {
        EventStream::open(self.address, &format!("/v1/events{query}"), None).await
    }

    /// Requests the server to stop; it finishes requests in flight.
    pub(crate) fn request_stop(&mut self) {
        drop(self.stop.take());
    }

    /// Waits until the server has stopped.
    pub(crate) async fn stopped(self) -> Result<(), ServerError> {
        self.serving.await.unwrap()
    }

    pub(crate) async fn stop(mut self) {
        self.request_stop();
        self.stopped().await.unwrap();
    }
}
