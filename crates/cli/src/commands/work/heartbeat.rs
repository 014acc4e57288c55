//! Heartbeats while a program runs, and what they tell.

use std::sync::Arc;
use std::time::Duration;

use longshore_api::ErrorCode;
use longshore_api::work::{ClaimedJob, Heartbeat};
use longshore_client::Client;
use longshore_store::clock::monotonic;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::connectivity::Connectivity;

/// Cancels are heard of by heartbeats: they are never further apart than this.
const INTERVAL_MAX: Duration = Duration::from_secs(10);
const APART_LEAST: Duration = Duration::from_millis(50);

/// What a heartbeat brought that somebody has to act upon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeaseEvent {
    CancelRequested,
    /// The lease is not ours any more, or cannot be believed to be.
    Lost,
}

pub(super) struct LeaseKeeper {
    client: Client,
    id: String,
    token: String,
    /// Unknown, or without end: then only the server can tell that it is lost.
    lease: Option<Duration>,
    /// Until then nobody else can have the job.
    valid_until: Option<Instant>,
    next: Instant,
    cancel_told: bool,
    over: bool,
    connectivity: Arc<Connectivity>,
}

impl LeaseKeeper {
    pub(super) fn new(
        client: &Client,
        job: &ClaimedJob,
        lease: Option<Duration>,
        asked_at: Duration,
        connectivity: &Arc<Connectivity>,
    ) -> Self {
        let mut pulse = Self {
            client: client.clone(),
            id: job.id.clone(),
            token: job.lease.token.clone(),
            lease,
            valid_until: None,
            next: Instant::now(),
            cancel_told: false,
            over: false,
            connectivity: Arc::clone(connectivity),
        };
        let since = monotonic().saturating_sub(asked_at);
        pulse.on_renewed(Instant::now().checked_sub(since).unwrap_or_else(Instant::now));
        pulse
    }

    /// The lease was renewed by a call that was sent at this instant: the server cannot have counted from earlier.
    fn on_renewed(&mut self, sent: Instant) {
        // A tenth is left to clocks that run differently, and to ending the program.
        self.valid_until = self.lease.map(|lease| sent + lease - lease / 10);
        self.next = sent + self.interval();
    }

    fn interval(&self) -> Duration {
        self.lease.map_or(INTERVAL_MAX, |lease| (lease / 3).clamp(APART_LEAST, INTERVAL_MAX))
    }

    /// Beats until there is something to act upon. May be dropped and called again at any time.
    pub(super) async fn next(&mut self) -> LeaseEvent {
        loop {
            if self.over {
                std::future::pending::<()>().await;
            }
            sleep_until(self.next).await;
            let sent = Instant::now();
            // Should the call be dropped half-way, the next one comes at its usual time.
            self.next = sent + self.interval();
            let patience = self.valid_until.unwrap_or(sent + INTERVAL_MAX).max(sent);
            let heartbeat = Heartbeat { lease: Some(self.token.clone()), ..Heartbeat::default() };
            let answer = timeout_at(patience, self.client.heartbeat(&self.id, &heartbeat)).await;
            match &answer {
                Ok(answer) => self.connectivity.observe(answer),
                Err(_) => self.connectivity.lost("no answer to a heartbeat"),
            }
            match answer {
                Ok(Ok(extended)) => {
                    self.on_renewed(sent);
                    if extended.cancel_requested && !self.cancel_told {
                        self.cancel_told = true;
                        return LeaseEvent::CancelRequested;
                    }
                }
                Ok(Err(error)) if lost(error.code()) => {
                    self.over = true;
                    return LeaseEvent::Lost;
                }
                // No answer, or one that says nothing about the lease: try again soon, as long as it can be believed in.
                Ok(Err(_)) | Err(_) => self.next = Instant::now() + (self.interval() / 4).max(APART_LEAST),
            }
            if self.valid_until.is_some_and(|believed| Instant::now() >= believed) {
                self.over = true;
                return LeaseEvent::Lost;
            }
        }
    }
}

/// Codes that say that the job is not ours.
fn lost(code: Option<ErrorCode>) -> bool {
    matches!(code, Some(ErrorCode::StaleLease | ErrorCode::JobNotFound | ErrorCode::IllegalTransition))
}
