//! The connection pool, and the settings of every session.

use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod, Runtime, Timeouts};
use longshore_store::StoreError;
use tokio_postgres::{Config, NoTls};

use crate::error::error_chain;
use longshore_store::ErrorMessage;

/// Plans must not depend on table statistics: every statement has an index, and reads few rows.
///
/// A node sends the next statement of a transaction within milliseconds. After 2 s without one,
/// PostgreSQL ends the session of a frozen node: its shared lock delays every change of queues. A
/// node that was only slow repeats the transaction on another connection.
pub(crate) const SETTINGS: &str = "-c enable_seqscan=off -c enable_hashjoin=off -c enable_mergejoin=off \
    -c plan_cache_mode=force_generic_plan -c jit=off -c max_parallel_workers_per_gather=0 -c lock_timeout=10s -c idle_in_transaction_session_timeout=2s";
/// The same settings for one transaction.
pub(crate) const SETTINGS_LOCAL: &str = "SET LOCAL enable_seqscan=off; SET LOCAL enable_hashjoin=off; \
    SET LOCAL enable_mergejoin=off; SET LOCAL jit=off; SET LOCAL max_parallel_workers_per_gather=0; SET LOCAL lock_timeout='10s'; \
    SET LOCAL idle_in_transaction_session_timeout='2s'";

/// Longest wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// TCP keepalive and user timeout.
const TCP_TIMEOUT: Duration = Duration::from_secs(10);

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
    config.connect_timeout(CONNECT_TIMEOUT).keepalives_idle(TCP_TIMEOUT).tcp_user_timeout(TCP_TIMEOUT);
    Ok(config)
}

pub(crate) fn pool(config: Config, connections: usize) -> Result<Pool, StoreError> {
    let manager = Manager::from_config(config, NoTls, ManagerConfig { recycling_method: RecyclingMethod::Fast });
    let timeouts =
        Timeouts { wait: Some(CONNECT_TIMEOUT), create: Some(CONNECT_TIMEOUT), recycle: Some(CONNECT_TIMEOUT) };
    let built = Pool::builder(manager).max_size(connections).timeouts(timeouts).runtime(Runtime::Tokio1).build();
    built.map_err(|error| StoreError::not_applied(ErrorMessage(error_chain(&error))))
}

/// Takes a connection from the pool.
pub(crate) async fn take(pool: &Pool) -> Result<Object, ErrorMessage> {
    pool.get().await.map_err(|error| match error {
        PoolError::Timeout(_) => {
            ErrorMessage(format!("no connection to PostgreSQL within {} s", CONNECT_TIMEOUT.as_secs()))
        }
        PoolError::Backend(error) => ErrorMessage(error_chain(&error)),
        other @ (PoolError::Closed | PoolError::NoRuntimeSpecified | PoolError::PostCreateHook(_)) => {
            ErrorMessage(error_chain(&other))
        }
    })
}
