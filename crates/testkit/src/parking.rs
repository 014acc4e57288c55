//! Random claims that are parked, granted, timed out, dropped or undelivered, compared with a naive
//! model.
//!
//! After every round two properties must hold: every leased job was in a response, and no claim is
//! parked while a matching job is ready.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::task::{Context, Poll, Waker};
use std::time::Duration as Wait;

use bytes::Bytes;
use longshore_core::claim::ClaimOptions;
use longshore_core::id::{JobId, JobType, QueueName, Seq};
use longshore_core::refusal::Refusal;
use longshore_core::rng::{Rng, SeededRng};
use longshore_core::settle::Outcome;
use longshore_core::state::StateKind;
use longshore_core::submit::{NewJob, Payload, Start};
use longshore_core::{Duration, Timestamp};
use longshore_engine::{AdminCommand, ClaimRequest, Claimed, Settlement, Submission, SubmitRequest, count_of};
use longshore_store::{Clock, Grant, Park, Store, StoreFuture, VirtualClock};
use tokio::sync::oneshot;

use crate::block_on::{block_on, block_on_for};

const QUEUES: [&str; 4] = ["a", "b", "c", "d"];
const TYPES: [&str; 3] = ["x", "y", "z"];
const WAITING_MAX: usize = 12;
/// Longer than any response takes.
const RESPONSE_TIMEOUT: Wait = Wait::from_secs(60);

/// Whether a store serves parked claims strictly in order, or in any order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Exact,
    Any,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Delayed(Timestamp),
    Ready,
    Running,
    Done,
}

struct Job {
    id: JobId,
    queue: usize,
    job_type: usize,
    state: State,
}

struct Waiting<'a> {
    queues: Vec<usize>,
    types: Vec<usize>,
    limit: usize,
    call: StoreFuture<'a, Result<Grant, Refusal>>,
    end: Option<oneshot::Sender<()>>,
}

struct Rounds<'a> {
    store: &'a dyn Store,
    clock: &'a VirtualClock,
    rng: SeededRng,
    order: Order,
    /// By sequence number, which is the claim order in these queues.
    jobs: BTreeMap<Seq, Job>,
    paused: [bool; QUEUES.len()],
    waiting: Vec<Waiting<'a>>,
    running: Vec<(Seq, Claimed)>,
    grants: usize,
}

/// Runs this many rounds on a fresh store. Returns how many parked claims received jobs.
pub fn play(store: &dyn Store, clock: &VirtualClock, seed: u64, rounds: usize, order: Order) -> usize {
    let mut play = Rounds {
        store,
        clock,
        rng: SeededRng::new(seed),
        order,
        jobs: BTreeMap::new(),
        paused: [false; QUEUES.len()],
        waiting: Vec::new(),
        running: Vec::new(),
        grants: 0,
    };
    for name in QUEUES {
        let put = AdminCommand::PutQueue { queue: queue(name), profile: None, overrides: None };
        block_on(store.admin(put)).unwrap().unwrap();
    }
    for round in 0..rounds {
        play.round();
        play.serve(round);
        if round % 64 == 63 {
            play.check_counts(round);
        }
    }
    play.finish();
    play.grants
}

fn queue(name: &str) -> QueueName {
    QueueName::new(name).unwrap()
}

fn job_type(name: &str) -> JobType {
    JobType::new(name).unwrap()
}

fn matches_claim(job: &Job, queue: usize, types: &[usize]) -> bool {
    job.state == State::Ready && job.queue == queue && (types.is_empty() || types.contains(&job.job_type))
}

impl<'a> Rounds<'a> {
    fn below(&mut self, bound: usize) -> usize {
        let rng: &mut dyn Rng = &mut self.rng;
        usize::try_from(rng.uniform_inclusive(bound as u64 - 1)).unwrap()
    }

    fn round(&mut self) {
        match self.below(100) {
            0..32 => self.submit(),
            32..62 if self.waiting.len() < WAITING_MAX => self.park(),
            32..68 => self.claim_now(),
            68..76 => self.end_wait(),
            76..82 => self.drop_claim(),
            82..87 => self.pause_or_resume(),
            _ => self.advance(),
        }
        if self.below(2) == 0 {
            self.complete_running();
        }
    }

    /// Submits several jobs in one commit, some of them delayed.
    fn submit(&mut self) {
        let (mut batch, mut made) = (Vec::new(), Vec::new());
        for _ in 0..=self.below(4) {
            let (place, kind) = (self.below(QUEUES.len()), self.below(TYPES.len()));
            let mut job = NewJob::new(job_type(TYPES[kind]), Payload::Binary(Bytes::from_static(b"p")));
            let mut state = State::Ready;
            if self.below(4) == 0 {
                let delay = Duration::from_secs(1 + self.below(3) as u64);
                job.start = Start::In(delay);
                state = State::Delayed(self.clock.now() + delay);
            }
            batch.push(Submission { queue: queue(QUEUES[place]), job });
            made.push((place, kind, state));
        }
        let submitted = block_on(self.store.submit(SubmitRequest::new(batch))).unwrap().unwrap();
        for (job, (queue, job_type, state)) in submitted.into_iter().zip(made) {
            self.jobs.insert(job.seq, Job { id: job.id, queue, job_type, state });
        }
    }

