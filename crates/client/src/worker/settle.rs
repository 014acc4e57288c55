//! Settlements: the queue of outcomes, and what the server's verdicts mean.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use longshore_api::enums::{OutcomeKind, State};
use longshore_api::work::{JobState, Settlement, Verdict};
use longshore_api::{ErrorCode, RetryAdvice};
use parking_lot::Mutex;

use super::active_job::{ActiveJob, JobPhase};
use super::core::WorkerCore;
use super::outcome::{HandlerError, JobOutcome, bad_result, system_failure};
use super::report::{RunEnd, RunReport};
use crate::client::Client;
use crate::clock::monotonic;
use crate::error::Error;

/// Most settlements of one request.
const BATCH_MAX: usize = 1_000;
/// Bytes of results after which a request is sent without more settlements.
const BATCH_BYTES: usize = 4 << 20;
/// How long a settlement is retried after the lease has ended: the server may still accept it.
const RETRY_AFTER_LEASE: Duration = Duration::from_secs(60);

/// The outcome of a run that waits to be sent.
#[derive(Debug)]
pub(crate) struct PendingSettlement {
    pub(crate) active: Arc<ActiveJob>,
    pub(crate) outcome: JobOutcome,
    pub(crate) finished_at: Duration,
}

impl PendingSettlement {
    pub(crate) fn to_settlement(&self) -> Settlement {
        let job = &self.active.job;
        let progress = self.active.notes.lock().progress.clone();
        self.outcome.clone().into_settlement(job.id.clone(), job.lease.token.clone(), progress)
    }

    fn bytes(&self) -> usize {
        match &self.outcome {
            JobOutcome::Complete(Some(result)) => result.get().len(),
            JobOutcome::Complete(None) | JobOutcome::Fail(_) | JobOutcome::Snooze(_) | JobOutcome::Release => 0,
        }
    }

