//! The store on PostgreSQL.

use std::sync::Arc;

use longshore_core::Duration;
use longshore_server::{SaveVirtualTime, ServerClock};
use longshore_store::{Clock, FormatError, StoreError, SystemClock, VirtualClock};
use longshore_store_postgres::{PostgresOptions, PostgresStore, migrate};
use tokio::runtime::Handle;

use super::options::{Address, ServeConfig};
use super::{Opened, about};
use crate::terminal::error::CliError;

pub(super) async fn open(plan: &ServeConfig, address: &Address) -> Result<Opened, CliError> {
    let mut options = PostgresOptions::from_url(&address.0).map_err(|error| cannot_open(&error))?;
    options.engine.default_profile = plan.default_profile;
    options.engine.auto_queues = plan.auto_queues;
    let about = about("postgres", "an answer means that PostgreSQL has committed it, as its synchronous_commit says");
    if !plan.virtual_clock {
        // On the threads of the server: on others every answer would have to wake one of these first.
        let store = PostgresStore::start(options, Handle::current()).await;
        return Ok((Arc::new(store.map_err(|error| cannot_open(&error))?), ServerClock::Real, about));
    }
    let stands = migrate::virtual_now(&options.url, &options.schema).await.map_err(|error| cannot_open(&error))?;
    let clock = Arc::new(VirtualClock::new(stands.unwrap_or_else(|| SystemClock::new().now())));
    options.clock = Some(Arc::<VirtualClock>::clone(&clock));
    // Nobody else can know what time it is; and nothing may be later than that time says.
    options.exclusive = true;
    options.retention_slack = Duration::ZERO;
    let store = tokio::task::block_in_place(|| PostgresStore::open(options));
    let store = Arc::new(store.map_err(|error| cannot_open(&error))?);
    let keeper = Arc::downgrade(&store);
    let keep = move |now| match keeper.upgrade() {
        Some(store) => store.save_virtual_time(now).map_err(std::io::Error::other),
        None => Ok(()),
    };
    Ok((store, ServerClock::Virtual { clock, save: Some(SaveVirtualTime(Arc::new(keep))) }, about))
}

/// The address is not repeated: it may hold a password.
fn cannot_open(error: &StoreError) -> CliError {
    let failure = CliError::failed(format!("cannot open the store on PostgreSQL: {error}"));
    if let StoreError::Format(found) = error {
        return failure.hint(match found {
            FormatError::VirtualTime => {
                "start it with --virtual-clock, or give another schema: postgres://…?schema=NAME"
            }
            FormatError::RealTime => {
                "start it without --virtual-clock, or give another schema: postgres://…?schema=NAME"
            }
            FormatError::NoStore
            | FormatError::EmptyDatabase
            | FormatError::WalWithoutDatabase
            | FormatError::NotADatabase { .. }
            | FormatError::ForeignDatabase
            | FormatError::Version { .. }
            | FormatError::Backup => "a newer program has been here: start that one",
        });
    }
    if let StoreError::PermissionDenied(_) = error {
        return failure.hint("`longshore migrate grants ROLE` prints what a role needs that only runs servers");
    }
    failure.hint("postgres://USER:PASSWORD@HOST:PORT/DATABASE, where that user may create a schema or uses one that `longshore migrate up` made")
}
