//! One transaction: speculative execution with read-set discovery.
//!
//! The transaction locks and reads the rows that its requests name, then runs the rules of the
//! core on them. If the rules need rows that were not read, it reads those and runs the rules
//! again. Once nothing is missing, it writes all changes together with the commit.

mod claim_scan;
mod classify;
pub(crate) mod fast_path;
pub(crate) mod fetch;
pub(crate) mod job_columns;
pub(crate) mod system;
mod workflows;
pub(crate) mod write;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use longshore_core::id::{JobId, LeaseVersion, QueueName, Seq};
use longshore_core::ocypod::totals::Totals;
use longshore_core::settle::Outcome;
use longshore_core::submit::DependencyRef;
use longshore_core::time::Timestamp;
use longshore_engine::{AdminCommand, Claimed, Effect, Engine, ExecutionContext, Settlement, Ticked};
use longshore_store::{ClaimedJob, OsRng, SystemRefusal, SystemWrite};

use crate::catalog::Catalog;
use crate::connection::{Connection, StatementCall, TxBoundary, get, stmt};
use crate::error::TxError;
use crate::node::Node;
use crate::node_cache::{ReadyPosition, ScanTicket};
use crate::read_set::{MissingReads, ReadSet};
use crate::request::{SettleAndClaim, TxRequest, TxResponse};
use crate::row::Origin;
use crate::working_set::WorkingSet;

use claim_scan::{ClaimScan, Claims};
use classify::CommitSummary;
use system::LockedSystem;

/// Sequence numbers of a block: the increment of `seq_blocks`, and the limit of a transaction.
pub(crate) const SEQ_BLOCK_SIZE: u64 = 4_096;
/// How often a transaction runs the rules.
const EVALUATIONS_MAX: usize = 200;

pub(crate) struct Transaction<'a> {
    pub node: &'a Node,
    pub connection: &'a Connection,
    /// Holds the exclusive lock: no other transaction changes anything meanwhile.
    pub exclusive: bool,
    lock_timeout: Duration,
    catalog: Arc<Catalog>,
    now: Timestamp,
    first_seq: Option<u64>,
    read_set: ReadSet,
    claims: Claims,
    /// Issued before the claims scan their queues.
    scan_ticket: Option<ScanTicket>,
    system: LockedSystem,
}

/// A committed transaction.
#[derive(Debug)]
pub(crate) struct Committed {
    pub answers: Vec<TxResponse>,
    pub effects: Vec<Effect>,
    /// The earliest timer among the written rows.
    pub deadline: Option<Timestamp>,
    /// Some of the jobs can be archived.
    pub archivable: bool,
    pub now: Timestamp,
}

/// The result of one run of the rules.
struct Evaluation<'a> {
    engine: Engine,
    working_set: WorkingSet<'a>,
    answers: Vec<TxResponse>,
    effects: Vec<Effect>,
}

impl<'a> Transaction<'a> {
    pub(crate) fn new(node: &'a Node, connection: &'a Connection, exclusive: bool, lock_timeout: Duration) -> Self {
        Self {
            node,
            connection,
            exclusive,
            lock_timeout,
            catalog: node.catalog(),
            now: Timestamp::from_millis(0),
            first_seq: None,
            read_set: ReadSet::default(),
            claims: Claims::default(),
            scan_ticket: None,
            system: LockedSystem::default(),
        }
    }

    /// Commits all requests, or nothing.
    pub(crate) async fn execute(mut self, requests: &[TxRequest]) -> Result<Committed, TxError> {
        self.begin(requests).await?;
        for _ in 0..EVALUATIONS_MAX {
            let read_set = std::mem::take(&mut self.read_set);
            let (evaluation, missing) = self.evaluate(requests, &read_set)?;
            match missing.or_else(|| self.missing_seqs(&evaluation.engine)) {
                None => {
                    let unmet_claims = self.claims.unmet_claims(requests, &evaluation.answers, &self.catalog);
                    if unmet_claims.is_empty() {
                        return self.write(requests, evaluation, &read_set).await;
                    }
                    drop(evaluation);
                    self.read_set = read_set;
                    self.fetch_more_claims(&unmet_claims).await?;
                }
                Some(missing) => {
                    drop(evaluation);
                    self.read_set = read_set;
                    self.fetch(missing).await?;
                }
            }
        }
        Err(TxError::TooLarge)
    }

