//! One transaction: what is needed is locked and read, the rules of the core decide over it, and all that changed is written with the commit.

mod claim_scan;
pub(crate) mod fast_path;
pub(crate) mod fetch;
pub(crate) mod job_columns;
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
use longshore_store::ClaimedJob;
use longshore_store::OsRng;

use crate::catalog::Catalog;
use crate::connection::{Connection, StatementCall, TxBoundary, get, stmt};
use crate::error::TxError;
use crate::node::Shared;
use crate::node_cache::ReadyPosition;
use crate::read_set::{MissingReads, ReadSet};
use crate::row::Origin;
use crate::working_set::WorkingSet;
use longshore_store::{Request, Response};

use claim_scan::{ClaimScan, Claims};

/// Numbers that one transaction may give; the step of the sequence.
pub(crate) const SEQ_BLOCK_SIZE: u64 = 4_096;
/// How often the rules may ask for something that was not fetched.
const EVALUATIONS_MAX: usize = 200;

pub(crate) struct Transaction<'a> {
    pub shared: &'a Shared,
    pub link: &'a Connection,
    /// Nobody else changes anything meanwhile.
    pub exclusive: bool,
    /// How long others are waited for who hold what is needed.
    lock_timeout: Duration,
    known: Arc<Catalog>,
    now: Timestamp,
    first_seq: Option<u64>,
    fetched: ReadSet,
    claims: Claims,
}

/// What a transaction did.
#[derive(Debug)]
pub(crate) struct Committed {
    pub answers: Vec<Response>,
    pub effects: Vec<Effect>,
    /// The earliest timer among what was written.
    pub deadline: Option<Timestamp>,
    /// Some jobs may be archived.
    pub archivable: bool,
    pub now: Timestamp,
}

/// What one run of the rules came to.
struct Evaluation<'a> {
    engine: Engine,
    draft: WorkingSet<'a>,
    answers: Vec<Response>,
    effects: Vec<Effect>,
}

impl<'a> Transaction<'a> {
    pub(crate) fn new(shared: &'a Shared, link: &'a Connection, exclusive: bool, lock_timeout: Duration) -> Self {
        Self {
            shared,
            link,
            exclusive,
            lock_timeout,
            known: shared.known(),
            now: Timestamp::from_millis(0),
            first_seq: None,
            fetched: ReadSet::default(),
            claims: Claims::default(),
        }
    }

    /// Does all of it, or nothing.
    pub(crate) async fn execute(mut self, requests: &[Request]) -> Result<Committed, TxError> {
        self.open(requests).await?;
        for _ in 0..EVALUATIONS_MAX {
            let fetched = std::mem::take(&mut self.fetched);
            let (run, wanted) = self.run(requests, &fetched)?;
            let wanted = wanted.or_else(|| self.missing_numbers(&run.engine));
            match wanted {
                None => {
                    let shortages = self.claims.shortages(requests, &run.answers, &self.known);
                    if shortages.is_empty() {
                        return self.write(requests, run, &fetched).await;
                    }
                    drop(run);
                    self.fetched = fetched;
                    self.fetch_more_claims(&shortages).await?;
                }
                Some(wanted) => {
                    drop(run);
                    self.fetched = fetched;
                    self.fetch(wanted).await?;
                }
            }
        }
        Err(TxError::TooLarge)
    }

