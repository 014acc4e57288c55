//! Records in memory: the simplest implementation of the trait.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::convert::Infallible;
use std::sync::Arc;

use longshore_core::id::{JobId, QueueName, Seq, WorkflowId};
use longshore_core::job::Job;
use longshore_core::state::StateKind;
use longshore_core::submit::Payload;
use longshore_core::time::Timestamp;
use longshore_core::workflow::{MemberCountDelta, MemberCounts, Workflow};

use longshore_engine::{JobRecords, KeyEntry, PayloadSource, PruneTarget, Queue, ScopedIdempotencyKey, SystemKind};

#[derive(Clone, Debug, Default)]
pub struct MemoryRecords {
    jobs: BTreeMap<Seq, Box<Job>>,
    /// The keys of each job in `by_state` and `prunes`: needed to remove them after a change.
    derived_keys: HashMap<Seq, (StateKind, Option<Timestamp>)>,
    payloads: HashMap<Seq, Payload>,
    ids: HashMap<JobId, Seq>,
    external_ids: HashMap<(QueueName, Arc<str>), Seq>,
    edges: BTreeSet<(Seq, Seq)>,
    keys: HashMap<ScopedIdempotencyKey, KeyEntry>,
    prunes: BTreeSet<(Timestamp, PruneTarget)>,
    by_state: BTreeSet<(QueueName, StateKind, Seq)>,
    queues: BTreeMap<QueueName, Queue>,
    workflows: HashMap<WorkflowId, Workflow>,
    members: BTreeSet<(WorkflowId, Seq)>,
    member_names: HashMap<(WorkflowId, Arc<str>), Seq>,
    system: BTreeMap<(SystemKind, Vec<u8>), (u64, Vec<u8>)>,
    system_revision: u64,
}

impl MemoryRecords {
    /// Returns the system records of a kind with their revisions, by key.
    pub fn system(&self, kind: SystemKind) -> impl DoubleEndedIterator<Item = (&[u8], u64, &[u8])> {
        let all = self.system.range((kind, Vec::new())..).take_while(move |((found, _), _)| *found == kind);
        let all: Vec<_> =
            all.map(|((_, key), (revision, value))| (key.as_slice(), *revision, value.as_slice())).collect();
        all.into_iter()
    }

    pub fn system_revision_of(&self, kind: SystemKind, key: &[u8]) -> Option<u64> {
        self.system.get(&(kind, key.to_vec())).map(|(revision, _)| *revision)
    }

    pub fn delete_system(&mut self, kind: SystemKind, key: &[u8]) {
        self.system.remove(&(kind, key.to_vec()));
    }

    /// Starts a commit: its records get a new revision, which is returned.
    pub fn next_system_revision(&mut self) -> u64 {
        self.system_revision += 1;
        self.system_revision
    }

    pub fn job(&self, seq: Seq) -> Option<&Job> {
        self.jobs.get(&seq).map(Box::as_ref)
    }

    pub fn job_by_id(&self, id: JobId) -> Option<&Job> {
        self.ids.get(&id).and_then(|seq| self.job(*seq))
    }

    pub fn payload(&self, seq: Seq) -> Option<&Payload> {
        self.payloads.get(&seq)
    }

    /// Returns all records, oldest first.
    pub fn jobs(&self) -> impl Iterator<Item = &Job> {
        self.jobs.values().map(Box::as_ref)
    }

    pub fn queues(&self) -> impl Iterator<Item = &Queue> {
        self.queues.values()
    }

    pub fn workflow_by_id(&self, id: WorkflowId) -> Option<&Workflow> {
        self.workflows.get(&id)
    }

    /// Returns all workflows, unordered.
    pub fn workflows(&self) -> impl Iterator<Item = &Workflow> {
        self.workflows.values()
    }

    /// Returns the members that have a record, oldest first.
    pub fn members_of(&self, id: WorkflowId) -> impl Iterator<Item = &Job> {
        self.members.range((id, Seq(0))..=(id, Seq(u64::MAX))).filter_map(|(_, seq)| self.job(*seq))
    }

