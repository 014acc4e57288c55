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

use longshore_codec::OsRng;
use longshore_core::engine::{self, AdminCommand, Claimed, Effect, Engine, ExecutionContext, Settlement, Ticked};
use longshore_core::id::{JobId, LeaseVersion, QueueName, Seq};
use longshore_core::settle::Outcome;
use longshore_core::submit::DependencyRef;
use longshore_core::time::Timestamp;
use longshore_core::totals::Totals;
use longshore_store::ClaimedJob;

use crate::catalog::Known;
use crate::connection::{Bounds, Link, Order, get, order};
use crate::error::Trouble;
use crate::node::Shared;
use crate::node_cache::Place;
use crate::read_set::{Fetched, Wanted};
use crate::request::{Answered, Request};
use crate::row::Origin;
use crate::working_set::Draft;

use claim_scan::{Claims, Selection};

/// Numbers that one transaction may give; the step of the sequence.
pub(crate) const NUMBERS: u64 = 4_096;
/// How often the rules may ask for something that was not fetched.
const RUNS_MAX: usize = 200;

pub(crate) struct Turn<'a> {
    pub shared: &'a Shared,
    pub link: &'a Link,
    /// Nobody else changes anything meanwhile.
    pub alone: bool,
    /// How long others are waited for who hold what is needed.
    locks: Duration,
    known: Arc<Known>,
    now: Timestamp,
    first_number: Option<u64>,
    fetched: Fetched,
    claims: Claims,
}

/// What a transaction did.
#[derive(Debug)]
pub(crate) struct Done {
    pub answers: Vec<Answered>,
    pub effects: Vec<Effect>,
    /// The earliest timer among what was written.
    pub deadline: Option<Timestamp>,
    /// Some jobs may be archived.
    pub over: bool,
    pub now: Timestamp,
}

/// What one run of the rules came to.
struct Run<'a> {
    engine: Engine,
    draft: Draft<'a>,
    answers: Vec<Answered>,
    effects: Vec<Effect>,
}

impl<'a> Turn<'a> {
    pub(crate) fn new(shared: &'a Shared, link: &'a Link, alone: bool, locks: Duration) -> Self {
        Self {
            shared,
            link,
            alone,
            locks,
            known: shared.known(),
            now: Timestamp::from_millis(0),
            first_number: None,
            fetched: Fetched::default(),
            claims: Claims::default(),
        }
    }

    /// Does all of it, or nothing.
    pub(crate) async fn take(mut self, requests: &[Request]) -> Result<Done, Trouble> {
        self.open(requests).await?;
        for _ in 0..RUNS_MAX {
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
        Err(Trouble::TooMuch)
    }

    fn opening(&self, wants_numbers: bool) -> Order<'a> {
        let locks = i64::try_from(self.locks.as_millis()).unwrap_or(i64::MAX);
        order!(self.shared.sql.open, self.alone, self.shared.lock_key, wants_numbers, locks)
    }

    /// The first trip: time, numbers, and what is sure to be needed.
    async fn open(&mut self, requests: &[Request]) -> Result<(), Trouble> {
        let sql = &self.shared.sql;
        let wants_numbers = requests.iter().any(wants_numbers);
        let mut orders = vec![self.opening(wants_numbers)];
        let rows_wanted = self.rows_of(requests);
        if !rows_wanted.is_empty() {
            orders.push(order!(sql.lock_jobs, rows_wanted));
        }
        let selections = self.claims.first_selections(requests, &self.known);
        let selections: Vec<_> = selections.into_iter().map(|one| self.begin_at(one)).collect();
        orders.extend(selections.iter().map(|selection| selection.order(sql, &[])));
        let mut rows = self.link.travel(&orders, Bounds::Begin).await?.into_iter();
        drop(orders);
        let opened = rows.next().unwrap_or_default();
        let opened = opened.first().ok_or_else(|| Trouble::Damaged("the settings".to_owned()))?;
        let version: i64 = get(opened, 0)?;
        self.now = self.shared.time_of(get(opened, 1)?);
        self.first_number = get::<Option<i64>>(opened, 2)?.map(i64::cast_unsigned);
        if version != self.known.version {
            self.known = self.shared.learn(&self.known, self.link).await?;
            // What was selected went by other settings.
            self.claims = Claims::default();
            let selections = self.claims.first_selections(requests, &self.known);
            let orders: Vec<_> = selections.iter().map(|selection| selection.order(sql, &[])).collect();
            let rows = self.link.travel(&orders, Bounds::Inside).await?;
            for (selection, found) in selections.iter().zip(rows) {
                self.take_in_claims(selection, &found)?;
            }
            let rows_wanted = self.rows_of(requests);
            if !rows_wanted.is_empty() {
                let found = self.link.ask(order!(sql.lock_jobs, rows_wanted)).await?;
                self.take_in(&found)?;
            }
            return self.prepare(requests).await;
        }
        if rows.len() > selections.len() {
            self.take_in(&rows.next().unwrap_or_default())?;
        }
        for (selection, found) in selections.iter().zip(rows) {
            self.take_in_claims(selection, &found)?;
        }
        self.prepare(requests).await
    }

