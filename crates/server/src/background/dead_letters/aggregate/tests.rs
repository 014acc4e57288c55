use super::*;

const HOUR: i64 = 3_600_000;

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

fn id(number: u8) -> JobId {
    JobId::from_bytes([number; 16])
}

/// A small world of dead letters.
struct Letters {
    aggregate: Aggregate,
    queue: QueueName,
    job_type: JobType,
    code: Arc<str>,
}

impl Letters {
    fn new(members_max: usize) -> Self {
        Self {
            aggregate: Aggregate::with_room(members_max),
            queue: QueueName::new("mail").unwrap(),
            job_type: JobType::new("t").unwrap(),
            code: "E".into(),
        }
    }

    fn add(&mut self, number: u8, message: &str, ended: i64) {
        let dead = DeadLetterFacts {
            queue: &self.queue,
            job_type: &self.job_type,
            code: Some(&self.code),
            message,
            ended_at: at(ended),
            retention: Some(Duration::from_hours(24)),
        };
        self.aggregate.apply(id(number), Some(dead), at(ended));
    }

    fn groups(&self, now: i64) -> Vec<(String, u64, u64)> {
        let groups = self.aggregate.report(at(now), 200, |_| true);
        groups.into_iter().map(|group| (group.shape, group.count, group.last_hour)).collect()
    }

    fn is_empty(&self) -> bool {
        let Aggregate { members, groups, expiries, minutes, swept, .. } = &self.aggregate;
        members.is_empty() && groups.is_empty() && expiries.is_empty() && minutes.is_empty() && *swept == 0
    }
}

#[test]
fn groups_follow_what_enters_and_leaves() {
    let mut letters = Letters::new(10);
    letters.add(1, "card 1 declined", 0);
    letters.add(2, "card 22 declined", HOUR);
    letters.add(3, "no route", HOUR);
    assert_eq!(letters.groups(HOUR), [("card ‹n› declined".to_owned(), 2, 1), ("no route".to_owned(), 1, 1)]);
    let first = letters.aggregate.report(at(HOUR), 1, |_| true).remove(0);
    assert_eq!((first.first_at.0, first.last_at.0, first.example), (0, HOUR, id(2).to_string()));
    assert!(letters.aggregate.report(at(HOUR), 200, |queue| queue.as_str() == "other").is_empty());
    // The same job, dead again for another reason.
    letters.add(2, "no route", 2 * HOUR);
    letters.add(2, "no route", 2 * HOUR);
    assert_eq!(letters.groups(2 * HOUR), [("no route".to_owned(), 2, 1), ("card ‹n› declined".to_owned(), 1, 0)]);
    for number in 1..=3 {
        letters.aggregate.apply(id(number), None, at(3 * HOUR));
    }
    assert!(letters.is_empty());
}

#[test]
fn a_sweep_replaces_what_it_does_not_see() {
    let mut letters = Letters::new(2);
    letters.add(1, "a", 0);
    letters.add(2, "b", 0);
    letters.add(3, "c", 0);
    assert!(letters.aggregate.is_truncated() && letters.aggregate.is_full() && letters.aggregate.len() == 2);
    letters.aggregate.begin_sweep();
    letters.add(3, "c", 0);
    assert_eq!(letters.aggregate.len(), 3, "unseen members leave at the end");
    letters.add(2, "b", 0);
    letters.aggregate.end_sweep(true);
    assert_eq!(letters.groups(0).len(), 2);
    assert!(!letters.aggregate.is_truncated() && letters.aggregate.is_full());
    letters.aggregate.begin_sweep();
    letters.aggregate.end_sweep(false);
    assert!(letters.is_empty() && letters.aggregate.is_truncated());
}

#[test]
fn the_end_of_the_retention_is_known() {
    let mut letters = Letters::new(10);
    letters.add(1, "a", 0);
    letters.add(2, "a", HOUR);
    assert!(letters.aggregate.expired(at(24 * HOUR - 1), 10).is_empty());
    assert_eq!(letters.aggregate.expired(at(30 * HOUR), 1), [id(1)]);
    // A record that is still there is read again later.
    let now = at(24 * HOUR);
    let (queue, job_type) = (letters.queue.clone(), letters.job_type.clone());
    let same = DeadLetterFacts {
        queue: &queue,
        job_type: &job_type,
        code: None,
        message: "a",
        ended_at: at(0),
        retention: None,
    };
    letters.aggregate.apply(id(1), Some(same), now);
    assert!(letters.aggregate.expired(now, 10).is_empty());
    assert_eq!(letters.aggregate.expired(now + EXPIRY_RECHECK, 10), [id(1)]);
    letters.aggregate.apply(id(1), None, now);
    letters.aggregate.apply(id(2), None, now);
    assert!(letters.is_empty());
}
