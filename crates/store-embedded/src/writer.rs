//! StoreWriter thread: drains the request queue, applies the commands, commits once, then answers
//! (group commit).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use longshore_core::id::QueueName;
use longshore_core::ocypod::totals::Totals;
use longshore_core::time::Timestamp;
use longshore_engine::{AdminCommand, Effect, Engine, ExecutionContext, JobRecords, Queue, SystemKind};
use longshore_store::OsRng;
use longshore_store::clock::monotonic;
use longshore_store::{
    Clock, MailboxReceiver, QueueStats, StoreError, SystemRefusal, SystemWrite, SystemWritten, batch_wakeups,
};

use crate::directives;
use crate::disk_reserve::DiskReserve;
use crate::error::{DiskErrorKind, classify};
use crate::grants::{FailedBatch, GrantState};
use crate::meta::{self, CommitRecord};
use crate::records::{RecordsError, SqliteRecords};
use crate::request::{ErrorText, PendingReply, WriteRequest};
use crate::schema::ClockMode;
use crate::shared::{PoisonOnPanic, SharedState};
use crate::sqlite::Location;
use crate::sync_policy::{PendingCommit, SyncPolicy};
use crate::system;
use crate::vacuum::IncrementalVacuum;
use crate::wal_checkpoint::{CheckpointHandle, truncate_wal};

/// Commands per commit.
pub(crate) const COMMANDS_MAX: usize = 2_048;

pub(crate) struct StoreWriter {
    pub engine: Engine,
    pub records: SqliteRecords,
    pub clock: Arc<dyn Clock>,
    pub clock_mode: ClockMode,
    pub shared: Arc<SharedState>,
    pub checkpoints: CheckpointHandle,
    pub reserve: DiskReserve,
    pub location: Location,
    pub vacuum: IncrementalVacuum,
    pub rng: OsRng,
    pub effects: Vec<Effect>,
    /// Queues whose statistics may have changed in this batch.
    pub dirty_queues: BTreeSet<QueueName>,
    /// Sequence number of the last successful commit. The watermark may cover durable commits only.
    pub commit_seq: i64,
    /// Totals of the last commit.
    pub totals: Totals,
    pub grants: GrantState,
    pub syncs: SyncPolicy,
    /// Epoch of the lease versions that recovery could not store on a full disk.
    pub unsaved_epoch: Option<u64>,
}

impl StoreWriter {
    /// Stores the queues that the engine declares by default, and publishes all queues.
    pub(crate) fn persist_queues(&mut self) -> Result<(), StoreError> {
        let queues: Vec<Arc<Queue>> = self.engine.queues().cloned().collect();
        let persist = |writer: &mut Self| {
            writer.records.connection().execute_batch("BEGIN IMMEDIATE")?;
            for queue in &queues {
                writer.records.put_queue(queue)?;
            }
            writer.records.flush()?;
            writer.records.connection().execute_batch("COMMIT")?;
            Ok::<(), RecordsError>(())
        };
        persist(self)?;
        self.syncs.mark_synced(self.commit_seq);
        self.records.committed();
        for queue in queues {
            self.shared.set_queue(queue.name.clone(), self.queue_stats(&queue.name));
        }
        Ok(())
    }

    /// Works until every sender is gone.
    pub(crate) fn run(mut self, mut requests: MailboxReceiver<WriteRequest>) {
        let _guard = PoisonOnPanic(Arc::clone(&self.shared));
        while let Some(first) = requests.blocking_recv() {
            // The end of a parked claim changes no record and needs no transaction.
            if let WriteRequest::Unpark(ticket) = first {
                self.unpark(ticket);
                self.count_parked();
                continue;
            }
            self.records.drain_prefetched();
            self.serve(vec![first], &mut || requests.try_recv().ok());
            self.grant_rest(&mut || requests.try_recv().ok());
            self.records.evict();
            self.records.request_prefetch(&self.engine);
            self.vacuum_between_commits();
            let Self { checkpoints, records, commit_seq, syncs, shared, .. } = &mut self;
            let checkpointed = checkpoints.run_on_writer(records.connection(), *commit_seq, syncs, shared);
            self.handle_checkpoint_error(checkpointed);
            while requests.is_empty() && self.records.decode_prefetched() {}
        }
        self.records.prefetcher.stop();
        self.checkpoints.stop();
        // An empty WAL makes the next start faster. After a failed write the files stay as they
        // are, for recovery to verify.
        if !self.shared.is_poisoned() {
            let truncated = truncate_wal(self.records.connection(), self.commit_seq, None, &self.shared.watermark);
            self.handle_checkpoint_error(truncated.map(drop));
        }
    }

