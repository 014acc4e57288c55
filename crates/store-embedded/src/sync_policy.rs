//! Which commits are synced before their replies.
//!
//! Replies to submissions, settlements, checkpoints and administrative calls promise a synced
//! commit. A commit of claims, plain heartbeats and ticks is written in order, and its replies do
//! not wait: the next sync of the WAL covers it.
//!
//! After a power cut such commits may be lost. Recovery then relies on three rules:
//! 1. A lost commit is at most [`UNSYNCED_MAX`] younger than the last synced one. So recovery knows
//!    which leases another worker may have taken over (`clock_floor.rs`).
//! 2. Each commit records the last synced one before it. So recovery can tell a torn end of the WAL
//!    from corruption (`wal.rs`).
//! 3. The watermark covers synced commits only.

use std::fs::File;
use std::sync::Arc;

use longshore_core::time::{Duration, Timestamp};
use longshore_vfs::StoreFiles;
use rusqlite::Connection;

use crate::error::io_as_sqlite;
use crate::meta::CommitRecord;
use crate::request::WriteRequest;

/// Time from a synced commit to the last commit that may follow it without a sync.
pub(crate) const UNSYNCED_MAX: Duration = Duration::from_millis(1_000);

/// The writer's knowledge of what is synced.
#[derive(Debug)]
pub(crate) struct SyncPolicy {
    files: Arc<StoreFiles>,
    /// Syncs every commit.
    sync_claims: bool,
    /// Last commit that is known to be synced.
    synced_seq: i64,
    /// Time of the last synced commit that recorded its time. `None`: the next commit is synced.
    synced_at: Option<Timestamp>,
}

/// A commit that the writer is about to make.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingCommit {
    pub commit_seq: i64,
    pub now: Timestamp,
    /// The transaction has changed rows.
    pub has_changes: bool,
    /// The replies wait for the sync.
    pub is_synced: bool,
}

impl SyncPolicy {
    pub(crate) fn new(files: Arc<StoreFiles>, sync_claims: bool) -> Self {
        Self { files, sync_claims, synced_seq: CommitRecord::NONE_SYNCED, synced_at: None }
    }

    pub(crate) fn synced_seq(&self) -> i64 {
        self.synced_seq
    }

    /// Returns whether a batch waits for the sync of its commit.
    pub(crate) fn must_sync(&self, batch: &[WriteRequest], now: Timestamp) -> bool {
        let is_overdue = self.synced_at.is_none_or(|synced_at| now.since(synced_at) > UNSYNCED_MAX);
        self.sync_claims || is_overdue || batch.iter().any(WriteRequest::promises_sync)
    }

    /// Commits the open transaction of the writer.
    pub(crate) fn commit(&mut self, connection: &Connection, commit: PendingCommit) -> rusqlite::Result<()> {
        self.files.defer_sync(!commit.is_synced);
        let committed = connection.execute_batch("COMMIT");
        self.files.defer_sync(false);
        committed?;
        if !commit.is_synced {
            return Ok(());
        }
        if commit.has_changes {
            self.synced_at = Some(commit.now);
        } else if commit.commit_seq > self.synced_seq {
            // SQLite syncs nothing for a commit without changes. The replies may rest on commits
            // that are not synced yet.
            self.sync_wal()?;
        }
        self.mark_synced(commit.commit_seq);
        Ok(())
    }

    /// Records a sync of the WAL that covers this commit.
    pub(crate) fn mark_synced(&mut self, commit_seq: i64) {
        self.synced_seq = self.synced_seq.max(commit_seq);
    }

    /// Syncs the WAL unless it is known to be synced up to this commit.
    pub(crate) fn sync_up_to(&mut self, commit_seq: i64) -> rusqlite::Result<()> {
        if commit_seq > self.synced_seq {
            self.sync_wal()?;
            self.mark_synced(commit_seq);
        }
        Ok(())
    }

    fn sync_wal(&self) -> rusqlite::Result<()> {
        let path = self.files.wal_path();
        // A store in memory has no WAL.
        match File::open(&path) {
            Ok(wal) => self.files.sync(&path, &wal).map_err(|error| io_as_sqlite(&error)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(io_as_sqlite(&error)),
        }
    }
}
