//! Long-poll claims of this node.
//!
//! One task owns them. A claim is sent to the workers at once; if it returns without jobs, it is
//! parked. Commits of this node report their new jobs exactly, notifications of other nodes only
//! that there may be some. The task sends as many parked claims as there is work for, in their
//! order, and answers each with jobs, or empty after its timeout.

mod work;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use longshore_core::id::{JobId, JobType, QueueName, WorkerName};
use longshore_core::refusal::Refusal;
use longshore_core::state::StateKind;
use longshore_engine::{ClaimRequest, Effect, Settlement};
use longshore_store::{Grant, MailboxReceiver, NoticeSender, ParkedClaim, ParkedClaims, StoreError, TakeBack, Ticket};
use tokio::sync::oneshot;

use crate::batcher::closed;
use crate::node::Node;
use crate::request::{ClaimResponder, QueuedRequest, RequestSender, Responder, TxRequest};
use work::{ExpectedWork, Reservation};

/// Messages to the dispatcher.
#[derive(Debug)]
pub(crate) enum Mail {
    /// A new long-poll claim.
    Claim(Ticket, ClaimRequest, ClaimResponder),
    /// A claim has timed out, or its caller is gone.
    Unpark(Ticket),
    /// Leases that were not delivered to a worker.
    TakeBack(Vec<Settlement>),
    /// New jobs of this node, counted by queue and type.
    Ready(Vec<(QueueName, JobType, usize)>),
    /// Another node may have added jobs to this queue.
    QueueChanged(QueueName),
    /// Another node may have added jobs to any queue.
    AllChanged,
    /// A worker may claim no more.
    HeldBack(WorkerName),
    Hold(bool, Responder<()>),
}

/// Returns undelivered leases to the dispatcher.
#[derive(Debug)]
pub(crate) struct ReturnToDispatcher(pub NoticeSender<Mail>);

impl TakeBack for ReturnToDispatcher {
    fn take_back(&self, undelivered: Vec<Settlement>) {
        self.0.post(Mail::TakeBack(undelivered));
    }
}

/// Where the dispatcher sends claims and settlements.
#[derive(Debug)]
pub(crate) struct DispatchQueues {
    pub claims: RequestSender,
    pub settles: RequestSender,
}

/// A claim that was sent to the workers.
struct InFlight {
    claim: ParkedClaim<ClaimResponder>,
    reserved: Reservation,
    /// It has timed out, and is answered with any result.
    timed_out: bool,
    /// It was parked before.
    was_parked: bool,
}

type ClaimResult = Result<Result<Grant, Refusal>, StoreError>;

pub(crate) struct Dispatcher {
    node: Arc<Node>,
    queues: DispatchQueues,
    take_back: Arc<dyn TakeBack>,
    parked: ParkedClaims<ClaimResponder>,
    in_flight: HashMap<Ticket, InFlight>,
    work: ExpectedWork,
    /// Virtual time is being advanced.
    held: bool,
    /// Callers of a hold, answered once no claim is in flight. A claim in flight would see jobs of
    /// the advanced time.
    holding: Vec<Responder<()>>,
}

/// Runs until every sender is gone.
pub(crate) async fn run(
    node: Arc<Node>,
    queues: DispatchQueues,
    take_back: Arc<dyn TakeBack>,
    mut mail: MailboxReceiver<Mail>,
) {
    let mut dispatcher = Dispatcher {
        node,
        queues,
        take_back,
        parked: ParkedClaims::default(),
        in_flight: HashMap::new(),
        work: ExpectedWork::default(),
        held: false,
        holding: Vec::new(),
    };
    let mut answers = FuturesUnordered::new();
    loop {
        tokio::select! {
            first = mail.recv() => {
                let Some(first) = first else { return };
                dispatcher.handle(first, &mut answers).await;
                while let Ok(next) = mail.try_recv() {
                    dispatcher.handle(next, &mut answers).await;
                }
            }
            Some((ticket, answer)) = answers.next() => dispatcher.on_answer(ticket, answer),
        }
        dispatcher.answer_holds();
        dispatcher.dispatch(&mut answers).await;
        dispatcher.count();
    }
}

type ClaimResults = FuturesUnordered<std::pin::Pin<Box<dyn Future<Output = (Ticket, ClaimResult)> + Send>>>;

impl Dispatcher {
    async fn handle(&mut self, mail: Mail, answers: &mut ClaimResults) {
        match mail {
            Mail::Claim(ticket, request, reply) => {
                self.work.watch(&request);
                self.parked.park(ticket, request, reply);
                if !self.held {
                    self.send(ticket, false, answers).await;
                }
            }
            Mail::Unpark(ticket) => self.unpark(ticket),
            Mail::TakeBack(undelivered) => self.return_leases(undelivered).await,
            Mail::Ready(ready) => {
                for (queue, job_type, jobs) in ready {
                    if self.work.add(&queue, &job_type, jobs) {
                        self.parked.notify(&queue, &job_type);
                    }
                }
            }
            Mail::QueueChanged(queue) => {
                self.work.probe_queue(&queue);
                self.parked.notify_queue(&queue);
            }
            Mail::AllChanged => self.notify_all(),
            Mail::HeldBack(worker) => self.hold_back(&worker),
            Mail::Hold(hold, reply) => {
                self.held = hold;
                self.holding.push(reply);
                if !hold {
                    self.notify_all();
                }
            }
        }
    }

