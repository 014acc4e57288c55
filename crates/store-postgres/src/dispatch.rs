//! Claims that wait on this node.
//!
//! One task owns them. A claim that may wait goes to the lanes at once; if it comes back empty it is parked. Commits of this node tell exactly
//! which lines have new jobs, hints of other nodes only that some may. The task sends parked claims to the lanes again, in order, as many as
//! there is work for. It alone answers them: with jobs, or empty once their wait is over.

mod work;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use longshore_core::id::{JobId, JobType, QueueName};
use longshore_core::refusal::Refusal;
use longshore_core::state::StateKind;
use longshore_engine::{ClaimRequest, Effect, Settlement};
use longshore_store::{Grant, MailboxReceiver, NoticeSender, ParkedClaim, ParkedClaims, StoreError, TakeBack, Ticket};
use tokio::sync::{mpsc, oneshot};

use crate::batcher::closed;
use crate::node::Shared;
use longshore_store::{ClaimReply, Reply, Request};
use work::{Reservation, Work};

/// What the dispatcher is told.
#[derive(Debug)]
pub(crate) enum Mail {
    /// A claim that may wait.
    Claim(Ticket, ClaimRequest, ClaimReply),
    /// The wait of a claim is over, or its caller is gone.
    Unpark(Ticket),
    /// Leases whose answer did not leave the server.
    TakeBack(Vec<Settlement>),
    /// A commit of this node has brought so many jobs of a type to a queue.
    Ready(Vec<(QueueName, JobType, usize)>),
    /// Jobs may have come to this queue.
    Stirred(QueueName),
    /// Jobs may have come to any queue.
    AllStirred,
    Hold(bool, Reply<()>),
}

/// Sends leases that were not delivered to the dispatcher.
#[derive(Debug)]
pub(crate) struct ReturnToDispatcher(pub NoticeSender<Mail>);

impl TakeBack for ReturnToDispatcher {
    fn take_back(&self, undelivered: Vec<Settlement>) {
        self.0.post(Mail::TakeBack(undelivered));
    }
}

/// Where the dispatcher sends claims and settlements.
#[derive(Debug)]
pub(crate) struct Lanes {
    pub claims: mpsc::Sender<Request>,
    pub settles: mpsc::Sender<Request>,
}

/// A claim that the lanes are asked to serve.
struct InFlight {
    claim: ParkedClaim<ClaimReply>,
    reserved: Reservation,
    /// Its wait is over: it is answered with whatever comes back.
    over: bool,
    /// It was parked before.
    tried: bool,
}

type Answer = Result<Result<Grant, Refusal>, StoreError>;

pub(crate) struct Dispatcher {
    shared: Arc<Shared>,
    lanes: Lanes,
    take_back: Arc<dyn TakeBack>,
    parked: ParkedClaims<ClaimReply>,
    in_flight: HashMap<Ticket, InFlight>,
    work: Work,
    /// Virtual time is being advanced.
    held: bool,
    /// Callers of a hold, until no claim is in flight: one that is would see what the advance brings.
    holding: Vec<Reply<()>>,
}

/// Works until every sender is gone.
pub(crate) async fn run(
    shared: Arc<Shared>,
    lanes: Lanes,
    take_back: Arc<dyn TakeBack>,
    mut mail: MailboxReceiver<Mail>,
) {
    let mut dispatcher = Dispatcher {
        shared,
        lanes,
        take_back,
        parked: ParkedClaims::default(),
        in_flight: HashMap::new(),
        work: Work::default(),
        held: false,
        holding: Vec::new(),
    };
    let mut answers = FuturesUnordered::new();
    loop {
        tokio::select! {
            first = mail.recv() => {
                let Some(first) = first else { return };
                dispatcher.open(first, &mut answers).await;
                while let Ok(next) = mail.try_recv() {
                    dispatcher.open(next, &mut answers).await;
                }
            }
            Some((ticket, answer)) = answers.next() => dispatcher.take_answer(ticket, answer),
        }
        dispatcher.answer_holds();
        dispatcher.dispatch(&mut answers).await;
        dispatcher.count();
    }
}

type Answers = FuturesUnordered<std::pin::Pin<Box<dyn Future<Output = (Ticket, Answer)> + Send>>>;

impl Dispatcher {
    async fn open(&mut self, mail: Mail, answers: &mut Answers) {
        match mail {
            Mail::Claim(ticket, request, reply) => {
                self.work.watch(&request);
                self.parked.park(ticket, request, reply);
                if !self.held {
                    self.send(ticket, false, answers).await;
                }
            }
            Mail::Unpark(ticket) => self.unpark(ticket),
            Mail::TakeBack(undelivered) => self.give_back(undelivered).await,
            Mail::Ready(lines) => {
                for (queue, job_type, jobs) in lines {
                    if self.work.add(&queue, &job_type, jobs) {
                        self.parked.notify(&queue, &job_type);
                    }
                }
            }
            Mail::Stirred(queue) => {
                self.work.probe_queue(&queue);
                self.parked.notify_queue(&queue);
            }
            Mail::AllStirred => self.stir_all(),
            Mail::Hold(hold, reply) => {
                self.held = hold;
                self.holding.push(reply);
                if !hold {
                    self.stir_all();
                }
            }
        }
    }

