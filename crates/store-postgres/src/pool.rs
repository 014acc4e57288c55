//! Connections: how they are made, and what every session is told.

use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod, Runtime, Timeouts};
use longshore_store::StoreError;
use tokio_postgres::{Config, NoTls};

use crate::error::error_chain;
use longshore_store::ErrorMessage;

/// Plans that do not depend on what the tables held when they were made: everything we ask for has an index, and is too little to be shared out.
///
/// A node sends the next statement of a transaction within milliseconds. After 2 s without one the node is frozen or gone, and PostgreSQL ends the session:
/// its transaction holds the shared lock that every change of queues waits for. A node that was only slow repeats the transaction on another connection.
pub(crate) const SETTINGS: &str = "-c enable_seqscan=off -c enable_hashjoin=off -c enable_mergejoin=off \
    -c plan_cache_mode=force_generic_plan -c jit=off -c max_parallel_workers_per_gather=0 -c lock_timeout=10s -c idle_in_transaction_session_timeout=2s";
/// The same for one transaction.
pub(crate) const SETTINGS_LOCAL: &str = "SET LOCAL enable_seqscan=off; SET LOCAL enable_hashjoin=off; \
    SET LOCAL enable_mergejoin=off; SET LOCAL jit=off; SET LOCAL max_parallel_workers_per_gather=0; SET LOCAL lock_timeout='10s'; \
    SET LOCAL idle_in_transaction_session_timeout='2s'";

/// How long anybody waits for a connection.
const PATIENCE: Duration = Duration::from_secs(10);
/// After so long without a word the other end is given up.
const SILENCE: Duration = Duration::from_secs(10);

pub(crate) fn config(url: &str, sends_settings: bool) -> Result<Config, StoreError> {
    let mut config: Config = url
        .parse()
        .map_err(|error: tokio_postgres::Error| StoreError::not_applied(ErrorMessage(error_chain(&error))))?;
    if sends_settings {
        let options = config.get_options().map_or_else(|| SETTINGS.to_owned(), |own| format!("{SETTINGS} {own}"));
        config.options(options);
    }
    if config.get_application_name().is_none() {
        config.application_name("longshore");
    }
    config.connect_timeout(PATIENCE).keepalives_idle(SILENCE).tcp_user_timeout(SILENCE);
    Ok(config)
}

pub(crate) fn pool(config: Config, connections: usize) -> Result<Pool, StoreError> {
    let manager = Manager::from_config(config, NoTls, ManagerConfig { recycling_method: RecyclingMethod::Fast });
    let timeouts = Timeouts { wait: Some(PATIENCE), create: Some(PATIENCE), recycle: Some(PATIENCE) };
    let built = Pool::builder(manager).max_size(connections).timeouts(timeouts).runtime(Runtime::Tokio1).build();
    built.map_err(|error| StoreError::not_applied(ErrorMessage(error_chain(&error))))
}

/// A connection from the pool.
pub(crate) async fn take(pool: &Pool) -> Result<Object, ErrorMessage> {
    pool.get().await.map_err(|error| match error {
        PoolError::Timeout(_) => ErrorMessage(format!("no connection to PostgreSQL within {} s", PATIENCE.as_secs())),
        PoolError::Backend(error) => ErrorMessage(error_chain(&error)),
        other @ (PoolError::Closed | PoolError::NoRuntimeSpecified | PoolError::PostCreateHook(_)) => {
            ErrorMessage(error_chain(&other))
        }
    })
}
