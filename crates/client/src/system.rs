//! Requests about the server: health, statistics, workers, clock.

use longshore_api::Duration;
use longshore_api::system::{Advance, Clock, Health, Info, Stats, Workers};

use crate::client::Client;
use crate::error::Error;

impl Client {
    /// Checks that the process responds.
    pub async fn livez(&self) -> Result<Health, Error> {
        self.get("/livez").await
    }

    /// Checks that the server is ready: its store responds, and it is not shutting down.
    pub async fn readyz(&self) -> Result<Health, Error> {
        self.get("/readyz").await
    }

    pub async fn info(&self) -> Result<Info, Error> {
        self.get("/v1/info").await
    }

    pub async fn stats(&self) -> Result<Stats, Error> {
        self.get("/v1/stats").await
    }

    pub async fn workers(&self) -> Result<Workers, Error> {
        self.get("/v1/workers").await
    }

    /// Returns the time of a server with a virtual clock.
    pub async fn clock(&self) -> Result<Clock, Error> {
        self.get("/v1/clock").await
    }

    /// Advances the virtual clock.
    pub async fn advance(&self, by: Duration) -> Result<Clock, Error> {
        self.post("/v1/clock/advance", &Advance { by }).await
    }
}
