//! Webhooks: endpoints, their deliveries, and the task that sends them.
//!
//! - [`endpoint`]: endpoints in the store, with their secrets
//! - [`deliveries`]: deliveries in the store: take, finish, list, redeliver, prune
//! - [`attempt`]: one attempt: message, signature, result
//! - [`deliverer`]: the task that finds due deliveries and attempts them

mod attempt;
pub(crate) mod deliverer;
pub(crate) mod deliveries;
pub(crate) mod endpoint;

use longshore_core::Timestamp;
use longshore_core::rng::Rng;
use longshore_core::webhook::DeliveryState;
use longshore_engine::{Delivery, Effect, Subscriptions};
use longshore_store::{Clock, OsRng, SystemClock};
use longshore_webhooks::client::{SystemDialer, WebhookClient};
use longshore_webhooks::guard::AddressGuard;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::sync::Notify;

use deliverer::InFlightDeliveries;

/// The state that routes and the deliverer share.
#[derive(Debug)]
pub(crate) struct Webhooks {
    /// `None` if TLS cannot be set up: then every attempt fails.
    client: Option<WebhookClient<SystemDialer>>,
    /// Requests a look at the due deliveries.
    wake: Notify,
    /// Reports that an attempt has ended, so that another one has its place.
    freed: Notify,
    in_flight: Mutex<InFlightDeliveries>,
    /// Subscriptions as of the last look: which transitions are worth a wake-up.
    subscriptions: Mutex<Arc<Subscriptions>>,
    /// Whether this server has seen a job with a callback URL.
    has_callbacks: AtomicBool,
    /// Failed attempts in a row at endpoints, as this server has seen them.
    streaks: Mutex<HashMap<Arc<str>, FailureStreak>>,
    rng: Mutex<OsRng>,
    /// `webhook-timestamp` is the real time, in virtual time too.
    real_clock: SystemClock,
    pub(crate) counters: WebhookCounters,
}

/// What the metrics show of webhooks at this server.
#[derive(Debug, Default)]
pub(crate) struct WebhookCounters {
    /// Attempts by their result, in the order of [`WebhookCounters::RESULTS`].
    attempts: [AtomicU64; 3],
    /// Milliseconds by which the oldest pending delivery is late.
    lag_millis: AtomicU64,
    /// Endpoints that are disabled because their receiver answered 410.
    gone: AtomicU64,
}

impl WebhookCounters {
    pub(crate) const RESULTS: [&str; 3] = ["delivered", "retry", "failed"];

    fn count(&self, state: DeliveryState) {
        let [delivered, retry, failed] = &self.attempts;
        let counter = match state {
            DeliveryState::Delivered => delivered,
            DeliveryState::Pending => retry,
            DeliveryState::Failed => failed,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the attempts by result.
    pub(crate) fn attempts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Self::RESULTS.into_iter().zip(&self.attempts).map(|(result, count)| (result, count.load(Ordering::Relaxed)))
    }

    pub(crate) fn lag_seconds(&self) -> u64 {
        self.lag_millis.load(Ordering::Relaxed) / 1_000
    }

    pub(crate) fn gone(&self) -> u64 {
        self.gone.load(Ordering::Relaxed)
    }
}

/// Failed attempts at one endpoint since its last success.
#[derive(Clone, Debug)]
pub(crate) struct FailureStreak {
    pub(crate) failures: u64,
    pub(crate) since: Timestamp,
    pub(crate) last_error: Option<Arc<str>>,
}

impl Webhooks {
    pub(crate) fn new(guard: AddressGuard) -> Self {
        let client = WebhookClient::new(SystemDialer, guard);
        if let Err(error) = &client {
            tracing::error!(%error, "TLS cannot be set up: webhooks will fail");
        }
        Self {
            client: client.ok(),
            wake: Notify::new(),
            freed: Notify::new(),
            in_flight: Mutex::default(),
            subscriptions: Mutex::default(),
            has_callbacks: AtomicBool::new(false),
            streaks: Mutex::default(),
            rng: Mutex::default(),
            real_clock: SystemClock::new(),
            counters: WebhookCounters::default(),
        }
    }

    /// Requests a look at the due deliveries.
    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }

    /// Remembers that jobs with callback URLs exist, so that their ends wake the deliverer.
    pub(crate) fn expect_callbacks(&self) {
        self.has_callbacks.store(true, Ordering::Relaxed);
    }

    /// Wakes the deliverer if one of these changes may owe a delivery. A lost wake-up costs at most
    /// a second, because the deliverer polls.
    pub(crate) fn on_effects(&self, effects: &[Effect]) {
        let has_callbacks = self.has_callbacks.load(Ordering::Relaxed);
        if !has_callbacks && self.subscriptions.lock().is_empty() {
            return;
        }
        let ends_job = |effect: &Effect| effect.transition().is_some_and(|(_, step)| step.to.terminal());
        if effects.iter().any(ends_job) {
            self.wake();
        }
    }

    /// Counts an attempt at an endpoint. Callback URLs have many receivers and are not counted.
    fn count_attempt(&self, delivery: &Delivery) {
        let Some(attempt) = delivery.attempts.last().filter(|_| delivery.url.is_none()) else { return };
        let mut streaks = self.streaks.lock();
        if attempt.error.is_none() {
            streaks.remove(&delivery.endpoint);
            return;
        }
        if streaks.len() >= endpoint::ENDPOINTS_MAX && !streaks.contains_key(&delivery.endpoint) {
            return;
        }
        let new = || FailureStreak { failures: 0, since: attempt.at, last_error: None };
        let streak = streaks.entry(delivery.endpoint.clone()).or_insert_with(new);
        streak.failures += 1;
        streak.last_error = attempt.error.clone();
    }

    /// Returns the failed attempts in a row at an endpoint.
    pub(crate) fn streak(&self, endpoint: &str) -> Option<FailureStreak> {
        self.streaks.lock().get(endpoint).cloned()
    }

    pub(crate) fn random(&self) -> u64 {
        self.rng.lock().next_u64()
    }

    fn real_now(&self) -> Timestamp {
        self.real_clock.now()
    }
}
