//! Conversion between the neutral types of [`crate::target`] and those of `longshore-core`. The
//! subjects for the engine and for stores share it.

mod settings;
mod snapshot;
mod workflows;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use longshore_core::cancel::Force;
use longshore_core::claim::ClaimOptions;
use longshore_core::directive::WorkerDirective;
use longshore_core::edit;
use longshore_core::failure::{ReportedCategory, ReportedFailure};
use longshore_core::heartbeat::HeartbeatData;
use longshore_core::id::{JobId, JobType, LeaseToken, QueueName, WorkerName, WorkflowId};
use longshore_core::job::Job;
use longshore_core::limits::CORRELATION_ID_CHARS_MAX;
use longshore_core::ocypod::status::{Status, StatusChange};
use longshore_core::priority::Priority;
use longshore_core::profile::Profile;
use longshore_core::refusal::{Invalid, Refusal};
use longshore_core::requeue::{Requeue, Reset};
use longshore_core::rng::{Rng, SeededRng};
use longshore_core::settle;
use longshore_core::state::StateKind;
use longshore_core::submit::{self, DependencyRef, Payload, Start};
use longshore_core::tags::Tags;
use longshore_core::trace_context::TraceParent;
use longshore_core::workflow::Workflow;
use longshore_core::{Duration, Timestamp};
use longshore_engine::{
    AdminCommand as Admin, AdminResponse, ClaimRequest, Claimed as EngineClaimed, Command as Order, DeleteQueue,
    Heartbeat, Queue, QueueDeleteMode, Response as EngineResponse, Settlement, StateCounts, Submission, SubmitRequest,
    WorkflowTarget,
};

use crate::target::*;

/// Executes commands in the types of `longshore-core`.
pub(crate) trait Machine {
    fn execute(&mut self, order: Order) -> EngineResponse;
    /// Executes a claim that carries settlements, in one step.
    fn settle_and_claim(&mut self, settle: Vec<Settlement>, claim: ClaimRequest) -> Result<SettledClaim, Refusal>;
    fn direct(&mut self, worker: WorkerName, directive: WorkerDirective);
    /// Returns the queue of a parent. Fails if the token does not hold its lease.
    fn parent(&mut self, id: JobId, token: Option<LeaseToken>) -> Result<QueueName, Refusal>;
    fn workflow(&mut self, id: WorkflowId) -> Option<Workflow>;
    /// Returns names and ids of members, oldest first, without members that clones have replaced.
    fn members(&mut self, id: WorkflowId) -> Vec<(String, JobId)>;
    /// Reports a clone that a retry has made.
    fn record_clone(&mut self, _: JobId) {}
}

/// Verdicts on settlements, and the jobs of the claim that carried them.
pub(crate) type SettledClaim = (Vec<Result<StateKind, Refusal>>, Vec<EngineClaimed>);

/// Maps handles to ids, and claims to tokens.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    ids: Vec<JobId>,
    workflows: Vec<WorkflowId>,
    handles: HashMap<JobId, Handle>,
    tokens: HashMap<(Handle, u64), LeaseToken>,
    /// Makes ids and tokens that were never assigned. It differs from the generator of the machine.
    rng: SeededRng,
    /// The refusal of the last command, if it was refused.
    refusal: Option<Refusal>,
}

impl Names {
    pub(crate) fn new() -> Self {
        let rng = SeededRng::new(0x0ff5_e7a1);
        Self {
            ids: Vec::new(),
            workflows: Vec::new(),
            handles: HashMap::new(),
            tokens: HashMap::new(),
            rng,
            refusal: None,
        }
    }

    /// Converts the result of a command and keeps its refusal for messages.
    pub(crate) fn record_answer(&mut self, answer: Result<Answer, Refusal>) -> Answer {
        self.refusal = answer.as_ref().err().cloned();
        answer.unwrap_or_else(|refusal| Answer::Refused { code: refusal.code().to_owned() })
    }

    pub(crate) fn reason(&self) -> Option<String> {
        self.refusal.as_ref().map(Refusal::to_string)
    }

    pub(crate) fn id_of(&self, job: Handle) -> Option<JobId> {
        self.ids.get(job).copied()
    }

