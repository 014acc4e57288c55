//! The engine of `longshore-core` on records in memory, as a [`Subject`].

mod settings;
mod snapshot;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use longshore_core::cancel::Force;
use longshore_core::claim::Terms;
use longshore_core::dice::SeededDice;
use longshore_core::edit;
use longshore_core::engine::{
    self, AdminAnswer, AdminCommand as Admin, Answer as Told, ClaimRequest, Command as Order, DeleteQueue, Effect,
    Engine, Extension, Farewell, MemoryRecords, Options, Settlement, Submission, SubmitRequest,
};
use longshore_core::extend::Notes;
use longshore_core::failure::{Reported, ReportedCategory};
use longshore_core::id::{JobId, JobType, LeaseToken, QueueName, WorkerName};
use longshore_core::priority::Priority;
use longshore_core::profile::Profile;
use longshore_core::refusal::{Invalid, Refusal};
use longshore_core::requeue::{Requeue, Reset};
use longshore_core::settle;
use longshore_core::state::StateKind;
use longshore_core::submit::{self, DependencyRef, Payload, Start};
use longshore_core::tags::Tags;
use longshore_core::{Duration, Timestamp};

use crate::subject::*;

/// The same instant at which the model starts.
pub const START: Millis = 1_700_000_000_000;

#[derive(Debug, Clone)]
pub struct EngineSubject {
    engine: Engine,
    records: MemoryRecords,
    dice: SeededDice,
    now: Timestamp,
    next: Option<Timestamp>,
    effects: Vec<Effect>,
    ids: Vec<JobId>,
    handles: HashMap<JobId, Handle>,
    tokens: HashMap<(Handle, u64), LeaseToken>,
    /// Jobs touched by one tick: small in tests, so that work is cut into slices.
    tick_budget: usize,
}

impl Default for EngineSubject {
    fn default() -> Self {
        Self::new()
    }
}

impl EngineSubject {
    pub fn new() -> Self {
        Self::with_slices(Options::default().cascade_jobs_max, 1_000)
    }

    /// An engine that does its bounded work in slices of these sizes.
    pub fn with_slices(cascade_jobs_max: usize, tick_budget: usize) -> Self {
        let options = Options { cascade_jobs_max, ..Options::default() };
        Self {
            engine: Engine::new(options),
            records: MemoryRecords::default(),
            dice: SeededDice::new(0x10f5_0fe0),
            now: Timestamp::from_millis(START),
            next: None,
            effects: Vec::new(),
            ids: Vec::new(),
            handles: HashMap::new(),
            tokens: HashMap::new(),
            tick_budget,
        }
    }

    /// The engine as the records alone would give it back, once it has caught up with the clock.
    pub fn rebuilt(&self) -> Engine {
        let live = self.records.jobs().filter(|job| job.live());
        let mut ended: BTreeMap<(QueueName, StateKind), u64> = BTreeMap::new();
        for job in self.records.jobs().filter(|job| !job.live()) {
            *ended.entry((job.queue.clone(), job.kind())).or_default() += 1;
        }
        let ended = ended.into_iter().map(|((queue, state), jobs)| (queue, state, jobs));
        let queues = self.records.queues().cloned();
        let mut engine = Engine::rebuild(self.engine.options(), queues, live, ended, self.engine.next_number());
        let (mut records, mut dice, mut effects) = (self.records.clone(), self.dice.clone(), Vec::new());
        let Ok(ticked) = engine.tick(&mut records, self.now, usize::MAX, &mut dice, &mut effects);
        assert!(ticked.next.is_none_or(|next| next > self.now), "a tick without bound leaves nothing undone");
        engine
    }

    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    pub fn records(&self) -> &MemoryRecords {
        &self.records
    }

