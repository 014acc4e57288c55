//! `longshore serve`

use std::error::Error;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use longshore_core::profile::Profile;
use longshore_server::{Options, Server, StoreAbout, TimeControl};
use longshore_store::{Clock, SystemClock};
use longshore_store_embedded::{EmbeddedStore, Options as StoreOptions, Place, TimeKind};
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

use crate::virtual_time;

#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// Where jobs are kept: a directory, or `memory:` to keep them nowhere
    #[arg(long, default_value = "longshore-data")]
    store: String,
    /// Address to listen on
    #[arg(long, default_value = "127.0.0.1:7117")]
    listen: SocketAddr,
    /// A clock that stands still until it is advanced over the wire
    #[arg(long)]
    virtual_clock: bool,
    /// Of queues that are created without one: standard, gopherqueue, taskharbor, ocypod, weave or document
    #[arg(long, default_value = "standard", value_parser = profile)]
    default_profile: Profile,
    /// A submission to a queue that does not exist is refused
    #[arg(long)]
    no_auto_queues: bool,
}

fn profile(name: &str) -> Result<Profile, String> {
    Profile::from_word(name).ok_or_else(|| format!("there is no profile {name:?}"))
}

impl Serve {
    pub(crate) fn run(self) -> Result<(), Box<dyn Error>> {
        let filter = EnvFilter::try_from_env("LONGSHORE_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        runtime.block_on(self.serve())
    }

    async fn serve(self) -> Result<(), Box<dyn Error>> {
        let (place, about) = match self.store.strip_prefix("memory:") {
            Some(_) => (Place::Memory, about("memory", "none: jobs are gone when the server stops")),
            None => {
                let promise = "an answer means that the change is on disk, synced";
                (Place::Directory(PathBuf::from(&self.store)), about("embedded", promise))
            }
        };
        let wall = SystemClock::new();
        let (clock, time, kind): (Arc<dyn Clock>, _, _) = if self.virtual_clock {
            let directory = match &place {
                Place::Memory => None,
                Place::Directory(directory) => Some(directory.as_path()),
            };
            let (clock, kept) = virtual_time::start(directory, wall.now())?;
            (clock.clone(), TimeControl::Virtual { clock, kept }, TimeKind::Virtual)
        } else {
            (Arc::new(wall), TimeControl::Real, TimeKind::Real)
        };
        let mut store = StoreOptions::new(place, clock, kind);
        store.engine.default_profile = self.default_profile;
        store.engine.auto_queues = !self.no_auto_queues;
        let mut options = Options::new(self.listen, Arc::new(EmbeddedStore::open(store)?), about);
        options.time = time;
        options.default_profile = self.default_profile;
        options.auto_queues = !self.no_auto_queues;
        let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let server = Server::bind(options).await?;
        tracing::info!(address = %server.address(), store = self.store, "listening");
        let shutdown = async {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            tracing::info!("stopping: no new work, requests under way are finished");
        };
        server.serve(shutdown).await?;
        Ok(())
    }
}

fn about(kind: &str, durability: &str) -> StoreAbout {
    StoreAbout { kind: kind.to_owned(), durability: durability.to_owned() }
}
