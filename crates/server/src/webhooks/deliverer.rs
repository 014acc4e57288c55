//! The task that finds due deliveries and attempts them, in parallel and within bounds.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use longshore_core::target_url::host_of;
use longshore_engine::{DeliveryKey, Subscriptions};
use longshore_store::StoreError;
use longshore_webhooks::target::{Target, TargetHost};
use tokio::time::{Instant, sleep_until};

use super::attempt;
use super::deliveries::{self, DueEntry};
use super::endpoint::{self, Endpoint};
use crate::state::AppState;

/// Longest time between two looks: the store may have deliveries of other servers.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Pause before the next part of a long list of due deliveries.
const NEXT_PART_PAUSE: Duration = Duration::from_millis(50);
/// Delay of a requested look, so that many commits share one.
const DEBOUNCE: Duration = Duration::from_millis(2);
/// The same while known deliveries wait for a place: another one would only wait, too.
const CROWDED_DEBOUNCE: Duration = Duration::from_millis(50);
/// Due entries that one look reads.
const PAGE: usize = 500;
/// Attempts in flight at this server.
const IN_FLIGHT_MAX: usize = 64;
/// Attempts in flight to one host.
const HOST_IN_FLIGHT_MAX: usize = 4;

/// Deliveries that this server attempts now.
#[derive(Debug, Default)]
pub(super) struct InFlightDeliveries {
    deliveries: HashSet<DeliveryKey>,
    hosts: HashMap<String, usize>,
}

/// Whether a due delivery can be attempted now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Admittance {
    Reserved,
    /// This server attempts it already.
    InFlight,
    /// A bound is reached.
    Full,
}

impl InFlightDeliveries {
    /// Reserves a place.
    fn reserve(&mut self, delivery: DeliveryKey, host: Option<&str>) -> Admittance {
        if self.deliveries.contains(&delivery) {
            return Admittance::InFlight;
        }
        let of_host = host.and_then(|host| self.hosts.get(host)).copied().unwrap_or(0);
        if self.deliveries.len() >= IN_FLIGHT_MAX || of_host >= HOST_IN_FLIGHT_MAX {
            return Admittance::Full;
        }
        self.deliveries.insert(delivery);
        if let Some(host) = host {
            *self.hosts.entry(host.to_owned()).or_default() += 1;
        }
        Admittance::Reserved
    }

    /// Gives a place up.
    fn release(&mut self, delivery: DeliveryKey, host: Option<&str>) {
        self.deliveries.remove(&delivery);
        if let Some(host) = host
            && let Some(count) = self.hosts.get_mut(host)
        {
            *count -= 1;
            if *count == 0 {
                self.hosts.remove(host);
            }
        }
    }
}

/// Delivers until the server has drained.
pub(crate) async fn run(app: AppState) {
    let mut looks = Looks::default();
    if app.about.kind != "postgres" || app.virtual_time.is_some() {
        // No other server uses this store: what was in flight at a kill is attempted again at once.
        if let Err(error) = deliveries::release_held(&*app.store).await {
            tracing::warn!(%error, "deliveries of the last run are attempted again later");
        }
    }
    loop {
        let pause = match looks.look(&app).await {
            Ok(true) => NEXT_PART_PAUSE,
            Ok(false) => POLL_INTERVAL,
            Err(error) => {
                tracing::debug!(%error, "due deliveries cannot be read; trying again");
                POLL_INTERVAL
            }
        };
        if !looks.attempt_known(&app, pause).await {
            return;
        }
    }
}

/// What the deliverer remembers between two looks.
#[derive(Default)]
struct Looks {
    /// Where the next look begins. A long list is read in parts, so that a slow receiver at its
    /// beginning does not hide the others.
    start: Vec<u8>,
    /// Version of the endpoints below.
    version: Option<u64>,
    /// Hosts of the endpoints by name.
    hosts: HashMap<String, String>,
    /// Deliveries of the last look that wait for a place, with their hosts.
    waiting: Vec<(DueEntry, Option<String>)>,
}

impl Looks {
    /// Attempts due deliveries. Returns whether the list may go on.
    async fn look(&mut self, app: &AppState) -> Result<bool, StoreError> {
        self.load_endpoints(app).await?;
        let start = std::mem::take(&mut self.start);
        let is_beginning = start.is_empty();
        let (due, next) = deliveries::due(&*app.store, start, PAGE).await?;
        if is_beginning {
            // Entries without a lane are deliveries that have ended.
            let oldest = due.iter().find(|entry| !entry.lane.is_empty());
            let lag = oldest.map_or(0, |entry| app.now().since(entry.due_at()).as_millis());
            app.webhooks.counters.lag_millis.store(lag, Ordering::Relaxed);
        }
        if due.iter().any(|entry| entry.lane.starts_with('/')) {
            // A schedule, another server or an earlier run has submitted jobs with callback URLs.
            app.webhooks.expect_callbacks();
        }
        let due = due.into_iter().map(|entry| {
            let host = self.host_of_lane(&entry.lane);
            (entry, host)
        });
        self.waiting = due.collect();
        self.attempt_waiting(app);
        let has_more = next.is_some();
        self.start = next.unwrap_or_default();
        Ok(has_more)
    }

