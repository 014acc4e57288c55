//! Claims that wait for work.
//!
//! Each has a seat with a number. When jobs come into line, seats are called in the order of their numbers, as many as there is work for, and
//! each called one asks the store itself; whoever finds nothing sits down again with its old number. Nobody polls, and a call is never lost: it
//! reaches somebody who is asking at this moment (and asks again), or is passed on by whoever leaves without using it.
//!
//! While a submission is on its way, the claim that waits first is already asked for on its behalf ([`Errand`]): both share a commit.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longshore_core::engine::ClaimRequest;
use longshore_core::id::{JobType, QueueName};
use tokio::sync::Notify;

use crate::routes::work::claim::Given;

#[derive(Debug, Default)]
pub(crate) struct Lobby(Mutex<Seats>);

#[derive(Debug, Default)]
struct Seats {
    next_number: u64,
    /// By queue and by the types that are asked for.
    lines: HashMap<QueueName, BTreeMap<Types, Line>>,
    taken: usize,
}

/// By number: the first that sits is the next to be called.
#[derive(Debug, Default)]
struct Line {
    sitting: BTreeMap<u64, Arc<Seat>>,
    /// Called, and not yet on the way to the store.
    called: BTreeMap<u64, Arc<Seat>>,
}

impl Line {
    fn is_empty(&self) -> bool {
        self.sitting.is_empty() && self.called.is_empty()
    }

    fn next(&self) -> Option<&Arc<Seat>> {
        self.sitting.first_key_value().map(|(_, seat)| seat)
    }

    fn front(&self) -> Option<&Arc<Seat>> {
        let called = self.called.first_key_value().map(|(_, seat)| seat);
        [self.next(), called].into_iter().flatten().min_by_key(|seat| seat.number)
    }
}

/// Somebody asks the store on behalf of a waiting claim. Dropped, it is a call like any other.
#[derive(Debug)]
pub(crate) struct Errand {
    seat: Arc<Seat>,
}

impl Errand {
    pub(crate) fn request(&self) -> ClaimRequest {
        self.seat.request.clone()
    }

    /// Nothing is nothing to bring: the claim asks again by itself.
    pub(crate) fn bring(self, given: Given) {
        if !given.0.is_empty() {
            *self.seat.brought.lock().unwrap_or_else(PoisonError::into_inner) = Some(given);
        }
    }
}

impl Drop for Errand {
    fn drop(&mut self) {
        self.seat.call.notify_one();
    }
}

/// In order and without repetitions; none is any.
type Types = Arc<[JobType]>;

#[derive(Debug)]
struct Seat {
    number: u64,
    request: ClaimRequest,
    /// Of the request.
    types: Types,
    called: AtomicBool,
    /// Nobody knows how much work the call is about: whoever is served calls the next.
    unmeasured: AtomicBool,
    call: Notify,
    /// What somebody else has claimed for it.
    brought: Mutex<Option<Given>>,
}

impl Seat {
    fn wants(&self, job_type: &JobType) -> bool {
        self.types.is_empty() || self.types.contains(job_type)
    }

    fn shares_types(&self, types: &Types) -> bool {
        self.types.is_empty() || types.is_empty() || types.iter().any(|job_type| self.types.contains(job_type))
    }
}

impl Seats {
    fn sit(&mut self, seat: &Arc<Seat>) {
        for queue in &seat.request.queues {
            let lines = self.lines.entry(queue.clone()).or_default();
            lines.entry(Arc::clone(&seat.types)).or_default().sitting.insert(seat.number, Arc::clone(seat));
        }
        self.taken += 1;
    }

    /// From wherever it is.
    fn leave(&mut self, seat: &Seat) {
        let mut sat = false;
        for queue in &seat.request.queues {
            let Some(lines) = self.lines.get_mut(queue) else { continue };
            let Some(line) = lines.get_mut(&seat.types) else { continue };
            sat |= line.sitting.remove(&seat.number).is_some();
            line.called.remove(&seat.number);
            if line.is_empty() {
                lines.remove(&seat.types);
            }
            if lines.is_empty() {
                self.lines.remove(queue);
            }
        }
        self.taken -= usize::from(sat);
    }

    /// The lowest number among those that each line has to offer, and that fit.
    fn first(
        &self,
        queue: &QueueName,
        offered: impl Fn(&Line) -> Option<&Arc<Seat>>,
        fits: impl Fn(&Seat) -> bool,
    ) -> Option<Arc<Seat>> {
        let firsts = self.lines.get(queue)?.values().filter_map(offered);
        firsts.filter(|seat| fits(seat)).min_by_key(|seat| seat.number).cloned()
    }

    fn call(&mut self, seat: &Arc<Seat>, unmeasured: bool) {
        if unmeasured {
            seat.unmeasured.store(true, Ordering::SeqCst);
        }
        self.rise(seat);
        seat.call.notify_one();
    }

