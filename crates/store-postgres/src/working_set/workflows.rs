//! Workflows during one run of the rules. Member counts are changed by deltas only.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use longshore_core::id::{JobId, Seq, WorkflowId};
use longshore_core::job::Job;
use longshore_core::workflow::{MemberCountDelta, Workflow};

use super::WorkingSet;

/// Changes of workflows.
#[derive(Debug, Default)]
pub(crate) struct WorkflowChanges {
    /// New or changed records. Their member counts are ignored.
    pub put: BTreeMap<Seq, Workflow>,
    pub removed: BTreeSet<Seq>,
    pub count_deltas: BTreeMap<Seq, MemberCountDelta>,
    /// (workflow, member)
    pub added_members: BTreeSet<(Seq, Seq)>,
    /// (workflow, reference, member)
    pub removed_members: Vec<(Seq, Arc<str>, Seq)>,
    /// `None`: the reference was removed.
    pub refs: HashMap<(Seq, Arc<str>), Option<Seq>>,
}

impl WorkflowChanges {
    pub(crate) fn is_empty(&self) -> bool {
        let Self { put, removed, count_deltas, added_members, removed_members, refs } = self;
        put.is_empty()
            && removed.is_empty()
            && count_deltas.is_empty()
            && added_members.is_empty()
            && removed_members.is_empty()
            && refs.is_empty()
    }
}

impl WorkingSet<'_> {
    /// The number of a workflow. An imported workflow has the id of its former store.
    pub(super) fn number_of(&self, id: WorkflowId) -> Option<Seq> {
        let id = JobId::from_bytes(*id.as_bytes());
        let own = || Some(self.id_cipher.decrypt(id)).filter(|seq| i64::try_from(seq.0).is_ok());
        if !self.imported_ids {
            return own();
        }
        match self.read_set.imported_ids.get(&id) {
            Some(Some(found)) => Some(*found),
            Some(None) => own(),
            None => {
                self.missing().imported_ids.insert(id);
                None
            }
        }
    }

    pub(super) fn find_workflow(&self, id: WorkflowId) -> Option<Workflow> {
        let number = self.number_of(id)?;
        if self.workflows.removed.contains(&number) {
            return None;
        }
        let stored = match self.read_set.workflows.get(&number) {
            Some(found) => found.as_ref().map(|found| &found.workflow),
            None if self.workflows.put.contains_key(&number) => None,
            None => {
                self.missing().workflows.insert(number);
                return None;
            }
        };
        let mut tally = stored.map(|workflow| workflow.tally).unwrap_or_default();
        if let Some(change) = self.workflows.count_deltas.get(&number) {
            tally.add(change);
        }
        let workflow = self.workflows.put.get(&number).or(stored).filter(|workflow| workflow.id == id)?;
        Some(Workflow { tally, ..workflow.clone() })
    }

    /// Members after `after`, oldest first.
    pub(super) fn members_after(&self, id: WorkflowId, after: Seq, limit: usize) -> Vec<Seq> {
        let Some(number) = self.number_of(id) else { return Vec::new() };
        let own = (number, Seq(after.0.saturating_add(1)))..=(number, Seq(u64::MAX));
        let mut found: BTreeSet<Seq> = self.workflows.added_members.range(own).map(|(_, member)| *member).collect();
        let is_new = self.workflows.put.contains_key(&number)
            && self.read_set.workflows.get(&number).is_none_or(Option::is_none);
        if !is_new {
            let slice = self.read_set.workflow_members.get(&number).filter(|slice| slice.after <= after);
            let stored: Vec<Seq> =
                slice.map(|slice| slice.seqs.iter().copied().filter(|seq| *seq > after).collect()).unwrap_or_default();
            if slice.is_none_or(|slice| slice.truncated && stored.len() < limit) {
                let (after, before) = slice.map_or((after, 0), |slice| (slice.after, slice.seqs.len()));
                self.missing().workflow_members.insert(number, (after, before + limit));
                return Vec::new();
            }
            found.extend(stored);
        }
        found.into_iter().take(limit).collect()
    }

    pub(super) fn find_member(&self, id: WorkflowId, reference: &str) -> Option<Seq> {
        let name = (self.number_of(id)?, Arc::from(reference));
        if let Some(own) = self.workflows.refs.get(&name) {
            return *own;
        }
        match self.read_set.member_refs.get(&name) {
            Some(found) => *found,
            None => {
                self.missing().member_refs.insert(name);
                None
            }
        }
    }

    /// Adds a new job to its workflow.
    pub(super) fn add_member(&mut self, job: &Job) {
        let number = job.membership.as_ref().and_then(|membership| self.number_of(membership.workflow));
        self.workflows.added_members.extend(number.map(|number| (number, job.seq)));
    }

    /// Removes a job from its workflow. Its reference is removed unless it points to another job.
    pub(super) fn remove_member(&mut self, job: &Job) {
        let Some(membership) = &job.membership else { return };
        let Some(number) = self.number_of(membership.workflow) else { return };
        let name = (number, Arc::clone(&membership.reference));
        let holder = self.workflows.refs.get(&name).or_else(|| self.read_set.member_refs.get(&name));
        if holder == Some(&Some(job.seq)) {
            self.workflows.refs.insert(name, None);
        }
        if !self.workflows.added_members.remove(&(number, job.seq)) {
            self.workflows.removed_members.push((number, Arc::clone(&membership.reference), job.seq));
        }
    }
}