    /// Lines are not looked at from their beginning each time.
    fn begin_at(&self, selection: Selection) -> Selection {
        let line = selection.line();
        selection.from(self.known_place(line))
    }

    fn known_place(&self, line: i32) -> Option<Place> {
        // In virtual time nothing is allowed to take a moment.
        let clock = &self.shared.clock;
        if clock.is_virtual() { None } else { self.shared.believed.from(line, clock.estimate()) }
    }

    /// What else can be told before the rules are asked.
    async fn prepare(&mut self, requests: &[Request]) -> Result<(), Trouble> {
        for request in requests {
            if let Request::Tick(budget, _) = request {
                self.fetch_due(budget.get()).await?;
                self.fetch_errands(budget.get()).await?;
            }
        }
        self.fetch_news_for(requests).await?;
        // Those that are not among the living may be archived.
        let rows = self.rows_of(requests).into_iter().map(|number| Seq(number.cast_unsigned()));
        let rows: BTreeSet<Seq> = rows.filter(|seq| !self.fetched.knows(*seq)).collect();
        if !rows.is_empty() {
            self.fetch(Wanted { rows, ..Wanted::default() }).await?;
        }
        let bounded = self.bounded_queues(requests);
        if bounded.is_empty() { Ok(()) } else { self.fetch(Wanted { counts: bounded, ..Wanted::default() }).await }
    }

    /// Jobs that are named by their ids.
    fn rows_of(&self, requests: &[Request]) -> Vec<i64> {
        let mut rows = BTreeSet::new();
        let mut add = |id: &JobId| {
            if let Ok(number) = i64::try_from(self.known.seal.decrypt(*id).0) {
                rows.insert(number);
            }
        };
        for request in requests {
            match request {
                Request::Settle(settlements, _) => settlements.iter().for_each(|settlement| add(&settlement.id)),
                Request::Extend(extensions, _) => extensions.iter().for_each(|extension| add(&extension.id)),
                Request::Admin(command, _) => job_of(command).iter().for_each(&mut add),
                Request::Submit(request, _) => {
                    request.parent.iter().for_each(|(parent, _)| add(parent));
                    for submission in request.batch.iter().chain(request.finally.as_deref()) {
                        submission
                            .job
                            .after
                            .iter()
                            .chain(&submission.job.after_any)
                            .filter_map(elder)
                            .for_each(&mut add);
                    }
                }
                Request::Claim(..) | Request::Tick(..) => {}
            }
        }
        rows.into_iter().collect()
    }

