//! Claims in the writer: served at once, parked, or granted by the commit that makes jobs ready.
//!
//! A grant belongs to the batch that makes it: the writer answers it after the commit and undoes it
//! on rollback. Parked claims come before later claims of the same batch.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use longshore_core::refusal::Refusal;
use longshore_core::state::StateKind;
use longshore_core::time::Timestamp;
use longshore_engine::{ClaimRequest, Claimed, Effect, ExecutionContext, Settlement};
use longshore_store::{ClaimedJob, Grant, NoticeSender, ParkedClaim, ParkedClaims, StoreError, TakeBack, Ticket};

use crate::records::RecordsError;
use crate::request::{ClaimReplySender, PendingReply, WriteRequest};
use crate::writer::{COMMANDS_MAX, StoreWriter};

/// The writer's parked claims and the grants of the current batch.
pub(crate) struct GrantState {
    parked: ParkedClaims<ClaimReplySender>,
    grants: Vec<PendingGrant>,
    /// Grants that were answered since the start.
    answered: usize,
    /// Parked claim whose grant failed in this batch.
    failed_claim: Option<Ticket>,
    /// Effects of this batch that were processed.
    effects_done: usize,
    /// Commands that this batch has applied.
    pub commands: usize,
    /// No grants while virtual time advances.
    is_held: bool,
    /// No grants in this batch: they failed the previous one.
    pub is_suspended: bool,
    pub take_back: Arc<dyn TakeBack>,
}

/// A grant that waits for the commit.
struct PendingGrant {
    ticket: Ticket,
    claim: ParkedClaim<ClaimReplySender>,
    answer: Result<Vec<ClaimedJob>, Refusal>,
}

/// Requests of a failed batch.
pub(crate) struct FailedBatch {
    pub requests: Vec<WriteRequest>,
    /// The batch made a grant, or failed to make one.
    pub had_grants: bool,
    /// Parked claim whose grant failed.
    pub failed_claim: Option<Ticket>,
}

/// Returns undelivered leases to the writer.
#[derive(Debug)]
pub(crate) struct ReturnToWriter(pub NoticeSender<WriteRequest>);

impl TakeBack for ReturnToWriter {
    fn take_back(&self, undelivered: Vec<Settlement>) {
        self.0.post(WriteRequest::TakeBack(undelivered));
    }
}

impl GrantState {
    pub(crate) fn new(take_back: Arc<dyn TakeBack>) -> Self {
        Self {
            parked: ParkedClaims::default(),
            grants: Vec::new(),
            answered: 0,
            failed_claim: None,
            effects_done: 0,
            commands: 0,
            is_held: false,
            is_suspended: false,
            take_back,
        }
    }
}

impl StoreWriter {
    /// Serves a claim of the batch, or parks it. A claim whose caller is gone gets no jobs.
    pub(crate) fn claim_or_park(
        &mut self,
        request: &mut WriteRequest,
        now: Timestamp,
    ) -> Result<PendingReply, RecordsError> {
        self.grant_parked(now)?;
        let WriteRequest::Claim(claim, ticket, reply) = request else { return Ok(PendingReply::Nothing) };
        if reply.is_closed() {
            return Ok(PendingReply::Nothing);
        }
        if !self.shared.directives.can_claim(claim.terms.worker.as_ref()) {
            return Ok(PendingReply::Claim(self.engine.check_claim(claim).map(|()| Vec::new())));
        }
        let parks = *ticket;
        if parks.is_none() || !self.grants.is_held {
            let answer = self.claim(claim, now)?;
            let empty = answer.as_ref().is_ok_and(Vec::is_empty);
            if parks.is_none() || !empty {
                return Ok(PendingReply::Claim(answer));
            }
        }
        let Some(ticket) = parks else { return Ok(PendingReply::Nothing) };
        if let WriteRequest::Claim(claim, _, reply) = std::mem::replace(request, WriteRequest::Parked(ticket)) {
            self.grants.parked.park(ticket, claim, reply);
        }
        Ok(PendingReply::Nothing)
    }

