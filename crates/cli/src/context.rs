//! What every command gets: the output and the address of the server.

use std::time::Duration;

use longshore::{Builder, Client};

use crate::arguments::DEFAULT_ADDRESS;
use crate::terminal::error::CliError;
use crate::terminal::output::Output;

#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) output: Output,
    /// URL of the server.
    pub(crate) server: String,
}

impl Context {
    /// The flag overrides `LONGSHORE_SERVER`, which overrides the default address.
    pub(crate) fn new(server: Option<String>, json: bool) -> Self {
        let from_environment = || {
            let value = std::env::var_os("LONGSHORE_SERVER").filter(|value| !value.is_empty())?;
            Some(value.to_string_lossy().into_owned())
        };
        let server = server.or_else(from_environment).unwrap_or_else(|| format!("http://{DEFAULT_ADDRESS}"));
        Self { output: Output::new(json), server }
    }

    /// Returns a client; connects with the first request.
    pub(crate) fn client(&self) -> Result<Client, CliError> {
        self.build(Client::builder())
    }

    /// Returns a client with this timeout for connecting and for responses.
    pub(crate) fn client_with_timeout(&self, timeout: Duration) -> Result<Client, CliError> {
        self.build(Client::builder().connect_timeout(timeout).timeout(timeout))
    }

    fn build(&self, builder: Builder) -> Result<Client, CliError> {
        builder.build(&self.server).map_err(|error| {
            CliError::failed(error.to_string()).hint("use --server http://127.0.0.1:7070, or LONGSHORE_SERVER")
        })
    }

    /// Runs requests to a server on a new single-threaded runtime.
    pub(crate) fn call<T>(&self, work: impl Future<Output = Result<T, CliError>>) -> Result<T, CliError> {
        tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
    }
}
