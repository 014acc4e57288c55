//! Sends heartbeats while a program runs.

use std::sync::Arc;
use std::time::Duration;

use longshore::Client;
use longshore::monotonic;
use longshore_api::ErrorCode;
use longshore_api::work::{ClaimedJob, Heartbeat};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::connectivity::Connectivity;

/// Longest time between two heartbeats: cancel requests arrive with their responses.
const INTERVAL_MAX: Duration = Duration::from_secs(10);
const INTERVAL_MIN: Duration = Duration::from_millis(50);

/// Event that stops the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeaseEvent {
    CancelRequested,
    /// The server has refused the lease, or it may have expired.
    Lost,
}

pub(super) struct LeaseKeeper {
    client: Client,
    id: String,
    token: String,
    /// Length of the lease. `None` if it is unknown or has no expiry: only a refusal ends it then.
    lease: Option<Duration>,
    /// Until then no other worker can get the job.
    valid_until: Option<Instant>,
    next: Instant,
    cancel_reported: bool,
    lost: bool,
    connectivity: Arc<Connectivity>,
}

impl LeaseKeeper {
    pub(super) fn new(
        client: &Client,
        job: &ClaimedJob,
        lease: Option<Duration>,
        claimed_at: Duration,
        connectivity: &Arc<Connectivity>,
    ) -> Self {
        let mut keeper = Self {
            client: client.clone(),
            id: job.id.clone(),
            token: job.lease.token.clone(),
            lease,
            valid_until: None,
            next: Instant::now(),
            cancel_reported: false,
            lost: false,
            connectivity: Arc::clone(connectivity),
        };
        let since = monotonic().saturating_sub(claimed_at);
        keeper.on_renewed(Instant::now().checked_sub(since).unwrap_or_else(Instant::now));
        keeper
    }

    /// Extends the lease. `sent` is when the request was sent: the server's lease starts later.
    fn on_renewed(&mut self, sent: Instant) {
        // A tenth of the lease is a margin for clock drift and for stopping the program.
        self.valid_until = self.lease.map(|lease| sent + lease - lease / 10);
        self.next = sent + self.interval();
    }

    fn interval(&self) -> Duration {
        self.lease.map_or(INTERVAL_MAX, |lease| (lease / 3).clamp(INTERVAL_MIN, INTERVAL_MAX))
    }

    /// Sends heartbeats until there is an event. Cancel safe.
    pub(super) async fn next(&mut self) -> LeaseEvent {
        loop {
            if self.lost {
                std::future::pending::<()>().await;
            }
            sleep_until(self.next).await;
            let sent = Instant::now();
            // If this future is dropped during the request, the next heartbeat is on time.
            self.next = sent + self.interval();
            let deadline = self.valid_until.unwrap_or(sent + INTERVAL_MAX).max(sent);
            let heartbeat = Heartbeat { lease: Some(self.token.clone()), ..Heartbeat::default() };
            let response = timeout_at(deadline, self.client.heartbeat(&self.id, &heartbeat)).await;
            match &response {
                Ok(response) => self.connectivity.observe(response),
                Err(_) => self.connectivity.lost("no response to a heartbeat"),
            }
            match response {
                Ok(Ok(extended)) => {
                    self.on_renewed(sent);
                    if extended.cancel_requested && !self.cancel_reported {
                        self.cancel_reported = true;
                        return LeaseEvent::CancelRequested;
                    }
                }
                Ok(Err(error)) if is_lost(error.code()) => {
                    self.lost = true;
                    return LeaseEvent::Lost;
                }
                // The lease may still be valid: retry sooner.
                Ok(Err(_)) | Err(_) => self.next = Instant::now() + (self.interval() / 4).max(INTERVAL_MIN),
            }
            if self.valid_until.is_some_and(|until| Instant::now() >= until) {
                self.lost = true;
                return LeaseEvent::Lost;
            }
        }
    }
}

/// Whether a code means that this worker no longer has the lease.
fn is_lost(code: Option<ErrorCode>) -> bool {
    matches!(code, Some(ErrorCode::StaleLease | ErrorCode::JobNotFound | ErrorCode::IllegalTransition))
}