    /// Settles leases, then serves a claim without waiting. Parked claims come before it.
    pub(crate) fn settle_and_claim(
        &mut self,
        settlements: &[Settlement],
        claim: Option<&ClaimRequest>,
        now: Timestamp,
    ) -> Result<PendingReply, RecordsError> {
        if let Some(Err(refusal)) = claim.map(|claim| self.engine.check_claim(claim)) {
            return Ok(PendingReply::SettleAndClaim(Err(refusal)));
        }
        let mut verdicts = Vec::with_capacity(settlements.len());
        for settlement in settlements {
            let Self { engine, records, rng, effects, .. } = self;
            verdicts.push(engine.settle(settlement, ExecutionContext { records, rng, now, effects })?);
        }
        let can_claim = |claim: &&ClaimRequest| self.shared.directives.can_claim(claim.terms.worker.as_ref());
        let Some(claim) = claim.filter(can_claim) else {
            return Ok(PendingReply::SettleAndClaim(Ok((verdicts, Vec::new()))));
        };
        self.grant_parked(now)?;
        let claimed = self.claim(claim, now)?;
        Ok(PendingReply::SettleAndClaim(claimed.map(|jobs| (verdicts, jobs))))
    }

    fn claim(
        &mut self,
        request: &ClaimRequest,
        now: Timestamp,
    ) -> Result<Result<Vec<ClaimedJob>, Refusal>, RecordsError> {
        let Self { engine, records, rng, effects, .. } = self;
        records.prefetch_for_claim(engine, request)?;
        let reads = records.point_reads;
        records.claimed_payloads.clear();
        match engine.claim(request, ExecutionContext { records: &mut *records, rng, now, effects })? {
            Ok(claimed) => {
                records.record_claim(request, &claimed, reads);
                Ok(Ok(self.attach_payloads(claimed)?))
            }
            Err(refusal) => Ok(Err(refusal)),
        }
    }

    fn attach_payloads(&mut self, claimed: Vec<Claimed>) -> Result<Vec<ClaimedJob>, RecordsError> {
        let mut kept = std::mem::take(&mut self.records.claimed_payloads);
        let mut next = kept.drain(..).peekable();
        let with_payload = |claimed: Claimed| {
            if let Some((_, payload)) = next.next_if(|(seq, _)| *seq == claimed.seq) {
                return Ok(ClaimedJob { claimed, payload });
            }
            let payload = match self.records.payload(claimed.seq) {
                Ok(Some(payload)) => payload,
                Ok(None) | Err(RecordsError::CorruptJob(_)) => {
                    return Err(RecordsError::CorruptPayload(claimed.id));
                }
                Err(error) => return Err(error),
            };
            Ok(ClaimedJob { claimed, payload })
        };
        let jobs = claimed.into_iter().map(with_payload).collect();
        drop(next);
        // Its memory is used again.
        self.records.claimed_payloads = kept;
        jobs
    }