    fn any_request(&mut self) -> (Vec<usize>, Vec<usize>, usize) {
        let mut queues: Vec<usize> = (0..QUEUES.len()).collect();
        for place in 0..queues.len() {
            let other = self.below(QUEUES.len());
            queues.swap(place, other);
        }
        let many = 1 + self.below(3);
        queues.truncate(many);
        let types = match self.below(4) {
            0 => vec![self.below(TYPES.len())],
            1 => vec![self.below(TYPES.len()), self.below(TYPES.len())],
            _ => Vec::new(),
        };
        let limit = 1 + self.below(3);
        (queues, types, limit)
    }

    fn request(queues: &[usize], types: &[usize], limit: usize) -> ClaimRequest {
        ClaimRequest {
            queues: queues.iter().map(|place| queue(QUEUES[*place])).collect(),
            types: types.iter().map(|kind| job_type(TYPES[*kind])).collect(),
            limit,
            terms: ClaimOptions { lease: Some(Duration::from_days(1)), ..ClaimOptions::default() },
        }
    }

    fn park(&mut self) {
        let (queues, types, limit) = self.any_request();
        let (end, ended) = oneshot::channel::<()>();
        let until = Park::Until(Box::pin(async move { drop(ended.await) }));
        let mut call = self.store.claim_or_park(Self::request(&queues, &types, limit), until);
        // After one poll the claim is sent, so later requests follow it.
        let first = call.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        let mut waiting = Waiting { queues, types, limit, call, end: Some(end) };
        if let Poll::Ready(answer) = first {
            // Some stores respond during the first poll.
            waiting.call = Box::pin(std::future::ready(answer));
        }
        self.waiting.push(waiting);
    }

    fn claim_now(&mut self) {
        let (queues, types, limit) = self.any_request();
        let expected = self.take(&queues, &types, limit);
        let jobs = block_on(self.store.claim(Self::request(&queues, &types, limit))).unwrap().unwrap();
        let ids: Vec<Seq> = jobs.iter().map(|job| job.claimed.seq).collect();
        assert_eq!(ids, expected, "a claim that does not wait");
        self.running.extend(jobs.into_iter().map(|job| (job.claimed.seq, job.claimed)));
    }

    /// Ends the wait of a claim. It returns empty, because nothing else is due.
    fn end_wait(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        let place = self.below(self.waiting.len());
        let mut waiting = self.waiting.remove(place);
        drop(waiting.end.take());
        let grant =
            block_on_for(RESPONSE_TIMEOUT, waiting.call).expect("a response at the end of the wait").unwrap().unwrap();
        assert_eq!(grant.jobs().len(), 0, "it had nothing to get");
    }

    /// Drops a parked claim.
    fn drop_claim(&mut self) {
        if !self.waiting.is_empty() {
            let place = self.below(self.waiting.len());
            drop(self.waiting.remove(place));
        }
    }

    fn pause_or_resume(&mut self) {
        let place = self.below(QUEUES.len());
        self.paused[place] = !self.paused[place];
        let queue = queue(QUEUES[place]);
        let command =
            if self.paused[place] { AdminCommand::PauseQueue { queue } } else { AdminCommand::ResumeQueue { queue } };
        block_on(self.store.admin(command)).unwrap().unwrap();
    }

    fn advance(&mut self) {
        let now = self.clock.advance(Duration::from_secs(1 + self.below(2) as u64));
        for job in self.jobs.values_mut() {
            if matches!(job.state, State::Delayed(due) if due <= now) {
                job.state = State::Ready;
            }
        }
        self.tick();
    }

    /// Processes everything that is due in one commit.
    fn tick(&self) {
        let budget = NonZeroUsize::new(1_000).unwrap();
        while block_on(self.store.tick(budget)).unwrap().next.is_some_and(|next| next <= self.clock.now()) {}
    }

    fn complete_running(&mut self) {
        let done = std::mem::take(&mut self.running);
        let complete = |(_, claimed): &(Seq, Claimed)| Settlement {
            id: claimed.id,
            token: Some(claimed.token),
            outcome: Outcome::Complete { result: None, progress: None },
        };
        let settlements: Vec<_> = done.iter().map(complete).collect();
        for verdict in block_on(self.store.settle(settlements)).unwrap() {
            assert_eq!(verdict, Ok(StateKind::Completed), "the lease that was answered is current");
        }
        for (seq, _) in done {
            self.job(seq).state = State::Done;
        }
        self.jobs.retain(|_, job| job.state != State::Done);
    }

    fn job(&mut self, seq: Seq) -> &mut Job {
        self.jobs.get_mut(&seq).expect("a job of this play")
    }

    /// Returns the jobs that the model gives to a claim: queue by queue, in order of submission.
    fn take(&mut self, queues: &[usize], types: &[usize], limit: usize) -> Vec<Seq> {
        let mut taken = Vec::new();
        for queue in queues.iter().filter(|queue| !self.paused[**queue]) {
            let ready = self.jobs.iter_mut().filter(|(_, job)| matches_claim(job, *queue, types));
            for (seq, job) in ready.take(limit - taken.len()) {
                job.state = State::Running;
                taken.push(*seq);
            }
        }
        taken
    }

