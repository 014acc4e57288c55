//! Submission: checks and creates a job. The engine has looked up its dependencies before.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;

use crate::context::TransitionContext;
use crate::dependency::{Dependencies, PendingPropagation, end_by_dependency};
use crate::history::{Cause, History, Transition};
use crate::id::{JobId, JobType, LeaseVersion, QueueName, Seq, validate_length, validate_name, validate_printable};
use crate::job::{Counters, IdempotencyKey, Job};
use crate::limits::*;
use crate::patch::PolicyPatch;
use crate::policy::{AdmissionSettings, IdempotencyScope, Policy, SubmitMode};
use crate::priority::Priority;
use crate::promote::{fail_queue_full, if_in_future};
use crate::refusal::{Invalid, Refusal};
use crate::schedule::JobSchedule;
use crate::state::{State, StateKind, TerminalState};
use crate::tags::Tags;
use crate::target_url::validate_target_url;
use crate::time::{Duration, Timestamp};
use crate::trace_context::TraceParent;
use crate::workflow::Membership;

/// A new job, as its client submits it.
#[derive(Clone, Debug)]
pub struct NewJob {
    pub job_type: JobType,
    pub payload: Payload,
    pub priority: Priority,
    pub start: Start,
    pub idempotency_key: Option<Arc<str>>,
    pub external_id: Option<Arc<str>>,
    pub tags: Tags,
    pub correlation_id: Option<Arc<str>>,
    pub callback_url: Option<Arc<str>>,
    pub after: Vec<DependencyRef>,
    pub after_any: Vec<DependencyRef>,
    /// Name of the job for other jobs of the batch.
    pub reference: Option<Arc<str>>,
    /// `None`: as the setting `submit` says.
    pub hold: Option<bool>,
    pub policy: PolicyPatch,
    /// Schedule that submits the job.
    pub schedule: Option<Box<JobSchedule>>,
    /// Span that submits the job.
    pub traceparent: Option<Box<TraceParent>>,
}

impl NewJob {
    pub fn new(job_type: JobType, payload: Payload) -> Self {
        Self {
            job_type,
            payload,
            priority: Priority::Normal,
            start: Start::Now,
            idempotency_key: None,
            external_id: None,
            tags: Tags::None,
            correlation_id: None,
            callback_url: None,
            after: Vec::new(),
            after_any: Vec::new(),
            reference: None,
            hold: None,
            policy: PolicyPatch::default(),
            schedule: None,
            traceparent: None,
        }
    }
}

impl NewJob {
    /// Returns the idempotency key; an empty key is no key.
    pub fn key(&self) -> Option<&Arc<str>> {
        self.idempotency_key.as_ref().filter(|key| !key.is_empty())
    }
}

/// Opaque bytes: never parsed, never changed.
#[derive(Clone, PartialEq, Eq)]
pub enum Payload {
    Json(Bytes),
    Binary(Bytes),
}

impl Payload {
    pub fn bytes(&self) -> &Bytes {
        match self {
            Self::Json(bytes) | Self::Binary(bytes) => bytes,
        }
    }
}

impl std::fmt::Debug for Payload {
    /// Hides the bytes: payloads are never logged.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Payload({} bytes)", self.bytes().len())
    }
}

/// When a new job becomes ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    #[default]
    Now,
    At(Timestamp),
    /// From the creation on.
    In(Duration),
}

/// Reference to a dependency.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum DependencyRef {
    Job(JobId),
    /// Another job of the same batch, by its reference.
    Local(Arc<str>),
    /// Another job of the same batch, by its index.
    BatchIndex(usize),
}

/// Checks everything that does not depend on other jobs. Returns the resolved policy of the job.
pub fn check(new: &NewJob, policy: &Arc<Policy>, admission: &AdmissionSettings) -> Result<Arc<Policy>, Refusal> {
    check_texts(new)?;
    if new.key().is_some() && admission.idempotency.scope == IdempotencyScope::Off {
        return Err(Refusal::invalid(
            "idempotency_key",
            "is not taken by this queue: its idempotency scope is \"off\"",
        ));
    }
    if new.external_id.is_some() && !admission.external_ids {
        return Err(Refusal::invalid("external_id", "is not taken by this queue"));
    }
    let delaying_field = match new.start {
        Start::Now => None,
        Start::At(_) => Some("run_at"),
        Start::In(delay) => {
            check_duration("delay", delay)?;
            (delay > Duration::ZERO).then_some("delay")
        }
    };
    if let Some(field) = delaying_field.filter(|_| !admission.delayed_start) {
        return Err(Refusal::invalid(field, "is not taken by this queue: it has no delayed start"));
    }
    let resolved = if new.policy.is_empty() { Arc::clone(policy) } else { Arc::new(new.policy.resolve(policy)?) };
    check_size("payload", new.payload.bytes().len(), admission)?;
    Ok(resolved)
}

fn check_texts(new: &NewJob) -> Result<(), Invalid> {
    let text = |text: &Option<Arc<str>>| text.clone().unwrap_or_default();
    validate_length("idempotency_key", &text(&new.idempotency_key), IDEMPOTENCY_KEY_CHARS_MAX)?;
    validate_length("correlation_id", &text(&new.correlation_id), CORRELATION_ID_CHARS_MAX)?;
    if let Some(url) = &new.callback_url {
        validate_target_url("callback_url", url)?;
    }
    if let Some(external_id) = &new.external_id {
        validate_printable("external_id", external_id, EXTERNAL_ID_CHARS_MAX)?;
    }
    if let Some(reference) = &new.reference {
        validate_name("ref", reference, REF_CHARS_MAX)?;
    }
    new.tags.validate_lenient()
}