    /// A checkpoint without disk space leaves the WAL as it is. Any other error poisons the store.
    fn handle_checkpoint_error(&self, checkpointed: rusqlite::Result<()>) {
        if let Err(error) = checkpointed
            && classify(&self.location, &error) != DiskErrorKind::Full
        {
            self.shared.poison(&error);
        }
    }

    /// Serves a batch in one commit. Requests from `more`, which arrive meanwhile, join it.
    pub(crate) fn serve(&mut self, mut batch: Vec<WriteRequest>, more: &mut dyn FnMut() -> Option<WriteRequest>) {
        if self.shared.is_poisoned() {
            batch.into_iter().for_each(|request| request.fail(StoreError::Poisoned));
            self.fail_parked();
            return;
        }
        match self.commit(&mut batch, more) {
            Ok(replies) => {
                let take_back = Arc::clone(&self.grants.take_back);
                batch_wakeups(|| {
                    // A caller may read as soon as it has its reply.
                    self.publish();
                    self.announce_system(&batch, &replies);
                    self.enforce_directives(&batch);
                    batch.into_iter().zip(replies).for_each(|(request, reply)| request.answer(reply, &take_back));
                    self.answer_granted();
                });
                self.count_parked();
            }
            Err(error) => self.handle_commit_error(batch, error),
        }
    }

    /// Applies a batch and commits it. On `Err` the caller rolls back or poisons the store.
    fn commit(
        &mut self,
        batch: &mut Vec<WriteRequest>,
        more: &mut dyn FnMut() -> Option<WriteRequest>,
    ) -> Result<Vec<PendingReply>, RecordsError> {
        let _span = tracing::debug_span!("commit", requests = batch.len(), commit_seq = self.commit_seq + 1).entered();
        let (now, start) = (self.clock.now(), monotonic());
        let connection = self.records.connection();
        connection.execute_batch("BEGIN IMMEDIATE")?;
        let changes = connection.total_changes();
        self.engine.begin();
        self.records.system_revision = (self.commit_seq + 1).cast_unsigned();
        let replies = self.apply_all(batch, more, now)?;
        self.grant_parked(now)?;
        self.records.flush()?;
        if self.records.has_deletes {
            // Recovery derives the next number from existing jobs. A deleted number needs the key.
            let next_seq = self.engine.next_seq().cast_signed();
            meta::set_integer(self.records.connection(), meta::NEXT_SEQ, next_seq)?;
            self.vacuum.mark_dirty();
        }
        let mut totals = self.totals;
        totals.count(self.effects.iter().filter_map(Effect::transition));
        if totals != self.totals {
            meta::set_totals(self.records.connection(), &totals)?;
        }
        // A batch without changes writes nothing.
        let mut commit_seq = self.commit_seq;
        let has_changes = self.records.connection().total_changes() != changes;
        if has_changes {
            commit_seq += 1;
            let (live_jobs, synced_seq) = (self.records.live_jobs(), self.syncs.synced_seq());
            meta::set_commit_record(self.records.connection(), CommitRecord { commit_seq, live_jobs, synced_seq })?;
            self.raise_clock_floor(now)?;
            self.save_epoch()?;
        }
        let is_synced = self.syncs.must_sync(batch, now);
        self.syncs.commit(self.records.connection(), PendingCommit { commit_seq, now, has_changes, is_synced })?;
        self.unsaved_epoch = self.unsaved_epoch.filter(|_| !has_changes);
        self.commit_seq = commit_seq;
        self.totals = totals;
        self.shared.commits.fetch_add(1, Ordering::Relaxed);
        self.engine.commit();
        self.records.committed();
        self.measure_commit(monotonic() - start);
        Ok(replies)
    }

