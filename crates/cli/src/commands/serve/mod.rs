//! `longshore serve`: the server on a store.
//!
//! - `options.rs`: merges flags, environment and file into the configuration
//! - `file.rs`: the configuration file, with the queues that it declares
//! - `logging.rs`: filter and format of the log
//! - `banner.rs`: what is printed after the start
//! - `postgres.rs`: opens the store on PostgreSQL
//! - `service_manager.rs`: start, stop and liveness for systemd
//! - `tls.rs`: the certificate of the server, and SIGHUP
//! - `virtual_time.rs`: keeps the time of `--virtual-clock` over restarts

mod banner;
mod file;
mod logging;
pub(crate) mod options;
mod postgres;
mod service_manager;
mod tls;
pub(crate) mod virtual_time;

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use longshore_core::rng::Rng;
use longshore_server::{
    Listeners, OtlpConfig, Server, ServerClock, ServerError, ServerOptions, StoreInfo, declare, declare_schedule,
    declare_webhook,
};
use longshore_store::{Clock, FormatError, OsRng, Store, StoreError, SystemClock};
use longshore_store_embedded::{ClockMode, EmbeddedOptions as StoreOptions, EmbeddedStore, StoreLocation, in_use};

use self::options::{ServeConfig, StoreUrl};
use crate::commands::migrate_store::when_moved;
use crate::context::Context;
use crate::signals::Signals;
use crate::terminal::error::CliError;

/// Run the server.
#[derive(Debug, Args)]
#[command(after_help = "\
A flag overrides the environment, which overrides the file, which overrides the default. All options
are in docs/configuration.md.

Examples:
  longshore serve                              data in ./longshore-data, on 127.0.0.1:7070
  longshore serve --data /var/lib/longshore --listen 127.0.0.1:8080
  longshore serve --config longshore.toml
  longshore serve --store memory: --virtual-clock
  longshore serve --store postgres://longshore@db.example/jobs

A configuration file:
  listen = \"127.0.0.1:7070\"
  data = \"/var/lib/longshore\"
  default_profile = \"standard\"
  auto_queues = false

  [queues.reports]
  profile = \"gopherqueue\"
  settings = { lease = \"1m\", retry = { limit = 5 } }

SIGTERM and SIGINT drain: the server accepts no new requests and finishes those in flight. A second
signal ends it at once.")]
pub(crate) struct Serve {
    #[command(flatten)]
    flags: options::Flags,
}

impl Serve {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let config = ServeConfig::make(self.flags, |name| std::env::var(name).ok())?;
        logging::start(&config.log, config.log_format)?;
        let mut runtime = match &config.store {
            // The store runs on the threads of the server.
            StoreUrl::Postgres(_) => tokio::runtime::Builder::new_multi_thread(),
            // The store has threads of its own, and threads that share work wake each other.
            StoreUrl::Memory | StoreUrl::Directory(_) => tokio::runtime::Builder::new_current_thread(),
        };
        runtime.enable_all().build()?.block_on(serve(context, config))
    }
}

async fn serve(context: &Context, config: ServeConfig) -> Result<(), CliError> {
    let signals = Signals::listen()?;
    let tls = tls::load(config.tls.clone())?;
    tls::reload_on_hangup(tls.clone())?;
    // Before the store is opened: a server that cannot listen changes nothing there. Connections
    // wait until it is open.
    let listeners = Listeners::bind(config.listen, config.metrics_listen).await.map_err(server_failed)?;
    let (store, time, about) = match &config.store {
        StoreUrl::Postgres(address) => postgres::open(&config, address).await?,
        StoreUrl::Memory | StoreUrl::Directory(_) => open_embedded(&config)?,
    };
    for (name, queue) in &config.queues {
        declare_queue(store.as_ref(), name, queue).await?;
    }
    for (name, webhook) in &config.webhooks {
        let declared = declare_webhook(store.as_ref(), name, webhook.clone()).await;
        let declared = declared.map_err(|error| CliError::failed(error.to_string()))?;
        declared.map_err(|refused| CliError::refused(format!("webhooks.{name}: {}", refused.problem().detail)))?;
    }
    let watched = Arc::downgrade(&store);
    for (name, schedule) in &config.schedules {
        let declared = declare_schedule(store.as_ref(), config.default_profile, name, schedule.clone()).await;
        declared.map_err(|refused| CliError::refused(format!("schedules.{name}: {}", refused.problem().detail)))?;
    }
    let mut options = ServerOptions::new(config.listen, store, about.clone());
    options.time = time;
    options.default_profile = config.default_profile;
    options.auto_queues = config.auto_queues;
    options.limits = config.limits.clone();
    options.limits.drain_timeout = config.drain_timeout.as_std();
    options.webhook_allow.clone_from(&config.webhook_allow);
    options.webhook_https_only = config.webhook_https_only;
    options.webhook_ports.clone_from(&config.webhook_ports);
    options.otlp = otlp()?;
    options.io_threads = io_threads();
    options.metrics_listen = config.metrics_listen;
    options.listeners = Some(listeners);
    options.tls = tls;
    options.cors_origins.clone_from(&config.cors_origins);
    options.allowed_hosts = config.allowed_hosts.clone();
    options.request_id_seed = OsRng::default().next_u64();
    let server = Server::bind(options).await.map_err(server_failed)?;
    banner::print(context, &config, server.address(), &about);
    service_manager::report_ready(server.address());
    let drain_signals = signals.clone();
    let shutdown = async move {
        drain_signals.received(1).await;
        service_manager::report_stopping();
        tracing::info!("draining: no new requests, finishing requests in flight");
    };
    tokio::select! {
        served = server.serve(shutdown) => served.map_err(server_failed),
        never = service_manager::keep_watchdog_alive(watched) => match never {},
        () = signals.received(2) => Err(CliError::failed("second signal: requests in flight were aborted")),
    }
}

