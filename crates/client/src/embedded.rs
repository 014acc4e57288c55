//! A queue inside the application: the embedded store without a server process or a socket.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use longshore_server::{Cidr, InProcessServer, InvalidNetwork, ServerClock, ServerError, ServerOptions, StoreInfo};
use longshore_store::{Clock, StoreError, SystemClock, VirtualClock};
use longshore_store_embedded::{ClockMode, EmbeddedOptions, EmbeddedStore, StoreLocation};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

use crate::client::{Builder, Client};
use crate::worker::Worker;

/// A queue in a directory, inside this process. One process at a time may open a directory.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use longshore::Longshore;
///
/// let queue = Longshore::open("queue-data").await?;
/// let client = queue.client();
/// let worker = queue.worker();
/// # Ok(())
/// # }
/// ```
///
/// The store, its timers and its requests run on threads of their own: a blocked application delays
/// none of them. `longshore serve` can open the same directory later.
pub struct Longshore {
    server: Arc<InProcessServer>,
    client: Client,
    runtime: Option<Runtime>,
}

impl fmt::Debug for Longshore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Longshore")
    }
}

/// Why a queue could not be opened.
#[derive(Debug)]
pub enum OpenError {
    /// The directory is in use, is not a data directory, or cannot be read.
    Store(StoreError),
    Server(ServerError),
    /// A network of [`InProcessOptions::webhook_allow`] is invalid.
    Network(String),
    Thread(io::Error),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => write!(f, "cannot open the queue: {error}"),
            Self::Server(error) => write!(f, "cannot start the queue: {error}"),
            Self::Network(error) => write!(f, "cannot allow webhooks: {error}"),
            Self::Thread(error) => write!(f, "cannot start a thread: {error}"),
        }
    }
}

impl std::error::Error for OpenError {}

/// Settings of a queue inside the process. [`Longshore::options`] returns the defaults.
#[derive(Clone, Debug, Default)]
#[must_use = "options have no effect until a queue is opened with them"]
pub struct InProcessOptions {
    webhook_allow: Vec<String>,
}

impl InProcessOptions {
    /// Allows webhooks to a private network, such as `10.0.0.0/8`. Can be repeated.
    ///
    /// Without it, webhooks reach globally routable addresses only.
    pub fn webhook_allow(mut self, network: impl Into<String>) -> Self {
        self.webhook_allow.push(network.into());
        self
    }

    /// Opens the queue in a directory, which is created if it is missing.
    pub async fn open(self, directory: impl AsRef<Path>) -> Result<Longshore, OpenError> {
        let location = StoreLocation::Directory(directory.as_ref().to_owned());
        Longshore::start(self, location, "an acknowledged change is synced to disk", None).await
    }

    /// Opens a queue in memory. Its jobs end with it.
    pub async fn in_memory(self) -> Result<Longshore, OpenError> {
        Longshore::start(self, StoreLocation::Memory, "none: jobs are lost when the process ends", None).await
    }

    fn networks(&self) -> Result<Vec<Cidr>, OpenError> {
        let parse = |network: &String| network.parse().map_err(|error: InvalidNetwork| error.to_string());
        self.webhook_allow.iter().map(parse).collect::<Result<_, String>>().map_err(OpenError::Network)
    }
}

impl Longshore {
    /// Returns options to open a queue with.
    pub fn options() -> InProcessOptions {
        InProcessOptions::default()
    }

    /// Opens the queue in a directory, which is created if it is missing.
    pub async fn open(directory: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::options().open(directory).await
    }

    /// Opens a queue in memory. Its jobs end with it.
    pub async fn in_memory() -> Result<Self, OpenError> {
        Self::options().in_memory().await
    }

    /// Opens a queue in memory whose clock stands still until it is advanced.
    #[cfg(feature = "testing")]
    pub(crate) async fn in_virtual_time() -> Result<Self, OpenError> {
        let clock = Arc::new(VirtualClock::new(SystemClock::new().now()));
        Self::start(Self::options(), StoreLocation::Memory, "none", Some(clock)).await
    }

    async fn start(
        options: InProcessOptions,
        location: StoreLocation,
        durability: &str,
        virtual_clock: Option<Arc<VirtualClock>>,
    ) -> Result<Self, OpenError> {
        let webhook_allow = options.networks()?;
        let kind = if matches!(location, StoreLocation::Memory) { "memory" } else { "embedded" };
        let about = StoreInfo { kind: kind.to_owned(), durability: durability.to_owned() };
        let (clock, mode, time): (Arc<dyn Clock>, _, _) = match virtual_clock {
            Some(clock) => (clock.clone(), ClockMode::Virtual, ServerClock::Virtual { clock, save: None }),
            None => (Arc::new(SystemClock::new()), ClockMode::Real, ServerClock::Real),
        };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("longshore-queue")
            .enable_all()
            .build()
            .map_err(OpenError::Thread)?;
        let (send, started) = oneshot::channel();
        runtime.spawn(async move {
            let store = EmbeddedStore::open(EmbeddedOptions::new(location, clock, mode)).map_err(OpenError::Store);
            let server = match store {
                Ok(store) => {
                    let nowhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
                    let defaults = ServerOptions::new(nowhere, Arc::new(store), about);
                    let options = ServerOptions { time, webhook_allow, ..defaults };
                    InProcessServer::start(options).await.map_err(OpenError::Server)
                }
                Err(error) => Err(error),
            };
            drop(send.send(server));
        });
        let stopped = |_| Err(OpenError::Thread(io::Error::other("the queue has ended")));
        let server = match started.await.unwrap_or_else(stopped) {
            Ok(server) => Arc::new(server),
            Err(error) => {
                runtime.shutdown_background();
                return Err(error);
            }
        };
        let dialled = Arc::clone(&server);
        let client = Builder::default().build_in_process(move || dialled.connect());
        Ok(Self { server, client, runtime: Some(runtime) })
    }

    /// Returns a client of this queue.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Returns a worker of this queue.
    pub fn worker(&self) -> Worker {
        Worker::new(self.client())
    }

    /// Finishes requests in flight and closes the store. Dropping the queue does not wait for them.
    pub async fn close(mut self) {
        let server = Arc::clone(&self.server);
        if let Some(runtime) = self.runtime.take() {
            drop(runtime.spawn(async move { server.stop().await }).await);
            runtime.shutdown_background();
        }
    }
}

impl Drop for Longshore {
    fn drop(&mut self) {
        // A runtime may not be dropped inside of another one.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