    /// It has a call, or will have one.
    fn rise(&mut self, seat: &Arc<Seat>) {
        let mut sat = false;
        for queue in &seat.request.queues {
            let line = self.lines.get_mut(queue).and_then(|lines| lines.get_mut(&seat.types));
            if let Some(line) = line
                && line.sitting.remove(&seat.number).is_some()
            {
                line.called.insert(seat.number, Arc::clone(seat));
                sat = true;
            }
        }
        self.taken -= usize::from(sat);
        seat.called.store(true, Ordering::SeqCst);
    }
}

impl Lobby {
    fn seats(&self) -> MutexGuard<'_, Seats> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a seat; whoever does so before asking the store cannot miss anything that comes after.
    pub(crate) fn sit(self: &Arc<Self>, request: ClaimRequest) -> Place {
        let mut types = request.types.clone();
        types.sort_unstable();
        types.dedup();
        let mut seats = self.seats();
        seats.next_number += 1;
        let seat = Arc::new(Seat {
            number: seats.next_number,
            request,
            types: types.into(),
            called: AtomicBool::new(false),
            unmeasured: AtomicBool::new(false),
            call: Notify::new(),
            brought: Mutex::new(None),
        });
        seats.sit(&seat);
        Place { lobby: Arc::clone(self), seat, unmeasured: AtomicBool::new(true) }
    }

    /// Claims that wait at this moment.
    pub(crate) fn taken(&self) -> usize {
        self.seats().taken
    }

    /// So many jobs of this type came into line.
    pub(crate) fn work_came(&self, queue: &QueueName, job_type: &JobType, mut jobs: usize) {
        let mut seats = self.seats();
        while jobs > 0
            && let Some(seat) = seats.first(queue, Line::next, |seat| seat.wants(job_type))
        {
            seats.call(&seat, false);
            jobs = jobs.saturating_sub(seat.request.limit.max(1));
        }
    }

    /// A job of this type is on its way, and somebody will ask for it on behalf of whoever is first. Not if that one has a call already:
    /// nobody is to overtake it.
    pub(crate) fn work_is_coming(&self, queue: &QueueName, job_type: &JobType) -> Option<Errand> {
        let mut seats = self.seats();
        let first = seats.first(queue, Line::front, |seat| seat.wants(job_type));
        let seat = first.filter(|seat| !seat.called.load(Ordering::SeqCst))?;
        seats.rise(&seat);
        Some(Errand { seat })
    }

    /// There may be work in this queue, of whatever type: one of each line is called, and calls the next if there is more.
    pub(crate) fn may_have_work(&self, queue: &QueueName) {
        let mut seats = self.seats();
        let firsts = |lines: &BTreeMap<Types, Line>| -> Vec<Arc<Seat>> {
            lines.values().filter_map(Line::next).map(Arc::clone).collect()
        };
        let called = seats.lines.get(queue).map(firsts).unwrap_or_default();
        called.iter().for_each(|seat| seats.call(seat, true));
    }

    /// Anything may have happened.
    pub(crate) fn anything_may_have_come(&self) {
        let queues: Vec<QueueName> = self.seats().lines.keys().cloned().collect();
        queues.iter().for_each(|queue| self.may_have_work(queue));
    }
}

/// One waiting claim. Left without having used its call, it passes the call on.
#[derive(Debug)]
pub(crate) struct Place {
    lobby: Arc<Lobby>,
    seat: Arc<Seat>,
    /// What it asks for now may be part of more than anybody was told of.
    unmeasured: AtomicBool,
}

impl Place {
    /// Waits for the call, and sits down again: the next thing to do is to ask the store, unless somebody has brought something.
    pub(crate) async fn called(&self) -> Option<Given> {
        self.seat.call.notified().await;
        let brought = self.seat.brought.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.seat.called.store(false, Ordering::SeqCst);
        let mut seats = self.lobby.seats();
        self.unmeasured.store(self.seat.unmeasured.swap(false, Ordering::SeqCst), Ordering::SeqCst);
        seats.leave(&self.seat);
        seats.sit(&self.seat);
        brought
    }

    /// This one has what it wanted: if there may be more work than it could take, it stands up, and the next is called.
    pub(crate) fn call_next(&self) {
        if self.unmeasured.load(Ordering::SeqCst) {
            self.pass_on(true);
        }
    }