    /// What was reported since the last call.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    fn order(&mut self, order: Order) -> Told {
        let Ok(told) = self.engine.apply(&mut self.records, order, self.now, &mut self.dice, &mut self.effects);
        told
    }

    /// Ticks until nothing is due at this instant.
    fn settle_down(&mut self) {
        loop {
            let Ok(ticked) =
                self.engine.tick(&mut self.records, self.now, self.tick_budget, &mut self.dice, &mut self.effects);
            self.next = ticked.next;
            if ticked.next.is_none_or(|next| next > self.now) {
                return;
            }
        }
    }

    fn id(&self, job: Handle) -> Result<JobId, Refusal> {
        self.ids.get(job).copied().ok_or(Refusal::JobNotFound)
    }

    fn adopt(&mut self, id: JobId) -> Handle {
        let next = self.ids.len();
        let handle = *self.handles.entry(id).or_insert(next);
        if handle == next {
            self.ids.push(id);
        }
        handle
    }

    fn token(&mut self, job: Handle, token: &Token) -> Option<LeaseToken> {
        match token {
            Token::Missing => None,
            Token::Bogus => Some(LeaseToken::random(&mut self.dice)),
            Token::Version(version) => {
                let known = self.tokens.get(&(job, *version)).copied();
                Some(known.unwrap_or_else(|| LeaseToken::random(&mut self.dice)))
            }
        }
    }

    fn obey(&mut self, command: &Command) -> Result<Answer, Refusal> {
        let order = match command {
            Command::Submit { queue, jobs } => {
                let batch = self.read(&QueueName::new(queue)?, jobs)?;
                Order::Submit(SubmitRequest::new(batch))
            }
            Command::Children { job, token, jobs, finally } => {
                return self.fan_out(*job, token, jobs, finally.as_ref());
            }
            Command::Claim { queues, worker, limit, types, lease, execution_timeout } => Order::Claim(ClaimRequest {
                queues: queues.iter().map(|queue| QueueName::new(queue)).collect::<Result<_, _>>()?,
                limit: *limit,
                types: types.iter().map(|name| JobType::new(name)).collect::<Result<_, _>>()?,
                terms: Terms {
                    worker: Some(WorkerName::new(worker)?),
                    lease: lease.map(|millis| length("lease", millis)).transpose()?,
                    execution_timeout: execution_timeout
                        .map(|millis| length("execution_timeout", millis))
                        .transpose()?,
                },
            }),
            Command::Settle { job, token, outcome } => {
                let outcome = outcome_of(outcome)?;
                Order::Settle(Settlement { id: self.id(*job)?, token: self.token(*job, token), outcome })
            }
            Command::Heartbeat { job, token, progress, checkpoint } => Order::Extend(Extension {
                id: self.id(*job)?,
                token: self.token(*job, token),
                notes: Notes {
                    progress: progress.clone().map(Bytes::from),
                    checkpoint: checkpoint.clone().map(Bytes::from),
                },
            }),
            _ => Order::Admin(self.admin(command)?),
        };
        let told = self.order(order);
        match (self.translate(told)?, command) {
            (Answer::State { state, .. }, Command::Settle { job, .. }) => Ok(Answer::State { job: *job, state }),
            (answer, _) => Ok(answer),
        }
    }

    fn admin(&mut self, command: &Command) -> Result<Admin, Refusal> {
        Ok(match command {
            Command::PutQueue { queue, profile, settings } => Admin::PutQueue {
                queue: QueueName::new(queue)?,
                profile: profile.as_deref().map(profile_named).transpose()?,
                overrides: settings.as_ref().map(settings::queue_overrides).transpose()?.map(Box::new),
            },
            Command::Pause { queue } => Admin::PauseQueue { queue: QueueName::new(queue)? },
            Command::Resume { queue } => Admin::ResumeQueue { queue: QueueName::new(queue)? },
            Command::DeleteQueue { queue, force } => Admin::DeleteQueue {
                queue: QueueName::new(queue)?,
                how: if *force { DeleteQueue::Anyway(Farewell::Cancel) } else { DeleteQueue::IfNothingLives },
            },
            Command::SubmitHeld { job } => Admin::SubmitHeld { id: self.id(*job)? },
            Command::Cancel { job, reason, force } => Admin::Cancel {
                id: self.id(*job)?,
                reason: reason.clone(),
                force: if *force { Force::Now } else { Force::ByPolicy },
            },
            Command::Requeue { job, reset, run_at } => Admin::Requeue {
                id: self.id(*job)?,
                how: Requeue {
                    counters: if *reset { Reset::Zero } else { Reset::Keep },
                    run_at: run_at.map(Timestamp::from_millis),
                },
            },
            Command::DeadLetter { job, reason } => Admin::DeadLetter { id: self.id(*job)?, reason: reason.clone() },
            Command::RunNow { job } => Admin::RunNow { id: self.id(*job)? },
            Command::Edit { job, edit } => {
                let edit = edit_of(edit)?;
                Admin::Edit { id: self.id(*job)?, edit }
            }
            Command::Delete { job } => Admin::Delete { id: self.id(*job)? },
            Command::Submit { .. }
            | Command::Children { .. }
            | Command::Claim { .. }
            | Command::Settle { .. }
            | Command::Heartbeat { .. } => panic!("{command:?} is no admin command"),
        })
    }

    fn translate(&mut self, told: Told) -> Result<Answer, Refusal> {
        Ok(match told {
            Told::Submitted(jobs) => Answer::Submitted(self.submitted(&jobs.map_err(|refused| refused.first)?)),
            Told::Claimed(jobs) => Answer::Claimed(jobs?.iter().map(|job| self.claimed(job)).collect()),
            // The caller knows which job it was.
            Told::Settled(state) => Answer::State { job: 0, state: state?.word().to_owned() },
            Told::Extended(extended) => {
                let extended = extended?;
                Answer::Extended {
                    expires_at: extended.expires_at.map(Timestamp::as_millis),
                    cancel_requested: extended.cancel_requested,
                }
            }
            Told::Admin(answer) => match answer? {
                AdminAnswer::QueuePut { .. } | AdminAnswer::Done => Answer::Done,
                AdminAnswer::CancelRequested => Answer::CancelRequested,
                AdminAnswer::State { id, state } => {
                    Answer::State { job: self.adopt(id), state: state.word().to_owned() }
                }
            },
        })
    }

    fn claimed(&mut self, claimed: &engine::Claimed) -> Claimed {
        let job = self.handles[&claimed.id];
        self.tokens.insert((job, claimed.version.0), claimed.token);
        Claimed {
            job,
            version: claimed.version.0,
            attempt: claimed.attempt,
            expires_at: claimed.expires_at.map(Timestamp::as_millis),
            deadline_at: claimed.deadline_at.map(Timestamp::as_millis),
        }
    }

    fn submitted(&mut self, jobs: &[engine::Submitted]) -> Vec<Submitted> {
        let answer = |subject: &mut Self, job: &engine::Submitted| Submitted {
            job: job.state.map(|_| subject.adopt(job.id)),
            state: job.state.map(|state| state.word().to_owned()),
            duplicate: job.duplicate,
        };
        jobs.iter().map(|job| answer(self, job)).collect()
    }

    /// Reads the members of a batch. Where one cannot be read, the first member that is refused for any reason speaks for all.
    fn read<'a>(
        &mut self,
        queue: &QueueName,
        jobs: impl IntoIterator<Item = &'a NewJob>,
    ) -> Result<Vec<Submission>, Refusal> {
        let (mut batch, mut unreadable) = (Vec::new(), None);
        for (place, new) in jobs.into_iter().enumerate() {
            let job = self.new_job(new).unwrap_or_else(|refusal| {
                unreadable.get_or_insert((place, refusal));
                self.stand_in(new)
            });
            batch.push(Submission { queue: queue.clone(), job });
        }
        let Some((place, refusal)) = unreadable else { return Ok(batch) };
        let told = self.clone().order(Order::Submit(SubmitRequest::new(batch)));
        let Told::Submitted(Err(refused)) = told else { return Err(refusal) };
        let earlier = refused.errors.into_iter().find(|(other, _)| *other < place);
        Err(earlier.map_or(refusal, |(_, refusal)| refusal))
    }

    /// In the place of a job that cannot be read, so that others of its batch can still be judged.
    fn stand_in(&mut self, new: &NewJob) -> submit::NewJob {
        let mut job = submit::NewJob::new(JobType::new("stand-in").unwrap(), Payload::Binary(Bytes::new()));
        job.reference = new.reference.as_deref().map(Arc::from);
        job.after = self.dependencies(&new.after);
        job.after_any = self.dependencies(&new.after_any);
        job
    }

    fn fan_out(
        &mut self,
        job: Handle,
        token: &Token,
        jobs: &[NewJob],
        finally: Option<&NewJob>,
    ) -> Result<Answer, Refusal> {
        let parent = self.id(job)?;
        let token = self.token(job, token);
        let queue = self.records.job_by_id(parent).map(|job| job.queue.clone()).ok_or(Refusal::JobNotFound)?;
        // Whoever holds no lease learns nothing else.
        let seen = self.records.job_by_id(parent).ok_or(Refusal::JobNotFound)?;
        longshore_core::lease::check(seen, token, self.now)?;
        let mut children = self.read(&queue, jobs.iter().chain(finally))?;
        let with_finally = finally.is_some();
        let finally = finally.and_then(|_| children.pop());
        if children.is_empty() {
            return Err(Refusal::invalid("jobs", "must name at least one job"));
        }
        let told = self.order(Order::Submit(SubmitRequest::children(parent, token, children, finally)));
        let Answer::Submitted(mut answers) = self.translate(told)? else { panic!("children are submitted") };
        let finally = if with_finally { answers.pop() } else { None };
        let jobs = answers.into_iter().filter_map(|answer| answer.job).collect();
        Ok(Answer::FannedOut { jobs, finally: finally.and_then(|answer| answer.job) })
    }

    fn new_job(&mut self, new: &NewJob) -> Result<submit::NewJob, Refusal> {
        let payload = Payload::Binary(Bytes::from(vec![0xff; new.payload_bytes]));
        let mut job = submit::NewJob::new(JobType::new(&new.job_type)?, payload);
        if let Some(level) = new.priority {
            job.priority = priority_of(level)?;
        }
        job.start = match (new.run_at, new.delay) {
            (None, None) => Start::Now,
            (Some(at), None) => Start::At(Timestamp::from_millis(at)),
            (None, Some(millis)) => Start::In(length("delay", millis)?),
            (Some(_), Some(_)) => return Err(Refusal::invalid("delay", "goes without run_at")),
        };
        let text = |text: &Option<String>| text.as_deref().map(Arc::from);
        job.idempotency_key = text(&new.idempotency_key).filter(|key: &Arc<str>| !key.is_empty());
        job.external_id = text(&new.external_id);
        job.correlation_id = text(&new.correlation_id);
        job.callback_url = text(&new.callback_url);
        job.tags = tags_of(&new.tags)?;
        job.after = self.dependencies(&new.after);
        job.after_any = self.dependencies(&new.after_any);
        job.reference = text(&new.reference);
        job.hold = new.hold;
        job.policy = settings::job_overrides(&new.settings)?;
        Ok(job)
    }

    fn dependencies(&mut self, dependencies: &[Dependency]) -> Vec<DependencyRef> {
        let reference = |dependency: &Dependency| match dependency {
            Dependency::Job(handle) => {
                let known = self.ids.get(*handle).copied();
                DependencyRef::Job(known.unwrap_or_else(|| JobId::random(&mut self.dice)))
            }
            Dependency::Ref(name) => DependencyRef::Local(name.as_str().into()),
            Dependency::Unknown => DependencyRef::Job(JobId::random(&mut self.dice)),
        };
        dependencies.iter().map(reference).collect()
    }
}