    /// Grants the jobs that this batch has made ready to parked claims, in order.
    pub(crate) fn grant_parked(&mut self, now: Timestamp) -> Result<(), RecordsError> {
        self.wake_parked();
        if self.grants.is_held || self.grants.is_suspended {
            return Ok(());
        }
        while self.grants.commands < COMMANDS_MAX {
            let Self { grants, engine, .. } = self;
            let candidate = grants.parked.next_candidate(|queue, types| engine.has_ready(queue, types));
            let Some(ticket) = candidate else { break };
            let Some(claim) = grants.parked.take(ticket) else { break };
            if claim.caller.is_closed() {
                continue;
            }
            match self.claim(&claim.request, now) {
                Ok(answer) => {
                    self.grants.commands += answer.as_ref().map_or(1, |jobs| jobs.len().max(1));
                    self.grants.grants.push(PendingGrant { ticket, claim, answer });
                }
                Err(error) => {
                    self.grants.parked.put_back(ticket, claim);
                    self.grants.failed_claim = Some(ticket);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Wakes the parked claims of queues in which this batch made jobs ready.
    fn wake_parked(&mut self) {
        let Self { grants, effects, .. } = self;
        if !grants.parked.is_empty() {
            for effect in effects.iter().skip(grants.effects_done) {
                match effect {
                    Effect::Moved { queue, job_type, step, .. } if step.to == StateKind::Scheduled => {
                        grants.parked.notify(queue, job_type);
                    }
                    Effect::Moved { .. } | Effect::Queue { .. } | Effect::Schedule { .. } => {}
                    Effect::Claimable(queue) => grants.parked.notify_queue(queue),
                }
            }
        }
        grants.effects_done = effects.len();
    }

    /// Makes the grants that exceeded the size of the last commit.
    pub(crate) fn grant_rest(&mut self, more: &mut dyn FnMut() -> Option<WriteRequest>) {
        while self.grants.parked.has_candidates() && !self.grants.is_held && !self.shared.is_poisoned() {
            let before = self.grants.answered;
            self.serve(Vec::new(), more);
            if self.grants.answered == before {
                return;
            }
        }
    }

    /// Answers the grants of a durable batch.
    pub(crate) fn answer_granted(&mut self) {
        self.grants.effects_done = 0;
        self.grants.answered += self.grants.grants.len();
        for PendingGrant { claim, answer, .. } in self.grants.grants.drain(..) {
            let take_back = &self.grants.take_back;
            drop(claim.caller.send(Ok(answer.map(|jobs| Grant::new(jobs, Arc::clone(take_back))))));
        }
    }

    /// Reverts the grants of a failed batch: granted claims park again, claims that the batch
    /// parked become requests again.
    pub(crate) fn undo_grants(&mut self, mut requests: Vec<WriteRequest>) -> FailedBatch {
        let grants = &mut self.grants;
        grants.effects_done = 0;
        let failed_claim = grants.failed_claim.take();
        let had_grants = !grants.grants.is_empty() || failed_claim.is_some();
        for PendingGrant { ticket, claim, .. } in std::mem::take(&mut grants.grants) {
            grants.parked.put_back(ticket, claim);
        }
        for request in &mut requests {
            if let WriteRequest::Parked(ticket) = request
                && let Some(claim) = grants.parked.take(*ticket)
            {
                *request = WriteRequest::Claim(claim.request, Some(*ticket), claim.caller);
            }
        }
        // Wakeups from before this batch are lost: all parked claims get another try.
        grants.parked.notify_all();
        FailedBatch { requests, had_grants, failed_claim }
    }

    pub(crate) fn take_parked(&mut self, ticket: Ticket) -> Option<ClaimReplySender> {
        self.grants.parked.take(ticket).map(|claim| claim.caller)
    }

    pub(crate) fn fail_parked(&mut self) {
        for claim in self.grants.parked.take_all() {
            drop(claim.caller.send(Err(StoreError::Poisoned)));
        }
    }

    /// Ends a parked claim without jobs. A claim with a grant is answered by the grant.
    pub(crate) fn unpark(&mut self, ticket: Ticket) {
        if let Some(claim) = self.grants.parked.take(ticket) {
            drop(claim.caller.send(Ok(Ok(Grant::new(Vec::new(), Arc::clone(&self.grants.take_back))))));
        }
    }

    /// Applies the directives of a durable batch: parked claims of workers that do not run end.
    pub(crate) fn enforce_directives(&mut self, batch: &[WriteRequest]) {
        for request in batch {
            let WriteRequest::Direct(worker, directive, _) = request else { continue };
            self.shared.directives.set(worker.clone(), *directive);
            if !self.shared.directives.can_claim(Some(worker)) {
                for claim in self.grants.parked.take_of_worker(worker) {
                    drop(claim.caller.send(Ok(Ok(Grant::new(Vec::new(), Arc::clone(&self.grants.take_back))))));
                }
            }
        }
    }

    pub(crate) fn count_parked(&self) {
        self.shared.parked_claims.store(self.grants.parked.len(), Ordering::Relaxed);
    }

    pub(crate) fn hold_grants(&mut self, hold: bool) {
        self.grants.is_held = hold;
        if !hold {
            self.grants.parked.notify_all();
        }
    }
}