    fn begin_statement(&self, needs_seqs: bool) -> StatementCall<'a> {
        let lock_ms = i64::try_from(self.lock_timeout.as_millis()).unwrap_or(i64::MAX);
        stmt!(self.node.sql.begin, self.exclusive, self.node.lock_key, needs_seqs, lock_ms)
    }

    /// The first round trip: catalog version, time, sequence numbers, and the rows that the
    /// requests name.
    async fn begin(&mut self, requests: &[TxRequest]) -> Result<(), TxError> {
        let sql = &self.node.sql;
        let mut statements = vec![self.begin_statement(requests.iter().any(needs_seqs))];
        let seqs = self.job_seqs_of(requests);
        if !seqs.is_empty() {
            statements.push(stmt!(sql.lock_jobs, seqs));
        }
        let scans = self.claims.first_scans(requests, &self.catalog);
        if !scans.is_empty() {
            self.scan_ticket = Some(self.node.cache.begin_scan(scans.iter().map(ClaimScan::queue_id)));
        }
        let with_start = |scan: ClaimScan| {
            let start = self.scan_start(scan.queue_id());
            scan.starting_at(start)
        };
        let scans: Vec<_> = scans.into_iter().map(with_start).collect();
        statements.extend(scans.iter().map(|scan| scan.statement(sql)));
        let mut rows = self.connection.pipeline(&statements, TxBoundary::Begin).await?.into_iter();
        drop(statements);
        let settings = rows.next().unwrap_or_default();
        let settings = settings.first().ok_or_else(|| TxError::Damaged("table settings".to_owned()))?;
        let version: i64 = get(settings, 0)?;
        self.now = self.node.sync_clock(get(settings, 1)?);
        self.first_seq = get::<Option<i64>>(settings, 2)?.map(i64::cast_unsigned);
        if version == self.catalog.version {
            if rows.len() > scans.len() {
                self.add_rows(&rows.next().unwrap_or_default())?;
            }
            for (scan, rows) in scans.iter().zip(rows) {
                self.add_claimable(scan, &rows)?;
            }
        } else {
            self.catalog = self.node.refresh_catalog(&self.catalog, self.connection).await?;
            self.repeat_first_reads(requests).await?;
        }
        self.prepare(requests).await
    }

    /// Reads again with the new catalog: the first reads used the settings of the old one.
    async fn repeat_first_reads(&mut self, requests: &[TxRequest]) -> Result<(), TxError> {
        let sql = &self.node.sql;
        self.claims = Claims::default();
        let scans = self.claims.first_scans(requests, &self.catalog);
        let statements: Vec<_> = scans.iter().map(|scan| scan.statement(sql)).collect();
        let rows = self.connection.pipeline(&statements, TxBoundary::Inside).await?;
        for (scan, rows) in scans.iter().zip(rows) {
            self.add_claimable(scan, &rows)?;
        }
        let seqs = self.job_seqs_of(requests);
        if seqs.is_empty() {
            return Ok(());
        }
        let rows = self.connection.query(stmt!(sql.lock_jobs, seqs)).await?;
        self.add_rows(&rows)
    }

    fn scan_start(&self, queue_id: i32) -> Option<ReadyPosition> {
        // Virtual time stands still between two calls, so nothing would trigger a full scan.
        let clock = &self.node.clock;
        if clock.is_virtual() { None } else { self.node.cache.scan_start(queue_id, clock.estimate()) }
    }

    /// Reads what the rules are certain to need.
    async fn prepare(&mut self, requests: &[TxRequest]) -> Result<(), TxError> {
        self.lock_system(requests).await?;
        for request in requests {
            if let TxRequest::Tick(budget, _) = request {
                self.fetch_due(budget.get()).await?;
                self.fetch_active_operations(budget.get()).await?;
            }
        }
        self.fetch_propagation_for(requests).await?;
        // Jobs that are not in `jobs` may be archived.
        let rows = self.job_seqs_of(requests).into_iter().map(|seq| Seq(seq.cast_unsigned()));
        let rows: BTreeSet<Seq> = rows.filter(|seq| !self.read_set.has_read(*seq)).collect();
        if !rows.is_empty() {
            self.fetch(MissingReads { rows, ..MissingReads::default() }).await?;
        }
        let limited = self.capacity_limited_queues(requests);
        if limited.is_empty() {
            Ok(())
        } else {
            self.fetch(MissingReads { counts: limited, ..MissingReads::default() }).await
        }
    }

    /// Sequence numbers of the jobs that requests name by id.
    fn job_seqs_of(&self, requests: &[TxRequest]) -> Vec<i64> {
        let mut seqs = BTreeSet::new();
        let mut add = |id: &JobId| {
            if let Ok(seq) = i64::try_from(self.catalog.id_cipher.decrypt(*id).0) {
                seqs.insert(seq);
            }
        };
        for request in requests {
            match request {
                TxRequest::Settle(..) | TxRequest::SettleAndClaim(..) => {
                    request.settlements().iter().for_each(|settlement| add(&settlement.id));
                }
                TxRequest::Heartbeat(heartbeats, _) => heartbeats.iter().for_each(|heartbeat| add(&heartbeat.id)),
                TxRequest::Admin(command, _) => command.job().iter().for_each(&mut add),
                TxRequest::System(write, _) => {
                    let jobs = write.submit.iter();
                    jobs.flat_map(|jobs| jobs.dependencies().filter_map(existing_dependency)).for_each(&mut add);
                }
                TxRequest::Submit(request, _) => {
                    request.parent.iter().for_each(|(parent, _)| add(parent));
                    request.dependencies().filter_map(existing_dependency).for_each(&mut add);
                }
                TxRequest::Claim(..) | TxRequest::Tick(..) => {}
            }
        }
        seqs.into_iter().collect()
    }

    /// Queues whose job counts the rules need.
    fn capacity_limited_queues(&self, requests: &[TxRequest]) -> BTreeSet<QueueName> {
        let mut queues = BTreeSet::new();
        let limited =
            |name: &QueueName| self.catalog.queues.get(name).is_some_and(|queue| queue.admission.max_queued.is_some());
        for request in requests {
            match request {
                TxRequest::Submit(request, _) => {
                    let names = request.submissions().map(|submission| &submission.queue);
                    queues.extend(names.filter(|name| limited(name)).cloned());
                }
                TxRequest::System(write, _) => {
                    let submissions = write.submit.iter().flat_map(|jobs| jobs.submissions());
                    queues.extend(submissions.map(|job| &job.queue).filter(|name| limited(name)).cloned());
                }
                TxRequest::Admin(command, _) => match &**command {
                    AdminCommand::DeleteQueue { queue, .. } => drop(queues.insert(queue.clone())),
                    AdminCommand::SubmitHeld { .. } => {
                        queues.extend(self.catalog.queues.keys().filter(|name| limited(name)).cloned());
                    }
                    AdminCommand::PutQueue { .. }
                    | AdminCommand::PauseQueue { .. }
                    | AdminCommand::ResumeQueue { .. }
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
                    | AdminCommand::ChangeStatus { .. } => {}
                },
                TxRequest::Claim(..) | TxRequest::Settle(..) | TxRequest::SettleAndClaim(..) => {}
                TxRequest::Heartbeat(..) | TxRequest::Tick(..) => {}
            }
        }
        queues
    }

    /// Runs the rules on the read set. Returns what the rules looked for and was not read.
    fn evaluate<'f>(
        &self,
        requests: &[TxRequest],
        read_set: &'f ReadSet,
    ) -> Result<(Evaluation<'f>, Option<MissingReads>), TxError> {
        let epoch = LeaseVersion::floor(self.catalog.epoch.max(1).unsigned_abs());
        let lease_floor = LeaseVersion(epoch.0 + (self.connection.lease_floor << 32));
        let options = longshore_engine::EngineOptions { lease_floor, ..self.node.engine };
        let mut engine = Engine::partial(options, Arc::clone(&self.catalog.queues), self.first_seq.unwrap_or(0));
        engine.set_subscriptions(Arc::clone(&self.catalog.subscriptions));
        let mut working_set = WorkingSet::new(read_set, &self.catalog, self.exclusive);
        working_set.decode_all(&self.catalog.names)?;
        let ticks = requests.iter().any(|request| matches!(request, TxRequest::Tick(..)));
        if ticks || !self.claims.is_empty() {
            index_jobs(&mut engine, &working_set, read_set, &read_set.order);
            engine.set_next_seq(self.first_seq.unwrap_or(0));
        } else if !read_set.pending_propagation.is_empty() {
            index_jobs(&mut engine, &working_set, read_set, &read_set.pending_propagation);
            // Indexing has raised it above the numbers of this transaction.
            engine.set_next_seq(self.first_seq.unwrap_or(0));
        }
        if ticks {
            read_set.operations.iter().for_each(|workflow| engine.resume_operation(*workflow));
            working_set.collect_prunes();
        }
        for (queue, (counts, held)) in &read_set.counts {
            engine.add_counts(queue, counts, *held);
        }
        let mut evaluation =
            Evaluation { engine, working_set, answers: Vec::with_capacity(requests.len()), effects: Vec::new() };
        let mut rng = OsRng::default();
        for request in requests {
            let answer = match request {
                TxRequest::System(write, _) => self.write_system(&mut evaluation, write, &mut rng)?,
                TxRequest::Submit(..)
                | TxRequest::Claim(..)
                | TxRequest::Settle(..)
                | TxRequest::SettleAndClaim(..)
                | TxRequest::Heartbeat(..)
                | TxRequest::Admin(..)
                | TxRequest::Tick(..) => evaluation.apply(request, self.now, &mut rng, read_set)?,
            };
            evaluation.answers.push(answer);
        }
        let missing = evaluation.working_set.take_missing();
        let missing = (!missing.is_empty()).then_some(missing);
        if missing.as_ref().is_some_and(|missing| missing.exclusive_lock) {
            return Err(TxError::NeedsExclusive);
        }
        Ok((evaluation, missing))
    }

    /// Checks what a write expects, submits its jobs, then changes its records.
    fn write_system(
        &self,
        evaluation: &mut Evaluation<'_>,
        write: &SystemWrite,
        rng: &mut OsRng,
    ) -> Result<TxResponse, TxError> {
        let Evaluation { engine, working_set, effects, .. } = evaluation;
        if let Some(index) = working_set.system.find_conflict(write, &self.system) {
            return Ok(TxResponse::System(system::conflict(index)));
        }
        let mut submitted = Vec::new();
        if let Some(request) = &write.submit {
            let context = ExecutionContext { records: &mut *working_set, rng, now: self.now, effects };
            match engine.submit(request, context)? {
                Ok(jobs) => submitted = jobs,
                Err(refusal) => return Ok(TxResponse::System(Err(SystemRefusal::Submission(refusal)))),
            }
        }
        Ok(TxResponse::System(Ok(working_set.system.add(write, submitted, &self.system))))
    }

    /// Whether the rules have assigned more sequence numbers than the transaction has allocated.
    fn missing_seqs(&self, engine: &Engine) -> Option<MissingReads> {
        let assigned = engine.next_seq() - self.first_seq.unwrap_or(0);
        match self.first_seq {
            None if assigned > 0 => Some(MissingReads { seqs: true, ..MissingReads::default() }),
            None => None,
            Some(_) if assigned > SEQ_BLOCK_SIZE => Some(MissingReads { seqs: true, ..MissingReads::default() }),
            Some(_) => None,
        }
    }
}

