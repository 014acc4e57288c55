//! One attempt of a delivery: the message, its signature, and what follows the response.

use std::sync::Arc;

use longshore_api::Time;
use longshore_core::Duration;
use longshore_core::webhook::{DeliveryState, WebhookEvent};
use longshore_engine::{CALLBACKS, Delivery, DeliveryAttempt};
use longshore_store::StoreError;
use longshore_store::clock::monotonic;
use longshore_webhooks::client::Message;
use longshore_webhooks::outcome::{AttemptResult, AttemptVerdict, DeliveryFailure};
use longshore_webhooks::plan;
use longshore_webhooks::sign::signatures;
use serde::Serialize;

use super::deliveries::HeldDelivery;
use super::endpoint::{self, Endpoint};
use crate::convert::time;
use crate::routes::jobs::record::record_of;
use crate::state::AppState;
use crate::wire::problem::ApiError;

/// The body of a message.
#[derive(Serialize)]
struct MessageBody<T> {
    #[serde(rename = "type")]
    event: WebhookEvent,
    timestamp: Time,
    data: T,
}

/// The data of a test.
#[derive(Serialize)]
struct TestData<'a> {
    webhook: &'a str,
}

/// Why a delivery cannot be attempted: a text for its log.
type Unsendable = &'static str;

/// The snapshot has a format that this server does not know.
const UNREADABLE: Unsendable = "record_unreadable";

/// Attempts a delivery and writes what follows into it.
pub(super) async fn run(app: &AppState, held: &mut HeldDelivery) -> Result<(), StoreError> {
    let endpoint = receiver(app, &held.delivery).await?;
    let started = monotonic();
    let at = app.now();
    let (result, url) = match endpoint {
        Err(reason) => (Err(reason), String::new()),
        Ok(endpoint) => {
            let url = held.delivery.url.as_deref().unwrap_or(&endpoint.url).to_owned();
            let id = held.key.to_string();
            match body(app, &held.delivery).await? {
                Some(body) => (Ok(send(app, &endpoint, &url, id, body).await), url),
                None => (Err(UNREADABLE), url),
            }
        }
    };
    let duration = monotonic().saturating_sub(started).as_millis();
    let (status, error) = match &result {
        Ok(result) => (result.status(), result.error()),
        Err(reason) => (None, Some(*reason)),
    };
    held.delivery.log(DeliveryAttempt {
        at,
        status,
        error: error.map(Arc::from),
        duration_ms: u32::try_from(duration).unwrap_or(u32::MAX),
    });
    let verdict = match result {
        Ok(result) => result.verdict(),
        // A newer server of the fleet may be able to read it.
        Err(UNREADABLE) => AttemptVerdict::Retry { retry_after: None },
        Err(_) => AttemptVerdict::Final,
    };
    if verdict == AttemptVerdict::Gone && held.delivery.url.is_none() {
        endpoint::disable_gone(&*app.store, &held.delivery.endpoint, &url).await?;
    }
    apply(app, &mut held.delivery, verdict);
    Ok(())
}

/// Returns the endpoint whose secret signs, if a message may be sent.
async fn receiver(app: &AppState, delivery: &Delivery) -> Result<Result<Endpoint, Unsendable>, StoreError> {
    let store = &*app.store;
    let found = match &*delivery.endpoint {
        CALLBACKS => endpoint::callbacks(store).await?,
        name => endpoint::find(store, name).await?,
    };
    Ok(match found {
        Some(endpoint) if endpoint.enabled => Ok(endpoint),
        Some(_) => Err("endpoint_disabled"),
        None => Err("endpoint_deleted"),
    })
}

/// Returns the body, or `None` if the snapshot is unreadable.
///
/// The actions of the record depend on the present queue and dependencies. If the store cannot read
/// these, the delivery is attempted again after its lease: it has not failed.
async fn body(app: &AppState, delivery: &Delivery) -> Result<Option<Vec<u8>>, StoreError> {
    let (event, timestamp) = (delivery.event, time(delivery.at));
    let body = match event {
        WebhookEvent::Test => {
            let data = TestData { webhook: &delivery.endpoint };
            serde_json::to_vec(&MessageBody { event, timestamp, data })
        }
        WebhookEvent::Completed | WebhookEvent::Failed | WebhookEvent::DeadLetter | WebhookEvent::Cancelled => {
            let Ok(job) = longshore_codec::snapshot::decode(&delivery.snapshot) else { return Ok(None) };
            let unread =
                |error: ApiError| StoreError::not_applied(std::io::Error::other(error.problem().detail.clone()));
            let data = record_of(app, Arc::new(job)).await.map_err(unread)?;
            serde_json::to_vec(&MessageBody { event, timestamp, data })
        }
    };
    Ok(body.ok())
}

async fn send(app: &AppState, endpoint: &Endpoint, url: &str, id: String, body: Vec<u8>) -> AttemptResult {
    let Some(client) = &app.webhooks.client else { return AttemptResult::Failure(DeliveryFailure::TlsFailed) };
    let timestamp = app.webhooks.real_now().as_millis().div_euclid(1_000);
    let signature = signatures(endpoint.secrets(app.now()), &id, timestamp, &body);
    client.send(url, &Message { id, timestamp, signature, body: body.into() }).await
}

/// Changes the state of a delivery after an attempt.
fn apply(app: &AppState, delivery: &mut Delivery, verdict: AttemptVerdict) {
    let now = app.now();
    delivery.planned_attempts = delivery.planned_attempts.saturating_add(1);
    let delay = match verdict {
        // A test is for an operator who looks at its result: it is sent once.
        AttemptVerdict::Retry { retry_after } if delivery.event != WebhookEvent::Test => {
            plan::delay_after(delivery.planned_attempts, retry_after, app.webhooks.random())
        }
        AttemptVerdict::Retry { .. } | AttemptVerdict::Delivered | AttemptVerdict::Final | AttemptVerdict::Gone => None,
    };
    let millis = delay.map(|delay| u64::try_from(delay.as_millis()).unwrap_or(u64::MAX));
    delivery.next_at = millis.map(|millis| now + Duration::from_millis(millis));
    if delivery.next_at.is_none() {
        let is_delivered = verdict == AttemptVerdict::Delivered;
        delivery.state = if is_delivered { DeliveryState::Delivered } else { DeliveryState::Failed };
        delivery.ended_at = Some(now);
    }
}
