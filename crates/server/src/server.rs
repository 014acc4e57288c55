//! The server: bind, serve, drain.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use longshore_core::limits::BATCH_ITEMS_MAX;
use longshore_core::state::StateKind;
use longshore_store::{JobFilter, JobQuery, StoreError};
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::access::keep_current;
use crate::background::{change_listener, dead_letters, fleet, series, ticker, worker_check};
use crate::net::accept::accept;
use crate::net::io_threads::IoThreads;
use crate::net::metrics_listener;
use crate::net::tls::keep_certificate_current;
use crate::operations;
use crate::options::ServerOptions;
use crate::otlp::exporter;
use crate::routes;
use crate::schedules::engine;
use crate::state::AppState;
use crate::webhooks::deliverer;

/// A server that is bound to its address, and does not serve yet.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    /// Serves the metrics without a token.
    metrics: Option<TcpListener>,
    io_threads: usize,
    app: AppState,
}

#[derive(Debug)]
pub enum ServerError {
    Bind {
        address: SocketAddr,
        error: std::io::Error,
    },
    /// The address can be reached by other machines, and the store has no token.
    NoTokens {
        address: SocketAddr,
    },
    /// A thread for connections cannot be started.
    Threads(std::io::Error),
    Store(StoreError),
    /// The store is poisoned by a failed write: only a restart helps.
    StoreFailed,
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bind { address, error } => write!(f, "cannot listen on {address}: {error}"),
            Self::NoTokens { address } => {
                write!(f, "cannot listen on {address} without tokens: other machines could do anything there")
            }
            Self::Threads(error) => write!(f, "cannot start a thread: {error}"),
            Self::Store(error) => write!(f, "the store failed: {error}"),
            Self::StoreFailed => f.write_str("the store failed permanently: restart the server"),
        }
    }
}

impl std::error::Error for ServerError {}

