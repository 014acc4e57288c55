//! ServerOptions of a server.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use longshore_core::Timestamp;
use longshore_core::profile::Profile;
use longshore_store::{Store, VirtualClock};
use longshore_tls::ServerTls;
use longshore_webhooks::network::Cidr;

use crate::otlp::config::OtlpConfig;
use crate::server::Listeners;

#[derive(Debug)]
pub struct ServerOptions {
    /// Port 0 selects a free port.
    pub listen: SocketAddr,
    pub store: Arc<dyn Store>,
    pub about: StoreInfo,
    pub time: ServerClock,
    /// As the store was opened; shown by `GET /v1/info`.
    pub default_profile: Profile,
    pub auto_queues: bool,
    pub limits: Limits,
    /// Threads that serve connections, on a runtime of one thread. That thread is the first.
    pub io_threads: usize,
    /// Host names, beside `localhost` and IP addresses, under which a server without tokens
    /// answers.
    pub allowed_hosts: Vec<String>,
    /// Serves `/metrics` without a token on an address of its own.
    pub metrics_listen: Option<SocketAddr>,
    /// Random prefix of request ids, which differs between processes.
    pub request_id_seed: u64,
    /// Networks that webhooks may reach although they are not globally routable.
    pub webhook_allow: Vec<Cidr>,
    /// Refuses webhooks to URLs without TLS.
    pub webhook_https_only: bool,
    /// Ports that webhooks may reach; empty: all.
    pub webhook_ports: Vec<u16>,
    /// Serves TLS instead of plain HTTP. `metrics_listen` stays plain.
    pub tls: Option<Arc<ServerTls>>,
    /// Origins whose pages may call the API, such as `https://jobs.example`.
    pub cors_origins: Vec<String>,
    /// Addresses that are bound already. `None`: the server binds `listen` and `metrics_listen`.
    pub listeners: Option<Listeners>,
    /// Where traces go; `None`: nowhere.
    pub otlp: Option<OtlpConfig>,
}

impl ServerOptions {
    pub fn new(listen: SocketAddr, store: Arc<dyn Store>, about: StoreInfo) -> Self {
        Self {
            listen,
            store,
            about,
            time: ServerClock::Real,
            default_profile: Profile::Standard,
            auto_queues: true,
            limits: Limits::default(),
            io_threads: 1,
            allowed_hosts: Vec::new(),
            metrics_listen: None,
            request_id_seed: 0,
            webhook_allow: Vec::new(),
            webhook_https_only: false,
            webhook_ports: Vec::new(),
            tls: None,
            cors_origins: Vec::new(),
            listeners: None,
            otlp: None,
        }
    }
}

/// The store, as `GET /v1/info` shows it.
#[derive(Clone, Debug)]
pub struct StoreInfo {
    pub kind: String,
    /// What an acknowledgement guarantees.
    pub durability: String,
}

/// The clock of the store.
#[derive(Clone, Debug)]
pub enum ServerClock {
    /// The system clock.
    Real,
    /// Stands still until `POST /v1/clock/advance`.
    Virtual { clock: Arc<VirtualClock>, save: Option<SaveVirtualTime> },
}

/// Saves virtual time before the clock advances, so that a restart does not set it back.
#[derive(Clone)]
pub struct SaveVirtualTime(pub Arc<dyn Fn(Timestamp) -> std::io::Result<()> + Send + Sync>);

impl fmt::Debug for SaveVirtualTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SaveVirtualTime")
    }
}

/// Calls that may wait for the store by default: a fraction of a second of its work.
const IN_FLIGHT_MAX: usize = 2_048;

/// Limits of a server.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Calls that wait for the store. From here on submissions are refused, reads from half of it,
    /// and requests of workers from four times as many.
    pub in_flight_max: usize,
    pub connections_max: usize,
    pub connections_per_address_max: usize,
    pub body_bytes_max: usize,
    /// Total size of the bodies that are read at the same time.
    pub bodies_bytes_max: usize,
    pub path_bytes_max: usize,
    pub headers_max: usize,
    pub headers_bytes_max: usize,
    /// From the first byte of a request to the end of its head.
    pub head_timeout: Duration,
    /// Between two parts of a body.
    pub body_timeout: Duration,
    /// For a client to accept written bytes.
    pub write_timeout: Duration,
    /// Between two requests on a connection.
    pub idle_timeout: Duration,
    /// For the store to acknowledge a submission, or to answer any other call.
    pub submission_timeout: Duration,
    /// For requests in flight when the server stops.
    pub drain_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            in_flight_max: IN_FLIGHT_MAX,
            connections_max: 16_384,
            connections_per_address_max: 16_384,
            body_bytes_max: 32 << 20,
            bodies_bytes_max: 256 << 20,
            path_bytes_max: 8 << 10,
            headers_max: 64,
            headers_bytes_max: 16 << 10,
            head_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(75),
            submission_timeout: Duration::from_secs(30),
            drain_timeout: Duration::from_secs(30),
        }
    }
}
