//! The server itself: bind, serve, drain.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use longshore_core::limits::BATCH_ITEMS_MAX;
use longshore_core::state::StateKind;
use longshore_store::{JobFilter, JobQuery, StoreError};
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::app::AppState;
use crate::background::{change_listener, ticker, worker_check};
use crate::net::accept::accept;
use crate::options::Options;
use crate::routes;

/// Bound to its address; nobody is served yet.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    app: AppState,
}

#[derive(Debug)]
pub enum ServerError {
    Bind {
        address: SocketAddr,
        error: std::io::Error,
    },
    Store(StoreError),
    /// An earlier write failed: only a restart helps.
    StoreFailed,
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bind { address, error } => write!(f, "cannot listen on {address}: {error}"),
            Self::Store(error) => write!(f, "the store failed: {error}"),
            Self::StoreFailed => f.write_str("the store failed for good: start again"),
        }
    }
}

impl std::error::Error for ServerError {}

impl Server {
    pub async fn bind(options: Options) -> Result<Self, ServerError> {
        let wanted = options.listen;
        let bind = |error| ServerError::Bind { address: wanted, error };
        let listener = TcpListener::bind(wanted).await.map_err(bind)?;
        let address = listener.local_addr().map_err(bind)?;
        Ok(Self { listener, address, app: AppState::new(options) })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `shutdown`, then lets requests under way finish. The store is let go before this returns, unless it does not answer.
    pub async fn serve(self, shutdown: impl Future<Output = ()>) -> Result<(), ServerError> {
        let Self { listener, app, .. } = self;
        if let Some(time) = &app.virtual_time {
            time.tick_until_idle().await.map_err(ServerError::Store)?;
        }
        restore_workers(&app).await.map_err(ServerError::Store)?;
        app.background_tasks.spawn(change_listener::run(app.clone(), app.store.wakeups()));
        app.background_tasks.spawn(worker_check::keep_checking(app.clone()));
        if app.virtual_time.is_none() {
            app.background_tasks.spawn(ticker::run_ticker(app.clone(), app.store.wakeups()));
        }
        let cut = CancellationToken::new();
        let router = routes::router(app.clone());
        tokio::select! {
            () = accept(&app, listener, router, &cut) => {}
            () = shutdown => {}
            () = app.store_failed_signal.notified() => {}
        }
        drain(&app, &cut).await;
        if app.store_failed() { Err(ServerError::StoreFailed) } else { Ok(()) }
    }
}

/// Pages of running jobs that are looked at for the names of their workers.
const PAGES_MAX: usize = 10;

/// Who held which job when the server was stopped: their heartbeats will go on.
async fn restore_workers(app: &AppState) -> Result<(), StoreError> {
    let filter = JobFilter { states: StateKind::Running.into(), ..JobFilter::default() };
    let mut before = None;
    for _ in 0..PAGES_MAX {
        let page = app.store.list(JobQuery { filter: filter.clone(), limit: BATCH_ITEMS_MAX, before }).await?;
        for job in &page.jobs {
            let worker = job.state.lease().and_then(|lease| lease.worker.as_ref());
            let seen = job.last_heartbeat_at.or(job.started_at).unwrap_or_else(|| app.now());
            app.workers.jobs_assigned(worker, std::iter::once(job.id), seen);
        }
        before = page.next;
        if before.is_none() {
            break;
        }
    }
    Ok(())
}

/// How long questions that nobody waits for any more may still take.
const FORCE_CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// No new work; what is under way gets the grace time.
async fn drain(app: &AppState, cut: &CancellationToken) {
    app.stopping.cancel();
    app.tasks.close();
    if timeout(app.limits.drain_timeout, app.tasks.wait()).await.is_err() {
        tracing::warn!("requests did not end in time; cutting them off");
    }
    cut.cancel();
    let asked = timeout(FORCE_CLOSE_TIMEOUT, app.tasks.wait()).await;
    app.drained.cancel();
    app.background_tasks.close();
    let kept = timeout(FORCE_CLOSE_TIMEOUT, app.background_tasks.wait()).await;
    if asked.is_err() || kept.is_err() {
        tracing::warn!("the store does not answer; leaving without it");
    }
}