    /// Attempts the deliveries that have a place; the others wait.
    fn attempt_waiting(&mut self, app: &AppState) {
        self.waiting.retain(|(entry, host)| {
            let reservation = app.webhooks.in_flight.lock().reserve(entry.delivery, host.as_deref());
            match reservation {
                Admittance::Reserved => {
                    app.background_tasks.spawn(deliver(app.clone(), entry.clone(), host.clone()));
                    false
                }
                Admittance::InFlight => false,
                Admittance::Full => true,
            }
        });
    }

    /// Attempts known deliveries as places become free, until the next look. Returns `false` if
    /// the server has drained.
    async fn attempt_known(&mut self, app: &AppState, pause: Duration) -> bool {
        let mut until = Instant::now() + pause;
        loop {
            tokio::select! {
                () = app.drained.cancelled() => return false,
                () = app.webhooks.freed.notified() => {
                    if !self.waiting.is_empty() {
                        self.attempt_waiting(app);
                        if self.waiting.is_empty() {
                            return true;
                        }
                    }
                }
                () = app.webhooks.wake.notified() => {
                    let debounce = if self.waiting.is_empty() { DEBOUNCE } else { CROWDED_DEBOUNCE };
                    until = until.min(Instant::now() + debounce);
                }
                () = sleep_until(until) => return true,
            }
        }
    }

    /// Loads the endpoints again if one of them has changed.
    async fn load_endpoints(&mut self, app: &AppState) -> Result<(), StoreError> {
        let version = app.store.system_version(longshore_engine::SystemKind::Webhook).await?;
        if self.version == Some(version) {
            return Ok(());
        }
        let records = endpoint::read_all(&*app.store).await?;
        let pairs = records.iter().map(|record| (&*record.key, &*record.value));
        *app.webhooks.subscriptions.lock() = Arc::new(Subscriptions::of_records(pairs).unwrap_or_default());
        let gone = records.iter().filter_map(Endpoint::of_record).filter(Endpoint::is_gone).count();
        app.webhooks.counters.gone.store(gone as u64, Ordering::Relaxed);
        let endpoints = records.iter().filter_map(Endpoint::of_record);
        self.hosts =
            endpoints.map(|endpoint| (endpoint.name.to_string(), normalized(&host_of(&endpoint.url)))).collect();
        self.version = Some(version);
        Ok(())
    }

    /// Returns the host that a delivery goes to. `None` for one that has ended.
    fn host_of_lane(&self, lane: &str) -> Option<String> {
        match lane.strip_prefix('/') {
            Some(host) => Some(normalized(host)),
            None => self.hosts.get(lane).cloned(),
        }
    }
}

/// Returns one text for all spellings of an address.
fn normalized(host: &str) -> String {
    let is_v6 = host.contains(':');
    let url = if is_v6 { format!("http://[{host}]/") } else { format!("http://{host}/") };
    match Target::parse(&url).map(|target| target.host) {
        Some(TargetHost::Address(address)) => address.to_string(),
        Some(TargetHost::Name(name)) => name,
        None => host.to_owned(),
    }
}

/// Attempts one delivery. A server that stops gives it up; its lease ends by itself.
async fn deliver(app: AppState, entry: DueEntry, host: Option<String>) {
    let delivery = entry.delivery;
    let result = tokio::select! {
        () = app.drained.cancelled() => return,
        result = take_and_attempt(&app, entry) => result,
    };
    if let Err(error) = result {
        tracing::debug!(%error, %delivery, "delivery not finished; it is attempted again");
    }
    app.webhooks.in_flight.lock().release(delivery, host.as_deref());
    app.webhooks.freed.notify_one();
}

async fn take_and_attempt(app: &AppState, entry: DueEntry) -> Result<(), StoreError> {
    let Some(mut held) = deliveries::take(&*app.store, entry).await? else { return Ok(()) };
    attempt::run(app, &mut held).await?;
    app.webhooks.count_attempt(&held.delivery);
    app.webhooks.counters.count(held.delivery.state);
    let attempt = held.delivery.attempts.last();
    let (id, state) = (held.key, held.delivery.state);
    tracing::debug!(%id, %state, status = attempt.and_then(|attempt| attempt.status), "delivery attempted");
    if !deliveries::finish(&*app.store, held).await? {
        tracing::debug!(%id, "another server has taken the delivery over");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use longshore_core::Timestamp;

    fn key(number: u64) -> DeliveryKey {
        DeliveryKey::of_test(Timestamp::from_millis(0), number)
    }

    #[test]
    fn bounds_per_host_and_in_total() {
        let mut flight = InFlightDeliveries::default();
        let mut reserve = |number, host: &str| flight.reserve(key(number), Some(host));
        assert!((0..4).all(|number| reserve(number, "a") == Admittance::Reserved));
        assert_eq!(reserve(9, "a"), Admittance::Full, "four for each host");
        assert_eq!([reserve(9, "b"), reserve(9, "b")], [Admittance::Reserved, Admittance::InFlight], "once each");
        flight.release(key(0), Some("a"));
        let mut reserve = |number, host: &str| flight.reserve(key(number), Some(host));
        assert_eq!(reserve(20, "a"), Admittance::Reserved);
        assert!((100..159).all(|number| reserve(number, &number.to_string()) == Admittance::Reserved));
        assert_eq!(reserve(200, "c"), Admittance::Full, "64 in total");
    }

    #[test]
    fn spellings_of_a_host_share_a_bound() {
        for host in ["127.0.0.1", "0x7f.1", "2130706433"] {
            assert_eq!(normalized(host), "127.0.0.1");
        }
        assert_eq!(normalized("::1"), "::1");
        assert_eq!(normalized("a.b"), "a.b");
    }
}
