//! System records: schedules, webhooks, deliveries, tokens, audit entries and operations.
//!
//! Every kind is an ordered space of keys. A value is opaque to the store. A write changes any
//! number of records by compare-and-set, and may submit jobs, all in one commit.

use longshore_core::id::JobId;
use longshore_engine::{BatchRefusal, SubmitRequest, Submitted, SystemKind};

/// Longest key in bytes.
pub const SYSTEM_KEY_BYTES_MAX: usize = 512;

/// A stored record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemRecord {
    pub key: Vec<u8>,
    /// Changes with every write of the record. No two commits use the same revision.
    pub revision: u64,
    pub value: Vec<u8>,
}

/// What a change requires of the present record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    Any,
    Absent,
    Revision(u64),
}

impl Expected {
    /// Returns whether a record with this revision fulfils it; `None`: there is no record.
    pub fn is_met_by(self, revision: Option<u64>) -> bool {
        match self {
            Self::Any => true,
            Self::Absent => revision.is_none(),
            Self::Revision(expected) => revision == Some(expected),
        }
    }
}

/// One record to write or to delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemChange {
    pub kind: SystemKind,
    pub key: Vec<u8>,
    pub expected: Expected,
    /// `None` deletes the record.
    pub value: Option<Vec<u8>>,
    /// Appends the ids of the submitted jobs to the value, 16 bytes each.
    pub append_job_ids: bool,
}

impl SystemChange {
    pub fn put(kind: SystemKind, key: impl Into<Vec<u8>>, expected: Expected, value: Vec<u8>) -> Self {
        Self { kind, key: key.into(), expected, value: Some(value), append_job_ids: false }
    }

    pub fn delete(kind: SystemKind, key: impl Into<Vec<u8>>, expected: Expected) -> Self {
        Self { kind, key: key.into(), expected, value: None, append_job_ids: false }
    }

    /// Returns the value with the ids of the submitted jobs, if the change wants them.
    pub fn stored_value(&self, jobs: impl IntoIterator<Item = JobId>) -> Option<Vec<u8>> {
        let mut value = self.value.clone()?;
        if self.append_job_ids {
            jobs.into_iter().for_each(|id| value.extend_from_slice(id.as_bytes()));
        }
        Some(value)
    }
}

/// Changes of system records, and jobs to submit, in one commit: all or nothing.
#[derive(Clone, Debug, Default)]
pub struct SystemWrite {
    pub changes: Vec<SystemChange>,
    pub submit: Option<SubmitRequest>,
    /// Changes the version of the kinds, so that every server reads its cache again.
    pub announce: bool,
}

impl SystemWrite {
    /// Creates a write that other servers learn of.
    pub fn new(changes: Vec<SystemChange>) -> Self {
        Self { changes, submit: None, announce: true }
    }

    /// Creates a write that no cache depends on.
    pub fn unannounced(changes: Vec<SystemChange>) -> Self {
        Self { changes, submit: None, announce: false }
    }

    #[must_use]
    pub fn with_jobs(self, submit: SubmitRequest) -> Self {
        Self { submit: Some(submit), ..self }
    }

    /// Returns the kinds whose version changes.
    pub fn announced_kinds(&self) -> impl Iterator<Item = SystemKind> {
        let kinds: std::collections::BTreeSet<SystemKind> =
            self.changes.iter().filter(|_| self.announce).map(|change| change.kind).collect();
        kinds.into_iter()
    }
}

/// The result of a write.
#[derive(Clone, Debug, PartialEq)]
pub struct SystemWritten {
    /// The revision of every record that was written.
    pub revision: u64,
    pub submitted: Vec<Submitted>,
}

/// Why nothing was written.
#[derive(Clone, Debug, PartialEq)]
pub enum SystemRefusal {
    /// The record of this change is not as expected.
    Conflict {
        index: usize,
    },
    Submission(BatchRefusal),
}

/// A range of the records of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemQuery {
    pub kind: SystemKind,
    /// The first key, inclusive.
    pub start: Vec<u8>,
    /// The end of the range, exclusive; `None`: to the last key.
    pub end: Option<Vec<u8>>,
    pub limit: usize,
    pub descending: bool,
}

impl SystemQuery {
    /// All records of a kind, by key.
    pub fn all(kind: SystemKind, limit: usize) -> Self {
        Self { kind, start: Vec::new(), end: None, limit, descending: false }
    }

    /// The record with this key.
    pub fn one(kind: SystemKind, key: impl Into<Vec<u8>>) -> Self {
        let start = key.into();
        let end = Some([start.as_slice(), &[0]].concat());
        Self { kind, start, end, limit: 1, descending: false }
    }

    /// All records whose keys begin with the prefix.
    pub fn prefix(kind: SystemKind, prefix: impl Into<Vec<u8>>, limit: usize) -> Self {
        let start = prefix.into();
        let mut end = start.clone();
        // The end is the prefix with its last byte raised; bytes 255 cannot be raised.
        while end.last() == Some(&u8::MAX) {
            end.pop();
        }
        let end = end.pop().map(|last| [end.as_slice(), &[last.saturating_add(1)]].concat());
        Self { kind, start, end, limit, descending: false }
    }

    /// The same range, after a key.
    #[must_use]
    pub fn after(mut self, key: &[u8]) -> Self {
        self.start = [key, &[0]].concat();
        self
    }

    #[must_use]
    pub fn descending(self) -> Self {
        Self { descending: true, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_end_before_the_next_prefix() {
        let end = |prefix: &[u8]| SystemQuery::prefix(SystemKind::Tick, prefix, 1).end;
        assert_eq!(end(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(end(&[1, 255]), Some(vec![2]));
        assert_eq!((end(&[255, 255]), end(b"")), (None, None));
        let one = SystemQuery::one(SystemKind::Tick, b"a".to_vec());
        assert_eq!((one.start, one.end), (b"a".to_vec(), Some(b"a\0".to_vec())));
    }

    #[test]
    fn expectations_compare_revisions() {
        assert!(Expected::Any.is_met_by(None) && Expected::Any.is_met_by(Some(3)));
        assert!(Expected::Absent.is_met_by(None) && !Expected::Absent.is_met_by(Some(3)));
        assert!(Expected::Revision(3).is_met_by(Some(3)) && !Expected::Revision(3).is_met_by(Some(4)));
        assert!(!Expected::Revision(3).is_met_by(None));
    }
}