    /// Message of a failure.
    fn detail(&self) -> Option<String> {
        match &self.outcome {
            JobOutcome::Fail(error) => error.message.clone(),
            JobOutcome::Complete(_) | JobOutcome::Snooze(_) | JobOutcome::Release => None,
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct SettleQueue {
    pending: Mutex<VecDeque<PendingSettlement>>,
    length: AtomicUsize,
}

impl SettleQueue {
    pub(crate) fn len(&self) -> usize {
        self.length.load(Ordering::Acquire)
    }

    pub(crate) fn push(&self, settlement: PendingSettlement) {
        let mut pending = self.pending.lock();
        pending.push_back(settlement);
        self.length.store(pending.len(), Ordering::Release);
    }

    /// Returns settlements that could not be sent.
    pub(crate) fn put_back(&self, settlements: Vec<PendingSettlement>) {
        let mut pending = self.pending.lock();
        for settlement in settlements.into_iter().rev() {
            pending.push_front(settlement);
        }
        self.length.store(pending.len(), Ordering::Release);
    }

    /// Takes the settlements of one request, oldest first.
    pub(crate) fn take_batch(&self) -> Vec<PendingSettlement> {
        let mut pending = self.pending.lock();
        let mut bytes = 0;
        let count = pending
            .iter()
            .take(BATCH_MAX)
            .take_while(|settlement| {
                let fits = bytes < BATCH_BYTES;
                bytes += settlement.bytes();
                fits
            })
            .count();
        let batch = pending.drain(..count).collect();
        self.length.store(pending.len(), Ordering::Release);
        batch
    }

    pub(crate) fn oldest(&self) -> Option<Duration> {
        self.pending.lock().front().map(|settlement| settlement.finished_at)
    }

    /// Removes settlements that were retried for too long.
    pub(crate) fn take_expired(&self, now: Duration, retry_until: Option<Duration>) -> Vec<PendingSettlement> {
        let mut pending = self.pending.lock();
        let is_expired = |settlement: &PendingSettlement| {
            // A lease that does not expire has no limit: without its settlement the job never ends.
            let valid_until = settlement.active.times.lock().valid_until;
            let limit = valid_until.map(|until| until.max(settlement.finished_at) + RETRY_AFTER_LEASE);
            [limit, retry_until].into_iter().flatten().min().is_some_and(|limit| now >= limit)
        };
        let (expired, kept) = std::mem::take(&mut *pending).into_iter().partition::<Vec<_>, _>(is_expired);
        *pending = kept.into();
        self.length.store(pending.len(), Ordering::Release);
        expired
    }
}

/// Sends settlements. If the request as a whole is refused, each is sent alone, so that one bad
/// settlement does not stop the others.
pub(crate) async fn send_settlements(
    client: &Client,
    batch: &[PendingSettlement],
) -> Result<Vec<Verdict<JobState>>, Error> {
    let settlements = batch.iter().map(PendingSettlement::to_settlement).collect();
    match client.settle(settlements).await {
        Ok(results) => Ok(results.results),
        Err(error) if error.retry() == RetryAdvice::Never && !super::report::is_outage(&error) => {
            let mut verdicts = Vec::with_capacity(batch.len());
            for settlement in batch {
                let verdict = if batch.len() == 1 { None } else { settle_alone(client, settlement).await? };
                verdicts.push(verdict.unwrap_or_else(|| refused(settlement, &error)));
            }
            Ok(verdicts)
        }
        Err(error) => Err(error),
    }
}

/// Returns `None` if the request is refused.
async fn settle_alone(client: &Client, settlement: &PendingSettlement) -> Result<Option<Verdict<JobState>>, Error> {
    match client.settle(vec![settlement.to_settlement()]).await {
        Ok(mut results) => Ok(results.results.pop()),
        Err(error) if error.retry() == RetryAdvice::Never && !super::report::is_outage(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

fn refused(settlement: &PendingSettlement, error: &Error) -> Verdict<JobState> {
    let code = error.problem().map_or_else(|| "bad_request".to_owned(), |problem| problem.code.clone());
    let id = Some(settlement.active.job.id.clone());
    Verdict::Refused { id, code, detail: error.to_string(), field: None, allowed: Vec::new() }
}

impl WorkerCore {
    /// Ends the jobs of a batch by the verdicts of the server. Some are sent again in another form.
    pub(crate) fn apply_verdicts(&self, batch: Vec<PendingSettlement>, verdicts: Vec<Verdict<JobState>>) {
        let mut verdicts = verdicts.into_iter();
        for settlement in batch {
            match verdicts.next() {
                Some(Verdict::Done(done)) => self.end_settled(&settlement, Some(done.state)),
                Some(Verdict::Refused { code, detail, .. }) => self.on_refused(settlement, &code, &detail),
                None => self.queue.push(settlement),
            }
        }
    }

    fn on_refused(&self, mut settlement: PendingSettlement, code: &str, detail: &str) {
        let code = ErrorCode::from_code(code);
        match (code, &settlement.outcome) {
            // The progress may be what was refused. It is dropped before the result is.
            (
                Some(ErrorCode::PayloadTooLarge | ErrorCode::BadRequest | ErrorCode::Validation),
                JobOutcome::Complete(_),
            ) if settlement.active.notes.lock().progress.take().is_some() => {
                tracing::warn!(id = settlement.active.job.id, detail, "completing without the progress");
                self.push_settlement(settlement);
            }
            (
                Some(ErrorCode::PayloadTooLarge | ErrorCode::BadRequest | ErrorCode::Validation),
                JobOutcome::Complete(Some(_)),
            ) => {
                settlement.outcome = bad_result(format!("the server refuses the result: {detail}"));
                self.push_settlement(settlement);
            }
            // Some profiles have no release: report a failure.
            (Some(ErrorCode::IllegalTransition), JobOutcome::Release) => {
                settlement.outcome = system_failure("worker_stopped", "the worker was stopped".to_owned());
                self.push_settlement(settlement);
            }
            // Some have no snooze, either: the failure waits as long.
            (Some(ErrorCode::IllegalTransition), JobOutcome::Snooze(delay)) => {
                settlement.outcome = HandlerError::temporary("the queue has no snooze: retried after the same delay")
                    .with_code("snoozed")
                    .retry_after(*delay)
                    .into_outcome();
                self.push_settlement(settlement);
            }
            (Some(code), _) if code.retry() != RetryAdvice::Never => self.push_settlement(settlement),
            _ => self.end_lost(&settlement, &format!("cannot settle the lease: {detail}")),
        }
    }

    pub(crate) fn push_settlement(&self, settlement: PendingSettlement) {
        self.queue.push(settlement);
        self.table.dispatch_wake.notify_one();
    }

    fn end_settled(&self, settlement: &PendingSettlement, state: Option<State>) {
        let end = match settlement.outcome.kind() {
            OutcomeKind::Complete => RunEnd::Completed,
            OutcomeKind::Fail => RunEnd::Failed,
            OutcomeKind::Snooze => RunEnd::Snoozed,
            OutcomeKind::Release => RunEnd::Released,
        };
        self.end_run(&settlement.active, end, state, settlement.detail().as_deref());
    }

    pub(crate) fn end_lost(&self, settlement: &PendingSettlement, detail: &str) {
        self.end_run(&settlement.active, RunEnd::Lost, None, Some(detail));
    }

    /// Removes a job from the table and reports its end. The caller owns its last phase.
    pub(crate) fn end_run(&self, active: &Arc<ActiveJob>, end: RunEnd, state: Option<State>, detail: Option<&str>) {
        active.change_phase(JobPhase::Settling, JobPhase::Ended);
        let duration = active.started_at.get().map_or(Duration::ZERO, |started| monotonic().saturating_sub(*started));
        active.fail_notes("the run has ended");
        // The event comes first: a worker returns when the table is empty.
        self.reporter.end_run(RunReport { job: &active.job, end, state, duration, detail });
        self.table.remove(active);
    }
}

#[cfg(test)]
mod tests {
    use longshore_api::Time;

    use super::*;

    fn settled(lease: Option<u64>, finished_at: Duration) -> SettleQueue {
        let mut job = crate::worker::sample_job();
        job.lease.duration = lease.map(longshore_api::Duration::from_millis);
        let active = Arc::new(ActiveJob::new(0, 0, job, Duration::ZERO, Time(0)));
        let queue = SettleQueue::default();
        queue.push(PendingSettlement { active, outcome: JobOutcome::Complete(None), finished_at });
        queue
    }

    #[test]
    fn a_settlement_is_retried_for_a_minute_after_its_lease() {
        let queue = settled(Some(30_000), Duration::from_secs(10));
        assert_eq!(queue.take_expired(Duration::from_secs(86), None).len(), 0);
        assert_eq!(queue.take_expired(Duration::from_secs(87), None).len(), 1);
    }

    #[test]
    fn a_settlement_of_a_lease_without_end_is_retried_until_the_worker_ends() {
        let queue = settled(None, Duration::from_secs(10));
        assert_eq!(queue.take_expired(Duration::from_secs(86_400), None).len(), 0);
        assert_eq!(queue.take_expired(Duration::from_secs(86_400), Some(Duration::from_secs(80_000))).len(), 1);
    }
}
