//! Requests about webhooks: endpoints and deliveries.

use longshore_api::webhook::{PutWebhook, Webhook, WebhookDeliveries, WebhookDelivery, WebhookList};

use crate::client::Client;
use crate::error::Error;
use crate::query::segment;

fn path(name: &str) -> String {
    format!("/v1/webhooks/{}", segment(name))
}

impl Client {
    /// Returns all endpoints by name.
    pub async fn webhooks(&self) -> Result<WebhookList, Error> {
        self.get("/v1/webhooks").await
    }

    pub async fn webhook(&self, name: &str) -> Result<Webhook, Error> {
        self.get(&path(name)).await
    }

    /// Creates or replaces an endpoint. The response that creates it has its secret.
    pub async fn put_webhook(&self, name: &str, put: &PutWebhook) -> Result<Webhook, Error> {
        self.put(&path(name), put).await
    }

    /// Deletes an endpoint. Its pending deliveries fail.
    pub async fn delete_webhook(&self, name: &str) -> Result<(), Error> {
        self.delete(&path(name)).await
    }

    /// Returns an endpoint with a new secret. The old one signs too for 24 hours.
    pub async fn rotate_webhook(&self, name: &str) -> Result<Webhook, Error> {
        self.post_empty(&format!("{}/rotate", path(name))).await
    }

    /// Sends `webhook.test` to an endpoint, once.
    pub async fn test_webhook(&self, name: &str) -> Result<WebhookDelivery, Error> {
        self.post_empty(&format!("{}/test", path(name))).await
    }

    /// Returns deliveries to an endpoint, newest first. `cursor` is `next` of the previous page.
    pub async fn webhook_deliveries(
        &self,
        name: &str,
        limit: usize,
        cursor: Option<&str>,
    ) -> Result<WebhookDeliveries, Error> {
        let cursor = cursor.map(|cursor| format!("&cursor={}", segment(cursor))).unwrap_or_default();
        self.get(&format!("{}/deliveries?limit={limit}{cursor}", path(name))).await
    }

    /// Returns deliveries about a job, oldest first.
    pub async fn job_deliveries(&self, id: &str) -> Result<WebhookDeliveries, Error> {
        self.get(&format!("/v1/jobs/{}/deliveries", segment(id))).await
    }

    /// Attempts a delivery again, with the same `webhook-id`.
    pub async fn redeliver(&self, id: &str) -> Result<WebhookDelivery, Error> {
        self.post_empty(&format!("/v1/deliveries/{}/redeliver", segment(id))).await
    }
}
