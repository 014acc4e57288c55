//! The outbox: deliveries to webhook endpoints and callback URLs, written in the commit of the
//! transition that causes them.
//!
//! - [`Subscriptions`]: which endpoints want which transitions
//! - [`Delivery`]: one message to one receiver, with a snapshot of the job and the log of attempts
//! - [`DeliveryKey`]: where its records are stored
//!
//! A delivery has three records: itself, its entry by due time, and its entry by endpoint.

mod bytes;
mod delivery;
mod subscription;

pub use delivery::{ATTEMPTS_KEPT, Delivery, DeliveryAttempt, DeliveryKey, OutboxFormatError};
pub use subscription::{CALLBACKS, EndpointRecord, EventSet, QueuePattern, Subscriptions};

use std::sync::Arc;

use longshore_core::job::Job;
use longshore_core::target_url::host_of;
use longshore_core::webhook::{DeliveryState, WebhookEvent};

use crate::context::{CommandContext, CommandError};
use crate::records::JobRecords;
use crate::system::SystemKind;

impl<R: JobRecords> CommandContext<'_, R> {
    /// Writes the deliveries that the last verb owes: one for each endpoint that has subscribed to
    /// the job's new terminal state, and one for its callback URL.
    ///
    /// Without endpoints and callback URL this costs two comparisons.
    pub(crate) fn write_deliveries(&mut self, job: &Job) -> Result<(), CommandError<R::Error>> {
        if job.callback_url.is_none() && self.engine.subscriptions.is_empty() {
            return Ok(());
        }
        let Some(step) = self.transitions.iter().rev().find(|step| step.to.terminal()) else { return Ok(()) };
        let Some(event) = WebhookEvent::of_state(job.kind()) else { return Ok(()) };
        let at = step.at;
        let subscriptions = Arc::clone(&self.engine.subscriptions);
        let endpoints = subscriptions.matching(event, &job.queue).map(|name| (name, None));
        let callback = job.callback_url.as_ref().map(|url| (CALLBACKS, Some(url)));
        let mut snapshot: Option<Vec<u8>> = None;
        for (endpoint, url) in endpoints.chain(callback) {
            let snapshot = snapshot.get_or_insert_with(|| self.records.encode_snapshot(job)).clone();
            let key = DeliveryKey::of_transition(job, endpoint, at);
            let delivery = Delivery {
                endpoint: endpoint.into(),
                url: url.map(Arc::clone),
                event,
                job: Some(job.id),
                at,
                state: DeliveryState::Pending,
                planned_attempts: 0,
                next_at: Some(at),
                ended_at: None,
                attempts: Vec::new(),
                snapshot,
            };
            let lane = url.map_or_else(|| endpoint.to_owned(), |url| format!("/{}", host_of(url)));
            let entries = [
                (SystemKind::Delivery, key.as_bytes().to_vec(), delivery.encode()),
                (SystemKind::DueDelivery, key.due_key(at), lane.into_bytes()),
                (SystemKind::EndpointDelivery, key.endpoint_key(endpoint, at), Vec::new()),
            ];
            for (kind, key, value) in entries {
                self.records.put_system(kind, key, value).map_err(CommandError::Storage)?;
            }
        }
        Ok(())
    }
}
