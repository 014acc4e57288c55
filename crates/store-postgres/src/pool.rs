//! The connection pool, and the settings of every session.

use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod, Runtime, Timeouts};
use longshore_store::StoreError;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::{Client, Config, Connection, Socket};

use crate::error::error_chain;
use crate::tls::{EncryptedSocket, PostgresTls, TlsParameters};
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

/// How connections are opened.
#[derive(Clone, Debug)]
pub(crate) struct ConnectSettings {
    pub(crate) config: Config,
    tls: PostgresTls,
}

impl ConnectSettings {
    /// Opens a connection outside of the pool.
    pub(crate) async fn connect(&self) -> Result<(Client, Connection<Socket, EncryptedSocket>), tokio_postgres::Error> {
        self.config.connect(self.tls.clone()).await
    }
}

/// Reads a URL, and the certificates that it names.
pub(crate) fn settings(url: &str, sends_settings: bool) -> Result<ConnectSettings, StoreError> {
    let (url, tls) = TlsParameters::take_from(url)?;
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
    config.ssl_mode(tls.mode.unwrap_or_else(|| config.get_ssl_mode()));
    if config.get_hosts().is_empty() {
        // TLS needs a name: that of an address is the address.
        for address in config.get_hostaddrs().to_vec() {
            config.host(address.to_string());
        }
    }
    check_sockets(&config, &tls)?;
    Ok(ConnectSettings { config, tls: tls.connector()? })
}

/// Refuses TLS over a Unix socket, which PostgreSQL does not offer.
fn check_sockets(config: &Config, tls: &TlsParameters) -> Result<(), StoreError> {
    let is_socket = |host: &Host| matches!(host, Host::Unix(_));
    if tls.mode == Some(SslMode::Require) && config.get_hosts().iter().any(is_socket) {
        let what = "PostgreSQL has no TLS over Unix sockets (remove sslmode, or name a host)";
        return Err(StoreError::not_applied(ErrorMessage(what.to_owned())));
    }
    Ok(())
}

pub(crate) fn pool(settings: ConnectSettings, connections: usize) -> Result<Pool, StoreError> {
    let ConnectSettings { config, tls } = settings;
    let manager = Manager::from_config(config, tls, ManagerConfig { recycling_method: RecyclingMethod::Fast });
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