    fn serve(&mut self, round: usize) {
        match self.order {
            Order::Exact => self.serve_exactly(round),
            Order::Any => self.serve_any(round),
        }
    }

    /// Checks that exactly the claims that the model serves are served, with the same jobs.
    fn serve_exactly(&mut self, round: usize) {
        loop {
            let mut undelivered = None;
            for place in 0.. {
                let Some(waiting) = self.waiting.get(place) else { break };
                let (queues, types, limit) = (waiting.queues.clone(), waiting.types.clone(), waiting.limit);
                let expected = self.take(&queues, &types, limit);
                if expected.is_empty() {
                    continue;
                }
                let call = std::mem::replace(&mut self.waiting[place].call, Box::pin(std::future::pending()));
                let Some(answer) = block_on_for(RESPONSE_TIMEOUT, call) else {
                    panic!("round {round}: claim {place} of {QUEUES:?} {queues:?} {types:?} sleeps beside {expected:?}")
                };
                self.waiting[place].limit = 0;
                let grant = self.check(answer.unwrap().unwrap(), Some(&expected), round);
                // At most one grant is lost per round: the order of two returns would be undefined.
                if undelivered.is_none() && self.below(8) == 0 {
                    undelivered = Some(grant);
                } else {
                    self.deliver(grant);
                }
            }
            self.waiting.retain(|waiting| waiting.limit > 0);
            let Some(lost) = undelivered else { break };
            // The jobs of a lost grant return and may go to other claims. The tick follows the
            // return.
            let seqs: Vec<Seq> = lost.jobs().iter().map(|job| job.claimed.seq).collect();
            drop(lost);
            seqs.into_iter().for_each(|seq| self.job(seq).state = State::Ready);
            self.tick();
        }
        for waiting in &mut self.waiting {
            let early = waiting.call.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert!(early.is_pending(), "round {round}: a claim was answered that has nothing to get: {early:?}");
        }
    }

    /// Receives responses in any order until no claim matches a ready job.
    fn serve_any(&mut self, round: usize) {
        for _ in 0..6_000 {
            let mut answers = Vec::new();
            self.waiting.retain_mut(|waiting| {
                match waiting.call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                    Poll::Ready(answer) => answers.push((waiting.limit, answer)),
                    Poll::Pending => return true,
                }
                false
            });
            for (limit, answer) in answers {
                let grant = answer.unwrap().unwrap();
                assert!((1..=limit).contains(&grant.jobs().len()), "round {round}: {} jobs", grant.jobs().len());
                for job in grant.jobs() {
                    let known = self.job(job.claimed.seq);
                    assert_eq!(known.state, State::Ready, "round {round}: {} was not to be had", job.claimed.seq);
                    known.state = State::Running;
                }
                let grant = self.check(grant, None, round);
                self.deliver(grant);
            }
            let settled = self.store.parked_claims() == self.waiting.len();
            let slept = self.waiting.iter().any(|waiting| {
                let open = waiting.queues.iter().filter(|queue| !self.paused[**queue]);
                open.clone().any(|queue| self.jobs.values().any(|job| matches_claim(job, *queue, &waiting.types)))
            });
            if settled && !slept {
                return;
            }
            std::thread::park_timeout(Wait::from_millis(10));
        }
        panic!("round {round}: a claim sleeps beside a job that it wants");
    }

    fn check(&mut self, grant: Grant, expected: Option<&[Seq]>, round: usize) -> Grant {
        let seqs: Vec<Seq> = grant.jobs().iter().map(|job| job.claimed.seq).collect();
        assert!(expected.is_none_or(|expected| expected == seqs), "round {round}: {seqs:?} instead of {expected:?}");
        assert!(grant.jobs().iter().all(|job| job.claimed.attempt == 1), "round {round}: an attempt was spent");
        self.grants += 1;
        grant
    }

    fn deliver(&mut self, grant: Grant) {
        self.running.extend(grant.deliver().into_iter().map(|job| (job.claimed.seq, job.claimed)));
    }

    /// Checks that every leased job was in a response.
    fn check_counts(&self, round: usize) {
        for (place, name) in QUEUES.iter().enumerate() {
            let report = block_on(self.store.queue(queue(name))).unwrap().unwrap();
            let of = |state| self.jobs.values().filter(|job| job.queue == place && job.state == state).count();
            let counted = |state| usize::try_from(count_of(&report.counts, state)).unwrap();
            assert_eq!(counted(StateKind::Running), of(State::Running), "round {round}: leased jobs of {name}");
            assert_eq!(counted(StateKind::Scheduled), of(State::Ready), "round {round}: ready jobs of {name}");
        }
    }

    fn finish(&mut self) {
        while !self.waiting.is_empty() {
            self.end_wait();
        }
        self.complete_running();
        self.check_counts(usize::MAX);
        for job in self.jobs.values() {
            assert!(self.running.iter().all(|(_, claimed)| claimed.id != job.id));
        }
    }
}
