//! Requests about queues.

use longshore_api::queue::{PutQueue, Queue, Queues};

use crate::client::Client;
use crate::error::Error;
use crate::query::segment;

impl Client {
    /// Returns all queues with their counts.
    pub async fn queues(&self) -> Result<Queues, Error> {
        self.get("/v1/queues").await
    }

    pub async fn queue(&self, queue: &str) -> Result<Queue, Error> {
        self.get(&format!("/v1/queues/{}", segment(queue))).await
    }

    /// Creates or changes a queue.
    pub async fn put_queue(&self, queue: &str, put: &PutQueue) -> Result<Queue, Error> {
        self.put(&format!("/v1/queues/{}", segment(queue)), put).await
    }

    /// Stops claims from a queue until it is resumed. Submissions continue.
    pub async fn pause_queue(&self, queue: &str) -> Result<Queue, Error> {
        self.post_empty(&format!("/v1/queues/{}/pause", segment(queue))).await
    }

    pub async fn resume_queue(&self, queue: &str) -> Result<Queue, Error> {
        self.post_empty(&format!("/v1/queues/{}/resume", segment(queue))).await
    }

    /// Deletes a queue. With unfinished jobs it needs `force`, which cancels them.
    pub async fn delete_queue(&self, queue: &str, force: bool) -> Result<(), Error> {
        let force = if force { "?force=true" } else { "" };
        self.delete(&format!("/v1/queues/{}{force}", segment(queue))).await
    }
}
