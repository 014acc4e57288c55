//! The state that all routes and background tasks share, and their calls to the store.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use longshore_api::ErrorCode;
use longshore_core::id::{QueueName, ScheduleName};
use longshore_core::profile::Profile;
use longshore_core::{ScheduleChange, Timestamp};
use longshore_engine::{AdminCommand, AdminResponse, BatchRefusal, ClaimRequest, SubmitRequest, Submitted};
use longshore_store::clock::monotonic;
use longshore_store::{Grant, InstrumentedStore, Park, Store, StoreError, StoreFuture};
use longshore_tls::ServerTls;
use longshore_webhooks::guard::AddressGuard;
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::access::{Access, ActiveToken};
use crate::background::completion_waiters::CompletionWaiters;
use crate::background::dead_letters::DeadLetters;
use crate::background::metrics::Metrics;
use crate::background::series::SeriesStore;
use crate::background::throughput::ThroughputStats;
use crate::background::virtual_time::VirtualTime;
use crate::background::worker_registry::WorkerRegistry;
use crate::events::EventLog;
use crate::net::admission::{Admission, RequestClass};
use crate::operations::engine::OperationEngine;
use crate::options::{Limits, ServerClock, ServerOptions, StoreInfo};
use crate::otlp::exporter::Tracer;
use crate::schedules::engine::ScheduleEngine;
use crate::store_health::StoreFailures;
use crate::webhooks::Webhooks;
use crate::wire::problem::ApiError;
use crate::wire::request_id::RequestIds;

/// A handle of the shared state, and the store that its holder may see.
///
/// Background tasks and callers without a token have the whole store.
#[derive(Clone, Debug)]
pub struct AppState {
    shared: Arc<App>,
    pub(crate) store: Arc<dyn Store>,
    token: Option<Arc<ActiveToken>>,
}

impl Deref for AppState {
    type Target = App;

    fn deref(&self) -> &App {
        &self.shared
    }
}

#[derive(Debug)]
pub struct App {
    /// Routes use the store of their [`AppState`].
    whole_store: Arc<dyn Store>,
    pub(crate) access: Access,
    pub(crate) virtual_time: Option<Arc<VirtualTime>>,
    pub(crate) about: StoreInfo,
    pub(crate) default_profile: Profile,
    pub(crate) auto_queues: bool,
    pub(crate) limits: Limits,
    pub(crate) request_ids: RequestIds,
    pub(crate) completion_waiters: Arc<CompletionWaiters>,
    pub(crate) workers: Arc<WorkerRegistry>,
    pub(crate) dead_letters: Arc<DeadLetters>,
    pub(crate) throughput: ThroughputStats,
    pub(crate) series: SeriesStore,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) events: Arc<EventLog>,
    pub(crate) schedules: Arc<ScheduleEngine>,
    pub(crate) operations: Arc<OperationEngine>,
    /// Requests a tick for work that has no announced deadline.
    pub(crate) tick_now: Notify,
    pub(crate) body_budget: Arc<Semaphore>,
    /// Connections and their requests.
    pub(crate) tasks: TaskTracker,
    /// Change listener, ticker and worker check.
    pub(crate) background_tasks: TaskTracker,
    /// Cancelled when all requests are answered: background tasks end.
    pub(crate) drained: CancellationToken,
    /// Cancelled when the server stops: it accepts no connections, and waiting claims end empty.
    pub(crate) stopping: CancellationToken,
    pub(crate) store_health: StoreFailures,
    pub(crate) webhooks: Webhooks,
    /// Connections are encrypted.
    pub(crate) tls: Option<Arc<ServerTls>>,
    /// Origins whose pages may call the API.
    pub(crate) cors_origins: Vec<String>,
    pub(crate) tracer: Tracer,
    started: Duration,
}

impl AppState {
    pub(crate) fn new(options: ServerOptions) -> Self {
        let ServerOptions {
            store,
            about,
            time,
            default_profile,
            auto_queues,
            limits,
            request_id_seed,
            allowed_hosts,
            webhook_allow,
            webhook_https_only,
            webhook_ports,
            tls,
            cors_origins,
            otlp,
            ..
        } = options;
        let metrics = Arc::new(Metrics::new(Admission::new(limits.in_flight_max)));
        let schedules: Arc<ScheduleEngine> = Arc::default();
        // A data directory has one server, and so has virtual time.
        let is_alone = about.kind == "embedded" || matches!(time, ServerClock::Virtual { .. });
        let dead_letters = Arc::<DeadLetters>::default();
        let operations = Arc::new(OperationEngine::new(is_alone, Arc::clone(&dead_letters)));
        let guard = AddressGuard::new(webhook_allow).https_only(webhook_https_only).with_ports(webhook_ports);
        let store: Arc<dyn Store> = Arc::new(InstrumentedStore::new(store, Arc::<Metrics>::clone(&metrics), monotonic));
        let virtual_time = match time {
            ServerClock::Real => None,
            ServerClock::Virtual { clock, save } => {
                let (schedules, operations) = (Arc::clone(&schedules), Arc::clone(&operations));
                Some(Arc::new(VirtualTime::new(store.clone(), clock, save, schedules, operations)))
            }
        };
        let store = virtual_time.as_ref().map_or(store, |time| Arc::clone(time) as Arc<dyn Store>);
        let series = SeriesStore::new(store.now());
        let shared = App {
            whole_store: Arc::clone(&store),
            access: Access::new(Arc::clone(&store), auto_queues, allowed_hosts),
            virtual_time,
            about,
            default_profile,
            auto_queues,
            body_budget: Arc::new(Semaphore::new(limits.bodies_bytes_max / BODY_PERMIT_BYTES)),
            limits,
            request_ids: RequestIds::new(request_id_seed),
            completion_waiters: Arc::default(),
            workers: Arc::default(),
            dead_letters,
            throughput: ThroughputStats::default(),
            series,
            metrics,
            events: Arc::default(),
            schedules,
            operations,
            tick_now: Notify::new(),
            tasks: TaskTracker::new(),
            background_tasks: TaskTracker::new(),
            drained: CancellationToken::new(),
            stopping: CancellationToken::new(),
            store_health: StoreFailures::default(),
            webhooks: Webhooks::new(guard),
            tls,
            cors_origins,
            tracer: Tracer::new(otlp),
            started: monotonic(),
        };
        Self { shared: Arc::new(shared), store, token: None }
    }

