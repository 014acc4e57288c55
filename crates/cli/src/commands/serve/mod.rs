//! `longshore serve`: the server on a store.
//!
//! - `options.rs`: flags over environment over file, and what comes of them
//! - `file.rs`: the file, with the queues that it declares
//! - `announce.rs`: what is said when it has started
//! - `postgres.rs`: the store on PostgreSQL
//! - `virtual_time.rs`: where the clock of `--virtual-clock` stands, also after a restart

mod banner;
mod file;
pub(crate) mod options;
mod postgres;
pub(crate) mod virtual_time;

use std::sync::Arc;

use clap::Args;
use longshore_core::rng::Rng;
use longshore_server::{Server, ServerClock, ServerError, ServerOptions, StoreInfo, declare};
use longshore_store::OsRng;
use longshore_store::{Clock, FormatError, Store, StoreError, SystemClock};
use longshore_store_embedded::{ClockMode, EmbeddedOptions as StoreOptions, EmbeddedStore, StoreLocation, in_use};
use tracing_subscriber::EnvFilter;

use self::options::{ServeConfig, StoreUrl};
use crate::commands::migrate_store::when_moved;
use crate::commands::parse;
use crate::context::Context;
use crate::signals::Signals;
use crate::terminal::error::CliError;

/// Run the server.
#[derive(Debug, Args)]
#[command(after_help = "\
What is not given as a flag is taken from the environment, then from the file, then from the
defaults.

Examples:
  longshore serve                              data in ./longshore-data, on 127.0.0.1:7070
  longshore serve --data /var/lib/longshore --listen 127.0.0.1:8080
  longshore serve --config longshore.toml
  longshore serve --store memory: --virtual-clock
  longshore serve --store postgres://longshore@db.example/jobs

A file:
  listen = \"127.0.0.1:7070\"
  data = \"/var/lib/longshore\"
  default_profile = \"standard\"
  auto_queues = false

  [queues.reports]
  profile = \"gopherqueue\"
  settings = { lease = \"1m\", retry = { limit = 5 } }

SIGTERM and SIGINT drain: no new work is taken, requests under way are finished. A second one
ends it at once.")]
pub(crate) struct Serve {
    #[command(flatten)]
    flags: options::Flags,
}

impl Serve {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let plan = ServeConfig::make(self.flags, |name| std::env::var(name).ok())?;
        let filter = log_filter(&plan.log)?;
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        runtime.block_on(serve(context, plan))
    }
}

/// A lone word that is no level would name a part of the program that does not exist, and silence everything else.
fn log_filter(text: &str) -> Result<EnvFilter, CliError> {
    const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];
    let known = |word: &str| LEVELS.contains(&word.to_lowercase().as_str()) || word.contains(['=', '[', ':']);
    if let Some(word) = text.split(',').find(|word| !known(word)) {
        let guess = parse::nearest(word, LEVELS.into_iter())
            .map_or_else(|| format!("one of {}", LEVELS.join(", ")), |level| format!("did you mean \"{level}\"?"));
        return Err(CliError::refused(format!("log: \"{word}\" is no level")).hint(guess));
    }
    EnvFilter::try_new(text)
        .map_err(|error| CliError::refused(format!("log: {error}")).hint("as in \"info\" or \"warn\""))
}

async fn serve(context: &Context, plan: ServeConfig) -> Result<(), CliError> {
    let signals = Signals::listen()?;
    let (store, time, about) = match &plan.store {
        StoreUrl::Postgres(address) => postgres::open(&plan, address).await?,
        StoreUrl::Memory | StoreUrl::Directory(_) => open_embedded(&plan)?,
    };
    for (name, queue) in &plan.queues {
        declare_queue(store.as_ref(), name, queue).await?;
    }
    let mut options = ServerOptions::new(plan.listen, store, about.clone());
    options.time = time;
    options.default_profile = plan.default_profile;
    options.auto_queues = plan.auto_queues;
    options.limits.drain_timeout = plan.drain_timeout.as_std();
    options.request_id_seed = OsRng::default().next_u64();
    let server = Server::bind(options).await.map_err(ended)?;
    banner::announce(context, &plan, server.address(), &about);
    let first = signals.clone();
    let shutdown = async move {
        first.received(1).await;
        tracing::info!("stopping: no new work, requests under way are finished");
    };
    tokio::select! {
        served = server.serve(shutdown) => served.map_err(ended),
        () = signals.received(2) => Err(CliError::failed("told twice to stop: requests under way were cut off")),
    }
}

