//! Two servers that process the ticks of one store, over clock changes, restarts and lost answers.
//!
//! `TICKS` is the number of ticks: a few thousand by default, 1,000,000 in `make soak-schedules`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use jiff::tz::{AmbiguousOffset, TimeZone};
use longshore_api::schedule::PutSchedule;
use longshore_core::id::QueueName;
use longshore_core::profile::Profile;
use longshore_core::rng::{Rng as _, SeededRng};
use longshore_core::schedule::find_time_zone;
use longshore_core::{Duration, Timestamp};
use longshore_store::{
    Clock, Store, StoreError, StoreFuture, StoreLayer, SystemRefusal, SystemWrite, SystemWritten, VirtualClock,
};
use longshore_store_embedded::{ClockMode, EmbeddedOptions, EmbeddedStore, StoreLocation};
use longshore_store_postgres::{PostgresOptions, PostgresStore};
use parking_lot::Mutex;
use serde_json::json;

use super::declared::declare_schedule;
use super::engine::ScheduleEngine;

const ZONES: [&str; 5] =
    ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca", "America/Santiago"];
const MINUTE: i64 = 60_000;
/// Local time fires once in a repeated hour, elapsed time in both passes.
const EXPRESSIONS: [(&str, &str, bool); 2] = [("local", "* 0-23 * * *", false), ("elapsed", "* * * * *", true)];

/// A tick: name of its schedule and due time.
type TickKey = (String, Timestamp);

/// The ticks that all servers have fired, as their writes say.
#[derive(Debug, Default)]
struct FiredTicks {
    all: Mutex<BTreeSet<TickKey>>,
    conflicts: AtomicU64,
    failures: AtomicU64,
}

/// A store whose writes sometimes fail: before they are applied, or only their answer is lost.
#[derive(Debug)]
struct UnreliableStore {
    store: Arc<dyn Store>,
    rng: Mutex<SeededRng>,
    fired: Arc<FiredTicks>,
}

impl UnreliableStore {
    fn below(&self, bound: u64) -> u64 {
        self.rng.lock().next_u64() % bound
    }
}

impl StoreLayer for UnreliableStore {
    fn inner(&self) -> &dyn Store {
        &*self.store
    }

    fn write_system(&self, write: SystemWrite) -> StoreFuture<'_, Result<SystemWritten, SystemRefusal>> {
        let (fate, killed) = (self.below(40), || StoreError::unknown(std::io::Error::other("killed")));
        Box::pin(async move {
            if fate == 0 {
                self.fired.failures.fetch_add(1, Ordering::Relaxed);
                return Err(killed());
            }
            let jobs = write.submit.iter().flat_map(|submit| &submit.batch).flatten();
            let ticks: Vec<TickKey> = jobs
                .filter_map(|submission| submission.job.schedule.as_deref())
                .map(|schedule| (schedule.name.to_string(), schedule.due_at.unwrap()))
                .collect();
            let written = self.store.write_system(write).await?;
            if written.is_err() {
                self.fired.conflicts.fetch_add(1, Ordering::Relaxed);
                return Ok(written);
            }
            for tick in ticks {
                assert!(self.fired.all.lock().insert(tick.clone()), "{tick:?} was fired twice");
            }
            if fate == 1 {
                self.fired.failures.fetch_add(1, Ordering::Relaxed);
                return Err(killed());
            }
            Ok(written)
        })
    }
}

/// A server as far as ticks go.
struct Node {
    store: UnreliableStore,
    clock: Arc<VirtualClock>,
    engine: ScheduleEngine,
}

impl Node {
    fn new(store: Arc<dyn Store>, clock: Arc<VirtualClock>, seed: u64, fired: &Arc<FiredTicks>) -> Self {
        let store = UnreliableStore { store, rng: Mutex::new(SeededRng::new(seed)), fired: Arc::clone(fired) };
        Self { store, clock, engine: ScheduleEngine::default() }
    }

    /// Processes what is due at an instant. A failed write is a crash: the next start has no state.
    async fn process(&mut self, now: Timestamp) {
        self.clock.advance_to(now);
        let result = async {
            self.engine.refresh(&self.store).await?;
            self.engine.process_in_order(&self.store).await
        };
        if result.await.is_err() || self.store.below(100) == 0 {
            self.engine = ScheduleEngine::default();
        }
    }
}

/// Returns the due times by counting minutes, without a cron library.
fn expected(zone: &TimeZone, is_elapsed: bool, start: i64, end: i64) -> impl Iterator<Item = Timestamp> {
    let minutes = (start / MINUTE + 1..=end / MINUTE).map(|minute| minute * MINUTE);
    let is_due = move |millis: &i64| {
        let at = jiff::Timestamp::from_millisecond(*millis).unwrap();
        let ambiguous = zone.to_ambiguous_timestamp(zone.to_datetime(at));
        let is_fold = matches!(ambiguous.offset(), AmbiguousOffset::Fold { .. });
        is_elapsed || !is_fold || ambiguous.earlier().unwrap() == at
    };
    minutes.filter(is_due).map(Timestamp::from_millis)
}

fn millis(minutes: u64) -> i64 {
    i64::try_from(minutes).unwrap() * MINUTE
}

/// Stores of two servers with a clock each, or one store that both use.
type Stores = [(Arc<dyn Store>, Arc<VirtualClock>); 2];

