//! The one thread that changes anything: it takes whatever waits, applies it, commits once, then answers everyone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use longshore_core::id::QueueName;
use longshore_core::ocypod::totals::Totals;
use longshore_core::time::Timestamp;
use longshore_engine::{AdminCommand, Effect, Engine, ExecutionContext};
use longshore_store::{Clock, Letters, QueueStats, StoreError, WakeupsSender};
use tokio::sync::watch;

use crate::error::{DiskErrorKind, classify};
use crate::granting::{Granting, Undone};
use crate::records::{RecordsError, SqliteRecords};
use crate::request::{Answered, Failed, Request};
use crate::reserve::Reserve;
use crate::schema::{ClockMode, Location, set_commit_seq, set_meta, set_totals};
use crate::vacuum::IncrementalVacuum;
use crate::wal;
use crate::wal_checkpoint::Checkpoints;
use crate::watermark::WatermarkFile;
use longshore_codec::OsRng;

/// Commands that share one commit, at most.
pub(crate) const COMMANDS_MAX: usize = 2_048;

/// What readers may see without asking the writer.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub queues: RwLock<BTreeMap<QueueName, QueueStats>>,
    pub totals: RwLock<Totals>,
    /// Once true, always true.
    pub poisoned: watch::Sender<bool>,
    pub commits: AtomicU64,
    pub parked_claims: AtomicUsize,
    pub wakeups: WakeupsSender,
    pub noted: Mutex<WatermarkFile>,
    /// Held by whoever reads ahead, and by the writer while it copies the rest of the log: only a log that nobody reads can start again.
    pub prefetch_lock: Mutex<()>,
}

impl Shared {
    pub(crate) fn poison(&self, why: &dyn std::fmt::Display) {
        if !self.poisoned.send_replace(true) {
            tracing::error!(%why, "a write or a sync failed: the store takes nothing more until it is opened again");
        }
    }

    /// Since the store was opened.
    pub(crate) fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }

    pub(crate) fn poisoned(&self) -> bool {
        *self.poisoned.borrow()
    }
}

/// A writer that dies of a panic must not look as if it were at work.
struct PoisonOnPanic(Arc<Shared>);

impl Drop for PoisonOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.poison(&"the writer died of a panic");
        }
    }
}

pub(crate) struct Writer {
    pub engine: Engine,
    pub records: SqliteRecords,
    pub clock: Arc<dyn Clock>,
    pub time: ClockMode,
    pub shared: Arc<Shared>,
    pub checkpoints: Checkpoints,
    pub reserve: Reserve,
    pub location: Location,
    pub give_back: IncrementalVacuum,
    pub rng: OsRng,
    pub effects: Vec<Effect>,
    /// Queues whose report may have changed in this batch.
    pub dirty_queues: BTreeSet<QueueName>,
    /// The last mark that a commit has carried. One that failed never had it: what is noted beside the database must be on disk.
    pub commit_seq: i64,
    /// As they are on disk.
    pub totals: Totals,
    pub granting: Granting,
}

impl Writer {
    /// Works until every sender is gone.
    pub(crate) fn run(mut self, mut requests: Letters<Request>) {
        let _obituary = PoisonOnPanic(Arc::clone(&self.shared));
        while let Some(first) = requests.blocking_recv() {
            // A claim that ends empty changes nothing: it needs no transaction.
            if let Request::Unpark(ticket) = first {
                self.unpark(ticket);
                self.count_parked();
                continue;
            }
            self.records.drain_prefetched();
            self.serve(vec![first], &mut || requests.try_recv().ok());
            self.grant_rest(&mut || requests.try_recv().ok());
            self.records.evict();
            self.records.request_prefetch(&self.engine);
            self.give_back();
            let checkpointed = self.checkpoints.run_on_writer(self.records.connection(), self.commit_seq, &self.shared);
            self.handle_checkpoint_error(checkpointed);
            while requests.is_empty() && self.records.decode_prefetched() {}
        }
        self.records.ahead.stop();
        self.checkpoints.stop();
        // The next start is quicker with an empty log. After a failure the files stay as they are: what the disk has is for that start to find out.
        if !self.shared.poisoned() {
            let emptied = wal::truncate_wal(self.records.connection(), self.commit_seq, &self.shared.noted);
            self.handle_checkpoint_error(emptied);
        }
    }

    /// A checkpoint that finds no room leaves the log as it is; any other failure is one of the disk.
    fn handle_checkpoint_error(&self, checkpointed: rusqlite::Result<()>) {
        if let Err(error) = checkpointed
            && classify(&self.location, &error) != DiskErrorKind::Full
        {
            self.shared.poison(&error);
        }
    }

