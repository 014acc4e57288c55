//! What every route can reach.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::ops::Deref;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use longshore_api::ErrorCode;
use longshore_core::Timestamp;
use longshore_core::engine::{AdminAnswer, AdminCommand, BatchRefusal, SubmitRequest, Submitted};
use longshore_core::id::{JobType, QueueName};
use longshore_core::profile::Profile;
use longshore_core::submit::{NewJob, Start};
use longshore_store::clock::monotonic;
use longshore_store::{Observed, Store, StoreError, StoreFuture};
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::live::endings::Endings;
use crate::live::lobby::Lobby;
use crate::live::metrics::Metrics;
use crate::live::tally::Tally;
use crate::live::virtual_time::VirtualTime;
use crate::live::workers::Workers;
use crate::options::{Limits, Options, StoreAbout, TimeControl};
use crate::routes::work::claim::ask_for_another;
use crate::wire::problem::Failure;
use crate::wire::request_id::RequestIds;

/// What was met and told: a worker that asks again and again meets the same damage each time.
#[derive(Debug, Default)]
struct Damage(Mutex<BTreeSet<String>>);

impl Damage {
    const TOLD_MAX: usize = 1_000;

    fn is_news(&self, what: &str) -> bool {
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
    pub(crate) about: StoreAbout,
    pub(crate) default_profile: Profile,
    pub(crate) auto_queues: bool,
    pub(crate) limits: Limits,
    pub(crate) request_ids: RequestIds,
    pub(crate) lobby: Arc<Lobby>,
    pub(crate) endings: Arc<Endings>,
    pub(crate) workers: Arc<Workers>,
    pub(crate) tally: Tally,
    pub(crate) metrics: Arc<Metrics>,
    /// Told when something may have to be ticked that no deadline speaks of.
    pub(crate) look: Notify,
    pub(crate) bodies: Arc<Semaphore>,
    /// Connections, and what requests leave to run on by itself.
    pub(crate) tasks: TaskTracker,
    /// What runs beside them: the feed and the maintenance.
    pub(crate) companions: TaskTracker,
    /// Requests have all been answered: what runs beside them may end.
    pub(crate) drained: CancellationToken,
    /// No new work is taken; waiting claims are sent home.
    pub(crate) stopping: CancellationToken,
    /// The store has failed for good.
    broken: AtomicBool,
    damage: Damage,
    pub(crate) gave_up: Notify,
    started: Duration,
}

impl AppState {
    pub(crate) fn new(options: Options) -> Self {
        let Options { store, about, time, default_profile, auto_queues, limits, request_id_seed, .. } = options;
        let metrics: Arc<Metrics> = Arc::default();
        let store: Arc<dyn Store> = Arc::new(Observed::new(store, Arc::<Metrics>::clone(&metrics), monotonic));
        let virtual_time = match time {
            TimeControl::Real => None,
            TimeControl::Virtual { clock, kept } => Some(Arc::new(VirtualTime::new(store.clone(), clock, kept))),
        };
        let store = virtual_time.as_ref().map_or(store, |time| Arc::clone(time) as Arc<dyn Store>);
        Self(Arc::new(App {
            store,
            virtual_time,
            about,
            default_profile,
            auto_queues,
            bodies: Arc::new(Semaphore::new(limits.bodies_bytes_max / BODY_UNIT)),
            limits,
            request_ids: RequestIds::new(request_id_seed),
            lobby: Arc::default(),
            endings: Arc::default(),
            workers: Arc::default(),
            tally: Tally::default(),
            metrics,
            look: Notify::new(),
            tasks: TaskTracker::new(),
            companions: TaskTracker::new(),
            drained: CancellationToken::new(),
            stopping: CancellationToken::new(),
            broken: AtomicBool::new(false),
            damage: Damage::default(),
            gave_up: Notify::new(),
            started: monotonic(),
        }))
    }

    /// The store, as routes use it.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The one call with a code of its own: an acknowledgement within the submission timeout, or the word that there is none.
    pub(crate) async fn submit(&self, request: SubmitRequest) -> Result<Result<Vec<Submitted>, BatchRefusal>, Failure> {
        let patience = self.limits.submission_timeout;
        let expected = self.expected(&request);
        let both = async {
            let mut submission = pin!(self.store.submit(request));
            // On its way, before anybody asks for what it brings.
            let begun = poll_fn(|context| Poll::Ready(submission.as_mut().poll(context))).await;
            for (queue, job_type) in &expected {
                if let Some(errand) = self.lobby.work_is_coming(queue, job_type) {
                    ask_for_another(self, errand).await;
                }
            }
            match begun {
                Poll::Ready(answer) => answer,
                Poll::Pending => submission.await,
            }
        };
        match tokio::time::timeout(patience, both).await {
            Ok(answer) => self.noted(answer),
            Err(_) => {
                let detail = format!("no acknowledgement within {} s", patience.as_secs_f64());
                Err(Failure::new(ErrorCode::SubmissionTimeout, detail))
            }
        }
    }
}

/// Room for bodies is counted in these.
pub(crate) const BODY_UNIT: usize = 1 << 10;

impl App {
    pub(crate) fn now(&self) -> Timestamp {
        self.store.now()
    }

    pub(crate) fn uptime(&self) -> Duration {
        monotonic().saturating_sub(self.started)
    }

    pub(crate) fn broken(&self) -> bool {
        self.broken.load(Ordering::SeqCst)
    }

    /// Waits for the store's answer, no longer than a submission would.
    pub(crate) async fn ask<T>(&self, question: StoreFuture<'_, T>) -> Result<T, Failure> {
        let patience = self.limits.submission_timeout;
        let silent = |_| {
            let words = format!("no answer within {} s", patience.as_secs_f64());
            Err(StoreError::unknown(std::io::Error::new(std::io::ErrorKind::TimedOut, words)))
        };
        self.noted(tokio::time::timeout(patience, question).await.unwrap_or_else(silent))
    }

    pub(crate) async fn admin(&self, command: AdminCommand) -> Result<AdminAnswer, Failure> {
        Ok(self.ask(self.store.admin(command)).await??)
    }

    /// The jobs of a request that go into line at once, if anybody waits for work.
    fn expected(&self, request: &SubmitRequest) -> BTreeSet<(QueueName, JobType)> {
        if self.lobby.taken() == 0 {
            return BTreeSet::new();
        }
        let at_once = |new: &NewJob| {
            let now = matches!(new.start, Start::Now) && new.hold != Some(true);
            now && new.after.is_empty() && new.after_any.is_empty()
        };
        let jobs = request.batch.iter().filter(|submission| at_once(&submission.job));
        jobs.map(|submission| (submission.queue.clone(), submission.job.job_type.clone())).collect()
    }

    pub(crate) fn noted<T>(&self, answer: Result<T, StoreError>) -> Result<T, Failure> {
        answer.map_err(|error| {
            self.note(&error);
            error.into()
        })
    }

    /// Looks at a failure of the store: some are the end of it.
    pub(crate) fn note(&self, error: &StoreError) {
        if matches!(error, StoreError::Poisoned) && !self.broken.swap(true, Ordering::SeqCst) {
            tracing::error!(%error, "the store has failed for good; stopping");
            self.gave_up.notify_one();
        }
        if let StoreError::Corrupt { what } = error
            && self.damage.is_news(what)
        {
            tracing::error!(%error, "damage was met, and not served; `longshore doctor` on a copy says whether there is more");
        }
        if matches!(error, StoreError::Unknown(_)) {
            // Whoever was in the failed commit hears this; whether the store lives on, the next tick tells.
            self.look.notify_one();
        }
    }
}