impl Subject for EngineSubject {
    fn name(&self) -> &'static str {
        "engine"
    }

    fn now(&mut self) -> Millis {
        self.now.as_millis()
    }

    fn apply(&mut self, command: &Command) -> Answer {
        let answer = self.obey(command);
        self.settle_down();
        answer.unwrap_or_else(|refusal| Answer::Refused { code: refusal.code().to_owned() })
    }

    fn advance(&mut self, by: Millis) {
        let target = Timestamp::from_millis(self.now.as_millis() + by);
        self.settle_down();
        while let Some(next) = self.next.filter(|next| *next <= target) {
            self.now = next;
            self.settle_down();
        }
        self.now = target;
    }

    fn job(&mut self, job: Handle) -> Option<JobSnapshot> {
        let id = self.ids.get(job)?;
        self.records.job_by_id(*id).map(|job| snapshot::job(job, &self.handles))
    }

    fn queue(&mut self, queue: &str) -> Option<QueueSnapshot> {
        let queue = self.engine.queue(&QueueName::new(queue).ok()?)?;
        let counts = self.engine.counts(&queue.name);
        let count = |state: &StateKind| (state.word().to_owned(), engine::count_of(&counts, *state));
        Some(QueueSnapshot {
            profile: queue.profile.word().to_owned(),
            paused: queue.paused,
            counts: StateKind::ALL.iter().map(count).collect(),
        })
    }

    fn view(&mut self, job: Handle, view: &str) -> Option<BTreeMap<String, String>> {
        let job = self.records.job_by_id(*self.ids.get(job)?)?;
        Some(snapshot::view(job, view, self.now, &self.handles))
    }
}