    fn answer_holds(&mut self) {
        if !self.held || self.in_flight.is_empty() {
            self.holding.drain(..).for_each(|reply| drop(reply.send(Ok(()))));
        }
    }

    fn stir_all(&mut self) {
        self.work.probe_all();
        self.parked.notify_all();
    }

    /// Sends parked claims to the lanes, as many as there is work for.
    async fn dispatch(&mut self, answers: &mut Answers) {
        while !self.held {
            let Self { parked, work, .. } = self;
            let Some(ticket) = parked.next_candidate(|queue, types| work.has(queue, types)) else { return };
            self.send(ticket, true, answers).await;
        }
    }

    async fn send(&mut self, ticket: Ticket, tried: bool, answers: &mut Answers) {
        let Some(claim) = self.parked.take(ticket) else { return };
        if claim.caller.is_closed() {
            self.work.unwatch(&claim.request);
            return;
        }
        let (reply, answer) = oneshot::channel();
        let reply = ClaimReply::new(reply, Arc::clone(&self.take_back));
        if self.lanes.claims.send(Request::Claim(claim.request.clone(), reply)).await.is_err() {
            self.work.unwatch(&claim.request);
            return claim.caller.fail(closed());
        }
        let reserved = self.work.reserve(&claim.request);
        self.in_flight.insert(ticket, InFlight { claim, reserved, over: false, tried });
        answers.push(Box::pin(async move { (ticket, answer.await.unwrap_or_else(|_| Err(closed()))) }));
    }

    /// Answers a claim that the lanes have served, or parks it.
    fn take_answer(&mut self, ticket: Ticket, answer: Answer) {
        let Some(InFlight { claim, reserved, over, .. }) = self.in_flight.remove(&ticket) else { return };
        let jobs = match &answer {
            Ok(Ok(grant)) => Some(grant.jobs()),
            Ok(Err(_)) | Err(_) => None,
        };
        let more = self.work.settle(&claim.request, reserved, jobs);
        let queues = if more { claim.request.queues.clone() } else { Vec::new() };
        if jobs.is_some_and(<[_]>::is_empty) && !over && !claim.caller.is_closed() {
            self.parked.put_back(ticket, claim);
        } else {
            self.work.unwatch(&claim.request);
            claim.caller.forward(answer);
        }
        // What it has missed or left is for the claims that wait.
        queues.iter().for_each(|queue| self.parked.notify_queue(queue));
    }

    /// Ends a claim empty. One that the lanes are serving is answered with what they bring.
    fn unpark(&mut self, ticket: Ticket) {
        if let Some(claim) = self.parked.take(ticket) {
            self.work.unwatch(&claim.request);
            claim.caller.send(Ok(Vec::new()));
        } else if let Some(in_flight) = self.in_flight.get_mut(&ticket) {
            in_flight.over = true;
        }
    }

    async fn give_back(&self, undelivered: Vec<Settlement>) {
        let (reply, _) = oneshot::channel();
        let leases = undelivered.len();
        tracing::debug!(leases, "a worker left before it had its jobs; their leases are given back");
        if self.lanes.settles.send(Request::Settle(undelivered, reply)).await.is_err() {
            tracing::warn!(leases, "undelivered leases were not taken back; they will expire");
        }
    }

    fn count(&self) {
        let tried = self.in_flight.values().filter(|claim| claim.tried && !claim.over).count();
        self.shared.parked_claims.store(self.parked.len() + tried, Ordering::Relaxed);
    }
}

/// The lines that the effects of a commit have brought jobs to. A job that came and went in one commit counts for nothing.
pub(crate) fn ready_lines(effects: &[Effect]) -> (Vec<(QueueName, JobType, usize)>, Vec<QueueName>) {
    let mut came: HashMap<JobId, (&QueueName, &JobType)> = HashMap::new();
    let mut stirred = Vec::new();
    for effect in effects {
        match effect {
            Effect::Moved { id, queue, job_type, step, .. } => {
                if step.to == StateKind::Scheduled {
                    came.insert(*id, (queue, job_type));
                } else {
                    came.remove(id);
                }
            }
            Effect::Claimable(queue) => stirred.push(queue.clone()),
        }
    }
    let mut lines: HashMap<(&QueueName, &JobType), usize> = HashMap::new();
    for line in came.into_values() {
        *lines.entry(line).or_default() += 1;
    }
    let lines = lines.into_iter().map(|((queue, job_type), jobs)| (queue.clone(), job_type.clone(), jobs));
    (lines.collect(), stirred)
}