    /// `more` are those who came while the first were looked at: they share the commit.
    pub(crate) fn serve(&mut self, mut batch: Vec<Request>, more: &mut dyn FnMut() -> Option<Request>) {
        if self.shared.poisoned() {
            batch.into_iter().for_each(|request| request.fail(StoreError::Poisoned));
            self.fail_parked();
            return;
        }
        match self.commit(&mut batch, more) {
            Ok(answers) => {
                // A caller may read as soon as it has its answer.
                self.publish();
                let take_back = Arc::clone(&self.granting.take_back);
                batch.into_iter().zip(answers).for_each(|(request, answered)| request.answer(answered, &take_back));
                self.answer_granted();
                self.count_parked();
            }
            Err(trouble) => self.handle_commit_error(batch, trouble),
        }
    }

    /// Applies a batch and makes it durable. On `Err` nothing of it is left, or the store is poisoned.
    fn commit(
        &mut self,
        batch: &mut Vec<Request>,
        more: &mut dyn FnMut() -> Option<Request>,
    ) -> Result<Vec<Answered>, RecordsError> {
        let now = self.clock.now();
        let connection = self.records.connection();
        connection.execute_batch("BEGIN IMMEDIATE")?;
        let changes = connection.total_changes();
        self.engine.begin();
        let answers = self.apply_all(batch, more, now)?;
        self.grant_parked(now)?;
        self.records.flush()?;
        if self.records.has_deletes {
            // The numbers of jobs that are there speak for themselves; one that goes must not be given again.
            set_meta(self.records.connection(), "next_number", self.engine.next_number().cast_signed())?;
            self.give_back.mark_dirty();
        }
        let mut totals = self.totals;
        totals.count(self.effects.iter().filter_map(Effect::transition));
        if totals != self.totals {
            set_totals(self.records.connection(), &totals)?;
        }
        // A batch that has changed nothing writes nothing, and waits for no disk.
        let mut mark = self.commit_seq;
        if self.records.connection().total_changes() != changes {
            mark += 1;
            set_commit_seq(self.records.connection(), mark, self.records.live_jobs())?;
            self.see(now)?;
        }
        self.records.connection().execute_batch("COMMIT")?;
        self.commit_seq = mark;
        self.totals = totals;
        self.shared.commits.fetch_add(1, Ordering::Relaxed);
        self.engine.commit();
        self.records.committed();
        Ok(answers)
    }

    /// Applies the batch, and what comes in meanwhile, up to the size of a commit.
    fn apply_all(
        &mut self,
        batch: &mut Vec<Request>,
        more: &mut dyn FnMut() -> Option<Request>,
        now: Timestamp,
    ) -> Result<Vec<Answered>, RecordsError> {
        self.granting.commands = 0;
        let mut answers = Vec::with_capacity(batch.len());
        loop {
            while let Some(request) = batch.get_mut(answers.len()) {
                self.granting.commands += request.commands();
                answers.push(self.apply(request, now)?);
            }
            if self.granting.commands >= COMMANDS_MAX {
                return Ok(answers);
            }
            let Some(next) = more() else { return Ok(answers) };
            batch.push(next);
        }
    }

    fn apply(&mut self, request: &mut Request, now: Timestamp) -> Result<Answered, RecordsError> {
        let Self { engine, records, rng, effects, .. } = self;
        macro_rules! context {
            () => {
                ExecutionContext { records: &mut *records, rng: &mut *rng, now, effects: &mut *effects }
            };
        }
        Ok(match request {
            Request::Submit(..) if !self.reserve.has_space() => {
                Answered::Failed(StoreError::not_applied(self.reserve.no_space()))
            }
            Request::Submit(request, _) => {
                self.dirty_queues.extend(request.batch.iter().map(|submission| submission.queue.clone()));
                Answered::Submit(engine.submit(request, context!())?)
            }
            Request::Claim(..) => return self.claim_or_park(request, now),
            Request::Parked(_) => Answered::Nothing,
            Request::Unpark(ticket) => {
                let ticket = *ticket;
                self.unpark(ticket);
                Answered::Nothing
            }
            Request::HoldGrants(hold, _) => {
                let hold = *hold;
                self.hold_grants(hold);
                Answered::Held
            }
            Request::TakeBack(undelivered) => {
                for settlement in undelivered.iter() {
                    // A lease that is not current any more has nothing to give back.
                    drop(engine.settle(settlement, context!())?);
                }
                Answered::Nothing
            }
            Request::Settle(settlements, _) => {
                let verdicts = settlements.iter().map(|settlement| engine.settle(settlement, context!()));
                Answered::Settle(verdicts.collect::<Result<_, _>>()?)
            }
            Request::Heartbeat(heartbeats, _) => {
                let verdicts = heartbeats.iter().map(|heartbeat| engine.heartbeat(heartbeat, context!()));
                Answered::Heartbeat(verdicts.collect::<Result<_, _>>()?)
            }
            Request::Admin(command, _) => {
                self.dirty_queues.extend(queue_of(command));
                Answered::Admin(engine.admin(command, context!())?)
            }
            Request::Tick(budget, _) => {
                self.reserve.restore();
                self.give_back.tick(now);
                Answered::Tick(engine.tick(records, now, budget.get(), rng, effects)?)
            }
        })
    }