fn profile_named(name: &str) -> Result<Profile, Refusal> {
    Profile::from_word(name).ok_or_else(|| Refusal::invalid("profile", "is not one of the six"))
}

fn priority_of(level: u8) -> Result<Priority, Refusal> {
    Priority::from_level(level).ok_or_else(|| Refusal::invalid("priority", "must be 0-4"))
}

fn length(field: &'static str, millis: Millis) -> Result<Duration, Invalid> {
    let millis = u64::try_from(millis).map_err(|_| Invalid::new(field, "must not be negative"))?;
    Ok(Duration::from_millis(millis))
}

fn tags_of(tags: &BTreeMap<String, Option<String>>) -> Result<Tags, Refusal> {
    if tags.is_empty() {
        return Ok(Tags::None);
    }
    let pair = |(key, value): (&String, &Option<String>)| (key.as_str().into(), value.as_deref().map(Arc::from));
    let tags = Tags::Map(tags.iter().map(pair).collect());
    tags.check_named()?;
    Ok(tags)
}

fn outcome_of(outcome: &Outcome) -> Result<settle::Outcome, Refusal> {
    Ok(match outcome {
        Outcome::Complete { result } => settle::Outcome::Complete { result: result.clone().map(Bytes::from) },
        Outcome::Snooze { delay } => settle::Outcome::Snooze { delay: length("delay", *delay)? },
        Outcome::Release => settle::Outcome::Release,
        Outcome::Fail { category, code, message, retry_after, unrecoverable } => {
            let category = ReportedCategory::from_word(category)
                .ok_or_else(|| Refusal::invalid("error.category", "is not one that a worker may report"))?;
            settle::Outcome::Fail(Reported {
                code: code.as_deref().map(Arc::from),
                retry_after: retry_after.map(|millis| length("error.retry_after", millis)).transpose()?,
                unrecoverable: *unrecoverable,
                ..Reported::new(category, message)
            })
        }
    })
}

fn edit_of(edit: &Edit) -> Result<edit::Edit, Refusal> {
    Ok(edit::Edit {
        priority: edit.priority.map(priority_of).transpose()?,
        job_type: edit.job_type.as_deref().map(JobType::new).transpose()?,
        tags: edit.tags.as_ref().map(tags_of).transpose()?,
        correlation_id: edit.correlation_id.as_deref().map(|text| Some(text.into())),
        callback_url: edit.callback_url.as_deref().map(|text| Some(text.into())),
        retry_limit: edit.retry_limit,
    })
}
