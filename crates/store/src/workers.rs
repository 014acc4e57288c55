//! Workers as stores know them: what servers have seen of them, and their directives.

use std::collections::HashMap;

use longshore_core::directive::WorkerDirective;
use longshore_core::id::{JobType, QueueName, WorkerName};
use longshore_core::time::Timestamp;
use parking_lot::RwLock;

/// What one server has seen of a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenWorker {
    pub name: WorkerName,
    pub version: Option<String>,
    /// Types of its last claim; empty means all types.
    pub types: Vec<JobType>,
    /// Queues of its last claim.
    pub queues: Vec<QueueName>,
    /// Jobs that it has claimed from this server and still runs.
    pub running: u64,
    pub last_seen_at: Timestamp,
}

/// What a server of the fleet has reported about a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportedWorker {
    pub seen: SeenWorker,
    pub reported_at: Timestamp,
}

/// The directives that are not `run`, in memory. Stores look them up for every claim.
#[derive(Debug, Default)]
pub struct DirectiveCache(RwLock<HashMap<WorkerName, WorkerDirective>>);

impl DirectiveCache {
    /// Returns the directive of a worker; `run` for a claim without a name.
    pub fn get(&self, worker: Option<&WorkerName>) -> WorkerDirective {
        let directives = self.0.read();
        worker.and_then(|name| directives.get(name)).copied().unwrap_or(WorkerDirective::Run)
    }

    /// Whether the worker may get jobs.
    pub fn can_claim(&self, worker: Option<&WorkerName>) -> bool {
        match self.get(worker) {
            WorkerDirective::Run => true,
            WorkerDirective::Quiet | WorkerDirective::Stop => false,
        }
    }

    pub fn set(&self, worker: WorkerName, directive: WorkerDirective) {
        let mut directives = self.0.write();
        match directive {
            WorkerDirective::Run => drop(directives.remove(&worker)),
            WorkerDirective::Quiet | WorkerDirective::Stop => drop(directives.insert(worker, directive)),
        }
    }

    /// Replaces all directives. Returns the workers that could claim before and cannot now.
    pub fn replace(&self, directives: HashMap<WorkerName, WorkerDirective>) -> Vec<WorkerName> {
        let mut current = self.0.write();
        let held_back = directives.keys().filter(|name| !current.contains_key(*name)).cloned().collect();
        *current = directives;
        held_back
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replace_returns_workers_that_lose_their_claims() {
        let name = |text: &str| WorkerName::new(text).unwrap();
        let cache = DirectiveCache::default();
        cache.set(name("a"), WorkerDirective::Quiet);
        let both = [(name("a"), WorkerDirective::Stop), (name("b"), WorkerDirective::Quiet)];
        assert_eq!(cache.replace(HashMap::from(both)), [name("b")]);
        assert_eq!((cache.get(Some(&name("a"))), cache.get(None)), (WorkerDirective::Stop, WorkerDirective::Run));
        cache.set(name("a"), WorkerDirective::Run);
        assert!(cache.can_claim(Some(&name("a"))) && !cache.can_claim(Some(&name("b"))));
        assert_eq!(cache.replace(HashMap::new()), []);
        assert!(cache.can_claim(Some(&name("b"))));
    }
}