/// Checks the number of dependencies before any lookup: each reference counts once in either list.
pub fn check_breadth(after: &[DependencyRef], after_any: &[DependencyRef]) -> Result<(), Refusal> {
    let distinct = |refs: &[DependencyRef]| refs.iter().collect::<HashSet<_>>().len();
    let given = distinct(after) + distinct(after_any);
    if given > DEPENDENCIES_MAX { Err(Refusal::DependencyBreadth { given }) } else { Ok(()) }
}

/// Checks the size of a payload, result, progress note or checkpoint.
pub fn check_size(field: &'static str, bytes: usize, admission: &AdmissionSettings) -> Result<(), Refusal> {
    let bytes_max = admission.payload_max;
    let fits = u32::try_from(bytes).is_ok_and(|bytes| bytes <= bytes_max);
    if fits { Ok(()) } else { Err(Refusal::PayloadTooLarge { field, bytes, bytes_max }) }
}

/// What the engine has looked up for a new job.
#[derive(Clone, Debug)]
pub struct ResolvedSubmission {
    pub id: JobId,
    pub seq: Seq,
    pub queue: QueueName,
    pub policy: Arc<Policy>,
    pub dependencies: Dependencies,
    pub inherited_priority: Priority,
    /// Dependency that has already ended without success.
    pub broken: Option<(JobId, TerminalState)>,
    /// The queue is full, and the profile fails the job in this case.
    pub fails_queue_full: bool,
    pub parent: Option<JobId>,
    pub membership: Option<Membership>,
}

/// Creates the job as pending, and moves it on unless it is held or waits for dependencies.
pub fn create(
    new: &NewJob,
    resolved: ResolvedSubmission,
    admission: &AdmissionSettings,
    context: &mut TransitionContext<'_>,
) -> Job {
    let now = context.now;
    let run_at = match new.start {
        Start::Now => None,
        Start::At(at) => if_in_future(Some(at), now),
        Start::In(delay) => if_in_future(Some(now + delay), now),
    };
    let held = new.hold.unwrap_or(admission.submit == SubmitMode::Explicit);
    let mut job = Job {
        dependencies: resolved.dependencies,
        inherited_priority: resolved.inherited_priority,
        parent: resolved.parent,
        membership: resolved.membership,
        ..new_pending(resolved.id, resolved.seq, resolved.queue, new.job_type.clone(), resolved.policy, context)
    };
    job.state = State::Pending { held, run_at };
    job.priority = new.priority;
    job.tags = new.tags.clone();
    job.correlation_id = new.correlation_id.clone();
    job.callback_url = new.callback_url.clone();
    job.idempotency = new.key().map(|key| IdempotencyKey {
        key: Arc::clone(key),
        scope: admission.idempotency.scope,
        job_type: new.job_type.clone(),
    });
    job.external_id = new.external_id.clone();
    job.schedule = new.schedule.clone();
    job.traceparent = new.traceparent.clone();
    if let Some((dependency, ending)) = resolved.broken {
        end_by_dependency(&mut job, dependency, ending, context);
    } else if !held && job.dependencies.met() {
        match run_at {
            Some(until) => job.transition_to(State::Delayed { until }, Cause::Submit, context),
            // A job that is ready at its creation gets the position of its submission.
            None => job.make_ready_at(job.seq.0, Cause::Submit, context),
        }
        if resolved.fails_queue_full {
            fail_queue_full(&mut job, context);
        }
    }
    job
}

/// Returns a pending job without attempts.
pub(crate) fn new_pending(
    id: JobId,
    seq: Seq,
    queue: QueueName,
    job_type: JobType,
    policy: Arc<Policy>,
    context: &mut TransitionContext<'_>,
) -> Job {
    let now = context.now;
    let creation = Transition { from: None, to: StateKind::Pending, at: now, cause: Cause::Create };
    context.transitions.push(creation);
    Job {
        id,
        seq,
        queue,
        job_type,
        state: State::Pending { held: false, run_at: None },
        counters: Counters::default(),
        lease_version: LeaseVersion::default(),
        priority: Priority::Normal,
        inherited_priority: Priority::Bulk,
        lifetime_ends_at: policy.lifetime.map(|lifetime| now + lifetime),
        policy,
        tags: Tags::None,
        correlation_id: None,
        callback_url: None,
        idempotency: None,
        external_id: None,
        created_at: now,
        updated_at: now,
        scheduled_at: None,
        started_at: None,
        first_started_at: None,
        last_heartbeat_at: None,
        attempt_ended_at: None,
        progress: None,
        checkpoint: None,
        result: None,
        error: None,
        dependencies: Dependencies::default(),
        unfinished_dependents: 0,
        pending_propagation: PendingPropagation::Nothing,
        parent: None,
        membership: None,
        requeued_from: None,
        requeued_as: None,
        schedule: None,
        traceparent: None,
        last_settlement: None,
        attempts: Vec::new(),
        history: History::from_transitions(vec![creation]),
    }
}

/// Index in the batch, by reference.
pub type RefIndex = HashMap<Arc<str>, usize>;

/// Indexes the references of a batch. Also returns a refusal for each job that repeats one.
pub fn index_refs<'a>(references: impl IntoIterator<Item = Option<&'a Arc<str>>>) -> (RefIndex, Vec<(usize, Refusal)>) {
    let (mut indexes, mut repeated) = (HashMap::new(), Vec::new());
    for (index, reference) in references.into_iter().enumerate() {
        let Some(reference) = reference else { continue };
        match indexes.entry(Arc::clone(reference)) {
            Entry::Vacant(vacant) => {
                vacant.insert(index);
            }
            Entry::Occupied(_) => {
                let refusal = Refusal::invalid("ref", format!("\"{reference}\" is used twice in this batch"));
                repeated.push((index, refusal));
            }
        }
    }
    (indexes, repeated)
}
