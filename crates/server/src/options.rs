//! What a server is started with.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use longshore_core::Timestamp;
use longshore_core::profile::Profile;
use longshore_store::{Store, VirtualClock};

#[derive(Debug)]
pub struct Options {
    /// Port 0 is any free one.
    pub listen: SocketAddr,
    pub store: Arc<dyn Store>,
    pub about: StoreInfo,
    pub time: ServerClock,
    /// As the store was opened; told to whoever asks.
    pub default_profile: Profile,
    pub auto_queues: bool,
    pub limits: Limits,
    /// Random: tells the request ids of this process from those of others.
    pub request_id_seed: u64,
}

impl Options {
    pub fn new(listen: SocketAddr, store: Arc<dyn Store>, about: StoreInfo) -> Self {
        Self {
            listen,
            store,
            about,
            time: ServerClock::Real,
            default_profile: Profile::Standard,
            auto_queues: true,
            limits: Limits::default(),
            request_id_seed: 0,
        }
    }
}

/// What a store says of itself.
#[derive(Clone, Debug)]
pub struct StoreInfo {
    pub kind: String,
    /// What an answer means.
    pub durability: String,
}

/// Who moves the store's clock.
#[derive(Clone, Debug)]
pub enum ServerClock {
    /// Time passes by itself.
    Real,
    /// The clock of the store; it stands still until somebody advances it over the wire.
    Virtual { clock: Arc<VirtualClock>, kept: Option<SaveVirtualTime> },
}

/// Notes down how far virtual time has come, so that it does not fall back with a restart. Called before the clock moves.
#[derive(Clone)]
pub struct SaveVirtualTime(pub Arc<dyn Fn(Timestamp) -> std::io::Result<()> + Send + Sync>);

impl fmt::Debug for SaveVirtualTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeptTime")
    }
}

/// Bounds of what one server takes on.
#[derive(Clone, Debug)]
pub struct Limits {
    pub connections_max: usize,
    pub connections_per_address_max: usize,
    pub body_bytes_max: usize,
    /// Bodies that are being read may together take this much.
    pub bodies_bytes_max: usize,
    pub path_bytes_max: usize,
    pub headers_max: usize,
    pub headers_bytes_max: usize,
    /// From the first byte of a request to the end of its head.
    pub head_timeout: Duration,
    /// Between two parts of a body.
    pub body_timeout: Duration,
    /// For a client to take what is written to it.
    pub write_timeout: Duration,
    /// Between two requests on a connection.
    pub idle_timeout: Duration,
    /// For a submission to be acknowledged.
    pub submission_timeout: Duration,
    /// For requests under way, once the server is told to stop.
    pub drain_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
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