    pub(crate) fn snapshot(&self, job: &Job) -> JobSnapshot {
        snapshot::job(job, &self.handles)
    }

    pub(crate) fn view(&self, job: &Job, view: &str, now: Timestamp) -> BTreeMap<String, String> {
        snapshot::view(job, view, now, &self.handles)
    }

    /// Returns the id of a handle. A handle that was never assigned gets an unknown id.
    fn id(&mut self, job: Handle) -> JobId {
        self.id_of(job).unwrap_or_else(|| JobId::random(&mut self.rng))
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
            Token::Bogus => Some(LeaseToken::random(&mut self.rng)),
            Token::Version(version) => {
                let known = self.tokens.get(&(job, *version)).copied();
                Some(known.unwrap_or_else(|| LeaseToken::random(&mut self.rng)))
            }
        }
    }

    /// Executes a command and returns the answer in neutral types.
    pub(crate) fn execute(&mut self, machine: &mut dyn Machine, command: &Command) -> Result<Answer, Refusal> {
        let order = match command {
            Command::Submit { queue, jobs } => {
                let batch = self.read(machine, &QueueName::new(queue)?, jobs, None)?;
                Order::Submit(SubmitRequest::new(batch))
            }
            Command::Children { job, token, jobs, finally } => {
                return self.fan_out(machine, *job, token, jobs, finally.as_ref());
            }
            Command::StartWorkflow { queue, jobs, open } => return self.start_workflow(machine, queue, jobs, *open),
            Command::GrowWorkflow { workflow, queue, jobs } => {
                return self.grow_workflow(machine, *workflow, queue, jobs);
            }
            Command::Claim { .. } => Order::Claim(claim_of(command)?),
            Command::Settle { job, token, outcome } => Order::Settle(self.settlement(*job, token, outcome)?),
            Command::SettleAndClaim { settle, claim } => return self.settle_and_claim(machine, settle, claim),
            Command::Direct { worker, directive } => {
                let directive = WorkerDirective::parse(directive).expect("a directive of the language");
                machine.direct(WorkerName::new(worker)?, directive);
                return Ok(Answer::Done);
            }
            Command::Heartbeat { job, token, progress, checkpoint } => Order::Heartbeat(Heartbeat {
                id: self.id(*job),
                token: self.token(*job, token),
                notes: HeartbeatData {
                    progress: progress.clone().map(Bytes::from),
                    checkpoint: checkpoint.clone().map(Bytes::from),
                },
            }),
            _ => Order::Admin(self.admin(command)?),
        };
        let response = machine.execute(order);
        match (self.translate(response)?, command) {
            (Answer::State { state, .. }, Command::Settle { job, .. }) => Ok(Answer::State { job: *job, state }),
            (answer, _) => Ok(answer),
        }
    }

    fn settlement(&mut self, job: Handle, token: &Token, outcome: &Outcome) -> Result<Settlement, Refusal> {
        let outcome = outcome_of(outcome)?;
        Ok(Settlement { id: self.id(job), token: self.token(job, token), outcome })
    }

    /// An invalid settlement has its own verdict, as on the wire.
    fn settle_and_claim(
        &mut self,
        machine: &mut dyn Machine,
        settle: &[(Handle, Token, Outcome)],
        claim: &Command,
    ) -> Result<Answer, Refusal> {
        let claim = claim_of(claim)?;
        let parsed: Vec<Result<Settlement, Refusal>> =
            settle.iter().map(|(job, token, outcome)| self.settlement(*job, token, outcome)).collect();
        let valid = parsed.iter().filter_map(|item| item.as_ref().ok()).cloned().collect();
        let (verdicts, claimed) = machine.settle_and_claim(valid, claim)?;
        let mut verdicts = verdicts.into_iter();
        let verdict = |item: Result<Settlement, Refusal>| {
            let verdict = item.and_then(|_| verdicts.next().expect("one verdict per settlement"));
            verdict.map_or_else(|refusal| refusal.code().to_owned(), |state| state.as_str().to_owned())
        };
        let verdicts = parsed.into_iter().map(verdict).collect();
        Ok(Answer::SettledAndClaimed { verdicts, claimed: claimed.iter().map(|job| self.claimed(job)).collect() })
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
                how: if *force { DeleteQueue::Force(QueueDeleteMode::Cancel) } else { DeleteQueue::IfEmpty },
            },
            Command::SubmitHeld { job } => Admin::SubmitHeld { id: self.id(*job) },
            Command::Cancel { job, reason, force } => Admin::Cancel {
                id: self.id(*job),
                reason: reason.clone(),
                force: if *force { Force::Now } else { Force::ByPolicy },
            },
            Command::Requeue { job, reset, run_at } => Admin::Requeue {
                id: self.id(*job),
                how: Requeue {
                    counters: if *reset { Reset::Zero } else { Reset::Keep },
                    run_at: run_at.map(Timestamp::from_millis),
                },
            },
            Command::DeadLetter { job, reason } => Admin::DeadLetter { id: self.id(*job), reason: reason.clone() },
            Command::RunNow { job } => Admin::RunNow { id: self.id(*job) },
            Command::Edit { job, edit } => {
                let edit = edit_of(edit)?;
                Admin::Edit { id: self.id(*job), edit }
            }
            Command::Delete { job } => Admin::Delete { id: self.id(*job) },
            Command::ChangeStatus { job, status, output } => Admin::ChangeStatus {
                id: self.id(*job),
                change: StatusChange {
                    status: status.as_deref().map(status_named).transpose()?,
                    output: output.clone().map(Bytes::from),
                },
            },
            Command::CloseWorkflow { .. } | Command::CancelWorkflow { .. } | Command::RetryWorkflow { .. } => {
                self.workflow_command(command).expect("these three are commands to workflows")
            }
            Command::Submit { .. }
            | Command::StartWorkflow { .. }
            | Command::GrowWorkflow { .. }
            | Command::Children { .. }
            | Command::Claim { .. }
            | Command::Settle { .. }
            | Command::SettleAndClaim { .. }
            | Command::Direct { .. }
            | Command::Heartbeat { .. } => panic!("{command:?} is no admin command"),
        })
    }

    fn translate(&mut self, response: EngineResponse) -> Result<Answer, Refusal> {
        Ok(match response {
            EngineResponse::Submitted(jobs) => {
                Answer::Submitted(self.submitted(&jobs.map_err(|refused| refused.first)?))
            }
            EngineResponse::Claimed(jobs) => Answer::Claimed(jobs?.iter().map(|job| self.claimed(job)).collect()),
            // The caller fills in the job.
            EngineResponse::Settled(state) => Answer::State { job: 0, state: state?.as_str().to_owned() },
            EngineResponse::LeaseRenewed(extended) => {
                let extended = extended?;
                Answer::Extended {
                    expires_at: extended.expires_at.map(Timestamp::as_millis),
                    cancel_requested: extended.cancel_requested,
                }
            }
            EngineResponse::Admin(answer) => match answer? {
                AdminResponse::QueuePut { .. } | AdminResponse::Done => Answer::Done,
                AdminResponse::CancelRequested => Answer::CancelRequested,
                AdminResponse::Workflow { id, state } => {
                    Answer::WorkflowState { workflow: self.adopt_workflow(id), state: state.as_str().to_owned() }
                }
                AdminResponse::State { id, state } => {
                    Answer::State { job: self.adopt(id), state: state.as_str().to_owned() }
                }
            },
        })
    }

    fn claimed(&mut self, claimed: &longshore_engine::Claimed) -> Claimed {
        let job = self.handles[&claimed.id];
        self.tokens.insert((job, claimed.version.0), claimed.token);
        Claimed {
            job,
            version: claimed.version.0,
            attempt: claimed.attempt,
            expires_at: claimed.expires_at.map(Timestamp::as_millis),
            deadline_at: claimed.deadline_at.map(Timestamp::as_millis),
            lease_duration: claimed.lease_duration.map(|length| i64::try_from(length.as_millis()).unwrap_or(i64::MAX)),
            last_attempt: claimed.last_attempt,
        }
    }

    fn submitted(&mut self, jobs: &[longshore_engine::Submitted]) -> Vec<Submitted> {
        let answer = |subject: &mut Self, job: &longshore_engine::Submitted| Submitted {
            job: job.state.map(|_| subject.adopt(job.id)),
            state: job.state.map(|state| state.as_str().to_owned()),
            duplicate: job.duplicate,
        };
        jobs.iter().map(|job| answer(self, job)).collect()
    }

    /// Converts the items of a batch. If an item cannot be converted, the batch is refused with the
    /// code of its first invalid item.
    fn read<'a>(
        &mut self,
        machine: &mut dyn Machine,
        queue: &QueueName,
        jobs: impl IntoIterator<Item = &'a NewJob>,
        joining: Option<&WorkflowTarget>,
    ) -> Result<Vec<Submission>, Refusal> {
        let (mut batch, mut unreadable) = (Vec::new(), None);
        for (place, new) in jobs.into_iter().enumerate() {
            let job = self.new_job(new).unwrap_or_else(|refusal| {
                unreadable.get_or_insert((place, refusal));
                self.placeholder(new)
            });
            batch.push(Submission { queue: queue.clone(), job });
        }
        let Some((place, refusal)) = unreadable else { return Ok(batch) };
        // The placeholder is invalid, so the machine stores nothing.
        let response =
            machine.execute(Order::Submit(SubmitRequest { joining: joining.cloned(), ..SubmitRequest::new(batch) }));
        let EngineResponse::Submitted(Err(refused)) = response else {
            panic!("a batch with an invalid item was accepted: {response:?}")
        };
        let earlier = refused.errors.into_iter().find(|(other, _)| *other < place);
        Err(earlier.map_or(refusal, |(_, refusal)| refusal))
    }

    /// Makes an invalid job in place of an item that cannot be converted, so that the other items
    /// are still validated.
    fn placeholder(&mut self, new: &NewJob) -> submit::NewJob {
        let mut job = submit::NewJob::new(JobType::new("stand-in").unwrap(), Payload::Binary(Bytes::new()));
        job.correlation_id = Some("x".repeat(CORRELATION_ID_CHARS_MAX + 1).into());
        job.reference = new.reference.as_deref().map(Arc::from);
        job.after = self.dependencies(&new.after);
        job.after_any = self.dependencies(&new.after_any);
        job
    }

    fn fan_out(
        &mut self,
        machine: &mut dyn Machine,
        job: Handle,
        token: &Token,
        jobs: &[NewJob],
        finally: Option<&NewJob>,
    ) -> Result<Answer, Refusal> {
        let parent = self.id(job);
        let token = self.token(job, token);
        let queue = machine.parent(parent, token)?;
        let mut children = self.read(machine, &queue, jobs.iter().chain(finally), None)?;
        let with_finally = finally.is_some();
        let finally = finally.and_then(|_| children.pop());
        if children.is_empty() {
            return Err(Refusal::invalid("jobs", "must name at least one job"));
        }
        let response = machine.execute(Order::Submit(SubmitRequest::children(parent, token, children, finally)));
        let Answer::Submitted(mut answers) = self.translate(response)? else { panic!("children are submitted") };
        let finally = if with_finally { answers.pop() } else { None };
        let jobs = answers.into_iter().filter_map(|answer| answer.job).collect();
        Ok(Answer::FannedOut { jobs, finally: finally.and_then(|answer| answer.job) })
    }

    fn new_job(&mut self, new: &NewJob) -> Result<submit::NewJob, Refusal> {
        let payload = Payload::Binary(self.unique_bytes(new.payload_bytes));
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
        job.traceparent = new.traceparent.as_deref().map(TraceParent::parse_field).transpose()?.map(Box::new);
        job.tags = tags_of(&new.tags)?;
        job.after = self.dependencies(&new.after);
        job.after_any = self.dependencies(&new.after_any);
        job.reference = text(&new.reference);
        job.hold = new.hold;
        job.policy = settings::job_overrides(&new.settings)?;
        Ok(job)
    }

    /// Returns bytes that no other job has, so that swapped payloads are detected.
    fn unique_bytes(&mut self, bytes: usize) -> Bytes {
        let salt = self.rng.next_u64().to_le_bytes();
        salt.into_iter().cycle().take(bytes).collect()
    }

    fn dependencies(&mut self, dependencies: &[Dependency]) -> Vec<DependencyRef> {
        let reference = |dependency: &Dependency| match dependency {
            Dependency::Job(handle) => {
                let known = self.ids.get(*handle).copied();
                DependencyRef::Job(known.unwrap_or_else(|| JobId::random(&mut self.rng)))
            }
            Dependency::Ref(name) => DependencyRef::Local(name.as_str().into()),
            Dependency::Unknown => DependencyRef::Job(JobId::random(&mut self.rng)),
        };
        dependencies.iter().map(reference).collect()
    }
}