    fn begin_statement(&self, wants_numbers: bool) -> StatementCall<'a> {
        let locks = i64::try_from(self.lock_timeout.as_millis()).unwrap_or(i64::MAX);
        stmt!(self.shared.sql.open, self.exclusive, self.shared.lock_key, wants_numbers, locks)
    }

    /// The first trip: time, numbers, and what is sure to be needed.
    async fn open(&mut self, requests: &[Request]) -> Result<(), TxError> {
        let sql = &self.shared.sql;
        let wants_numbers = requests.iter().any(wants_numbers);
        let mut statements = vec![self.begin_statement(wants_numbers)];
        let rows_wanted = self.job_seqs_of(requests);
        if !rows_wanted.is_empty() {
            statements.push(stmt!(sql.lock_jobs, rows_wanted));
        }
        let selections = self.claims.first_selections(requests, &self.known);
        let selections: Vec<_> = selections.into_iter().map(|one| self.begin_at(one)).collect();
        statements.extend(selections.iter().map(|selection| selection.order(sql, &[])));
        let mut rows = self.link.pipeline(&statements, TxBoundary::Begin).await?.into_iter();
        drop(statements);
        let opened = rows.next().unwrap_or_default();
        let opened = opened.first().ok_or_else(|| TxError::Damaged("the settings".to_owned()))?;
        let version: i64 = get(opened, 0)?;
        self.now = self.shared.time_of(get(opened, 1)?);
        self.first_seq = get::<Option<i64>>(opened, 2)?.map(i64::cast_unsigned);
        if version != self.known.version {
            self.known = self.shared.refresh_catalog(&self.known, self.link).await?;
            // What was selected went by other settings.
            self.claims = Claims::default();
            let selections = self.claims.first_selections(requests, &self.known);
            let statements: Vec<_> = selections.iter().map(|selection| selection.order(sql, &[])).collect();
            let rows = self.link.pipeline(&statements, TxBoundary::Inside).await?;
            for (selection, found) in selections.iter().zip(rows) {
                self.take_in_claims(selection, &found)?;
            }
            let rows_wanted = self.job_seqs_of(requests);
            if !rows_wanted.is_empty() {
                let found = self.link.query(stmt!(sql.lock_jobs, rows_wanted)).await?;
                self.add_rows(&found)?;
            }
            return self.prepare(requests).await;
        }
        if rows.len() > selections.len() {
            self.add_rows(&rows.next().unwrap_or_default())?;
        }
        for (selection, found) in selections.iter().zip(rows) {
            self.take_in_claims(selection, &found)?;
        }
        self.prepare(requests).await
    }

    /// Lines are not looked at from their beginning each time.
    fn begin_at(&self, selection: ClaimScan) -> ClaimScan {
        let line = selection.line();
        selection.from(self.scan_start(line))
    }

    fn scan_start(&self, line: i32) -> Option<ReadyPosition> {
        // In virtual time nothing is allowed to take a moment.
        let clock = &self.shared.clock;
        if clock.is_virtual() { None } else { self.shared.believed.scan_from(line, clock.estimate()) }
    }

    /// What else can be told before the rules are asked.
    async fn prepare(&mut self, requests: &[Request]) -> Result<(), TxError> {
        for request in requests {
            if let Request::Tick(budget, _) = request {
                self.fetch_due(budget.get()).await?;
                self.fetch_active_operations(budget.get()).await?;
            }
        }
        self.fetch_news_for(requests).await?;
        // Those that are not among the living may be archived.
        let rows = self.job_seqs_of(requests).into_iter().map(|number| Seq(number.cast_unsigned()));
        let rows: BTreeSet<Seq> = rows.filter(|seq| !self.fetched.knows(*seq)).collect();
        if !rows.is_empty() {
            self.fetch(MissingReads { rows, ..MissingReads::default() }).await?;
        }
        let bounded = self.capacity_limited_queues(requests);
        if bounded.is_empty() {
            Ok(())
        } else {
            self.fetch(MissingReads { counts: bounded, ..MissingReads::default() }).await
        }
    }

    /// Jobs that are named by their ids.
    fn job_seqs_of(&self, requests: &[Request]) -> Vec<i64> {
        let mut rows = BTreeSet::new();
        let mut add = |id: &JobId| {
            if let Ok(number) = i64::try_from(self.known.seal.decrypt(*id).0) {
                rows.insert(number);
            }
        };
        for request in requests {
            match request {
                Request::Settle(settlements, _) => settlements.iter().for_each(|settlement| add(&settlement.id)),
                Request::Heartbeat(heartbeats, _) => heartbeats.iter().for_each(|heartbeat| add(&heartbeat.id)),
                Request::Admin(command, _) => command.job().iter().for_each(&mut add),
                Request::Submit(request, _) => {
                    request.parent.iter().for_each(|(parent, _)| add(parent));
                    request.dependencies().filter_map(existing_dependency).for_each(&mut add);
                }
                Request::Claim(..) | Request::Tick(..) => {}
            }
        }
        rows.into_iter().collect()
    }

    /// Queues of which the rules want to know how many jobs they hold.
    fn capacity_limited_queues(&self, requests: &[Request]) -> BTreeSet<QueueName> {
        let mut queues = BTreeSet::new();
        let bounded =
            |name: &QueueName| self.known.queues.get(name).is_some_and(|queue| queue.intake.max_queued.is_some());
        for request in requests {
            match request {
                Request::Submit(request, _) => {
                    let names = request.submissions().map(|submission| &submission.queue);
                    queues.extend(names.filter(|name| bounded(name)).cloned());
                }
                Request::Admin(command, _) => match &**command {
                    AdminCommand::DeleteQueue { queue, .. } => drop(queues.insert(queue.clone())),
                    AdminCommand::SubmitHeld { .. } => {
                        queues.extend(self.known.queues.keys().filter(|name| bounded(name)).cloned());
                    }
                    AdminCommand::PutQueue { .. }
                    | AdminCommand::PauseQueue { .. }
                    | AdminCommand::ResumeQueue { .. }
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
                    | AdminCommand::ChangeStatus { .. } => {}
                },
                Request::Claim(..) | Request::Settle(..) | Request::Heartbeat(..) | Request::Tick(..) => {}
            }
        }
        queues
    }

    /// Asks the rules, over what was fetched. Where that was not enough, says what is missing.
    fn run<'f>(
        &self,
        requests: &[Request],
        fetched: &'f ReadSet,
    ) -> Result<(Evaluation<'f>, Option<MissingReads>), TxError> {
        let epoch = LeaseVersion::floor(self.known.epoch.max(1).unsigned_abs());
        let lease_floor = LeaseVersion(epoch.0 + (self.link.lease_floor << 32));
        let options = longshore_engine::EngineOptions { lease_floor, ..self.shared.engine };
        let mut engine = Engine::partial(options, Arc::clone(&self.known.queues), self.first_seq.unwrap_or(0));
        let mut draft = WorkingSet::new(fetched, &self.known, self.exclusive);
        draft.read_all(&self.known.names)?;
        let ticks = requests.iter().any(|request| matches!(request, Request::Tick(..)));
        if ticks || !self.claims.is_empty() {
            admit(&mut engine, &draft, fetched, &fetched.order);
            engine.set_next_seq(self.first_seq.unwrap_or(0));
        } else if !fetched.pending_propagation.is_empty() {
            admit(&mut engine, &draft, fetched, &fetched.pending_propagation);
            // What it was given is older than the numbers that it may give.
            engine.set_next_seq(self.first_seq.unwrap_or(0));
        }
        if ticks {
            fetched.errands.iter().for_each(|workflow| engine.resume_operation(*workflow));
            draft.expect_prunes();
        }
        for (queue, (counts, held)) in &fetched.counts {
            engine.add_counts(queue, counts, *held);
        }
        let mut run = Evaluation { engine, draft, answers: Vec::with_capacity(requests.len()), effects: Vec::new() };
        let mut rng = OsRng::default();
        for request in requests {
            let answered = run.apply(request, self.now, &mut rng, fetched)?;
            run.answers.push(answered);
        }
        let wanted = run.draft.take_wanted();
        let wanted = (!wanted.is_empty()).then_some(wanted);
        if wanted.as_ref().is_some_and(|wanted| wanted.alone) {
            return Err(TxError::NeedsExclusive);
        }
        Ok((run, wanted))
    }

    /// More numbers were given than were taken from the sequence.
    fn missing_numbers(&self, engine: &Engine) -> Option<MissingReads> {
        let given = engine.next_number() - self.first_seq.unwrap_or(0);
        match self.first_seq {
            None if given > 0 => Some(MissingReads { numbers: true, ..MissingReads::default() }),
            None => None,
            Some(_) if given > SEQ_BLOCK_SIZE => Some(MissingReads { numbers: true, ..MissingReads::default() }),
            Some(_) => None,
        }
    }
}

