//! What every route can reach.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use longshore_api::ErrorCode;
use longshore_core::Timestamp;
use longshore_core::profile::Profile;
use longshore_engine::{AdminCommand, AdminResponse, BatchRefusal, ClaimRequest, SubmitRequest, Submitted};
use longshore_store::clock::monotonic;
use longshore_store::{Grant, InstrumentedStore, Park, Store, StoreError, StoreFuture};
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::background::completion_waiters::CompletionWaiters;
use crate::background::metrics::Metrics;
use crate::background::throughput::ThroughputStats;
use crate::background::virtual_time::VirtualTime;
use crate::background::worker_registry::Workers;
use crate::options::{Limits, Options, ServerClock, StoreInfo};
use crate::wire::problem::ApiError;
use crate::wire::request_id::RequestIds;

/// What was met and told: a worker that asks again and again meets the same damage each time.
#[derive(Debug, Default)]
struct CorruptionLog(Mutex<BTreeSet<String>>);

impl CorruptionLog {
    const TOLD_MAX: usize = 1_000;

    fn first_time(&self, what: &str) -> bool {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        told.len() < Self::TOLD_MAX && told.insert(what.to_owned())
    }
}

/// Shared by all connections.
#[derive(Clone, Debug)]
pub struct AppState(Arc<App>);

impl Deref for AppState {
    type Target = App;

    fn deref(&self) -> &App {
        &self.0
    }
}

#[derive(Debug)]
pub struct App {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) virtual_time: Option<Arc<VirtualTime>>,
    pub(crate) about: StoreInfo,
    pub(crate) default_profile: Profile,
    pub(crate) auto_queues: bool,
    pub(crate) limits: Limits,
    pub(crate) request_ids: RequestIds,
    pub(crate) endings: Arc<CompletionWaiters>,
    pub(crate) workers: Arc<Workers>,
    pub(crate) tally: ThroughputStats,
    pub(crate) metrics: Arc<Metrics>,
    /// Told when something may have to be ticked that no deadline speaks of.
    pub(crate) tick_now: Notify,
    pub(crate) body_budget: Arc<Semaphore>,
    /// Connections, and what requests leave to run on by itself.
    pub(crate) tasks: TaskTracker,
    /// What runs beside them: the feed and the maintenance.
    pub(crate) background_tasks: TaskTracker,
    /// Requests have all been answered: what runs beside them may end.
    pub(crate) drained: CancellationToken,
    /// No new work is taken; waiting claims are sent home.
    pub(crate) stopping: CancellationToken,
    /// The store has failed for good.
    store_failed: AtomicBool,
    reported_corruption: CorruptionLog,
    pub(crate) store_failed_signal: Notify,
    started: Duration,
}

impl AppState {
    pub(crate) fn new(options: Options) -> Self {
        let Options { store, about, time, default_profile, auto_queues, limits, request_id_seed, .. } = options;
        let metrics: Arc<Metrics> = Arc::default();
        let store: Arc<dyn Store> = Arc::new(InstrumentedStore::new(store, Arc::<Metrics>::clone(&metrics), monotonic));
        let virtual_time = match time {
            ServerClock::Real => None,
            ServerClock::Virtual { clock, kept } => Some(Arc::new(VirtualTime::new(store.clone(), clock, kept))),
        };
        let store = virtual_time.as_ref().map_or(store, |time| Arc::clone(time) as Arc<dyn Store>);
        Self(Arc::new(App {
            store,
            virtual_time,
            about,
            default_profile,
            auto_queues,
            body_budget: Arc::new(Semaphore::new(limits.bodies_bytes_max / BODY_PERMIT_BYTES)),
            limits,
            request_ids: RequestIds::new(request_id_seed),
            endings: Arc::default(),
            workers: Arc::default(),
            tally: ThroughputStats::default(),
            metrics,
            tick_now: Notify::new(),
            tasks: TaskTracker::new(),
            background_tasks: TaskTracker::new(),
            drained: CancellationToken::new(),
            stopping: CancellationToken::new(),
            store_failed: AtomicBool::new(false),
            reported_corruption: CorruptionLog::default(),
            store_failed_signal: Notify::new(),
            started: monotonic(),
        }))
    }

