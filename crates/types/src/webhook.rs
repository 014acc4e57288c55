//! What a webhook delivery reports, and what has become of it.

use crate::lifecycle::StateKind;
use crate::string_enum::wire_enum;

wire_enum!(
    /// What a delivery reports.
    WebhookEvent {
        Completed = "job.completed",
        Failed = "job.failed",
        DeadLetter = "job.dead_letter",
        Cancelled = "job.cancelled",
        /// Sent on request of an operator; no endpoint can subscribe to it.
        Test = "webhook.test",
    }
);

impl WebhookEvent {
    /// The events that an endpoint can subscribe to.
    pub const OF_JOBS: [Self; 4] = [Self::Completed, Self::Failed, Self::DeadLetter, Self::Cancelled];

    /// Returns the event of a job that has entered this state, if the state is terminal.
    pub fn of_state(state: StateKind) -> Option<Self> {
        match state {
            StateKind::Completed => Some(Self::Completed),
            StateKind::Failed => Some(Self::Failed),
            StateKind::DeadLetter => Some(Self::DeadLetter),
            StateKind::Cancelled => Some(Self::Cancelled),
            StateKind::Pending
            | StateKind::Scheduled
            | StateKind::Delayed
            | StateKind::Running
            | StateKind::Retrying => None,
        }
    }
}

wire_enum!(
    /// What has become of a delivery.
    DeliveryState {
        /// An attempt is due now or later.
        Pending = "pending",
        Delivered = "delivered",
        /// No further attempt follows, unless an operator asks for one.
        Failed = "failed",
    }
);
