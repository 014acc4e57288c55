//! A server without a socket: its connections are pipes inside the process.

use std::io;
use std::sync::atomic::Ordering;

use axum::Router;
use tokio::io::DuplexStream;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::access::{Peer, keep_current};
use crate::background::{change_listener, dead_letters, series, ticker, worker_check};
use crate::net::connection::serve_stream;
use crate::operations;
use crate::options::ServerOptions;
use crate::routes;
use crate::schedules::engine;
use crate::server::{ServerError, drain, restore_workers};
use crate::state::AppState;
use crate::webhooks::deliverer;

/// Buffer of each direction of a connection.
const BUFFER_BYTES: usize = 256 << 10;

/// A server of which only this process is a client.
#[derive(Debug)]
pub struct InProcessServer {
    app: AppState,
    router: Router,
    force_close: CancellationToken,
    runtime: Handle,
}

impl InProcessServer {
    /// Starts the background tasks on the current runtime, which also runs the requests.
    pub async fn start(options: ServerOptions) -> Result<Self, ServerError> {
        let app = AppState::new(options);
        if let Some(time) = &app.virtual_time {
            time.start().await.map_err(ServerError::Store)?;
        }
        restore_workers(&app).await.map_err(ServerError::Store)?;
        series::start(&app).await.map_err(ServerError::Store)?;
        app.background_tasks.spawn(change_listener::run(app.clone(), app.store.wakeups()));
        app.background_tasks.spawn(change_listener::keep_watching(app.clone()));
        app.access.is_in_process.store(true, Ordering::Relaxed);
        app.access.refresh().await.map_err(ServerError::Store)?;
        app.background_tasks.spawn(keep_current(app.clone()));
        app.background_tasks.spawn(worker_check::keep_checking(app.clone()));
        app.background_tasks.spawn(series::keep_sampling(app.clone()));
        app.background_tasks.spawn(deliverer::run(app.clone()));
        app.background_tasks.spawn(dead_letters::run(app.clone()));
        if app.virtual_time.is_none() {
            app.background_tasks.spawn(ticker::run_ticker(app.clone(), app.store.wakeups()));
            app.background_tasks.spawn(engine::run(app.clone()));
            app.background_tasks.spawn(operations::engine::run(app.clone()));
        }
        let router = routes::router(app.clone());
        Ok(Self { app, router, force_close: CancellationToken::new(), runtime: Handle::current() })
    }

    /// Opens a connection, from any thread and runtime.
    pub fn connect(&self) -> io::Result<DuplexStream> {
        if self.app.stopping.is_cancelled() {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let (near, far) = tokio::io::duplex(BUFFER_BYTES);
        let serve = serve_stream(self.app.clone(), self.router.clone(), far, Peer::InProcess, self.force_close.clone());
        self.app.tasks.spawn_on(serve, &self.runtime);
        Ok(near)
    }

    /// Finishes requests in flight, and ends all connections and background tasks.
    pub async fn stop(&self) {
        drain(&self.app, &self.force_close).await;
    }
}