/// Reads where traces go from the standard variables of OpenTelemetry.
#[cfg(feature = "otlp")]
fn otlp() -> Result<Option<OtlpConfig>, CliError> {
    OtlpConfig::from_variables(|name| std::env::var(name).ok()).map_err(CliError::refused)
}

#[cfg(not(feature = "otlp"))]
fn otlp() -> Result<Option<OtlpConfig>, CliError> {
    Ok(None)
}

/// Threads that serve connections: half of the cores. The store uses the other half.
fn io_threads() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| (cores.get() / 2).max(1))
}

/// A store, its clock and its description.
pub(crate) type Opened = (Arc<dyn Store>, ServerClock, StoreInfo);

/// Opens a store for a command that changes tokens, without a server.
pub(crate) async fn open_offline(data: Option<PathBuf>, store: Option<String>) -> Result<Arc<dyn Store>, CliError> {
    let mut config = ServeConfig::of_store(data, store)?;
    if let StoreUrl::Postgres(address) = &config.store {
        return Ok(postgres::open(&config, address).await?.0);
    }
    match open_embedded(&config) {
        Ok((store, ..)) => Ok(store),
        // The directory decides about its clock: there is no server that would be confused.
        Err(error) => {
            config.virtual_clock = true;
            open_embedded(&config).map(|(store, ..)| store).map_err(|_| error)
        }
    }
}

fn open_embedded(config: &ServeConfig) -> Result<Opened, CliError> {
    let (location, about) = location_of(&config.store);
    let wall = SystemClock::new();
    let (clock, time, kind): (Arc<dyn Clock>, _, _) = if config.virtual_clock {
        let directory = match &location {
            StoreLocation::Memory => None,
            StoreLocation::Directory(directory) => Some(directory.as_path()),
        };
        let (clock, kept) = virtual_time::start(directory, wall.now())?;
        (clock.clone(), ServerClock::Virtual { clock, save: kept }, ClockMode::Virtual)
    } else {
        (Arc::new(wall), ServerClock::Real, ClockMode::Real)
    };
    let mut store = StoreOptions::new(location, clock, kind);
    store.engine.default_profile = config.default_profile;
    store.engine.auto_queues = config.auto_queues;
    store.sync_claims = config.sync_claims;
    store.cache_bytes = config.cache_bytes;
    let store = EmbeddedStore::open(store).map_err(|error| cannot_open(config, &error))?;
    if let Some(bytes) = store.reserve_missing_at_start() {
        tracing::warn!(
            missing_bytes = bytes,
            "cannot allocate the disk reserve: new jobs are rejected until space is available"
        );
    }
    Ok((Arc::new(store), time, about))
}

fn location_of(store: &StoreUrl) -> (StoreLocation, StoreInfo) {
    match store {
        StoreUrl::Directory(directory) => {
            let durability = "an acknowledged submission, settlement or checkpoint is synced to disk";
            (StoreLocation::Directory(directory.clone()), about("embedded", durability))
        }
        StoreUrl::Memory | StoreUrl::Postgres(_) => {
            (StoreLocation::Memory, about("memory", "none: jobs are lost when the server stops"))
        }
    }
}

fn about(kind: &str, durability: &str) -> StoreInfo {
    StoreInfo { kind: kind.to_owned(), durability: durability.to_owned() }
}

fn cannot_open(config: &ServeConfig, error: &StoreError) -> CliError {
    let failure = CliError::failed(format!("cannot open {}: {}", config.store, error.cause()));
    if in_use(error) {
        return failure.hint(
            "a directory has one server: stop the other one, or use another --data DIR; commands can use --server URL",
        );
    }
    if let Some(hint) = when_moved(error) {
        return failure.hint(hint);
    }
    if let StoreError::Format(found) = error {
        return failure.hint(match found {
            FormatError::VirtualTime => "start with --virtual-clock, or use another --data DIR",
            FormatError::RealTime => "start without --virtual-clock, or use another --data DIR",
            FormatError::Backup => "`longshore restore BACKUP DIR` creates a data directory from it",
            FormatError::NoStore
            | FormatError::EmptyDatabase
            | FormatError::WalWithoutDatabase
            | FormatError::NotADatabase { .. }
            | FormatError::ForeignDatabase
            | FormatError::Version { .. } => {
                "check that this is the right directory, and keep it unchanged, or use another --data DIR"
            }
        });
    }
    if let StoreError::Corrupt { .. } = error {
        return failure.hint("verify the directory with `longshore doctor DIR`; see docs/data-directory.md");
    }
    failure
}

async fn declare_queue(store: &dyn Store, name: &str, queue: &longshore_api::queue::PutQueue) -> Result<(), CliError> {
    let declared = declare(store, name, queue.clone()).await.map_err(|error| CliError::failed(error.to_string()))?;
    declared.map_err(|refused| CliError::refused(format!("queues.{name}: {}", refused.problem().detail)))
}

fn server_failed(error: ServerError) -> CliError {
    let failure = CliError::failed(error.to_string());
    match error {
        ServerError::Bind { error, .. } if error.kind() == std::io::ErrorKind::AddrInUse => failure
            .hint("another server may be running there: use another --listen ADDRESS:PORT; port 0 selects a free port"),
        ServerError::NoTokens { .. } => failure.hint(
            "create a token first: longshore tokens create --data DIR --name admin \
             --actions submit,work,read,operate,admin --queues '*'",
        ),
        ServerError::Bind { .. } | ServerError::Threads(_) | ServerError::Store(_) => failure,
        ServerError::StoreFailed => failure.hint("check the disk and the log, then restart the server"),
    }
}