/// Whether a request is likely to need numbers for jobs or places in line.
fn wants_numbers(request: &Request) -> bool {
    let ends_well = |settlement: &Settlement| matches!(settlement.outcome, Outcome::Complete { .. });
    match request {
        Request::Submit(..) | Request::Admin(..) | Request::Tick(..) => true,
        Request::Claim(..) | Request::Heartbeat(..) => false,
        Request::Settle(settlements, _) => !settlements.iter().all(ends_well),
    }
}

/// Puts the jobs in order that were fetched.
fn admit(engine: &mut Engine, draft: &WorkingSet<'_>, fetched: &ReadSet, which: &[Seq]) {
    for seq in which {
        let (Some(found), Some(job)) = (fetched.rows.get(seq), draft.job(*seq)) else { continue };
        if found.origin != Origin::Jobs {
            continue;
        }
        let outline = job.outline();
        engine.index_job(&outline);
        if found.is_reclaimable() {
            engine.restore_reclaimable(&outline);
        }
        if let Some(told) = found.told {
            engine.resume_propagation(*seq, Seq(told.cast_unsigned()));
        }
    }
}

impl Evaluation<'_> {
    fn done(self, written: &write::Written, now: Timestamp) -> Committed {
        Committed {
            deadline: self.engine.has_pending_work().then_some(now).or(written.deadline.map(Timestamp::from_millis)),
            answers: self.answers,
            effects: self.effects,
            archivable: written.over,
            now,
        }
    }

    fn apply(
        &mut self,
        request: &Request,
        now: Timestamp,
        rng: &mut OsRng,
        fetched: &ReadSet,
    ) -> Result<Response, TxError> {
        let Self { engine, draft, effects, .. } = self;
        macro_rules! outside {
            () => {
                ExecutionContext { records: &mut *draft, rng: &mut *rng, now, effects: &mut *effects }
            };
        }
        Ok(match request {
            Request::Submit(request, _) => Response::Submit(engine.submit(request, outside!())?),
            Request::Claim(request, _) => match engine.claim(request, outside!())? {
                Ok(claimed) => Response::Claim(Ok(with_payloads(claimed, fetched)?)),
                Err(refusal) => Response::Claim(Err(refusal)),
            },
            Request::Settle(settlements, _) => {
                let verdicts = settlements.iter().map(|settlement| engine.settle(settlement, outside!()));
                Response::Settle(verdicts.collect::<Result<_, _>>()?)
            }
            Request::Heartbeat(heartbeats, _) => {
                let verdicts = heartbeats.iter().map(|heartbeat| engine.heartbeat(heartbeat, outside!()));
                Response::Heartbeat(verdicts.collect::<Result<_, _>>()?)
            }
            Request::Admin(command, _) => Response::Admin(engine.admin(command, outside!())?),
            Request::Tick(budget, _) => Response::Tick(tick(engine, draft, now, budget.get(), rng, effects)?),
        })
    }
}

fn tick(
    engine: &mut Engine,
    draft: &mut WorkingSet<'_>,
    now: Timestamp,
    budget: usize,
    rng: &mut OsRng,
    effects: &mut Vec<Effect>,
) -> Result<Ticked, TxError> {
    engine.tick(draft, now, budget, rng, effects)
}

fn with_payloads(claimed: Vec<Claimed>, fetched: &ReadSet) -> Result<Vec<ClaimedJob>, TxError> {
    let with_payload = |claimed: Claimed| {
        let payload = fetched.rows.get(&claimed.seq).and_then(|found| found.payload.clone());
        let payload = payload.ok_or_else(|| TxError::Damaged(format!("the payload of job {}", claimed.seq)))?;
        Ok(ClaimedJob { claimed, payload })
    };
    claimed.into_iter().map(with_payload).collect()
}

/// A job that was there before the batch.
fn existing_dependency(reference: &DependencyRef) -> Option<&JobId> {
    match reference {
        DependencyRef::Job(id) => Some(id),
        DependencyRef::Local(_) | DependencyRef::BatchIndex(_) => None,
    }
}

/// What this transaction adds to the totals of the Ocypod dialect.
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
