//! TLS of the server: reads the certificate, and reads it again on SIGHUP.

use std::io::{self, IsTerminal};
use std::sync::Arc;

use longshore_tls::{ServerTls, ServerTlsFiles};
use tokio::signal::unix::{SignalKind, signal};

use crate::terminal::error::CliError;

/// Reads the certificate; `None` without one.
pub(super) fn load(files: Option<ServerTlsFiles>) -> Result<Option<Arc<ServerTls>>, CliError> {
    let Some(files) = files else { return Ok(None) };
    let tls = ServerTls::load(files).map_err(|error| {
        CliError::failed(error.to_string()).hint("--tls-cert and --tls-key name files in PEM form that belong together")
    })?;
    Ok(Some(Arc::new(tls)))
}

/// Handles SIGHUP: the certificate is read again.
///
/// A server without TLS ignores it. On a terminal it still ends with its terminal.
pub(super) fn reload_on_hangup(tls: Option<Arc<ServerTls>>) -> io::Result<()> {
    if tls.is_none() && io::stderr().is_terminal() {
        return Ok(());
    }
    let mut hangup = signal(SignalKind::hangup())?;
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            match tls.as_ref().map(|tls| tls.reload()) {
                None => tracing::info!("SIGHUP: there is no certificate to read again"),
                Some(Ok(())) => tracing::info!("SIGHUP: new connections use the certificate as it is now"),
                Some(Err(error)) => {
                    tracing::error!(%error, "SIGHUP: the certificate is not used; the server keeps the old one");
                }
            }
        }
    });
    Ok(())
}