    /// Stores the epoch that recovery has started, if the disk was full then.
    fn save_epoch(&self) -> rusqlite::Result<()> {
        let Some(epoch) = self.unsaved_epoch else { return Ok(()) };
        meta::set_integer(self.records.connection(), meta::EPOCH, epoch.cast_signed())
    }

    fn measure_commit(&self, elapsed: Duration) {
        let metrics = &self.shared.metrics;
        metrics.commit_seconds.observe_duration(elapsed);
        metrics.batch_commands.observe_count(self.grants.commands);
        metrics.commit_seq.store(self.commit_seq, Ordering::Relaxed);
        metrics.cache_hits.store(self.records.cache_hits, Ordering::Relaxed);
        metrics.cache_misses.store(self.records.point_reads, Ordering::Relaxed);
    }

    /// Applies the batch and the requests that arrive meanwhile, up to the size of a commit.
    fn apply_all(
        &mut self,
        batch: &mut Vec<WriteRequest>,
        more: &mut dyn FnMut() -> Option<WriteRequest>,
        now: Timestamp,
    ) -> Result<Vec<PendingReply>, RecordsError> {
        self.grants.commands = 0;
        let mut replies = Vec::with_capacity(batch.len());
        loop {
            while let Some(request) = batch.get_mut(replies.len()) {
                self.grants.commands += request.commands();
                replies.push(self.apply(request, now)?);
            }
            if self.grants.commands >= COMMANDS_MAX {
                return Ok(replies);
            }
            let Some(next) = more() else { return Ok(replies) };
            batch.push(next);
        }
    }

    fn apply(&mut self, request: &mut WriteRequest, now: Timestamp) -> Result<PendingReply, RecordsError> {
        let Self { engine, records, rng, effects, .. } = self;
        macro_rules! context {
            () => {
                ExecutionContext { records: &mut *records, rng: &mut *rng, now, effects: &mut *effects }
            };
        }
        Ok(match request {
            WriteRequest::System(write, _) if write.submit.is_some() && !self.reserve.has_space() => {
                PendingReply::Failed(StoreError::not_applied(self.reserve.no_space()))
            }
            WriteRequest::System(write, _) => return self.write_system(write, now),
            WriteRequest::Submit(..) if !self.reserve.has_space() => {
                PendingReply::Failed(StoreError::not_applied(self.reserve.no_space()))
            }
            WriteRequest::Submit(request, _) => {
                self.dirty_queues.extend(request.submissions().map(|submission| submission.queue.clone()));
                PendingReply::Submit(engine.submit(request, context!())?)
            }
            WriteRequest::Claim(..) => return self.claim_or_park(request, now),
            WriteRequest::Parked(_) => PendingReply::Nothing,
            WriteRequest::Unpark(ticket) => {
                let ticket = *ticket;
                self.unpark(ticket);
                PendingReply::Nothing
            }
            WriteRequest::HoldGrants(hold, _) => {
                let hold = *hold;
                self.hold_grants(hold);
                PendingReply::Held
            }
            WriteRequest::TakeBack(undelivered) => {
                for settlement in undelivered.iter() {
                    // The lease may have expired meanwhile: a refusal is fine.
                    drop(engine.settle(settlement, context!())?);
                }
                PendingReply::Nothing
            }
            WriteRequest::Settle(settlements, _) => {
                let verdicts = settlements.iter().map(|settlement| engine.settle(settlement, context!()));
                PendingReply::Settle(verdicts.collect::<Result<_, _>>()?)
            }
            WriteRequest::SettleAndClaim(settlements, claim, reply) => {
                // A caller that is gone gets no jobs.
                let claim = claim.as_ref().filter(|_| !reply.is_closed());
                return self.settle_and_claim(settlements, claim, now);
            }
            WriteRequest::Heartbeat(heartbeats, _) => {
                let verdicts = heartbeats.iter().map(|heartbeat| engine.heartbeat(heartbeat, context!()));
                PendingReply::Heartbeat(verdicts.collect::<Result<_, _>>()?)
            }
            WriteRequest::Direct(worker, directive, _) => {
                directives::save(records.connection(), worker, *directive)?;
                PendingReply::Directed
            }
            WriteRequest::Admin(command, _) => {
                self.dirty_queues.extend(queue_of(command));
                PendingReply::Admin(engine.admin(command, context!())?)
            }
            WriteRequest::Tick(budget, _) => {
                self.reserve.restore();
                self.vacuum.on_tick(now);
                PendingReply::Tick(engine.tick(records, now, budget.get(), rng, effects)?)
            }
        })
    }

