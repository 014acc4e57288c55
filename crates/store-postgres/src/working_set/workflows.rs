//! Workflows during one run of the rules. Sums of members are never read in order to be changed: they are added to.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use longshore_core::id::{JobId, Seq, WorkflowId};
use longshore_core::job::Job;
use longshore_core::workflow::{MemberCountDelta, Workflow};

use super::WorkingSet;

/// What a run has changed about workflows.
#[derive(Debug, Default)]
pub(crate) struct WorkflowChanges {
    /// Their tallies count for nothing.
    pub put: BTreeMap<Seq, Workflow>,
    pub removed: BTreeSet<Seq>,
    pub tallies: BTreeMap<Seq, MemberCountDelta>,
    /// (workflow, member)
    pub admitted: BTreeSet<(Seq, Seq)>,
    /// With the name that goes along.
    pub dismissed: Vec<(Seq, Arc<str>, Seq)>,
    pub names: HashMap<(Seq, Arc<str>), Option<Seq>>,
}

impl WorkflowChanges {
    pub(crate) fn is_nothing(&self) -> bool {
        let Self { put, removed, tallies, admitted, dismissed, names } = self;
        put.is_empty()
            && removed.is_empty()
            && tallies.is_empty()
            && admitted.is_empty()
            && dismissed.is_empty()
            && names.is_empty()
    }
}

impl WorkingSet<'_> {
    /// The number of a workflow. One that came from another store has an id of that store.
    pub(super) fn number_of(&self, id: WorkflowId) -> Option<Seq> {
        let id = JobId::from_bytes(*id.as_bytes());
        let own = || Some(self.seal.decrypt(id)).filter(|seq| i64::try_from(seq.0).is_ok());
        if !self.foreign_ids {
            return own();
        }
        match self.fetched.foreign_ids.get(&id) {
            Some(Some(found)) => Some(*found),
            Some(None) => own(),
            None => {
                self.missing().foreign_ids.insert(id);
                None
            }
        }
    }

    pub(super) fn find_workflow(&self, id: WorkflowId) -> Option<Workflow> {
        let number = self.number_of(id)?;
        if self.workflows.removed.contains(&number) {
            return None;
        }
        let stored = match self.fetched.workflows.get(&number) {
            Some(found) => found.as_ref().map(|found| &found.workflow),
            None if self.workflows.put.contains_key(&number) => None,
            None => {
                self.missing().workflows.insert(number);
                return None;
            }
        };
        let mut tally = stored.map(|workflow| workflow.tally).unwrap_or_default();
        if let Some(change) = self.workflows.tallies.get(&number) {
            tally.add(change);
        }
        let workflow = self.workflows.put.get(&number).or(stored).filter(|workflow| workflow.id == id)?;
        Some(Workflow { tally, ..workflow.clone() })
    }

    /// Members behind `after`, oldest first.
    pub(super) fn roster(&self, id: WorkflowId, after: Seq, limit: usize) -> Vec<Seq> {
        let Some(number) = self.number_of(id) else { return Vec::new() };
        let own = (number, Seq(after.0.saturating_add(1)))..=(number, Seq(u64::MAX));
        let mut found: BTreeSet<Seq> = self.workflows.admitted.range(own).map(|(_, member)| *member).collect();
        let is_new =
            self.workflows.put.contains_key(&number) && self.fetched.workflows.get(&number).is_none_or(Option::is_none);
        if !is_new {
            let slice = self.fetched.workflow_members.get(&number).filter(|slice| slice.after <= after);
            let stored: Vec<Seq> =
                slice.map(|slice| slice.found.iter().copied().filter(|seq| *seq > after).collect()).unwrap_or_default();
            if slice.is_none_or(|slice| slice.truncated && stored.len() < limit) {
                let (after, before) = slice.map_or((after, 0), |slice| (slice.after, slice.found.len()));
                self.missing().workflow_members.insert(number, (after, before + limit));
                return Vec::new();
            }
            found.extend(stored);
        }
        found.into_iter().take(limit).collect()
    }

    pub(super) fn find_member(&self, id: WorkflowId, reference: &str) -> Option<Seq> {
        let name = (self.number_of(id)?, Arc::from(reference));
        if let Some(own) = self.workflows.names.get(&name) {
            return *own;
        }
        match self.fetched.member_names.get(&name) {
            Some(found) => *found,
            None => {
                self.missing().member_names.insert(name);
                None
            }
        }
    }

    /// A new job is a member from now on.
    pub(super) fn admit(&mut self, job: &Job) {
        let number = job.membership.as_ref().and_then(|membership| self.number_of(membership.workflow));
        self.workflows.admitted.extend(number.map(|number| (number, job.seq)));
    }

    /// A job goes; its name goes along unless somebody else has it by now.
    pub(super) fn remove_member(&mut self, job: &Job) {
        let Some(membership) = &job.membership else { return };
        let Some(number) = self.number_of(membership.workflow) else { return };
        let name = (number, Arc::clone(&membership.reference));
        let holder = self.workflows.names.get(&name).or_else(|| self.fetched.member_names.get(&name));
        if holder == Some(&Some(job.seq)) {
            self.workflows.names.insert(name, None);
        }
        if !self.workflows.admitted.remove(&(number, job.seq)) {
            self.workflows.dismissed.push((number, Arc::clone(&membership.reference), job.seq));
        }
    }
}