impl Server {
    pub async fn bind(mut options: ServerOptions) -> Result<Self, ServerError> {
        let (listen, io_threads) = (options.listen, options.io_threads);
        let (metrics_listen, listeners) = (options.metrics_listen, options.listeners.take());
        let app = AppState::new(options);
        app.access.refresh().await.map_err(ServerError::Store)?;
        if !listen.ip().to_canonical().is_loopback() && !app.access.has_tokens() {
            return Err(ServerError::NoTokens { address: listen });
        }
        let listeners = match listeners {
            Some(listeners) => listeners,
            None => Listeners::bind(listen, metrics_listen).await?,
        };
        let Listeners { listener, address, metrics } = listeners;
        Ok(Self { listener, address, metrics, io_threads, app })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `shutdown`, then drains requests in flight.
    ///
    /// Drops all handles of the store before it returns, unless the store hangs.
    pub async fn serve(self, shutdown: impl Future<Output = ()>) -> Result<(), ServerError> {
        let Self { listener, address, metrics, io_threads, app } = self;
        if let Some(time) = &app.virtual_time {
            time.start().await.map_err(ServerError::Store)?;
        }
        restore_workers(&app).await.map_err(ServerError::Store)?;
        series::start(&app).await.map_err(ServerError::Store)?;
        let io_threads = IoThreads::start(io_threads).map_err(ServerError::Threads)?;
        io_threads.spawn_here(&app.background_tasks, change_listener::run(app.clone(), app.store.wakeups()));
        io_threads.spawn_here(&app.background_tasks, change_listener::keep_watching(app.clone()));
        io_threads.spawn_here(&app.background_tasks, keep_current(app.clone()));
        if let Some(listener) = metrics {
            io_threads.spawn_here(&app.background_tasks, metrics_listener::serve(app.clone(), listener));
        }
        io_threads.spawn_here(&app.background_tasks, keep_certificate_current(app.clone()));
        io_threads.spawn_here(&app.background_tasks, worker_check::keep_checking(app.clone()));
        io_threads.spawn_here(&app.background_tasks, series::keep_sampling(app.clone()));
        io_threads.spawn_here(&app.background_tasks, deliverer::run(app.clone()));
        io_threads.spawn_here(&app.background_tasks, exporter::run(app.clone()));
        io_threads.spawn_here(&app.background_tasks, fleet::keep_reporting(app.clone()));
        io_threads.spawn_here(&app.background_tasks, dead_letters::run(app.clone()));
        if app.virtual_time.is_none() {
            io_threads.spawn_here(&app.background_tasks, ticker::run_ticker(app.clone(), app.store.wakeups()));
            io_threads.spawn_here(&app.background_tasks, engine::run(app.clone()));
            io_threads.spawn_here(&app.background_tasks, operations::engine::run(app.clone()));
        }
        let force_close = CancellationToken::new();
        let router = routes::router(app.clone());
        tracing::info!(%address, version = routes::system::VERSION, store = app.about.kind, "server started");
        tokio::select! {
            () = accept(&app, &io_threads, listener, router, &force_close) => {}
            () = shutdown => {}
            () = app.store_health.failed() => {}
        }
        tracing::info!("server stopping; draining requests");
        drain(&app, &force_close).await;
        tracing::info!("server stopped");
        if app.store_health.has_failed() { Err(ServerError::StoreFailed) } else { Ok(()) }
    }
}

/// Bound addresses. Connections wait until a server serves them.
#[derive(Debug)]
pub struct Listeners {
    listener: TcpListener,
    address: SocketAddr,
    /// Serves the metrics without a token.
    metrics: Option<TcpListener>,
}

impl Listeners {
    /// Binds the address of the API, and that of the metrics.
    pub async fn bind(listen: SocketAddr, metrics_listen: Option<SocketAddr>) -> Result<Self, ServerError> {
        let (listener, address) = bind(listen).await?;
        let metrics = match metrics_listen {
            Some(address) => Some(bind(address).await?.0),
            None => None,
        };
        Ok(Self { listener, address, metrics })
    }
}

async fn bind(address: SocketAddr) -> Result<(TcpListener, SocketAddr), ServerError> {
    let failed = |error| ServerError::Bind { address, error };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((listener, address))
}

/// Pages of running jobs that the worker registry is restored from.
const PAGES_MAX: usize = 10;

/// Restores the worker registry from the running jobs: workers go on after a restart.
pub(crate) async fn restore_workers(app: &AppState) -> Result<(), StoreError> {
    let filter = JobFilter { states: StateKind::Running.into(), ..JobFilter::default() };
    let mut before = None;
    for _ in 0..PAGES_MAX {
        let page = app.store.list(JobQuery { filter: filter.clone(), limit: BATCH_ITEMS_MAX, before }).await?;
        for job in &page.jobs {
            let worker = job.state.lease().and_then(|lease| lease.worker.as_ref());
            let last_seen = job.last_heartbeat_at.or(job.started_at).unwrap_or_else(|| app.now());
            app.workers.jobs_found(worker, std::iter::once(job.id), last_seen);
        }
        before = page.next;
        if before.is_none() {
            break;
        }
    }
    Ok(())
}

/// How long calls to the store may take after their connections were closed.
const FORCE_CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Stops accepting, waits for requests in flight up to the drain timeout, then closes connections.
pub(crate) async fn drain(app: &AppState, force_close: &CancellationToken) {
    app.stopping.cancel();
    app.tasks.close();
    if timeout(app.limits.drain_timeout, app.tasks.wait()).await.is_err() {
        tracing::warn!("drain timeout; closing connections with requests in flight");
    }
    force_close.cancel();
    let requests = timeout(FORCE_CLOSE_TIMEOUT, app.tasks.wait()).await;
    app.drained.cancel();
    app.background_tasks.close();
    let background = timeout(FORCE_CLOSE_TIMEOUT, app.background_tasks.wait()).await;
    if requests.is_err() || background.is_err() {
        tracing::warn!("store did not shut down in time; exiting");
    }
}
