//! Claims that wait for work.
//!
//! Each has a seat with a number. When jobs come into line, seats are called in the order of their numbers, as many as there is work for, and
//! each called one asks the store itself; whoever finds nothing sits down again with its old number. Nobody polls, and a call is never lost: it
//! reaches somebody who is asking at this moment (and asks again), or is passed on by whoever leaves without using it.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longshore_core::id::{JobType, QueueName};
use tokio::sync::Notify;

#[derive(Debug, Default)]
pub(crate) struct Lobby(Mutex<Seats>);

#[derive(Debug, Default)]
struct Seats {
    next_number: u64,
    /// By queue and by the types that are asked for: of each such line the first is the next to be called.
    lines: HashMap<QueueName, BTreeMap<Types, BTreeMap<u64, Arc<Seat>>>>,
    taken: usize,
}

/// In order and without repetitions; none is any.
type Types = Arc<[JobType]>;

#[derive(Debug)]
struct Seat {
    number: u64,
    queues: Vec<QueueName>,
    types: Types,
    limit: usize,
    called: AtomicBool,
    call: Notify,
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
        for queue in &seat.queues {
            let lines = self.lines.entry(queue.clone()).or_default();
            lines.entry(Arc::clone(&seat.types)).or_default().insert(seat.number, Arc::clone(seat));
        }
        self.taken += 1;
    }

    /// Says whether it was still sitting there.
    fn rise(&mut self, seat: &Seat) -> bool {
        let mut sat = false;
        for queue in &seat.queues {
            let Some(lines) = self.lines.get_mut(queue) else { continue };
            let Some(line) = lines.get_mut(&seat.types) else { continue };
            sat |= line.remove(&seat.number).is_some();
            if line.is_empty() {
                lines.remove(&seat.types);
            }
            if lines.is_empty() {
                self.lines.remove(queue);
            }
        }
        self.taken -= usize::from(sat);
        sat
    }

    /// The lowest number among the firsts of the lines that fit.
    fn first(&self, queue: &QueueName, fits: impl Fn(&Seat) -> bool) -> Option<Arc<Seat>> {
        let firsts = self.lines.get(queue)?.values().filter_map(|line| line.first_key_value());
        let first = firsts.map(|(_, seat)| seat).filter(|seat| fits(seat)).min_by_key(|seat| seat.number);
        first.cloned()
    }

    fn call(&mut self, seat: &Seat) {
        self.rise(seat);
        seat.called.store(true, Ordering::SeqCst);
        seat.call.notify_one();
    }
}

impl Lobby {
    fn seats(&self) -> MutexGuard<'_, Seats> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a seat; whoever does so before asking the store cannot miss anything that comes after.
    pub(crate) fn sit(self: &Arc<Self>, queues: Vec<QueueName>, mut types: Vec<JobType>, limit: usize) -> Place {
        types.sort_unstable();
        types.dedup();
        let mut seats = self.seats();
        seats.next_number += 1;
        let seat = Arc::new(Seat {
            number: seats.next_number,
            queues,
            types: types.into(),
            limit: limit.max(1),
            called: AtomicBool::new(false),
            call: Notify::new(),
        });
        seats.sit(&seat);
        Place { lobby: Arc::clone(self), seat }
    }

    /// Claims that wait at this moment.
    pub(crate) fn taken(&self) -> usize {
        self.seats().taken
    }

    /// So many jobs of this type came into line.
    pub(crate) fn work_came(&self, queue: &QueueName, job_type: &JobType, mut jobs: usize) {
        let mut seats = self.seats();
        while jobs > 0
            && let Some(seat) = seats.first(queue, |seat| seat.wants(job_type))
        {
            seats.call(&seat);
            jobs = jobs.saturating_sub(seat.limit);
        }
    }

    /// There may be work in this queue, of whatever type: one of each line is called, and calls the next if there is more.
    pub(crate) fn may_have_work(&self, queue: &QueueName) {
        let mut seats = self.seats();
        let firsts = |lines: &BTreeMap<Types, BTreeMap<u64, Arc<Seat>>>| -> Vec<Arc<Seat>> {
            lines.values().filter_map(|line| line.first_key_value()).map(|(_, seat)| Arc::clone(seat)).collect()
        };
        let called = seats.lines.get(queue).map(firsts).unwrap_or_default();
        called.iter().for_each(|seat| seats.call(seat));
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
}

impl Place {
    /// Waits for the call, and sits down again: the next thing to do is to ask the store.
    pub(crate) async fn called(&self) {
        self.seat.call.notified().await;
        self.seat.called.store(false, Ordering::SeqCst);
        let mut seats = self.lobby.seats();
        seats.rise(&self.seat);
        seats.sit(&self.seat);
    }

    /// There may be more work than this one could take: the next is called.
    pub(crate) fn call_next(&self) {
        let mut seats = self.lobby.seats();
        for queue in &self.seat.queues {
            let other =
                seats.first(queue, |seat| seat.number != self.seat.number && seat.shares_types(&self.seat.types));
            if let Some(other) = other {
                seats.call(&other);
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.lobby.seats().rise(&self.seat);
        if self.seat.called.swap(false, Ordering::SeqCst) {
            self.call_next();
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
        let types = types.iter().map(|name| kind(name)).collect();
        lobby.sit(queues.iter().map(|name| queue(name)).collect(), types, limit)
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
