//! Claims in the writer: served at once, parked, and granted by the commit that makes jobs ready.
//!
//! A grant belongs to the turn that makes it: it is answered after the commit, and undone with it. Parked claims come before claims of the
//! same batch that arrived later.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use longshore_core::refusal::Refusal;
use longshore_core::state::StateKind;
use longshore_core::time::Timestamp;
use longshore_engine::{ClaimRequest, Claimed, Effect, ExecutionContext, Settlement};
use longshore_store::{ClaimedJob, Grant, Notices, ParkedClaim, ParkedClaims, StoreError, TakeBack, Ticket};

use crate::records::RecordsError;
use crate::request::{Answered, ClaimReply, Request};
use crate::writer::{COMMANDS_MAX, Writer};

/// The writer's parked claims, and what the present turn has granted to them.
pub(crate) struct Granting {
    parked: ParkedClaims<ClaimReply>,
    granted: Vec<Granted>,
    /// Parked claims that were answered with a grant, since the start.
    answered: usize,
    /// The parked claim whose grant has failed in this turn.
    culprit: Option<Ticket>,
    /// Effects of this turn that were looked at already.
    effects_seen: usize,
    /// Commands that this turn has applied.
    pub commands: usize,
    /// Virtual time is being advanced: no grants meanwhile.
    held: bool,
    /// This turn makes no grants: they made the one before it fail.
    pub suspended: bool,
    pub take_back: Arc<dyn TakeBack>,
}

/// A grant that waits for the commit.
struct Granted {
    ticket: Ticket,
    claim: ParkedClaim<ClaimReply>,
    answer: Result<Vec<ClaimedJob>, Refusal>,
}

/// What a failed turn leaves.
pub(crate) struct Undone {
    pub batch: Vec<Request>,
    /// The turn made grants, or tried to.
    pub granted: bool,
    /// The parked claim whose grant has failed.
    pub culprit: Option<Ticket>,
}

/// Sends leases that were not delivered back to the writer.
#[derive(Debug)]
pub(crate) struct ReturnToWriter(pub Notices<Request>);

impl TakeBack for ReturnToWriter {
    fn take_back(&self, undelivered: Vec<Settlement>) {
        self.0.post(Request::TakeBack(undelivered));
    }
}

impl Granting {
    pub(crate) fn new(take_back: Arc<dyn TakeBack>) -> Self {
        Self {
            parked: ParkedClaims::default(),
            granted: Vec::new(),
            answered: 0,
            culprit: None,
            effects_seen: 0,
            commands: 0,
            held: false,
            suspended: false,
            take_back,
        }
    }
}

impl Writer {
    /// Serves a claim of the batch, or parks it. A caller that is gone gets nothing.
    pub(crate) fn claim_or_park(&mut self, request: &mut Request, now: Timestamp) -> Result<Answered, RecordsError> {
        self.grant_parked(now)?;
        let Request::Claim(claim, ticket, reply) = request else { return Ok(Answered::Nothing) };
        if reply.is_closed() {
            return Ok(Answered::Nothing);
        }
        let parks = *ticket;
        if parks.is_none() || !self.granting.held {
            let answer = self.claim(claim, now)?;
            let empty = answer.as_ref().is_ok_and(Vec::is_empty);
            if parks.is_none() || !empty {
                return Ok(Answered::Claim(answer));
            }
        }
        let Some(ticket) = parks else { return Ok(Answered::Nothing) };
        if let Request::Claim(claim, _, reply) = std::mem::replace(request, Request::Parked(ticket)) {
            self.granting.parked.park(ticket, claim, reply);
        }
        Ok(Answered::Nothing)
    }

    fn claim(
        &mut self,
        request: &ClaimRequest,
        now: Timestamp,
    ) -> Result<Result<Vec<ClaimedJob>, Refusal>, RecordsError> {
        let Self { engine, records, rng, effects, .. } = self;
        records.prefetch_for_claim(engine, request)?;
        let reads = records.point_reads;
        match engine.claim(request, ExecutionContext { records: &mut *records, rng, now, effects })? {
            Ok(claimed) => {
                records.record_claim(request, &claimed, reads);
                Ok(Ok(self.with_payloads(claimed)?))
            }
            Err(refusal) => Ok(Err(refusal)),
        }
    }

    fn with_payloads(&mut self, claimed: Vec<Claimed>) -> Result<Vec<ClaimedJob>, RecordsError> {
        let with_payload = |claimed: Claimed| {
            let payload = match self.records.payload(claimed.seq) {
                Ok(Some(payload)) => payload,
                Ok(None) | Err(RecordsError::Damaged(_)) => return Err(RecordsError::DamagedPayload(claimed.id)),
                Err(trouble) => return Err(trouble),
            };
            Ok(ClaimedJob { claimed, payload })
        };
        claimed.into_iter().map(with_payload).collect()
    }