/// Whether a request is likely to need sequence numbers, for jobs or ready positions.
fn needs_seqs(request: &TxRequest) -> bool {
    let completes = |settlement: &Settlement| matches!(settlement.outcome, Outcome::Complete { .. });
    match request {
        TxRequest::Submit(..) | TxRequest::Admin(..) | TxRequest::Tick(..) => true,
        TxRequest::System(write, _) => write.submit.is_some(),
        TxRequest::Claim(..) | TxRequest::Heartbeat(..) => false,
        TxRequest::Settle(..) | TxRequest::SettleAndClaim(..) => !request.settlements().iter().all(completes),
    }
}

/// Adds jobs of the read set to the indexes of the engine.
fn index_jobs(engine: &mut Engine, working_set: &WorkingSet<'_>, read_set: &ReadSet, seqs: &[Seq]) {
    for seq in seqs {
        let (Some(row), Some(job)) = (read_set.rows.get(seq), working_set.job(*seq)) else { continue };
        if row.origin != Origin::Jobs {
            continue;
        }
        let outline = job.outline();
        engine.index_job(&outline);
        if row.is_reclaimable() {
            engine.restore_reclaimable(&outline);
        }
        if let Some(cursor) = row.propagation_cursor {
            engine.resume_propagation(*seq, Seq(cursor.cast_unsigned()));
        }
    }
}