    /// Checks what a write expects, submits its jobs, then writes its records.
    fn write_system(&mut self, write: &mut SystemWrite, now: Timestamp) -> Result<PendingReply, RecordsError> {
        let Self { engine, records, rng, effects, .. } = self;
        if let Some(index) = system::find_conflict(records.connection(), write)? {
            return Ok(PendingReply::System(Err(SystemRefusal::Conflict { index })));
        }
        let mut submitted = Vec::new();
        if let Some(request) = &mut write.submit {
            self.dirty_queues.extend(request.submissions().map(|submission| submission.queue.clone()));
            let context = ExecutionContext { records: &mut *records, rng: &mut *rng, now, effects: &mut *effects };
            match engine.submit(request, context)? {
                Ok(jobs) => submitted = jobs,
                Err(refusal) => return Ok(PendingReply::System(Err(SystemRefusal::Submission(refusal)))),
            }
        }
        let revision = records.system_revision;
        system::write(records.connection(), write, revision, &submitted)?;
        if write.changes.iter().any(|change| change.kind == SystemKind::Webhook) {
            let subscriptions = system::subscriptions(records.connection());
            engine.set_subscriptions(subscriptions.map_err(|_| RecordsError::CorruptEndpoint)?);
        }
        Ok(PendingReply::System(Ok(SystemWritten { revision, submitted })))
    }

    /// Lets caches of system records read them again.
    fn announce_system(&self, batch: &[WriteRequest], replies: &[PendingReply]) {
        for (request, reply) in batch.iter().zip(replies) {
            if let (WriteRequest::System(write, _), PendingReply::System(Ok(_))) = (request, reply) {
                self.shared.announce(write.announced_kinds());
            }
        }
    }

    /// Publishes the changes of a commit to readers and subscribers.
    fn publish(&mut self) {
        let mut last = None;
        for effect in &self.effects {
            let queue = match effect {
                Effect::Moved { queue, .. } | Effect::Claimable(queue) | Effect::Queue { name: queue, .. } => queue,
                Effect::Schedule { .. } => continue,
            };
            // Consecutive effects mostly name the same queue.
            if last != Some(queue) && !self.dirty_queues.contains(queue) {
                self.dirty_queues.insert(queue.clone());
            }
            last = Some(queue);
        }
        self.dirty_queues.extend(self.records.shrunk_queues.drain(..));
        for name in std::mem::take(&mut self.dirty_queues) {
            let stats = self.queue_stats(&name);
            self.shared.set_queue(name, stats);
        }
        self.shared.set_totals(self.totals);
        self.shared.wakeups.publish(&mut self.effects);
        self.publish_next_deadline();
    }

    pub(crate) fn publish_next_deadline(&self) {
        let now = self.clock.now();
        // Virtual time does not advance while the disk is full.
        let reserve = self.reserve.deadline(now).filter(|_| self.clock_mode == ClockMode::Real);
        let next = self.engine.next_deadline(now).into_iter().chain(self.vacuum.deadline()).chain(reserve).min();
        self.shared.wakeups.publish_next_deadline(next);
    }