    /// Queues of which the rules want to know how many jobs they hold.
    fn bounded_queues(&self, requests: &[Request]) -> BTreeSet<QueueName> {
        let mut queues = BTreeSet::new();
        let bounded =
            |name: &QueueName| self.known.queues.get(name).is_some_and(|queue| queue.intake.max_queued.is_some());
        for request in requests {
            match request {
                Request::Submit(request, _) => {
                    let all = request.batch.iter().chain(request.finally.as_deref());
                    queues.extend(all.map(|submission| &submission.queue).filter(|name| bounded(name)).cloned());
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
                Request::Claim(..) | Request::Settle(..) | Request::Extend(..) | Request::Tick(..) => {}
            }
        }
        queues
    }

    /// Asks the rules, over what was fetched. Where that was not enough, says what is missing.
    fn run<'f>(&self, requests: &[Request], fetched: &'f Fetched) -> Result<(Run<'f>, Option<Wanted>), Trouble> {
        let epoch = LeaseVersion::floor(self.known.epoch.max(1).unsigned_abs());
        let lease_floor = LeaseVersion(epoch.0 + (self.link.lease_floor << 32));
        let options = engine::Options { lease_floor, ..self.shared.engine };
        let mut engine = Engine::partial(options, Arc::clone(&self.known.queues), self.first_number.unwrap_or(0));
        let mut draft = Draft::new(fetched, &self.known, self.alone);
        draft.read_all(&self.known.names)?;
        let ticks = requests.iter().any(|request| matches!(request, Request::Tick(..)));
        if ticks || !self.claims.is_empty() {
            admit(&mut engine, &draft, fetched, &fetched.order);
            engine.set_next_seq(self.first_number.unwrap_or(0));
        } else if !fetched.news.is_empty() {
            admit(&mut engine, &draft, fetched, &fetched.news);
            // What it was given is older than the numbers that it may give.
            engine.set_next_seq(self.first_number.unwrap_or(0));
        }
        if ticks {
            fetched.errands.iter().for_each(|workflow| engine.resume_operation(*workflow));
            draft.expect_prunes();
        }
        for (queue, (counts, held)) in &fetched.counts {
            engine.add_counts(queue, counts, *held);
        }
        let mut run = Run { engine, draft, answers: Vec::with_capacity(requests.len()), effects: Vec::new() };
        let mut rng = OsRng::default();
        for request in requests {
            let answered = run.apply(request, self.now, &mut rng, fetched)?;
            run.answers.push(answered);
        }
        let wanted = run.draft.take_wanted();
        let wanted = (!wanted.is_empty()).then_some(wanted);
        if wanted.as_ref().is_some_and(|wanted| wanted.alone) {
            return Err(Trouble::NeedsToBeAlone);
        }
        Ok((run, wanted))
    }

    /// More numbers were given than were taken from the sequence.
    fn missing_numbers(&self, engine: &Engine) -> Option<Wanted> {
        let given = engine.next_number() - self.first_number.unwrap_or(0);
        match self.first_number {
            None if given > 0 => Some(Wanted { numbers: true, ..Wanted::default() }),
            None => None,
            Some(_) if given > NUMBERS => Some(Wanted { numbers: true, ..Wanted::default() }),
            Some(_) => None,
        }
    }
}

/// Whether a request is likely to need numbers for jobs or places in line.
fn wants_numbers(request: &Request) -> bool {
    let ends_well = |settlement: &Settlement| matches!(settlement.outcome, Outcome::Complete { .. });
    match request {
        Request::Submit(..) | Request::Admin(..) | Request::Tick(..) => true,
        Request::Claim(..) | Request::Extend(..) => false,
        Request::Settle(settlements, _) => !settlements.iter().all(ends_well),
    }
}

/// Puts the jobs in order that were fetched.
fn admit(engine: &mut Engine, draft: &Draft<'_>, fetched: &Fetched, which: &[Seq]) {
    for seq in which {
        let (Some(found), Some(job)) = (fetched.rows.get(seq), draft.job(*seq)) else { continue };
        if found.origin != Origin::Jobs {
            continue;
        }
        let outline = job.outline();
        engine.index_job(&outline);
        if found.offered() {
            engine.restore_reclaimable(&outline);
        }
        if let Some(told) = found.told {
            engine.resume_propagation(*seq, Seq(told.cast_unsigned()));
        }
    }
}

