//! Claims that wait for jobs: ordered by arrival, indexed by queue and type.
//!
//! The component that grants jobs owns a [`ParkedClaims`]: the writer of the embedded store, or the
//! dispatcher of a PostgreSQL node. It parks a claim that found no job. When a job becomes ready it
//! notifies the queue ([`ParkedClaims::notify`]) and tries claims in order
//! ([`ParkedClaims::next_candidate`]). A claim leaves through [`ParkedClaims::take`] only, so
//! grant, timeout and cancellation cannot overlap.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use longshore_core::id::{JobType, QueueName, WorkerName};
use longshore_engine::ClaimRequest;

/// Identifies a claim. Lower tickets are served first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// The types of a claim, sorted and without duplicates. Empty means any type.
type Types = Arc<[JobType]>;

/// A claim that waits, with the channel of its caller.
#[derive(Debug)]
pub struct ParkedClaim<T> {
    pub request: ClaimRequest,
    pub caller: T,
    types: Types,
}

#[derive(Debug)]
pub struct ParkedClaims<T> {
    claims: HashMap<Ticket, ParkedClaim<T>>,
    queues: HashMap<QueueName, Waiters>,
    /// Groups of claims that may be served now, each with its first ticket at the time of the
    /// notification.
    candidates: BTreeSet<(Ticket, QueueName, Types)>,
}

/// The claims that wait for one queue, grouped by their types.
#[derive(Debug, Default)]
struct Waiters {
    groups: HashMap<Types, BTreeSet<Ticket>>,
    /// The groups that name a type.
    by_type: HashMap<JobType, BTreeSet<Types>>,
}

impl Waiters {
    fn add(&mut self, types: &Types, ticket: Ticket) {
        if let Some(tickets) = self.groups.get_mut(types) {
            tickets.insert(ticket);
            return;
        }
        self.groups.insert(Arc::clone(types), BTreeSet::from([ticket]));
        for job_type in types.iter() {
            self.by_type.entry(job_type.clone()).or_default().insert(Arc::clone(types));
        }
    }

    fn remove(&mut self, types: &Types, ticket: Ticket) {
        let Some(tickets) = self.groups.get_mut(types) else { return };
        tickets.remove(&ticket);
        if !tickets.is_empty() {
            return;
        }
        self.groups.remove(types);
        for job_type in types.iter() {
            if let Some(groups) = self.by_type.get_mut(job_type) {
                groups.remove(types);
                if groups.is_empty() {
                    self.by_type.remove(job_type);
                }
            }
        }
    }

    fn first(&self, types: &Types) -> Option<Ticket> {
        self.groups.get(types)?.first().copied()
    }
}

impl<T> Default for ParkedClaims<T> {
    fn default() -> Self {
        Self { claims: HashMap::new(), queues: HashMap::new(), candidates: BTreeSet::new() }
    }
}

impl<T> ParkedClaims<T> {
    pub fn is_empty(&self) -> bool {
        self.claims.is_empty()
    }

    pub fn len(&self) -> usize {
        self.claims.len()
    }

    /// Adds a claim that found no job. Earlier notifications do not apply to it.
    pub fn park(&mut self, ticket: Ticket, request: ClaimRequest, caller: T) {
        let mut types = request.types.clone();
        types.sort_unstable();
        types.dedup();
        self.put_back(ticket, ParkedClaim { request, caller, types: types.into() });
    }

    /// Adds a claim that was removed, at its former place in the order.
    pub fn put_back(&mut self, ticket: Ticket, claim: ParkedClaim<T>) {
        for queue in &claim.request.queues {
            match self.queues.get_mut(queue) {
                Some(waiters) => waiters.add(&claim.types, ticket),
                None => self.queues.entry(queue.clone()).or_default().add(&claim.types, ticket),
            }
        }
        self.claims.insert(ticket, claim);
    }

    /// Removes a claim, to respond or to drop it. Returns `None` if it is not parked.
    pub fn take(&mut self, ticket: Ticket) -> Option<ParkedClaim<T>> {
        let claim = self.claims.remove(&ticket)?;
        for queue in &claim.request.queues {
            if let Some(waiters) = self.queues.get_mut(queue) {
                waiters.remove(&claim.types, ticket);
                if waiters.groups.is_empty() {
                    self.queues.remove(queue);
                }
            }
        }
        Some(claim)
    }

    /// Removes the claims of a worker and returns them.
    pub fn take_of_worker(&mut self, worker: &WorkerName) -> Vec<ParkedClaim<T>> {
        let of_worker = |(ticket, claim): (&Ticket, &ParkedClaim<T>)| {
            (claim.request.terms.worker.as_ref() == Some(worker)).then_some(*ticket)
        };
        let tickets: Vec<Ticket> = self.claims.iter().filter_map(of_worker).collect();
        tickets.into_iter().filter_map(|ticket| self.take(ticket)).collect()
    }

    /// Removes all claims and returns them in order.
    pub fn take_all(&mut self) -> Vec<ParkedClaim<T>> {
        self.queues.clear();
        self.candidates.clear();
        let mut claims: Vec<_> = self.claims.drain().collect();
        claims.sort_unstable_by_key(|(ticket, _)| *ticket);
        claims.into_iter().map(|(_, claim)| claim).collect()
    }

    /// Records that a job of this type became ready.
    pub fn notify(&mut self, queue: &QueueName, job_type: &JobType) {
        let Some(waiters) = self.queues.get(queue) else { return };
        let any: Types = Arc::new([]);
        let named = waiters.by_type.get(job_type).into_iter().flatten();
        for types in named.chain([&any]) {
            if let Some(first) = waiters.first(types) {
                self.candidates.insert((first, queue.clone(), Arc::clone(types)));
            }
        }
    }

