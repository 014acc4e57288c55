//! Webhooks: endpoints that subscribe to ends of jobs, and deliveries to them.

use serde::{Deserialize, Serialize};

use crate::enums::{DeliveryState, WebhookEvent};
use crate::time::Time;

/// Creates or replaces an endpoint: `PUT /v1/webhooks/{name}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct PutWebhook {
    /// Receiver of the messages: http or https, at most 2,048 characters, without user info and
    /// fragment.
    pub url: String,
    /// Events that are sent: `job.completed`, `job.failed`, `job.dead_letter`, `job.cancelled`.
    /// Absent: all four.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<Vec<String>>,
    /// Queues whose jobs are reported: names, or prefixes that end in `*`. Absent: all queues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queues: Option<Vec<String>>,
    /// Whether the endpoint gets deliveries. Absent: as before, and true for a new endpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
}

/// An endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Webhook {
    /// Name of the endpoint.
    pub name: String,
    /// Receiver of the messages; `null` for the reserved endpoint `callbacks`.
    pub url: Option<String>,
    /// Events that are sent.
    pub events: Vec<WebhookEvent>,
    /// Queues whose jobs are reported.
    pub queues: Vec<String>,
    /// Whether the endpoint gets deliveries.
    pub enabled: bool,
    /// Why the server has disabled the endpoint: `gone` after a response of 410, else `null`.
    pub disabled_reason: Option<String>,
    /// Time of the first PUT.
    pub created_at: Time,
    /// Time of the last change.
    pub updated_at: Time,
    /// Until when the secret before the last rotation signs too; `null` if it does not.
    pub previous_secret_until: Option<Time>,
    /// The secret, `whsec_` and base64. Shown once, when it is created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
}

/// Endpoints by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct WebhookList {
    /// The endpoints, without the reserved one.
    pub webhooks: Vec<Webhook>,
}

/// One message to one receiver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct WebhookDelivery {
    /// Id of the delivery, which is also its `webhook-id`.
    pub id: String,
    /// The job; `null` for a test.
    pub job: Option<String>,
    /// Endpoint; `callbacks` for the callback URL of a job.
    pub webhook: String,
    /// Receiver; `null` if the endpoint was deleted.
    pub url: Option<String>,
    /// What is reported.
    pub event: WebhookEvent,
    /// `pending`, `delivered` or `failed`.
    pub state: DeliveryState,
    /// When the event happened.
    pub created_at: Time,
    /// Attempts, oldest first; the last 50 are kept.
    pub attempts: Vec<WebhookAttempt>,
    /// When the next attempt is due; `null` if none follows.
    pub next_at: Option<Time>,
}

/// One attempt of a delivery.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct WebhookAttempt {
    /// When it began.
    pub at: Time,
    /// Status of the response; `null` without one.
    pub status: Option<u16>,
    /// Why it failed, for example `timeout` or `address_not_allowed`; `null` for a success.
    pub error: Option<String>,
    /// How long it took.
    pub duration_ms: u32,
}

/// A page of deliveries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct WebhookDeliveries {
    /// The deliveries: of a job oldest first, of an endpoint newest first.
    pub deliveries: Vec<WebhookDelivery>,
    /// Cursor of the next page; `null` on the last one.
    pub next: Option<String>,
}