/// A store, how its time goes, and what it promises.
pub(crate) type Opened = (Arc<dyn Store>, ServerClock, StoreInfo);

fn open_embedded(plan: &ServeConfig) -> Result<Opened, CliError> {
    let (place, about) = place_of(&plan.store);
    let wall = SystemClock::new();
    let (clock, time, kind): (Arc<dyn Clock>, _, _) = if plan.virtual_clock {
        let directory = match &place {
            StoreLocation::Memory => None,
            StoreLocation::Directory(directory) => Some(directory.as_path()),
        };
        let (clock, kept) = virtual_time::start(directory, wall.now())?;
        (clock.clone(), ServerClock::Virtual { clock, save: kept }, ClockMode::Virtual)
    } else {
        (Arc::new(wall), ServerClock::Real, ClockMode::Real)
    };
    let mut store = StoreOptions::new(place, clock, kind);
    store.engine.default_profile = plan.default_profile;
    store.engine.auto_queues = plan.auto_queues;
    let store = EmbeddedStore::open(store).map_err(|error| cannot_open(plan, &error))?;
    if let Some(bytes) = store.reserve_missing_at_start() {
        tracing::warn!("no {bytes} bytes are left to set aside on the disk: new jobs are refused until there are");
    }
    Ok((Arc::new(store), time, about))
}

fn place_of(store: &StoreUrl) -> (StoreLocation, StoreInfo) {
    match store {
        StoreUrl::Directory(directory) => {
            let promise = "an answer means that the change is on disk, synced";
            (StoreLocation::Directory(directory.clone()), about("embedded", promise))
        }
        StoreUrl::Memory | StoreUrl::Postgres(_) => {
            (StoreLocation::Memory, about("memory", "none: jobs are gone when the server stops"))
        }
    }
}

fn about(kind: &str, durability: &str) -> StoreInfo {
    StoreInfo { kind: kind.to_owned(), durability: durability.to_owned() }
}

fn cannot_open(plan: &ServeConfig, error: &StoreError) -> CliError {
    let failure = CliError::failed(format!("cannot open {}: {}", plan.store, error.cause()));
    if in_use(error) {
        return failure.hint("one server for each directory: stop the other one, or give --data DIR");
    }
    if let Some(hint) = when_moved(error) {
        return failure.hint(hint);
    }
    if let StoreError::Format(found) = error {
        return failure.hint(match found {
            FormatError::VirtualTime => "start it with --virtual-clock, or give another --data DIR",
            FormatError::RealTime => "start it without --virtual-clock, or give another --data DIR",
            FormatError::Backup => "`longshore restore BACKUP DIR` makes a data directory from it",
            FormatError::NoStore
            | FormatError::EmptyDatabase
            | FormatError::WalWithoutDatabase
            | FormatError::NotADatabase { .. }
            | FormatError::ForeignDatabase
            | FormatError::Version { .. } => {
                "look whether this is the right directory, and keep it as it is; --data DIR takes another one"
            }
        });
    }
    if let StoreError::Corrupt { .. } = error {
        return failure.hint("`longshore doctor DIR` says more; docs/data-directory.md says what can be done");
    }
    failure
}

async fn declare_queue(store: &dyn Store, name: &str, queue: &longshore_api::queue::PutQueue) -> Result<(), CliError> {
    let declared = declare(store, name, queue.clone()).await.map_err(|error| CliError::failed(error.to_string()))?;
    declared.map_err(|refused| CliError::refused(format!("queues.{name}: {}", refused.problem().detail)))
}

fn ended(error: ServerError) -> CliError {
    let failure = CliError::failed(error.to_string());
    match error {
        ServerError::Bind { error, .. } if error.kind() == std::io::ErrorKind::AddrInUse => failure.hint(
            "another server may be running there; --listen ADDRESS:PORT takes another place, port 0 any free one",
        ),
        ServerError::Bind { .. } | ServerError::Store(_) => failure,
        ServerError::StoreFailed => failure.hint("look at the disk and at the log, then start it again"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_known_by_their_names() {
        for text in ["info", "WARN", "off", "longshore_server=debug,info", "warn,longshore_cli::commands=trace"] {
            assert!(log_filter(text).is_ok(), "{text}");
        }
        let failure = log_filter("inof").unwrap_err();
        assert_eq!(failure.hint.as_deref(), Some("did you mean \"info\"?"));
        assert!(log_filter("loud").unwrap_err().message.contains("\"loud\" is no level"));
        assert!(log_filter("").is_err());
    }
}
