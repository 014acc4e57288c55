//! Claims: the first in line, queue by queue.

use std::sync::Arc;

use bytes::Bytes;

use longshore_core::claim::{self, ClaimOptions};
use longshore_core::id::{AttemptId, JobId, JobType, LeaseToken, LeaseVersion, QueueName, Seq, WorkflowId};
use longshore_core::job::Job;
use longshore_core::limits::{BATCH_ITEMS_MAX, CLAIM_TYPES_MAX};
use longshore_core::priority::Priority;
use longshore_core::refusal::Refusal;
use longshore_core::retry::is_last_attempt;
use longshore_core::state::State;
use longshore_core::tags::Tags;
use longshore_core::time::{Duration, Timestamp};

use crate::context::{CommandContext, CommandError};
use crate::engine::Engine;
use crate::records::JobRecords;

#[derive(Clone, Debug)]
pub struct ClaimRequest {
    /// Served in this order.
    pub queues: Vec<QueueName>,
    pub limit: usize,
    /// Only jobs of these types; none named is any.
    pub types: Vec<JobType>,
    pub terms: ClaimOptions,
}

/// What a worker needs to know of a job, and no more. The payload is read by the store.
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
    pub idempotency_key: Option<Arc<str>>,
    pub created_at: Timestamp,
    pub checkpoint: Option<Bytes>,
    pub workflow: Option<WorkflowId>,
    pub token: LeaseToken,
    pub version: LeaseVersion,
    pub expires_at: Option<Timestamp>,
    pub deadline_at: Option<Timestamp>,
    /// What a heartbeat adds to the present time; `None`: the lease has no expiry of its own.
    pub lease_duration: Option<Duration>,
    /// A failure now would end the job.
    pub last_attempt: bool,
}

impl Claimed {
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
            idempotency_key: job.idempotency.as_ref().map(|key| Arc::clone(&key.key)),
            created_at: job.created_at,
            checkpoint: job.checkpoint.clone(),
            workflow: job.membership.as_ref().map(|membership| membership.workflow),
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
    /// Whether a claim for these types (none named: any) would get a job of this queue now.
    pub fn has_ready(&self, queue: &QueueName, types: &[JobType]) -> bool {
        self.queue(queue).is_some_and(|settings| {
            !settings.paused && self.index.next_ready(queue, types, settings.intake.priority_order).is_some()
        })
    }
}

impl<R: JobRecords> CommandContext<'_, R> {
    pub(crate) fn claim(&mut self, request: &ClaimRequest) -> Result<Vec<Claimed>, CommandError<R::Error>> {
        if !(1..=BATCH_ITEMS_MAX).contains(&request.limit) {
            return Err(Refusal::invalid("limit", format!("must be 1-{BATCH_ITEMS_MAX}")).into());
        }
        if !(1..=BATCH_ITEMS_MAX).contains(&request.queues.len()) {
            return Err(Refusal::invalid("queues", format!("must name 1-{BATCH_ITEMS_MAX} queues")).into());
        }
        if request.types.len() > CLAIM_TYPES_MAX {
            return Err(Refusal::invalid("types", format!("may name at most {CLAIM_TYPES_MAX} types")).into());
        }
        request.terms.check()?;
        let all_known = || request.queues.iter().all(|name| self.engine.queue(name).is_some());
        if !self.engine.options.auto_queues && !all_known() {
            return Err(Refusal::QueueNotFound.into());
        }
        let mut claimed = Vec::new();
        for name in &request.queues {
            let Some(queue) = self.engine.queue(name) else { continue };
            let priority_order = queue.intake.priority_order;
            if queue.paused {
                continue;
            }
            while claimed.len() < request.limit {
                let Some(seq) = self.engine.index.next_ready(name, &request.types, priority_order) else { break };
                let claim = self.update(seq, |job, moment| {
                    claim::claim(job, &request.terms, moment)?;
                    Ok(Claimed::of(job))
                })?;
                claimed.extend(claim);
            }
        }
        Ok(claimed)
    }
}