    fn index(&mut self, job: &Job) {
        self.unindex(job);
        let keys = (job.kind(), job.prune_at());
        self.by_state.insert((job.queue.clone(), keys.0, job.seq));
        if let Some(at) = keys.1 {
            self.prunes.insert((at, PruneTarget::Job(job.seq)));
        }
        self.derived_keys.insert(job.seq, keys);
    }

    fn unindex(&mut self, job: &Job) {
        let Some((state, prune_at)) = self.derived_keys.remove(&job.seq) else { return };
        self.by_state.remove(&(job.queue.clone(), state, job.seq));
        if let Some(at) = prune_at {
            self.prunes.remove(&(at, PruneTarget::Job(job.seq)));
        }
    }
}

impl JobRecords for MemoryRecords {
    type Error = Infallible;

    fn seq_of(&mut self, id: JobId) -> Result<Option<Seq>, Infallible> {
        Ok(self.ids.get(&id).copied())
    }

    fn checkout(&mut self, seq: Seq) -> Result<Option<Box<Job>>, Infallible> {
        Ok(self.jobs.remove(&seq))
    }

    fn put(&mut self, job: Box<Job>) -> Result<(), Infallible> {
        self.index(&job);
        self.jobs.insert(job.seq, job);
        Ok(())
    }

    fn return_unchanged(&mut self, job: Box<Job>) {
        self.jobs.insert(job.seq, job);
    }

    fn payload_bytes(&mut self, seq: Seq) -> Result<usize, Infallible> {
        Ok(self.payloads.get(&seq).map_or(0, |payload| payload.bytes().len()))
    }

    fn insert(&mut self, job: Box<Job>, payload: PayloadSource) -> Result<(), Infallible> {
        let payload = match payload {
            PayloadSource::New(payload) => Some(payload),
            PayloadSource::CopyOf(seq) => self.payloads.get(&seq).cloned(),
        };
        self.payloads.extend(payload.map(|payload| (job.seq, payload)));
        self.ids.insert(job.id, job.seq);
        if let Some(external_id) = &job.external_id {
            self.external_ids.insert((job.queue.clone(), Arc::clone(external_id)), job.seq);
        }
        if let Some(membership) = &job.membership {
            self.members.insert((membership.workflow, job.seq));
        }
        self.put(job)
    }

    fn remove(&mut self, job: Box<Job>) -> Result<(), Infallible> {
        self.unindex(&job);
        self.payloads.remove(&job.seq);
        self.ids.remove(&job.id);
        if let Some(external_id) = &job.external_id {
            self.external_ids.remove(&(job.queue.clone(), Arc::clone(external_id)));
        }
        if let Some(membership) = &job.membership {
            self.members.remove(&(membership.workflow, job.seq));
            let name = (membership.workflow, Arc::clone(&membership.reference));
            if self.member_names.get(&name) == Some(&job.seq) {
                self.member_names.remove(&name);
            }
        }
        for dependency in job.dependencies.all() {
            if let Some(seq) = self.ids.get(&dependency) {
                self.edges.remove(&(*seq, job.seq));
            }
        }
        let dependents: Vec<_> = self.edges.range((job.seq, Seq(0))..=(job.seq, Seq(u64::MAX))).copied().collect();
        for edge in dependents {
            self.edges.remove(&edge);
        }
        Ok(())
    }

    fn external_id(&mut self, queue: &QueueName, external_id: &str) -> Result<Option<Seq>, Infallible> {
        Ok(self.external_ids.get(&(queue.clone(), external_id.into())).copied())
    }

    fn link(&mut self, dependency: Seq, dependent: Seq) -> Result<(), Infallible> {
        self.edges.insert((dependency, dependent));
        Ok(())
    }

    fn unlink(&mut self, dependency: Seq, dependent: Seq) -> Result<(), Infallible> {
        self.edges.remove(&(dependency, dependent));
        Ok(())
    }