    /// Shows others what the commit has changed.
    fn publish(&mut self) {
        let mut last = None;
        for effect in &self.effects {
            let queue = match effect {
                Effect::Moved { queue, .. } | Effect::Claimable(queue) => queue,
            };
            // Mostly the same as the one before.
            if last != Some(queue) && !self.dirty_queues.contains(queue) {
                self.dirty_queues.insert(queue.clone());
            }
            last = Some(queue);
        }
        self.dirty_queues.extend(self.records.shrunk_queues.drain(..));
        for name in std::mem::take(&mut self.dirty_queues) {
            let report = self.report(&name);
            let mut queues = self.shared.queues.write().unwrap_or_else(PoisonError::into_inner);
            match report {
                Some(report) => drop(queues.insert(name, report)),
                None => drop(queues.remove(&name)),
            }
        }
        *self.shared.totals.write().unwrap_or_else(PoisonError::into_inner) = self.totals;
        self.shared.wakeups.publish(&mut self.effects);
        self.announce_deadline();
    }

    pub(crate) fn announce_deadline(&self) {
        let now = self.clock.now();
        // Virtual time does not pass for the disk.
        let room = self.reserve.deadline(now).filter(|_| self.time == ClockMode::Real);
        let next = self.engine.next_deadline(now).into_iter().chain(self.give_back.deadline()).chain(room).min();
        self.shared.wakeups.publish_next_deadline(next);
    }

    pub(crate) fn report(&self, name: &QueueName) -> Option<QueueStats> {
        let queue = Arc::clone(self.engine.queue(name)?);
        let (counts, oldest_scheduled_at) = (self.engine.counts(name), self.engine.oldest_scheduled_at(name));
        Some(QueueStats { queue, counts, oldest_scheduled_at })
    }

    /// After a batch that did not become durable.
    fn handle_commit_error(&mut self, batch: Vec<Request>, trouble: RecordsError) {
        self.effects.clear();
        self.dirty_queues.clear();
        let what = match &trouble {
            RecordsError::Sql(error) => classify(&self.location, error),
            RecordsError::Damaged(_)
            | RecordsError::DamagedWorkflow(_)
            | RecordsError::DamagedPayload(_)
            | RecordsError::NotStorable => DiskErrorKind::Damage,
        };
        let Undone { batch, granted, culprit } = self.undo_grants(batch);
        if what == DiskErrorKind::Broken || !self.roll_back() {
            self.shared.poison(&trouble);
            let error = Arc::new(Failed(trouble.to_string()));
            batch.into_iter().for_each(|request| request.fail(StoreError::Unknown(error.clone())));
            self.fail_parked();
            return;
        }
        if what == DiskErrorKind::Damage
            && let Some(claim) = culprit.and_then(|ticket| self.take_parked(ticket))
        {
            drop(claim.send(Err(trouble.into())));
            return self.serve(batch, &mut || None);
        }
        let error = if what == DiskErrorKind::Full {
            // Room for everything that is not new work; the rest hears that there is none.
            if self.reserve.release() {
                self.give_back.mark_dirty();
                return self.serve(batch, &mut || None);
            }
            StoreError::not_applied(self.reserve.no_space())
        } else {
            trouble.into()
        };
        if granted {
            // The requests may fit without the grants; parked claims are tried again by a turn of their own.
            self.granting.suspended = true;
            self.serve(batch, &mut || None);
            self.granting.suspended = false;
            return;
        }
        if batch.len() == 1 {
            batch.into_iter().for_each(|request| request.fail(error.clone()));
            return;
        }
        // One of them is the culprit: the others need not suffer.
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