/// Returns the queue of a record whose lease this token holds. Every other caller gets a refusal.
pub(crate) fn queue_of_holder(
    parent: Option<&Job>,
    token: Option<LeaseToken>,
    now: Timestamp,
) -> Result<QueueName, Refusal> {
    let parent = parent.ok_or(Refusal::JobNotFound)?;
    longshore_core::lease::check(parent, token, now)?;
    Ok(parent.queue.clone())
}

pub(crate) fn name_in_workflow(job: &Job) -> String {
    job.membership.as_ref().map(|membership| membership.reference.to_string()).unwrap_or_default()
}

pub(crate) fn queue_snapshot(queue: &Queue, counts: &StateCounts) -> QueueSnapshot {
    let count = |state: &StateKind| (state.as_str().to_owned(), longshore_engine::count_of(counts, *state));
    QueueSnapshot {
        profile: queue.profile.as_str().to_owned(),
        paused: queue.paused,
        counts: StateKind::ALL.iter().map(count).collect(),
    }
}

fn status_named(word: &str) -> Result<Status, Refusal> {
    Status::parse(word).ok_or_else(|| Refusal::invalid("status", "is not a status"))
}

fn profile_named(name: &str) -> Result<Profile, Refusal> {
    Profile::parse(name).ok_or_else(|| Refusal::invalid("profile", "is not one of the six"))
}

