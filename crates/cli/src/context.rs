//! What every command is given.

use longshore_client::Client;

use crate::terminal::failure::Failure;
use crate::terminal::screen::Screen;

#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) screen: Screen,
    /// The server's address.
    pub(crate) server: String,
}

impl Context {
    pub(crate) fn new(server: String, json: bool) -> Self {
        Self { screen: Screen::new(json), server }
    }

    /// Nothing is sent yet.
    pub(crate) fn client(&self) -> Result<Client, Failure> {
        Client::new(&self.server).map_err(|error| {
            Failure::failed(error.to_string()).hint("--server http://127.0.0.1:7070, or LONGSHORE_SERVER")
        })
    }

    /// Runs calls to a server to their end.
    pub(crate) fn call<T>(&self, work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
        tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
    }
}