impl Evaluation<'_> {
    fn into_committed(self, summary: &CommitSummary, now: Timestamp) -> Committed {
        Committed {
            deadline: self.engine.has_pending_work().then_some(now).or(summary.deadline.map(Timestamp::from_millis)),
            answers: self.answers,
            effects: self.effects,
            archivable: summary.archivable,
            now,
        }
    }

    fn apply(
        &mut self,
        request: &TxRequest,
        now: Timestamp,
        rng: &mut OsRng,
        read_set: &ReadSet,
    ) -> Result<TxResponse, TxError> {
        let Self { engine, working_set, effects, .. } = self;
        macro_rules! context {
            () => {
                ExecutionContext { records: &mut *working_set, rng: &mut *rng, now, effects: &mut *effects }
            };
        }
        Ok(match request {
            TxRequest::Submit(request, _) => TxResponse::Submit(engine.submit(request, context!())?),
            TxRequest::Claim(request, _) => match engine.claim(request, context!())? {
                Ok(claimed) => TxResponse::Claim(Ok(attach_payloads(claimed, read_set, working_set)?)),
                Err(refusal) => TxResponse::Claim(Err(refusal)),
            },
            TxRequest::Settle(settlements, _) => {
                let verdicts = settlements.iter().map(|settlement| engine.settle(settlement, context!()));
                TxResponse::Settle(verdicts.collect::<Result<_, _>>()?)
            }
            TxRequest::SettleAndClaim(SettleAndClaim { settlements, claim }, _) => {
                if let Some(Err(refusal)) = claim.as_ref().map(|claim| engine.check_claim(claim)) {
                    return Ok(TxResponse::SettleAndClaim(Err(refusal)));
                }
                let verdicts = settlements.iter().map(|settlement| engine.settle(settlement, context!()));
                let verdicts = verdicts.collect::<Result<_, _>>()?;
                let claimed = match claim {
                    Some(claim) => engine.claim(claim, context!())?,
                    None => Ok(Vec::new()),
                };
                match claimed {
                    Ok(claimed) => {
                        TxResponse::SettleAndClaim(Ok((verdicts, attach_payloads(claimed, read_set, working_set)?)))
                    }
                    Err(refusal) => TxResponse::SettleAndClaim(Err(refusal)),
                }
            }
            TxRequest::Heartbeat(heartbeats, _) => {
                let verdicts = heartbeats.iter().map(|heartbeat| engine.heartbeat(heartbeat, context!()));
                TxResponse::Heartbeat(verdicts.collect::<Result<_, _>>()?)
            }
            TxRequest::Admin(command, _) => TxResponse::Admin(engine.admin(command, context!())?),
            TxRequest::Tick(budget, _) => TxResponse::Tick(tick(engine, working_set, now, budget.get(), rng, effects)?),
            TxRequest::System(..) => return Err(TxError::Damaged("request for system records".to_owned())),
        })
    }
}