    /// The store, as routes use it.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The one call with a code of its own: an acknowledgement within the submission timeout, or the word that there is none.
    pub(crate) async fn submit(
        &self,
        request: SubmitRequest,
    ) -> Result<Result<Vec<Submitted>, BatchRefusal>, ApiError> {
        let patience = self.limits.submission_timeout;
        match tokio::time::timeout(patience, self.store.submit(request)).await {
            Ok(answer) => self.report_error(answer),
            Err(_) => {
                let detail = format!("no acknowledgement within {} s", patience.as_secs_f64());
                Err(ApiError::new(ErrorCode::SubmissionTimeout, detail))
            }
        }
    }
}

/// Room for bodies is counted in these.
pub(crate) const BODY_PERMIT_BYTES: usize = 1 << 10;

impl App {
    pub(crate) fn now(&self) -> Timestamp {
        self.store.now()
    }

    pub(crate) fn uptime(&self) -> Duration {
        monotonic().saturating_sub(self.started)
    }

    pub(crate) fn store_failed(&self) -> bool {
        self.store_failed.load(Ordering::SeqCst)
    }

    /// Waits for the store's answer, no longer than a submission would.
    pub(crate) async fn call_store<T>(&self, question: StoreFuture<'_, T>) -> Result<T, ApiError> {
        let patience = self.limits.submission_timeout;
        let silent = |_| {
            let words = format!("no answer within {} s", patience.as_secs_f64());
            Err(StoreError::unknown(std::io::Error::new(std::io::ErrorKind::TimedOut, words)))
        };
        self.report_error(tokio::time::timeout(patience, question).await.unwrap_or_else(silent))
    }

    /// Claims, and gives the store as long as a submission has beyond the wait. Dropping the call leaves nothing leased.
    pub(crate) async fn claim(&self, request: ClaimRequest, wait: Duration) -> Result<Grant, ApiError> {
        let patience = self.limits.submission_timeout;
        let park = if wait.is_zero() {
            Park::No
        } else {
            let stopping = self.stopping.clone();
            let end = async move {
                tokio::select! {
                    () = tokio::time::sleep(wait) => {}
                    () = stopping.cancelled_owned() => {}
                }
            };
            Park::Until(Box::pin(end))
        };
        let claim = self.store.claim_or_park(request, park);
        let Ok(answer) = tokio::time::timeout(wait + patience, claim).await else {
            let detail = format!(
                "the store has not answered within {} s; jobs that it leases to this claim go back into line",
                patience.as_secs_f64()
            );
            return Err(ApiError::new(ErrorCode::StoreUnavailable, detail));
        };
        Ok(self.report_error(answer)??)
    }

    pub(crate) async fn admin(&self, command: AdminCommand) -> Result<AdminResponse, ApiError> {
        Ok(self.call_store(self.store.admin(command)).await??)
    }

    pub(crate) fn report_error<T>(&self, answer: Result<T, StoreError>) -> Result<T, ApiError> {
        answer.map_err(|error| {
            self.on_store_error(&error);
            error.into()
        })
    }

    /// Looks at a failure of the store: some are the end of it.
    pub(crate) fn on_store_error(&self, error: &StoreError) {
        if matches!(error, StoreError::Poisoned) && !self.store_failed.swap(true, Ordering::SeqCst) {
            tracing::error!(%error, "the store has failed for good; stopping");
            self.store_failed_signal.notify_one();
        }
        if let StoreError::Corrupt { what } = error
            && self.reported_corruption.first_time(what)
        {
            tracing::error!(%error, "damage was met, and not served; `longshore doctor` on a copy says whether there is more");
        }
        if matches!(error, StoreError::Unknown(_)) {
            // Whoever was in the failed commit hears this; whether the store lives on, the next tick tells.
            self.tick_now.notify_one();
        }
    }
}