    /// Grants what this turn has made ready to parked claims, in order.
    pub(crate) fn grant_parked(&mut self, now: Timestamp) -> Result<(), RecordsError> {
        self.stir_parked();
        if self.granting.held || self.granting.suspended {
            return Ok(());
        }
        while self.granting.commands < COMMANDS_MAX {
            let Self { granting, engine, .. } = self;
            let candidate = granting.parked.next_candidate(|queue, types| engine.has_ready(queue, types));
            let Some(ticket) = candidate else { break };
            let Some(claim) = granting.parked.take(ticket) else { break };
            if claim.caller.is_closed() {
                continue;
            }
            match self.claim(&claim.request, now) {
                Ok(answer) => {
                    self.granting.commands += answer.as_ref().map_or(1, |jobs| jobs.len().max(1));
                    self.granting.granted.push(Granted { ticket, claim, answer });
                }
                Err(trouble) => {
                    self.granting.parked.put_back(ticket, claim);
                    self.granting.culprit = Some(ticket);
                    return Err(trouble);
                }
            }
        }
        Ok(())
    }

    /// Marks the lines that effects of this turn have brought jobs to.
    fn stir_parked(&mut self) {
        let Self { granting, effects, .. } = self;
        if !granting.parked.is_empty() {
            for effect in effects.iter().skip(granting.effects_seen) {
                match effect {
                    Effect::Moved { queue, job_type, step, .. } if step.to == StateKind::Scheduled => {
                        granting.parked.stir(queue, job_type);
                    }
                    Effect::Moved { .. } => {}
                    Effect::Claimable(queue) => granting.parked.stir_queue(queue),
                }
            }
        }
        granting.effects_seen = effects.len();
    }

    /// Grants what did not fit into the last commit.
    pub(crate) fn grant_rest(&mut self, more: &mut dyn FnMut() -> Option<Request>) {
        while self.granting.parked.has_candidates() && !self.granting.held && !self.shared.poisoned() {
            let before = self.granting.answered;
            self.serve(Vec::new(), more);
            if self.granting.answered == before {
                return;
            }
        }
    }

    /// Answers the grants of a turn that is durable.
    pub(crate) fn answer_granted(&mut self) {
        self.granting.effects_seen = 0;
        self.granting.answered += self.granting.granted.len();
        for Granted { claim, answer, .. } in self.granting.granted.drain(..) {
            let take_back = &self.granting.take_back;
            drop(claim.caller.send(Ok(answer.map(|jobs| Grant::new(jobs, Arc::clone(take_back))))));
        }
    }

    /// After a turn that failed: its grants are parked again, claims that it parked are requests again.
    pub(crate) fn undo_grants(&mut self, mut batch: Vec<Request>) -> Undone {
        let granting = &mut self.granting;
        granting.effects_seen = 0;
        let culprit = granting.culprit.take();
        let granted = !granting.granted.is_empty() || culprit.is_some();
        for Granted { ticket, claim, .. } in std::mem::take(&mut granting.granted) {
            granting.parked.put_back(ticket, claim);
        }
        for request in &mut batch {
            if let Request::Parked(ticket) = request
                && let Some(claim) = granting.parked.take(*ticket)
            {
                *request = Request::Claim(claim.request, Some(*ticket), claim.caller);
            }
        }
        // What was stirred before this turn must not be forgotten.
        granting.parked.stir_all();
        Undone { batch, granted, culprit }
    }

    pub(crate) fn take_parked(&mut self, ticket: Ticket) -> Option<ClaimReply> {
        self.granting.parked.take(ticket).map(|claim| claim.caller)
    }

    pub(crate) fn fail_parked(&mut self) {
        for claim in self.granting.parked.take_all() {
            drop(claim.caller.send(Err(StoreError::Poisoned)));
        }
    }

    /// Ends a parked claim empty. One that is granted already is answered by its grant.
    pub(crate) fn unpark(&mut self, ticket: Ticket) {
        if let Some(claim) = self.granting.parked.take(ticket) {
            drop(claim.caller.send(Ok(Ok(Grant::new(Vec::new(), Arc::clone(&self.granting.take_back))))));
        }
    }

    pub(crate) fn count_parked(&self) {
        self.shared.parked_claims.store(self.granting.parked.len(), Ordering::Relaxed);
    }

    pub(crate) fn hold_grants(&mut self, hold: bool) {
        self.granting.held = hold;
        if !hold {
            self.granting.parked.stir_all();
        }
    }
}