    fn dependents(&mut self, dependency: Seq, after: Seq, limit: usize) -> Result<Vec<Seq>, Infallible> {
        let later = (dependency, Seq(after.0.saturating_add(1)))..=(dependency, Seq(u64::MAX));
        Ok(self.edges.range(later).take(limit).map(|(_, dependent)| *dependent).collect())
    }

    fn key(&mut self, key: &ScopedIdempotencyKey) -> Result<Option<KeyEntry>, Infallible> {
        Ok(self.keys.get(key).copied())
    }

    fn put_key(&mut self, key: ScopedIdempotencyKey, entry: KeyEntry) -> Result<(), Infallible> {
        self.remove_key(&key)?;
        if let Some(at) = entry.prune_at {
            self.prunes.insert((at, PruneTarget::Key(key.clone())));
        }
        self.keys.insert(key, entry);
        Ok(())
    }

    fn remove_key(&mut self, key: &ScopedIdempotencyKey) -> Result<(), Infallible> {
        if let Some(KeyEntry { prune_at: Some(at), .. }) = self.keys.remove(key) {
            self.prunes.remove(&(at, PruneTarget::Key(key.clone())));
        }
        Ok(())
    }

    fn next_prune(&mut self, _now: Timestamp) -> Result<Option<(Timestamp, PruneTarget)>, Infallible> {
        Ok(self.prunes.first().cloned())
    }

    fn jobs_in_state(&mut self, queue: &QueueName, state: StateKind, limit: usize) -> Result<Vec<Seq>, Infallible> {
        let all = (queue.clone(), state, Seq(0))..=(queue.clone(), state, Seq(u64::MAX));
        Ok(self.by_state.range(all).take(limit).map(|(_, _, seq)| *seq).collect())
    }

    fn workflow(&mut self, id: WorkflowId) -> Result<Option<Workflow>, Infallible> {
        Ok(self.workflows.get(&id).cloned())
    }

    fn put_workflow(&mut self, workflow: &Workflow) -> Result<(), Infallible> {
        let tally = self.workflows.get(&workflow.id).map_or(MemberCounts::default(), |known| known.tally);
        self.workflows.insert(workflow.id, Workflow { tally, ..workflow.clone() });
        Ok(())
    }

    fn tally(&mut self, id: WorkflowId, change: &MemberCountDelta) -> Result<(), Infallible> {
        if let Some(workflow) = self.workflows.get_mut(&id) {
            workflow.tally.add(change);
        }
        Ok(())
    }

    fn remove_workflow(&mut self, id: WorkflowId) -> Result<(), Infallible> {
        self.workflows.remove(&id);
        Ok(())
    }

    fn members(&mut self, id: WorkflowId, after: Seq, limit: usize) -> Result<Vec<Seq>, Infallible> {
        let later = (id, Seq(after.0.saturating_add(1)))..=(id, Seq(u64::MAX));
        Ok(self.members.range(later).take(limit).map(|(_, member)| *member).collect())
    }

    fn set_member_ref(&mut self, id: WorkflowId, reference: &str, member: Seq) -> Result<(), Infallible> {
        self.member_names.insert((id, reference.into()), member);
        Ok(())
    }

    fn member(&mut self, id: WorkflowId, reference: &str) -> Result<Option<Seq>, Infallible> {
        Ok(self.member_names.get(&(id, reference.into())).copied())
    }

    fn put_queue(&mut self, queue: &Queue) -> Result<(), Infallible> {
        self.queues.insert(queue.name.clone(), queue.clone());
        Ok(())
    }

    fn remove_queue(&mut self, name: &QueueName) -> Result<(), Infallible> {
        self.queues.remove(name);
        Ok(())
    }

    fn encode_snapshot(&self, job: &Job) -> Vec<u8> {
        // Only a job whose policy contains a function has no encoding. No store holds such a job.
        longshore_codec::snapshot::encode(job).unwrap_or_default()
    }

    fn put_system(&mut self, kind: SystemKind, key: Vec<u8>, value: Vec<u8>) -> Result<(), Infallible> {
        self.system.insert((kind, key), (self.system_revision, value));
        Ok(())
    }
}