    /// Returns the store that routes use, with metrics and virtual time.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Returns the same state with the store that a token may see.
    pub(crate) fn with_token(&self, token: &Arc<ActiveToken>) -> Self {
        Self { shared: Arc::clone(&self.shared), store: Arc::clone(&token.store), token: Some(Arc::clone(token)) }
    }

    /// Returns the token of the caller.
    pub(crate) fn token(&self) -> Option<&ActiveToken> {
        self.token.as_deref()
    }
}

impl AppState {
    /// Submits jobs. A timeout has its own error code: the jobs may be stored or not.
    pub(crate) async fn submit(
        &self,
        request: SubmitRequest,
    ) -> Result<Result<Vec<Submitted>, BatchRefusal>, ApiError> {
        // Bodies that were read at the same time may all have been admitted.
        self.metrics.admission.check(RequestClass::Submit)?;
        if let Some(token) = self.token() {
            token.count_jobs(request.batch.len());
        }
        if request.submissions().any(|submission| submission.job.callback_url.is_some()) {
            self.webhooks.expect_callbacks();
        }
        let timeout = self.limits.submission_timeout;
        let trace = self.tracer.begin_submission(&request, self.now());
        match tokio::time::timeout(timeout, self.store.submit(request)).await {
            Ok(result) => {
                if let (Some(trace), Ok(Ok(submitted))) = (trace, &result) {
                    self.tracer.end_submission(&trace, submitted, self.now());
                }
                self.report_error(result)
            }
            Err(_) => {
                let detail = format!("no acknowledgement within {} s", timeout.as_secs_f64());
                Err(ApiError::new(ErrorCode::SubmissionTimeout, detail))
            }
        }
    }

    /// Claims jobs. The store has the submission timeout beyond the wait.
    ///
    /// Dropping the call leaves no job leased.
    pub(crate) async fn claim(&self, request: ClaimRequest, wait: Duration) -> Result<Grant, ApiError> {
        let timeout = self.limits.submission_timeout;
        let park = if wait.is_zero() {
            Park::No
        } else {
            let (stopping, token_ended) = (self.stopping.clone(), self.token_ended());
            let end = async move {
                tokio::select! {
                    () = tokio::time::sleep(wait) => {}
                    () = stopping.cancelled_owned() => {}
                    () = token_ended => {}
                }
            };
            Park::Until(Box::pin(end))
        };
        let claim = self.store.claim_or_park(request, park);
        let Ok(result) = tokio::time::timeout(wait + timeout, claim).await else {
            let seconds = timeout.as_secs_f64();
            let detail = format!("store timed out after {seconds} s; jobs claimed by this request will be released");
            return Err(ApiError::new(ErrorCode::StoreUnavailable, detail));
        };
        let grant = self.report_error(result)??;
        // Jobs that were granted to a revoked token go back.
        self.check_token()?;
        Ok(grant)
    }

    /// Publishes a change of a schedule to the event streams of all servers.
    ///
    /// A failure is logged only: the change itself is stored.
    pub(crate) async fn publish_schedule(&self, name: &ScheduleName, queue: QueueName, change: ScheduleChange) {
        let announced = self.store.announce_schedule(Arc::from(name.as_str()), queue, change, self.now());
        if let Err(error) = self.report_error(announced.await) {
            tracing::debug!(?error, "a change of a schedule was not announced to the event streams");
        }
    }

    pub(crate) async fn admin(&self, command: AdminCommand) -> Result<AdminResponse, ApiError> {
        Ok(self.call_store(self.store.admin(command)).await??)
    }
}

/// Unit of the semaphore that bounds the bytes of request bodies.
pub(crate) const BODY_PERMIT_BYTES: usize = 1 << 10;

impl App {
    pub(crate) fn now(&self) -> Timestamp {
        self.whole_store.now()
    }

    pub(crate) fn uptime(&self) -> Duration {
        monotonic().saturating_sub(self.started)
    }

    /// Awaits a call to the store, for at most the submission timeout.
    pub(crate) async fn call_store<T>(&self, call: StoreFuture<'_, T>) -> Result<T, ApiError> {
        let timeout = self.limits.submission_timeout;
        let timed_out = |_| {
            let text = format!("no answer within {} s", timeout.as_secs_f64());
            Err(StoreError::unknown(std::io::Error::new(std::io::ErrorKind::TimedOut, text)))
        };
        self.report_error(tokio::time::timeout(timeout, call).await.unwrap_or_else(timed_out))
    }

    pub(crate) fn report_error<T>(&self, result: Result<T, StoreError>) -> Result<T, ApiError> {
        result.map_err(|error| {
            self.on_store_error(&error);
            error.into()
        })
    }

    pub(crate) fn on_store_error(&self, error: &StoreError) {
        self.store_health.record(error);
        if matches!(error, StoreError::Unknown(_)) {
            // The commit failed: the next tick shows whether the store still works.
            self.tick_now.notify_one();
        }
    }
}