fn tick(
    engine: &mut Engine,
    working_set: &mut WorkingSet<'_>,
    now: Timestamp,
    budget: usize,
    rng: &mut OsRng,
    effects: &mut Vec<Effect>,
) -> Result<Ticked, TxError> {
    engine.tick(working_set, now, budget, rng, effects)
}

/// Adds the payloads. A job that became ready in this transaction was read without its payload:
/// that payload is recorded as missing, and the evaluation is repeated.
fn attach_payloads(
    claimed: Vec<Claimed>,
    read_set: &ReadSet,
    working_set: &WorkingSet<'_>,
) -> Result<Vec<ClaimedJob>, TxError> {
    let mut jobs = Vec::with_capacity(claimed.len());
    for claimed in claimed {
        let row = read_set.rows.get(&claimed.seq);
        let row = row.ok_or_else(|| TxError::Damaged(format!("payload of job {}", claimed.seq)))?;
        match &row.payload {
            Some(payload) => jobs.push(ClaimedJob { claimed, payload: payload.clone() }),
            None => working_set.add_missing_payload(claimed.seq),
        }
    }
    Ok(jobs)
}

/// A dependency on a job that is not part of the batch.
fn existing_dependency(reference: &DependencyRef) -> Option<&JobId> {
    match reference {
        DependencyRef::Job(id) => Some(id),
        DependencyRef::Local(_) | DependencyRef::BatchIndex(_) => None,
    }
}

/// Deltas of the totals of the Ocypod API.
fn totals_of(effects: &[Effect]) -> Option<Vec<i64>> {
    let mut totals = Totals::default();
    totals.count(effects.iter().filter_map(Effect::transition));
    let Totals { created, completed, retried, failed, timed_out, cancelled } = totals;
    let all = [created, completed, retried, failed, timed_out, cancelled];
    all.iter().any(|count| *count > 0).then(|| all.iter().map(|count| count.cast_signed()).collect())
}

fn numbers(seqs: impl IntoIterator<Item = Seq>) -> Vec<i64> {
    seqs.into_iter().map(|seq| seq.0.cast_signed()).collect()
}