    fn answer_holds(&mut self) {
        if !self.held || self.in_flight.is_empty() {
            self.holding.drain(..).for_each(|reply| drop(reply.send(Ok(()))));
        }
    }

    fn notify_all(&mut self) {
        self.work.probe_all();
        self.parked.notify_all();
    }

    /// Sends as many parked claims as there is work for.
    async fn dispatch(&mut self, answers: &mut ClaimResults) {
        while !self.held {
            let Self { parked, work, .. } = self;
            let Some(ticket) = parked.next_candidate(|queue, types| work.has(queue, types)) else { return };
            self.send(ticket, true, answers).await;
        }
    }

    async fn send(&mut self, ticket: Ticket, was_parked: bool, answers: &mut ClaimResults) {
        let Some(claim) = self.parked.take(ticket) else { return };
        if claim.caller.is_closed() {
            self.work.unwatch(&claim.request);
            return;
        }
        let (reply, answer) = oneshot::channel();
        let reply = ClaimResponder::new(reply, Arc::clone(&self.take_back));
        if self.queues.claims.send(QueuedRequest::new(TxRequest::Claim(claim.request.clone(), reply))).await.is_err() {
            self.work.unwatch(&claim.request);
            return claim.caller.send(Err(closed()));
        }
        let reserved = self.work.reserve(&claim.request);
        self.in_flight.insert(ticket, InFlight { claim, reserved, timed_out: false, was_parked });
        answers.push(Box::pin(async move { (ticket, answer.await.unwrap_or_else(|_| Err(closed()))) }));
    }

    /// ClaimResults a claim that the workers have served, or parks it.
    fn on_answer(&mut self, ticket: Ticket, answer: ClaimResult) {
        let Some(InFlight { claim, reserved, timed_out, .. }) = self.in_flight.remove(&ticket) else { return };
        let jobs = match &answer {
            Ok(Ok(grant)) => Some(grant.jobs()),
            Ok(Err(_)) | Err(_) => None,
        };
        let more = self.work.finish(&claim.request, reserved, jobs);
        let queues = if more { claim.request.queues.clone() } else { Vec::new() };
        let can_claim = self.node.directives.can_claim(claim.request.terms.worker.as_ref());
        if jobs.is_some_and(<[_]>::is_empty) && !timed_out && can_claim && !claim.caller.is_closed() {
            self.parked.put_back(ticket, claim);
        } else {
            self.work.unwatch(&claim.request);
            claim.caller.send(answer);
        }
        // Other parked claims may take the jobs that it has left.
        queues.iter().for_each(|queue| self.parked.notify_queue(queue));
    }

    /// ClaimResults a parked claim without jobs. A claim in flight is answered with its result.
    fn unpark(&mut self, ticket: Ticket) {
        if let Some(claim) = self.parked.take(ticket) {
            self.work.unwatch(&claim.request);
            claim.caller.send(Ok(Ok(Grant::delivered(Vec::new()))));
        } else if let Some(in_flight) = self.in_flight.get_mut(&ticket) {
            in_flight.timed_out = true;
        }
    }

    /// Answers the parked claims of a worker without jobs. Its claims in flight end by `on_answer`.
    fn hold_back(&mut self, worker: &WorkerName) {
        for claim in self.parked.take_of_worker(worker) {
            self.work.unwatch(&claim.request);
            claim.caller.send(Ok(Ok(Grant::delivered(Vec::new()))));
        }
    }

    async fn return_leases(&self, undelivered: Vec<Settlement>) {
        let (reply, _) = oneshot::channel();
        let leases = undelivered.len();
        tracing::debug!(leases, "worker disconnected before it received its jobs; returning their leases");
        if self.queues.settles.send(QueuedRequest::new(TxRequest::Settle(undelivered, reply))).await.is_err() {
            tracing::warn!(leases, "cannot return undelivered leases; they will expire");
        }
    }

    fn count(&self) {
        let was_parked = self.in_flight.values().filter(|claim| claim.was_parked && !claim.timed_out).count();
        self.node.parked_claims.store(self.parked.len() + was_parked, Ordering::Relaxed);
    }
}

/// Returns the new ready jobs of a commit, counted by queue and type, and queues that may have
/// others. A job that became ready and was claimed in the same commit is not counted.
pub(crate) fn ready_jobs(effects: &[Effect]) -> (Vec<(QueueName, JobType, usize)>, Vec<QueueName>) {
    let mut ready: HashMap<JobId, (&QueueName, &JobType)> = HashMap::new();
    let mut changed = Vec::new();
    for effect in effects {
        match effect {
            Effect::Moved { id, queue, job_type, step, .. } => {
                if step.to == StateKind::Scheduled {
                    ready.insert(*id, (queue, job_type));
                } else {
                    ready.remove(id);
                }
            }
            Effect::Claimable(queue) => changed.push(queue.clone()),
            Effect::Queue { .. } | Effect::Schedule { .. } => {}
        }
    }
    let mut counts: HashMap<(&QueueName, &JobType), usize> = HashMap::new();
    for key in ready.into_values() {
        *counts.entry(key).or_default() += 1;
    }
    let counts = counts.into_iter().map(|((queue, job_type), jobs)| (queue.clone(), job_type.clone(), jobs));
    (counts.collect(), changed)
}