    /// Records that jobs of any type may have become ready.
    pub fn notify_queue(&mut self, queue: &QueueName) {
        let Some(waiters) = self.queues.get(queue) else { return };
        for types in waiters.groups.keys() {
            if let Some(first) = waiters.first(types) {
                self.candidates.insert((first, queue.clone(), Arc::clone(types)));
            }
        }
    }

    /// Records that jobs may have become ready in any queue.
    pub fn notify_all(&mut self) {
        let queues: Vec<QueueName> = self.queues.keys().cloned().collect();
        queues.iter().for_each(|queue| self.notify_queue(queue));
    }

    /// Whether a notification has not been processed yet.
    pub fn has_candidates(&self) -> bool {
        !self.candidates.is_empty()
    }

    /// Returns the first claim in order for which a notified queue has work, and leaves it parked.
    /// A queue without work is skipped until its next notification.
    pub fn next_candidate(&mut self, mut has_work: impl FnMut(&QueueName, &[JobType]) -> bool) -> Option<Ticket> {
        while let Some((ticket, queue, types)) = self.candidates.pop_first() {
            let Some(first) = self.queues.get(&queue).and_then(|waiters| waiters.first(&types)) else { continue };
            if first != ticket {
                self.candidates.insert((first, queue, types));
            } else if has_work(&queue, &types) {
                // The queue may have more jobs, so its group stays a candidate.
                self.candidates.insert((ticket, queue, types));
                return Some(ticket);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use longshore_core::claim::ClaimOptions;

    use super::*;

    fn queue(name: &str) -> QueueName {
        QueueName::new(name).unwrap()
    }

    fn job_type(name: &str) -> JobType {
        JobType::new(name).unwrap()
    }

    fn park(parked: &mut ParkedClaims<()>, ticket: u64, queues: &[&str], types: &[&str]) {
        let queues = queues.iter().map(|name| queue(name)).collect();
        let types = types.iter().map(|name| job_type(name)).collect();
        let request = ClaimRequest { queues, types, limit: 1, terms: ClaimOptions::default() };
        parked.park(Ticket(ticket), request, ());
    }

    /// Grants one job of each listed (queue, type) and returns the tickets served, in order.
    fn grant(parked: &mut ParkedClaims<()>, mut jobs: Vec<(&str, &str)>) -> Vec<u64> {
        for (name, kind) in &jobs {
            parked.notify(&queue(name), &job_type(kind));
        }
        let accepts = |types: &[JobType], kind: &str| types.is_empty() || types.contains(&job_type(kind));
        let mut served = Vec::new();
        loop {
            let has_work = |name: &QueueName, types: &[JobType]| {
                jobs.iter().any(|(q, t)| *q == name.as_str() && accepts(types, t))
            };
            let Some(ticket) = parked.next_candidate(has_work) else { return served };
            let claim = parked.take(ticket).unwrap();
            let index = claim
                .request
                .queues
                .iter()
                .find_map(|name| jobs.iter().position(|(q, t)| *q == name.as_str() && accepts(&claim.types, t)));
            jobs.remove(index.unwrap());
            served.push(ticket.0);
        }
    }

    /// Regression: claim 1 on [b, a] got the job of b, and claim 3 on [a] stayed parked beside the
    /// job of a.
    #[test]
    fn grant_reaches_second_queue_of_a_claim_over_two_queues() {
        let mut parked = ParkedClaims::default();
        park(&mut parked, 1, &["b", "a"], &[]);
        park(&mut parked, 2, &["b"], &[]);
        park(&mut parked, 3, &["a"], &[]);
        assert_eq!(grant(&mut parked, vec![("a", "t"), ("b", "t")]), [1, 3]);
        assert_eq!(parked.len(), 1);
    }

    #[test]
    fn grants_follow_types_and_order() {
        let mut parked = ParkedClaims::default();
        park(&mut parked, 1, &["q"], &["x"]);
        park(&mut parked, 2, &["q"], &["z", "y"]);
        park(&mut parked, 3, &["q"], &[]);
        park(&mut parked, 4, &["q"], &["y", "z", "z"]);
        assert_eq!(grant(&mut parked, vec![("q", "z")]), [2]);
        assert_eq!(grant(&mut parked, vec![("q", "z"), ("q", "z")]), [3, 4]);
        assert_eq!(grant(&mut parked, vec![("q", "z"), ("other", "x")]), [0_u64; 0]);
        assert_eq!(grant(&mut parked, vec![("q", "x")]), [1]);
        assert!(parked.is_empty() && parked.queues.is_empty() && !parked.has_candidates());
    }

    #[test]
    fn put_back_claim_keeps_its_order() {
        let mut parked = ParkedClaims::default();
        park(&mut parked, 1, &["q"], &[]);
        park(&mut parked, 2, &["q"], &[]);
        let first = parked.take(Ticket(1)).unwrap();
        parked.notify(&queue("q"), &job_type("t"));
        parked.put_back(Ticket(1), first);
        assert_eq!(parked.next_candidate(|_, _| true), Some(Ticket(1)));
        assert_eq!(parked.take_all().len(), 2);
        assert_eq!(parked.next_candidate(|_, _| true), None);
    }

    #[test]
    fn queue_without_work_is_skipped_until_notified() {
        let mut parked = ParkedClaims::default();
        park(&mut parked, 1, &["q"], &["t"]);
        park(&mut parked, 2, &["r"], &[]);
        parked.notify_all();
        assert_eq!(parked.next_candidate(|_, _| false), None);
        assert_eq!(parked.next_candidate(|_, _| true), None);
        parked.notify_queue(&queue("r"));
        assert_eq!(parked.next_candidate(|_, _| true), Some(Ticket(2)));
    }
}