impl Run<'_> {
    fn done(self, written: &write::Written, now: Timestamp) -> Done {
        Done {
            deadline: self.engine.has_pending_work().then_some(now).or(written.deadline.map(Timestamp::from_millis)),
            answers: self.answers,
            effects: self.effects,
            over: written.over,
            now,
        }
    }

    fn apply(
        &mut self,
        request: &Request,
        now: Timestamp,
        rng: &mut OsRng,
        fetched: &Fetched,
    ) -> Result<Answered, Trouble> {
        let Self { engine, draft, effects, .. } = self;
        macro_rules! outside {
            () => {
                ExecutionContext { records: &mut *draft, rng: &mut *rng, now, effects: &mut *effects }
            };
        }
        Ok(match request {
            Request::Submit(request, _) => Answered::Submit(engine.submit(request, outside!())?),
            Request::Claim(request, _) => match engine.claim(request, outside!())? {
                Ok(claimed) => Answered::Claim(Ok(with_payloads(claimed, fetched)?)),
                Err(refusal) => Answered::Claim(Err(refusal)),
            },
            Request::Settle(settlements, _) => {
                let verdicts = settlements.iter().map(|settlement| engine.settle(settlement, outside!()));
                Answered::Settle(verdicts.collect::<Result<_, _>>()?)
            }
            Request::Extend(extensions, _) => {
                let verdicts = extensions.iter().map(|extension| engine.extend(extension, outside!()));
                Answered::Extend(verdicts.collect::<Result<_, _>>()?)
            }
            Request::Admin(command, _) => Answered::Admin(engine.admin(command, outside!())?),
            Request::Tick(budget, _) => Answered::Tick(tick(engine, draft, now, budget.get(), rng, effects)?),
        })
    }
}

fn tick(
    engine: &mut Engine,
    draft: &mut Draft<'_>,
    now: Timestamp,
    budget: usize,
    rng: &mut OsRng,
    effects: &mut Vec<Effect>,
) -> Result<Ticked, Trouble> {
    engine.tick(draft, now, budget, rng, effects)
}

fn with_payloads(claimed: Vec<Claimed>, fetched: &Fetched) -> Result<Vec<ClaimedJob>, Trouble> {
    let with_payload = |claimed: Claimed| {
        let payload = fetched.rows.get(&claimed.seq).and_then(|found| found.payload.clone());
        let payload = payload.ok_or_else(|| Trouble::Damaged(format!("the payload of job {}", claimed.seq)))?;
        Ok(ClaimedJob { claimed, payload })
    };
    claimed.into_iter().map(with_payload).collect()
}

/// A job that was there before the batch.
fn elder(reference: &DependencyRef) -> Option<&JobId> {
    match reference {
        DependencyRef::Job(id) => Some(id),
        DependencyRef::Local(_) | DependencyRef::BatchIndex(_) => None,
    }
}

/// The job that a command is about.
fn job_of(command: &AdminCommand) -> Option<JobId> {
    match command {
        AdminCommand::SubmitHeld { id }
        | AdminCommand::Cancel { id, .. }
        | AdminCommand::Requeue { id, .. }
        | AdminCommand::DeadLetter { id, .. }
        | AdminCommand::RunNow { id }
        | AdminCommand::Edit { id, .. }
        | AdminCommand::Delete { id }
        | AdminCommand::ChangeStatus { id, .. } => Some(*id),
        AdminCommand::PutQueue { .. }
        | AdminCommand::PauseQueue { .. }
        | AdminCommand::ResumeQueue { .. }
        | AdminCommand::DeleteQueue { .. }
        | AdminCommand::OpenWorkflow { .. }
        | AdminCommand::CloseWorkflow { .. }
        | AdminCommand::CancelWorkflow { .. }
        | AdminCommand::RetryWorkflow { .. } => None,
    }
}

/// What this transaction adds to the totals of the Ocypod dialect.
fn totals_of(effects: &[Effect]) -> Option<Vec<i64>> {
    let mut totals = Totals::default();
    totals.count(effects);
    let Totals { created, completed, retried, failed, timed_out, cancelled } = totals;
    let all = [created, completed, retried, failed, timed_out, cancelled];
    all.iter().any(|count| *count > 0).then(|| all.iter().map(|count| count.cast_signed()).collect())
}

fn numbers(seqs: impl IntoIterator<Item = Seq>) -> Vec<i64> {
    seqs.into_iter().map(|seq| seq.0.cast_signed()).collect()
}

/// An order that nobody has to wait for an answer of.
type Orders<'a> = Vec<Order<'a>>;
