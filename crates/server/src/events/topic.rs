//! The events of one job, workflow, queue or type, by number.
//!
//! Listeners with the same key share a topic, and each has its own position in it. An event costs
//! one lookup per kind of key, whatever the number of listeners.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use longshore_core::id::{JobId, JobType, QueueName, WorkflowId};
use longshore_engine::Effect;
use tokio::sync::Notify;

use super::filter::EventFilter;

/// The most selective condition of a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TopicKey {
    Job(JobId),
    Workflow(WorkflowId),
    Type(JobType),
    Queue(QueueName),
    /// Every event: the log itself.
    All,
}

impl TopicKey {
    pub(super) fn of(filter: &EventFilter) -> Self {
        if let Some(job) = filter.job {
            Self::Job(job)
        } else if let Some(workflow) = filter.workflow {
            Self::Workflow(workflow)
        } else if let Some(job_type) = &filter.job_type {
            Self::Type(job_type.clone())
        } else if let Some(queue) = &filter.queue {
            Self::Queue(queue.clone())
        } else {
            Self::All
        }
    }

    fn matches(&self, event: &Effect) -> bool {
        match (self, event) {
            (Self::Job(job), Effect::Moved { id, .. }) => job == id,
            (Self::Workflow(key), Effect::Moved { workflow, .. }) => Some(*key) == *workflow,
            (Self::Type(key), Effect::Moved { job_type, .. }) => key == job_type,
            (Self::Queue(key), Effect::Moved { queue, .. } | Effect::Queue { name: queue, .. }) => key == queue,
            (Self::All, _) => true,
            (Self::Queue(_), Effect::Schedule { .. } | Effect::Claimable(_)) => false,
            (
                Self::Job(_) | Self::Workflow(_) | Self::Type(_),
                Effect::Queue { .. } | Effect::Schedule { .. } | Effect::Claimable(_),
            ) => false,
        }
    }
}

/// Wakes one listener.
#[derive(Debug, Default)]
pub(super) struct ListenerWaiter {
    pub(super) notify: Notify,
    /// Whether it is in the list of its topic.
    is_listed: AtomicBool,
}

#[derive(Debug, Default)]
pub(super) struct Topic {
    /// Numbers of its events that the log still has, ascending.
    pub(super) numbers: VecDeque<u64>,
    /// The last of its events that the log has dropped.
    pub(super) dropped: u64,
    listeners: usize,
    /// Listeners that have read all events.
    idle: Vec<Arc<ListenerWaiter>>,
}

impl Topic {
    fn push(&mut self, number: u64) {
        self.numbers.push_back(number);
        self.wake();
    }

    fn wake(&mut self) {
        for waiter in self.idle.drain(..) {
            waiter.is_listed.store(false, Ordering::Relaxed);
            waiter.notify.notify_one();
        }
    }

    /// Drops the numbers before `oldest`.
    fn trim(&mut self, oldest: u64) {
        while let Some(number) = self.numbers.front().copied().filter(|number| *number < oldest) {
            self.dropped = number;
            self.numbers.pop_front();
        }
    }
}

/// All topics with listeners.
#[derive(Debug, Default)]
pub(super) struct Topics {
    jobs: HashMap<JobId, Topic>,
    workflows: HashMap<WorkflowId, Topic>,
    types: HashMap<JobType, Topic>,
    queues: HashMap<QueueName, Topic>,
    /// Has no numbers of its own.
    all: Topic,
}

impl Topics {
    /// Adds an event to the topics that it belongs to.
    pub(super) fn push(&mut self, number: u64, event: &Effect) {
        match event {
            Effect::Moved { id, queue, job_type, workflow, .. } => {
                add(&mut self.jobs, id, number);
                add(&mut self.types, job_type, number);
                add(&mut self.queues, queue, number);
                if let Some(workflow) = workflow {
                    add(&mut self.workflows, workflow, number);
                }
            }
            Effect::Queue { name, .. } => add(&mut self.queues, name, number),
            Effect::Schedule { .. } | Effect::Claimable(_) => {}
        }
    }

    /// Wakes the listeners of all events.
    pub(super) fn wake_all_events(&mut self) {
        self.all.wake();
    }

    /// Adds a gap to every topic.
    pub(super) fn push_gap(&mut self, number: u64) {
        self.keyed().for_each(|topic| topic.push(number));
        self.all.wake();
    }

    pub(super) fn trim(&mut self, oldest: u64) {
        self.keyed().for_each(|topic| topic.trim(oldest));
    }

    fn keyed(&mut self) -> impl Iterator<Item = &mut Topic> {
        let Self { jobs, workflows, types, queues, all: _ } = self;
        jobs.values_mut().chain(workflows.values_mut()).chain(types.values_mut()).chain(queues.values_mut())
    }

    pub(super) fn get(&mut self, key: &TopicKey) -> Option<&mut Topic> {
        match key {
            TopicKey::Job(id) => self.jobs.get_mut(id),
            TopicKey::Workflow(id) => self.workflows.get_mut(id),
            TopicKey::Type(name) => self.types.get_mut(name),
            TopicKey::Queue(name) => self.queues.get_mut(name),
            TopicKey::All => Some(&mut self.all),
        }
    }

    /// Registers a listener. A new topic begins with the events of the log.
    pub(super) fn add_listener<'e>(&mut self, key: &TopicKey, log: impl Iterator<Item = (u64, Option<&'e Effect>)>) {
        let topic = match key {
            TopicKey::Job(id) => self.jobs.entry(*id).or_default(),
            TopicKey::Workflow(id) => self.workflows.entry(*id).or_default(),
            TopicKey::Type(name) => self.types.entry(name.clone()).or_default(),
            TopicKey::Queue(name) => self.queues.entry(name.clone()).or_default(),
            TopicKey::All => &mut self.all,
        };
        if topic.listeners == 0 && *key != TopicKey::All {
            // An event that is missing is a gap for every topic.
            let of_topic = log.filter(|(_, event)| event.is_none_or(|event| key.matches(event)));
            topic.numbers = of_topic.map(|(number, _)| number).collect();
        }
        topic.listeners += 1;
    }

    pub(super) fn remove_listener(&mut self, key: &TopicKey, waiter: &Arc<ListenerWaiter>) {
        let Some(topic) = self.get(key) else { return };
        topic.idle.retain(|other| !Arc::ptr_eq(other, waiter));
        topic.listeners = topic.listeners.saturating_sub(1);
        if topic.listeners > 0 {
            return;
        }
        match key {
            TopicKey::Job(id) => drop(self.jobs.remove(id)),
            TopicKey::Workflow(id) => drop(self.workflows.remove(id)),
            TopicKey::Type(name) => drop(self.types.remove(name)),
            TopicKey::Queue(name) => drop(self.queues.remove(name)),
            TopicKey::All => {}
        }
    }

    /// Wakes the listener when its topic has another event.
    pub(super) fn wait(&mut self, key: &TopicKey, waiter: &Arc<ListenerWaiter>) {
        if let Some(topic) = self.get(key)
            && !waiter.is_listed.swap(true, Ordering::Relaxed)
        {
            topic.idle.push(Arc::clone(waiter));
        }
    }
}

fn add<K: Eq + Hash>(topics: &mut HashMap<K, Topic>, key: &K, number: u64) {
    if !topics.is_empty()
        && let Some(topic) = topics.get_mut(key)
    {
        topic.push(number);
    }
}
