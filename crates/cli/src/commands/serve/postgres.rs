//! Opens the store on PostgreSQL.

use std::sync::Arc;

use longshore_core::Duration;
use longshore_server::{SaveVirtualTime, ServerClock};
use longshore_store::{Clock, FormatError, StoreError, SystemClock, VirtualClock};
use longshore_store_postgres::{PostgresOptions, PostgresStore, migrate};
use tokio::runtime::Handle;

use super::options::{SecretUrl, ServeConfig};
use super::{Opened, about};
use crate::terminal::error::CliError;

pub(super) async fn open(config: &ServeConfig, address: &SecretUrl) -> Result<Opened, CliError> {
    let mut options = PostgresOptions::from_url(&address.0).map_err(|error| cannot_open(&error))?;
    options.engine.default_profile = config.default_profile;
    options.engine.auto_queues = config.auto_queues;
    let about = about("postgres", "an acknowledged change is committed by PostgreSQL, per its synchronous_commit");
    if !config.virtual_clock {
        // On the server's runtime: on another one every response would need a wake-up of a thread.
        let store = PostgresStore::start(options, Handle::current()).await;
        return Ok((Arc::new(store.map_err(|error| cannot_open(&error))?), ServerClock::Real, about));
    }
    let saved = migrate::virtual_now(&options.url, &options.schema).await.map_err(|error| cannot_open(&error))?;
    let clock = Arc::new(VirtualClock::new(saved.unwrap_or_else(|| SystemClock::new().now())));
    options.clock = Some(Arc::<VirtualClock>::clone(&clock));
    // Other nodes would not have this clock. Retention is exact in virtual time.
    options.exclusive = true;
    options.retention_slack = Duration::ZERO;
    let store = tokio::task::block_in_place(|| PostgresStore::open(options));
    let store = Arc::new(store.map_err(|error| cannot_open(&error))?);
    let weak_store = Arc::downgrade(&store);
    let save_time = move |now| match weak_store.upgrade() {
        Some(store) => store.save_virtual_time(now).map_err(std::io::Error::other),
        None => Ok(()),
    };
    Ok((store, ServerClock::Virtual { clock, save: Some(SaveVirtualTime(Arc::new(save_time))) }, about))
}

/// Does not print the URL, which may have a password.
fn cannot_open(error: &StoreError) -> CliError {
    let failure = CliError::failed(format!("cannot open the store on PostgreSQL: {error}"));
    if let StoreError::Format(found) = error {
        return failure.hint(match found {
            FormatError::VirtualTime => "start with --virtual-clock, or use another schema: postgres://…?schema=NAME",
            FormatError::RealTime => "start without --virtual-clock, or use another schema: postgres://…?schema=NAME",
            FormatError::NoStore
            | FormatError::EmptyDatabase
            | FormatError::WalWithoutDatabase
            | FormatError::NotADatabase { .. }
            | FormatError::ForeignDatabase
            | FormatError::Version { .. }
            | FormatError::Backup => "a newer version has migrated the schema: use that version",
        });
    }
    if let StoreError::PermissionDenied(_) = error {
        return failure.hint("`longshore migrate grants ROLE` prints the grants that the role needs");
    }
    failure.hint("use postgres://USER:PASSWORD@HOST:PORT/DATABASE with a user that can create the schema, or run `longshore migrate up` first")
}