    fn pass_on(&self, unmeasured: bool) {
        let mut seats = self.lobby.seats();
        seats.leave(&self.seat);
        for queue in &self.seat.request.queues {
            let other = seats.first(queue, Line::next, |seat| seat.shares_types(&self.seat.types));
            if let Some(other) = other {
                seats.call(&other, unmeasured);
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.lobby.seats().leave(&self.seat);
        if self.seat.called.swap(false, Ordering::SeqCst) {
            self.pass_on(self.seat.unmeasured.load(Ordering::SeqCst));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(name: &str) -> QueueName {
        QueueName::new(name).unwrap()
    }

    fn kind(name: &str) -> JobType {
        JobType::new(name).unwrap()
    }

    fn sit(lobby: &Arc<Lobby>, queues: &[&str], types: &[&str], limit: usize) -> Place {
        let queues = queues.iter().map(|name| queue(name)).collect();
        let types = types.iter().map(|name| kind(name)).collect();
        lobby.sit(ClaimRequest { queues, types, limit, terms: longshore_core::claim::Terms::default() })
    }

    fn called(places: &[&Place]) -> Vec<bool> {
        places.iter().map(|place| place.seat.called.load(Ordering::SeqCst)).collect()
    }

    #[test]
    fn one_job_calls_one_seat_and_the_first_comes_first() {
        let lobby = Arc::new(Lobby::default());
        let (a, b) = (sit(&lobby, &["q"], &[], 1), sit(&lobby, &["q"], &[], 1));
        lobby.work_came(&queue("q"), &kind("t"), 1);
        assert_eq!(called(&[&a, &b]), [true, false]);
        lobby.work_came(&queue("q"), &kind("t"), 1);
        assert_eq!(called(&[&a, &b]), [true, true]);
        lobby.work_came(&queue("other"), &kind("t"), 1);
    }

    #[test]
    fn nobody_overtakes_one_that_was_called() {
        let lobby = Arc::new(Lobby::default());
        let (a, b) = (sit(&lobby, &["q"], &[], 1), sit(&lobby, &["q"], &[], 1));
        let errand = lobby.work_is_coming(&queue("q"), &kind("t"));
        assert!(errand.is_some());
        assert_eq!((called(&[&a, &b]), lobby.taken()), (vec![true, false], 1));
        assert!(lobby.work_is_coming(&queue("q"), &kind("t")).is_none());
        assert_eq!(called(&[&a, &b]), [true, false]);
        lobby.work_came(&queue("q"), &kind("t"), 1);
        assert_eq!(called(&[&a, &b]), [true, true]);
        drop((a, b, errand));
        assert!(lobby.seats().lines.is_empty());
    }

    #[test]
    fn a_seat_for_many_takes_the_work_of_many() {
        let lobby = Arc::new(Lobby::default());
        let (a, b, c) = (sit(&lobby, &["q"], &[], 10), sit(&lobby, &["q"], &[], 10), sit(&lobby, &["q"], &[], 10));
        lobby.work_came(&queue("q"), &kind("t"), 11);
        assert_eq!(called(&[&a, &b, &c]), [true, true, false]);
    }

    #[test]
    fn types_are_respected() {
        let lobby = Arc::new(Lobby::default());
        let (a, b, c) =
            (sit(&lobby, &["q"], &["x"], 1), sit(&lobby, &["q"], &["y", "z"], 1), sit(&lobby, &["q"], &[], 1));
        lobby.work_came(&queue("q"), &kind("z"), 1);
        assert_eq!(called(&[&a, &b, &c]), [false, true, false]);
        lobby.work_came(&queue("q"), &kind("z"), 1);
        assert_eq!(called(&[&a, &b, &c]), [false, true, true]);
        lobby.may_have_work(&queue("q"));
        assert_eq!(called(&[&a, &b, &c]), [true, true, true]);
    }

    #[test]
    fn who_leaves_passes_its_call_on() {
        let lobby = Arc::new(Lobby::default());
        let (a, b) = (sit(&lobby, &["p", "q"], &[], 1), sit(&lobby, &["q"], &[], 1));
        lobby.work_came(&queue("q"), &kind("t"), 1);
        drop(a);
        assert_eq!(called(&[&b]), [true]);
        drop(b);
        assert_eq!(lobby.taken(), 0);
        assert!(lobby.seats().lines.is_empty());
    }

    /// Work whose amount nobody knows (another node's, a queue that was resumed) is found out by one after the other.
    #[tokio::test]
    async fn who_is_served_calls_the_next_until_all_are() {
        let lobby = Arc::new(Lobby::default());
        let (a, b, c) = (sit(&lobby, &["q"], &[], 1), sit(&lobby, &["q"], &[], 1), sit(&lobby, &["q"], &["t"], 1));
        lobby.may_have_work(&queue("q"));
        a.called().await;
        a.call_next();
        assert_eq!(called(&[&a, &b, &c]), [false, true, true]);
        b.called().await;
        drop(a);
        b.call_next();
        drop((b, c));
        assert!(lobby.seats().lines.is_empty());
    }

    #[tokio::test]
    async fn who_is_served_calls_nobody_if_all_were_called() {
        let lobby = Arc::new(Lobby::default());
        let (a, b) = (sit(&lobby, &["q"], &[], 1), sit(&lobby, &["q"], &[], 1));
        lobby.work_came(&queue("q"), &kind("t"), 1);
        a.called().await;
        a.call_next();
        assert_eq!(called(&[&a, &b]), [false, false]);
    }

    #[tokio::test]
    async fn who_was_called_keeps_its_number() {
        let lobby = Arc::new(Lobby::default());
        let (a, b) = (sit(&lobby, &["q"], &[], 1), sit(&lobby, &["q"], &[], 1));
        lobby.work_came(&queue("q"), &kind("t"), 1);
        a.called().await;
        assert_eq!((called(&[&a, &b]), lobby.taken()), (vec![false, false], 2));
        lobby.work_came(&queue("q"), &kind("t"), 1);
        assert_eq!(called(&[&a, &b]), [true, false]);
    }
}
