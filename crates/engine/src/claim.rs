//! Claims: workers take the next ready jobs, queue by queue.

use std::sync::Arc;

use bytes::Bytes;

use longshore_core::claim::{self, ClaimOptions};
use longshore_core::id::{AttemptId, JobId, JobType, LeaseToken, LeaseVersion, QueueName, Seq, WorkflowId};
use longshore_core::job::Job;
use longshore_core::limits::{BATCH_ITEMS_MAX, CLAIM_BYTES_MAX, CLAIM_TYPES_MAX};
use longshore_core::priority::Priority;
use longshore_core::refusal::Refusal;
use longshore_core::retry::is_last_attempt;
use longshore_core::state::State;
use longshore_core::tags::Tags;
use longshore_core::time::{Duration, Timestamp};
use longshore_core::trace_context::TraceParent;

use crate::context::{CommandContext, CommandError};
use crate::engine::Engine;
use crate::records::JobRecords;

/// A worker asks for jobs.
#[derive(Clone, Debug)]
pub struct ClaimRequest {
    /// The queues to claim from, in this order.
    pub queues: Vec<QueueName>,
    pub limit: usize,
    /// The types of jobs to claim; empty means all types.
    pub types: Vec<JobType>,
    pub terms: ClaimOptions,
}

impl ClaimRequest {
    /// Whether a claim with so many jobs and bytes gets no more: its response is bounded.
    pub fn is_met(&self, jobs: usize, bytes: usize) -> bool {
        jobs >= self.limit || bytes >= CLAIM_BYTES_MAX
    }
}

/// The fields of a claimed job that a worker needs. The store adds the payload.
#[derive(Clone, Debug, PartialEq)]
pub struct Claimed {
    pub id: JobId,
    pub seq: Seq,
    pub queue: QueueName,
    pub job_type: JobType,
    pub priority: Priority,
    pub attempt: u32,
    pub attempt_id: Option<AttemptId>,
    pub previous_attempt_id: Option<AttemptId>,
    pub tags: Tags,
    pub correlation_id: Option<Arc<str>>,
    /// Span that has submitted the job.
    pub traceparent: Option<Box<TraceParent>>,
    pub idempotency_key: Option<Arc<str>>,
    pub created_at: Timestamp,
    pub checkpoint: Option<Bytes>,
    pub workflow: Option<WorkflowId>,
    pub token: LeaseToken,
    pub version: LeaseVersion,
    pub expires_at: Option<Timestamp>,
    pub deadline_at: Option<Timestamp>,
    /// By how much a heartbeat renews the lease; `None` if the lease does not expire by itself.
    pub lease_duration: Option<Duration>,
    /// Whether a failure of this attempt ends the job.
    pub last_attempt: bool,
}

impl Claimed {
    /// Returns what the job adds to the size of a claim.
    pub fn delivered_bytes(&self, payload_bytes: usize) -> usize {
        payload_bytes + self.checkpoint.as_ref().map_or(0, Bytes::len)
    }

    fn of(job: &Job) -> Option<Self> {
        let State::Running(lease) = &job.state else { return None };
        let attempt = job.attempts.last();
        Some(Self {
            id: job.id,
            seq: job.seq,
            queue: job.queue.clone(),
            job_type: job.job_type.clone(),
            priority: job.priority,
            attempt: job.counters.starts,
            attempt_id: attempt.map(|attempt| attempt.id),
            previous_attempt_id: attempt.and_then(|attempt| attempt.previous_id),
            tags: job.tags.clone(),
            correlation_id: job.correlation_id.clone(),
            traceparent: job.traceparent.clone(),
            idempotency_key: job.idempotency.as_ref().map(|key| Arc::clone(&key.key)),
            created_at: job.created_at,
            checkpoint: job.checkpoint.clone(),
            workflow: job.workflow(),
            token: lease.token,
            version: job.lease_version,
            expires_at: lease.expires_at,
            deadline_at: lease.deadline_at,
            lease_duration: lease.length,
            last_attempt: is_last_attempt(job),
        })
    }
}

impl Engine {
    /// Returns whether a claim for these types (empty: all types) would get a job of this queue
    /// now.
    pub fn has_ready(&self, queue: &QueueName, types: &[JobType]) -> bool {
        self.queue(queue).is_some_and(|settings| {
            !settings.paused && self.index.next_ready(queue, types, settings.admission.priority_order).is_some()
        })
    }

    /// Returns the refusal of a claim, which depends on its fields and on the queues that exist.
    ///
    /// A store checks a claim that carries settlements before it applies these.
    pub fn check_claim(&self, request: &ClaimRequest) -> Result<(), Refusal> {
        if !(1..=BATCH_ITEMS_MAX).contains(&request.limit) {
            return Err(Refusal::invalid("limit", format!("must be 1-{BATCH_ITEMS_MAX}")));
        }
        if !(1..=BATCH_ITEMS_MAX).contains(&request.queues.len()) {
            return Err(Refusal::invalid("queues", format!("must name 1-{BATCH_ITEMS_MAX} queues")));
        }
        if request.types.len() > CLAIM_TYPES_MAX {
            return Err(Refusal::invalid("types", format!("may name at most {CLAIM_TYPES_MAX} types")));
        }
        request.terms.check()?;
        let all_exist = || request.queues.iter().all(|name| self.queue(name).is_some());
        if !self.options.auto_queues && !all_exist() {
            return Err(Refusal::QueueNotFound);
        }
        Ok(())
    }
}

impl<R: JobRecords> CommandContext<'_, R> {
    pub(crate) fn claim(&mut self, request: &ClaimRequest) -> Result<Vec<Claimed>, CommandError<R::Error>> {
        self.engine.check_claim(request)?;
        let (mut claimed, mut bytes) = (Vec::new(), 0);
        for name in &request.queues {
            let Some(queue) = self.engine.queue(name) else { continue };
            let priority_order = queue.admission.priority_order;
            if queue.paused {
                continue;
            }
            while !request.is_met(claimed.len(), bytes) {
                let Some(seq) = self.engine.index.next_ready(name, &request.types, priority_order) else { break };
                let claim = self.update(seq, |job, context| {
                    claim::claim(job, &request.terms, context)?;
                    Ok(Claimed::of(job))
                })?;
                if let Some(claim) = claim {
                    let payload_bytes = self.records.payload_bytes(seq).map_err(CommandError::Storage)?;
                    bytes += claim.delivered_bytes(payload_bytes);
                    claimed.push(claim);
                }
            }
        }
        Ok(claimed)
    }
}
