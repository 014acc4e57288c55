//! Requests about durable operations.

use longshore_api::operation::{BulkOperation, NewOperation, OperationStarted, Operations};

use crate::client::Client;
use crate::error::Error;
use crate::query::segment;

impl Client {
    /// Starts a durable operation on all jobs that match a filter.
    pub async fn start_operation(&self, new: &NewOperation) -> Result<OperationStarted, Error> {
        self.post("/v1/operations", new).await
    }

    /// Returns a page of operations, newest first. `cursor` is `next` of the previous page.
    pub async fn operations(&self, limit: usize, cursor: Option<&str>) -> Result<Operations, Error> {
        let cursor = cursor.map(|cursor| format!("&cursor={}", segment(cursor))).unwrap_or_default();
        self.get(&format!("/v1/operations?limit={limit}{cursor}")).await
    }

    pub async fn operation(&self, id: &str) -> Result<BulkOperation, Error> {
        self.get(&path(id)).await
    }

    /// Treats the rest of an operation after its canary.
    pub async fn continue_operation(&self, id: &str) -> Result<BulkOperation, Error> {
        self.post_empty(&format!("{}/continue", path(id))).await
    }

    /// Stops an operation after its present slice.
    pub async fn stop_operation(&self, id: &str) -> Result<BulkOperation, Error> {
        self.post_empty(&format!("{}/stop", path(id))).await
    }

    /// Takes back what a cancel or requeue has changed in the last 5 minutes.
    pub async fn undo_operation(&self, id: &str) -> Result<BulkOperation, Error> {
        self.post_empty(&format!("{}/undo", path(id))).await
    }
}

fn path(id: &str) -> String {
    format!("/v1/operations/{}", segment(id))
}