/// Runs two servers over the next clock change of a zone. Returns the number of ticks.
async fn simulate(stores: Stores, zone: &str, change: i64, minutes: u64, seed: u64, totals: &FiredTicks) -> usize {
    let zone_name = zone;
    let zone = find_time_zone(zone).unwrap();
    let (start, end) = (change - millis(minutes / 2), change + millis(minutes - minutes / 2));
    let (fired, mut rng, at) = (Arc::new(FiredTicks::default()), SeededRng::new(seed), Timestamp::from_millis);
    let mut seeds = seed * 2..;
    let mut nodes = stores.map(|(store, clock)| Node::new(store, clock, seeds.next().unwrap_or_default(), &fired));
    nodes.iter().for_each(|node| node.clock.advance_to(at(start)));
    for (name, cron, _) in EXPRESSIONS {
        let schedule = json!({
            "cron": cron, "timezone": zone_name, "queue": "q", "misfire": "all", "job": {"type": "t", "lifetime": "0s"},
        });
        let schedule: PutSchedule = serde_json::from_value(schedule).unwrap();
        declare_schedule(nodes[0].store.inner(), Profile::Standard, name, schedule).await.unwrap();
    }
    let mut now = start;
    while now < end {
        // Mostly minutes; sometimes all servers are down for hours.
        let step = if rng.next_u64().is_multiple_of(200) { 10 * 60 * 60_000 } else { 4 * 60_000 };
        now = (now + i64::try_from(rng.next_u64() % step).unwrap()).min(end);
        let skew = |rng: &mut SeededRng| i64::try_from(rng.next_u64() % 2_000).unwrap();
        let instants = [now - skew(&mut rng), now - skew(&mut rng)].map(|instant| at(instant.max(start)));
        let [one, other] = &mut nodes;
        tokio::join!(one.process(instants[0]), other.process(instants[1]));
    }
    // A server that does not fail processes the rest.
    let last = ScheduleEngine::default();
    nodes.iter().for_each(|node| node.clock.advance_to(at(end)));
    last.refresh(&*nodes[0].store.store).await.unwrap();
    let reliable = UnreliableStore { rng: Mutex::new(SeededRng::new(0)), ..nodes.into_iter().next().unwrap().store };
    while last.next_due().is_some_and(|due| due <= at(end)) {
        drop(last.process_in_order(&reliable).await);
    }
    let due = EXPRESSIONS.iter().flat_map(|(name, _, is_elapsed)| {
        expected(&zone, *is_elapsed, start, end).map(move |due| ((*name).to_owned(), due))
    });
    let (due, found) = (due.collect::<BTreeSet<TickKey>>(), std::mem::take(&mut *fired.all.lock()));
    assert_eq!(due.symmetric_difference(&found).next(), None, "{zone_name}: due and fired differ");
    let counts = reliable.store.queue(QueueName::new("q").unwrap()).await.unwrap().unwrap().counts;
    assert_eq!(counts.iter().sum::<u64>(), found.len() as u64, "jobs of the store");
    totals.conflicts.fetch_add(fired.conflicts.load(Ordering::Relaxed), Ordering::Relaxed);
    totals.failures.fetch_add(fired.failures.load(Ordering::Relaxed), Ordering::Relaxed);
    found.len()
}

/// Runs the simulation over the changes of spring and autumn in all zones.
async fn simulate_all(default_ticks: u64, mut open: impl AsyncFnMut(Timestamp) -> Stores) {
    let ticks: u64 = std::env::var("TICKS").map_or(default_ticks, |text| text.parse().unwrap());
    // A spring has one hour less, an autumn one hour more.
    let minutes = ticks / 20 + 60;
    let (totals, mut fired) = (FiredTicks::default(), 0);
    for (seed, zone) in (1_u64..).zip(ZONES) {
        let changes: Vec<i64> = find_time_zone(zone)
            .unwrap()
            .following("2026-01-01T00:00:00Z".parse().unwrap())
            .map(|change| change.timestamp().as_millisecond())
            .take(2)
            .collect();
        for change in changes {
            let start = Timestamp::from_millis(change - millis(minutes / 2));
            fired += simulate(open(start).await, zone, change, minutes, seed, &totals).await;
        }
    }
    assert!(fired as u64 >= ticks, "only {fired} ticks");
    let [conflicts, failures] = [&totals.conflicts, &totals.failures].map(|count| count.load(Ordering::Relaxed));
    assert!(conflicts > 0 && failures > 0, "the servers never met: {conflicts} conflicts, {failures} failures");
    println!("{fired} ticks, each fired once; {conflicts} lost races, {failures} failed writes");
}

/// Both servers use one embedded store, so that each tick is a race.
#[tokio::test]
async fn two_servers_on_one_store_fire_each_tick_once() {
    simulate_all(4_000, async |start| {
        let clock = Arc::new(VirtualClock::new(start));
        let mut options = EmbeddedOptions::new(StoreLocation::Memory, clock.clone(), ClockMode::Virtual);
        options.reserve_bytes = 0;
        let store: Arc<dyn Store> = Arc::new(EmbeddedStore::open(options).unwrap());
        [(store.clone(), clock.clone()), (store, clock)]
    })
    .await;
}

/// Each server has a store, a cache and a clock of its own, on one database.
#[tokio::test]
async fn two_servers_on_postgres_fire_each_tick_once() {
    simulate_all(1_000, async |start| {
        let schema = longshore_testkit::postgres::new_schema();
        let node = async || {
            let clock = Arc::new(VirtualClock::new(start));
            let options = PostgresOptions {
                schema: schema.clone(),
                clock: Some(clock.clone() as Arc<dyn Clock>),
                retention_slack: Duration::ZERO,
                writers: 1,
                ..PostgresOptions::new(longshore_testkit::postgres::shared_url())
            };
            let store = PostgresStore::start(options, tokio::runtime::Handle::current()).await.unwrap();
            (Arc::new(store) as Arc<dyn Store>, clock)
        };
        [node().await, node().await]
    })
    .await;
}