    pub(crate) fn queue_stats(&self, name: &QueueName) -> Option<QueueStats> {
        let queue = Arc::clone(self.engine.queue(name)?);
        let (counts, oldest_scheduled_at) = (self.engine.counts(name), self.engine.oldest_scheduled_at(name));
        Some(QueueStats { queue, counts, oldest_scheduled_at })
    }

    /// Rolls back a failed batch, or poisons the store. Retries what may succeed.
    fn handle_commit_error(&mut self, batch: Vec<WriteRequest>, error: RecordsError) {
        self.effects.clear();
        self.dirty_queues.clear();
        let kind = match &error {
            RecordsError::Sql(error) => classify(&self.location, error),
            RecordsError::CorruptJob(_)
            | RecordsError::CorruptWorkflow(_)
            | RecordsError::CorruptPayload(_)
            | RecordsError::CorruptEndpoint
            | RecordsError::NotStorable => DiskErrorKind::Corrupt,
        };
        let FailedBatch { requests: mut batch, had_grants, failed_claim } = self.undo_grants(batch);
        if kind == DiskErrorKind::Io || !self.roll_back() {
            self.shared.poison(&error);
            let error = Arc::new(ErrorText(error.to_string()));
            batch.into_iter().for_each(|request| request.fail(StoreError::Unknown(error.clone())));
            self.fail_parked();
            return;
        }
        if kind == DiskErrorKind::Corrupt
            && let Some(claim) = failed_claim.and_then(|ticket| self.take_parked(ticket))
        {
            drop(claim.send(Err(error.into())));
            return self.serve(batch, &mut || None);
        }
        let error = if kind == DiskErrorKind::Full {
            // The reserve gives space to everything but submissions: those fail with `NoSpace`.
            if self.reserve.release() {
                self.vacuum.mark_dirty();
                return self.serve(batch, &mut || None);
            }
            StoreError::not_applied(self.reserve.no_space())
        } else {
            error.into()
        };
        if had_grants {
            // The requests may succeed without the grants. A later batch serves the parked claims.
            self.grants.is_suspended = true;
            self.serve(batch, &mut || None);
            self.grants.is_suspended = false;
            return;
        }
        if batch.len() == 1 {
            if kind == DiskErrorKind::Corrupt && batch.iter_mut().any(WriteRequest::drop_claim) {
                return self.serve(batch, &mut || None);
            }
            batch.into_iter().for_each(|request| request.fail(error.clone()));
            return;
        }
        // One request failed the batch: each gets its own commit.
        batch.into_iter().for_each(|request| self.serve(vec![request], &mut || None));
    }

    pub(crate) fn roll_back(&mut self) -> bool {
        let connection = self.records.connection();
        let clean = connection.is_autocommit() || connection.execute_batch("ROLLBACK").is_ok();
        self.engine.rollback();
        self.records.rolled_back();
        clean
    }
}

fn queue_of(command: &AdminCommand) -> Option<QueueName> {
    match command {
        AdminCommand::PutQueue { queue, .. }
        | AdminCommand::PauseQueue { queue }
        | AdminCommand::ResumeQueue { queue }
        | AdminCommand::DeleteQueue { queue, .. } => Some(queue.clone()),
        AdminCommand::SubmitHeld { .. }
        | AdminCommand::Cancel { .. }
        | AdminCommand::Requeue { .. }
        | AdminCommand::TakeBack { .. }
        | AdminCommand::DeadLetter { .. }
        | AdminCommand::RunNow { .. }
        | AdminCommand::Edit { .. }
        | AdminCommand::Delete { .. }
        | AdminCommand::OpenWorkflow { .. }
        | AdminCommand::CloseWorkflow { .. }
        | AdminCommand::CancelWorkflow { .. }
        | AdminCommand::RetryWorkflow { .. }
        | AdminCommand::ChangeStatus { .. } => None,
    }
}
