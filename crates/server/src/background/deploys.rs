//! New versions of workers: marks for charts.
//!
//! The log is in memory and follows the claims of this server. The first version of a queue is no
//! mark: it may have been there before the server.

use std::collections::{HashMap, VecDeque};

use longshore_api::job_type::Deploy;
use longshore_core::Timestamp;
use longshore_core::id::{QueueName, WorkerName};
use parking_lot::Mutex;

use crate::convert::time;

/// Marks that are kept, the newest ones.
const MARKS_MAX: usize = 200;
/// Versions of a queue that are known, the newest ones.
const VERSIONS_MAX: usize = 20;
const QUEUES_MAX: usize = 10_000;

#[derive(Debug, Default)]
pub(crate) struct DeployLog(Mutex<Log>);

#[derive(Debug, Default)]
struct Log {
    versions: HashMap<QueueName, VecDeque<String>>,
    marks: VecDeque<Mark>,
}

#[derive(Debug)]
struct Mark {
    at: Timestamp,
    queue: QueueName,
    version: String,
    worker: WorkerName,
}

impl DeployLog {
    /// Notes that a worker claims with this version from queues.
    pub(crate) fn observe(&self, worker: &WorkerName, version: &str, queues: &[QueueName], now: Timestamp) {
        let mut log = self.0.lock();
        for queue in queues {
            let Some(has_other) = log.add_version(queue, version) else { continue };
            if !has_other {
                continue;
            }
            if log.marks.len() == MARKS_MAX {
                log.marks.pop_front();
            }
            let mark = Mark { at: now, queue: queue.clone(), version: version.to_owned(), worker: worker.clone() };
            log.marks.push_back(mark);
        }
    }

    /// Returns the marks since an instant, of the queues that `admits` accepts, oldest first.
    pub(crate) fn since(&self, from: Timestamp, admits: impl Fn(&QueueName) -> bool) -> Vec<Deploy> {
        let log = self.0.lock();
        let shown = log.marks.iter().filter(|mark| mark.at >= from && admits(&mark.queue));
        let deploy = |mark: &Mark| Deploy {
            at: time(mark.at),
            queue: mark.queue.to_string(),
            version: mark.version.clone(),
            worker: mark.worker.to_string(),
        };
        shown.map(deploy).collect()
    }
}

impl Log {
    /// Adds a version of a queue. Returns whether the queue had another one; `None` if this one was
    /// known, or if there is no room.
    fn add_version(&mut self, queue: &QueueName, version: &str) -> Option<bool> {
        if !self.versions.contains_key(queue) && self.versions.len() >= QUEUES_MAX {
            return None;
        }
        let known = self.versions.entry(queue.clone()).or_default();
        if known.iter().any(|other| other == version) {
            return None;
        }
        if known.len() == VERSIONS_MAX {
            known.pop_front();
        }
        known.push_back(version.to_owned());
        Some(known.len() > 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_version_is_a_mark_once() {
        let log = DeployLog::default();
        let (worker, queue) = (WorkerName::new("w-1").unwrap(), QueueName::new("mail").unwrap());
        let at = Timestamp::from_millis;
        for (version, now) in [("1.0", 1), ("1.0", 2), ("1.1", 3), ("1.0", 4), ("1.1", 5), ("1.2", 6)] {
            log.observe(&worker, version, std::slice::from_ref(&queue), at(now));
        }
        let versions =
            |from: i64| log.since(at(from), |_| true).into_iter().map(|mark| mark.version).collect::<Vec<_>>();
        assert_eq!(versions(0), ["1.1", "1.2"], "the first version is no mark, a known one is not new");
        assert_eq!(versions(4), ["1.2"]);
        assert!(log.since(at(0), |_| false).is_empty());
    }

    #[test]
    fn marks_are_bounded() {
        let log = DeployLog::default();
        let (worker, queue) = (WorkerName::new("w-1").unwrap(), QueueName::new("mail").unwrap());
        for number in 0..500 {
            let now = Timestamp::from_millis(number);
            log.observe(&worker, &number.to_string(), std::slice::from_ref(&queue), now);
        }
        let marks = log.since(Timestamp::from_millis(0), |_| true);
        assert_eq!((marks.len(), marks[0].version.as_str()), (MARKS_MAX, "300"));
    }
}