fn priority_of(level: i64) -> Result<Priority, Refusal> {
    u8::try_from(level).ok().and_then(Priority::from_level).ok_or_else(|| Refusal::invalid("priority", "must be 0-4"))
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
    tags.validate_strict()?;
    Ok(tags)
}

fn outcome_of(outcome: &Outcome) -> Result<settle::Outcome, Refusal> {
    Ok(match outcome {
        Outcome::Complete { result, progress } => settle::Outcome::Complete {
            result: result.clone().map(Bytes::from),
            progress: progress.clone().map(Bytes::from),
        },
        Outcome::Snooze { delay } => settle::Outcome::Snooze { delay: length("delay", *delay)? },
        Outcome::Release => settle::Outcome::Release,
        Outcome::Fail { category, code, message, retry_after, unrecoverable } => {
            let category = ReportedCategory::parse(category)
                .ok_or_else(|| Refusal::invalid("error.category", "is not one that a worker may report"))?;
            settle::Outcome::Fail(ReportedFailure {
                code: code.as_deref().map(Arc::from),
                retry_after: retry_after.map(|millis| length("error.retry_after", millis)).transpose()?,
                unrecoverable: *unrecoverable,
                ..ReportedFailure::new(category, message)
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

/// Converts a [`Command::Claim`].
fn claim_of(command: &Command) -> Result<ClaimRequest, Refusal> {
    let Command::Claim { queues, worker, limit, types, lease, execution_timeout } = command else {
        panic!("{command:?} is no claim")
    };
    Ok(ClaimRequest {
        queues: queues.iter().map(|queue| QueueName::new(queue)).collect::<Result<_, _>>()?,
        limit: *limit,
        types: types.iter().map(|name| JobType::new(name)).collect::<Result<_, _>>()?,
        terms: ClaimOptions {
            worker: Some(WorkerName::new(worker)?),
            lease: lease.map(|millis| length("lease", millis)).transpose()?,
            execution_timeout: execution_timeout.map(|millis| length("execution_timeout", millis)).transpose()?,
        },
    })
}
