//! What every command gets: the output and the address of the server.

use std::path::PathBuf;
use std::time::Duration;

use longshore::{Builder, Client};
use serde::{Deserialize, Serialize};

use crate::arguments::DEFAULT_ADDRESS;
use crate::commands::contexts::{self, NamedServer, SecretText};
use crate::terminal::error::CliError;
use crate::terminal::output::Output;

#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) output: Output,
    /// URL of the server.
    pub(crate) server: String,
    /// The token to send; the SDK reads `LONGSHORE_TOKEN` without it.
    token: Option<SecretText>,
    /// Whether the token is that of `--token-file`.
    has_token_file: bool,
    /// Certificates; the SDK reads the variables for those that are missing.
    files: TlsFiles,
}

/// Certificates for a connection, as flags or a named context have them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TlsFiles {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ca_file: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) client_cert: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) client_key: Option<PathBuf>,
}

impl TlsFiles {
    /// Returns the same files for other directories.
    pub(crate) fn absolute(&self) -> std::io::Result<Self> {
        let absolute = |file: &Option<PathBuf>| file.as_ref().map(std::path::absolute).transpose();
        Ok(Self {
            ca_file: absolute(&self.ca_file)?,
            client_cert: absolute(&self.client_cert)?,
            client_key: absolute(&self.client_key)?,
        })
    }

    /// Adds the files of a context. The variables of the environment override them.
    fn or(self, context: Self) -> Self {
        let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let context_ca = context.ca_file.filter(|_| !is_set("LONGSHORE_CA_FILE"));
        let (client_cert, client_key) = match (self.client_cert, is_set("LONGSHORE_CLIENT_CERT")) {
            (None, false) => (context.client_cert, context.client_key),
            (own, _) => (own, self.client_key),
        };
        Self { ca_file: self.ca_file.or(context_ca), client_cert, client_key }
    }
}

/// Flags that choose a server.
#[derive(Debug, Default)]
pub(crate) struct ContextFlags {
    pub(crate) server: Option<String>,
    pub(crate) token_file: Option<PathBuf>,
    pub(crate) files: TlsFiles,
    pub(crate) name: Option<String>,
}

impl Context {
    /// The flag overrides `LONGSHORE_SERVER`, which overrides the named context and the default
    /// address. The token of a context is sent to the server of that context only.
    pub(crate) fn new(flags: ContextFlags, json: bool) -> Result<Self, CliError> {
        let ContextFlags { server, token_file, files, name } = flags;
        let from_environment = || {
            let value = std::env::var_os("LONGSHORE_SERVER").filter(|value| !value.is_empty())?;
            Some(value.to_string_lossy().into_owned())
        };
        // A context that is named on the command line is meant.
        let server = if name.is_some() { server } else { server.or_else(from_environment) };
        let named = match server {
            Some(server) => Some(NamedServer { server, token: None, files: TlsFiles::default() }),
            None => contexts::chosen(name.as_deref())?,
        };
        let default = || format!("http://{DEFAULT_ADDRESS}");
        let (server, kept, files) = match named {
            Some(named) => (named.server, named.token, files.or(named.files)),
            None => (default(), None, files),
        };
        let has_variable = std::env::var_os("LONGSHORE_TOKEN").is_some_and(|token| !token.is_empty());
        let has_token_file = token_file.is_some();
        let token = match token_file {
            Some(path) => Some(contexts::read_token(&path)?),
            None => kept.filter(|_| !has_variable),
        };
        Ok(Self { output: Output::new(json), server, token, has_token_file, files })
    }

    /// Returns the token of `--token-file`.
    pub(crate) fn token_of_file(&self) -> Option<&SecretText> {
        self.token.as_ref().filter(|_| self.has_token_file)
    }

    /// Returns the files of the flags.
    pub(crate) fn tls_files(&self) -> &TlsFiles {
        &self.files
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
        let builder = match &self.token {
            Some(token) => builder.token(&token.0)?,
            None => builder,
        };
        let builder = match &self.files.ca_file {
            Some(file) => builder.ca_file(file),
            None => builder,
        };
        let builder = match (&self.files.client_cert, &self.files.client_key) {
            (Some(certificate), Some(key)) => builder.client_certificate(certificate, key),
            (None, _) | (_, None) => builder,
        };
        builder.build(&self.server).map_err(|error| {
            CliError::failed(error.to_string()).hint("use --server http://127.0.0.1:7070, or LONGSHORE_SERVER")
        })
    }

    /// Runs requests to a server on a new single-threaded runtime.
    pub(crate) fn call<T>(&self, work: impl Future<Output = Result<T, CliError>>) -> Result<T, CliError> {
        tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
    }
}
