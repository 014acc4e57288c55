//! The store as a token sees it: queues outside of its queues do not exist.
//!
//! Every route of a request with a token works on this layer, so a new route is scoped without a
//! check of its own. System records pass: the routes that read them check their queues.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use longshore_core::Timestamp;
use longshore_core::access::QueueScope;
use longshore_core::heartbeat::LeaseRenewal;
use longshore_core::id::{JobId, QueueName, Seq, WorkflowId};
use longshore_core::job::Job;
use longshore_core::limits::BATCH_ITEMS_MAX;
use longshore_core::ocypod::totals::Totals;
use longshore_core::refusal::Refusal;
use longshore_core::state::StateKind;
use longshore_core::submit::{DependencyRef, Payload};
use longshore_core::workflow::Workflow;
use longshore_engine::{
    AdminCommand, AdminResponse, BatchRefusal, ClaimRequest, Heartbeat, Settlement, SubmitRequest, Submitted,
    WorkflowTarget,
};
use longshore_store::{
    Grant, JobFilter, JobQuery, JobRef, MemberQuery, Page, Park, QueuePosition, QueueStats, ReportedWorker,
    SettledGrant, Store, StoreError, StoreFuture, StoreLayer, WorkflowPage, WorkflowQuery,
};

use super::known_queues::{KnownQueues, MemberQueues};
use super::workflow_scope;

/// Queues that a listing is merged from. A token with more queues, or with a prefix, reads pages of
/// all jobs and drops foreign ones.
const MERGED_QUEUES_MAX: usize = 16;
/// Pages that such a listing reads for one of its own.
const PAGES_MAX: usize = 20;

#[derive(Debug)]
pub(crate) struct ScopedStore {
    store: Arc<dyn Store>,
    scope: QueueScope,
    known: Arc<KnownQueues>,
    /// Whether a claim of a missing queue waits for it to be created.
    auto_queues: bool,
}

impl ScopedStore {
    pub(crate) fn new(store: Arc<dyn Store>, scope: QueueScope, known: Arc<KnownQueues>, auto_queues: bool) -> Self {
        Self { store, scope, known, auto_queues }
    }

    /// Returns for each job whether it exists in a queue of the token.
    async fn are_visible(&self, ids: &[JobId]) -> Result<Vec<bool>, StoreError> {
        let mut queues = self.known.jobs(ids);
        let missing: Vec<JobId> =
            ids.iter().zip(&queues).filter(|(_, queue)| queue.is_none()).map(|(id, _)| *id).collect();
        if !missing.is_empty() {
            let jobs = self.store.get(missing.iter().map(|id| JobRef::Id(*id)).collect()).await?;
            let found = missing.into_iter().zip(jobs);
            let found: HashMap<JobId, QueueName> =
                found.filter_map(|(id, job)| Some((id, job?.queue.clone()))).collect();
            self.known.add_jobs(found.iter().map(|(id, queue)| (*id, queue)));
            for (id, queue) in ids.iter().zip(&mut queues).filter(|(_, queue)| queue.is_none()) {
                *queue = found.get(id).cloned();
            }
        }
        Ok(queues.iter().map(|queue| queue.as_ref().is_some_and(|queue| self.scope.covers(queue))).collect())
    }

    async fn is_visible(&self, id: JobId) -> Result<bool, StoreError> {
        Ok(self.are_visible(&[id]).await?.first().copied().unwrap_or(false))
    }

    /// Whether all members of the workflow are in queues of the token. Without members, whether its
    /// creator was confined to queues of the token.
    ///
    /// Only members that are new since the last call are read, unless a node has added one with a
    /// lower sequence number: each node of a fleet has numbers of its own.
    async fn is_workflow_visible(&self, id: WorkflowId) -> Result<bool, StoreError> {
        let Some(workflow) = self.store.workflow(id).await? else { return Ok(true) };
        let mut known = self.known.workflow(id);
        if known.members_added != workflow.members_added {
            let expected = workflow.members_added.saturating_sub(known.members_added);
            if self.read_members(id, &mut known).await? != expected && known.members_added > 0 {
                known = MemberQueues::default();
                self.read_members(id, &mut known).await?;
            }
            known.members_added = workflow.members_added;
            self.known.set_workflow(id, known.clone());
        }
        if known.queues.is_empty() {
            return Ok(workflow_scope::read(&*self.store, id).await?.is_some_and(|scope| self.scope.includes(&scope)));
        }
        Ok(known.queues.iter().all(|queue| self.scope.covers(queue)))
    }

    /// Reads the members that follow the known ones. Returns how many there are.
    async fn read_members(&self, workflow: WorkflowId, known: &mut MemberQueues) -> Result<u64, StoreError> {
        let mut read = 0;
        loop {
            let query = MemberQuery { workflow, limit: BATCH_ITEMS_MAX, after: known.after };
            let page = self.store.members(query).await?;
            read += page.jobs.len() as u64;
            known.queues.extend(page.jobs.iter().map(|job| job.queue.clone()));
            known.after = page.jobs.last().map_or(known.after, |job| job.seq);
            match page.next {
                Some(next) => known.after = next,
                None => return Ok(read),
            }
        }
    }

    /// Returns the refusal of a submission that names a foreign queue, job or workflow.
    async fn refusal_of(&self, request: &SubmitRequest) -> Result<Option<BatchRefusal>, StoreError> {
        if let Some((parent, _)) = request.parent
            && !self.is_visible(parent).await?
        {
            return Ok(Some(Refusal::JobNotFound.into()));
        }
        if let Some(WorkflowTarget::Open(workflow)) = request.joining
            && !self.is_workflow_visible(workflow).await?
        {
            return Ok(Some(Refusal::WorkflowNotFound.into()));
        }
        let hidden = self.hidden_dependencies(request).await?;
        let mut is_foreign = false;
        let mut errors = Vec::new();
        let items = request.batch.iter().chain(request.finally.as_deref());
        for (index, item) in items.enumerate() {
            let refusal = match item {
                Err(invalid) => Some(invalid.refusal.clone()),
                Ok(submission) if !self.scope.covers(&submission.queue) => {
                    is_foreign = true;
                    Some(Refusal::QueueNotFound)
                }
                Ok(submission) => {
                    let first = first_hidden("after", &submission.job.after, &hidden)
                        .or_else(|| first_hidden("after_any", &submission.job.after_any, &hidden));
                    is_foreign |= first.is_some();
                    first
                }
            };
            errors.extend(refusal.map(|refusal| (index, refusal)));
        }
        let first = errors.first().map(|(_, first)| first.clone()).filter(|_| is_foreign);
        Ok(first.map(|first| BatchRefusal { first, errors }))
    }

    async fn hidden_dependencies(&self, request: &SubmitRequest) -> Result<BTreeSet<JobId>, StoreError> {
        let ids: BTreeSet<JobId> = request.dependencies().filter_map(job_of).collect();
        let ids = Vec::from_iter(ids);
        let mut hidden = BTreeSet::new();
        for slice in ids.chunks(BATCH_ITEMS_MAX) {
            let visible = self.are_visible(slice).await?;
            hidden.extend(slice.iter().zip(visible).filter(|(_, visible)| !visible).map(|(id, _)| *id));
        }
        Ok(hidden)
    }

    /// Splits off the items whose jobs are hidden. Returns the others, and which ones they are.
    async fn split<T>(&self, items: Vec<T>, id: impl Fn(&T) -> JobId) -> Result<(Vec<T>, Vec<bool>), StoreError> {
        let ids: Vec<JobId> = items.iter().map(id).collect();
        let visible = self.are_visible(&ids).await?;
        let kept = items.into_iter().zip(&visible).filter(|(_, visible)| **visible).map(|(item, _)| item).collect();
        Ok((kept, visible))
    }

    /// Removes foreign queues from a claim, as if they were missing.
    fn restrict(&self, request: &mut ClaimRequest) -> Result<(), Refusal> {
        let named = request.queues.len();
        request.queues.retain(|queue| self.scope.covers(queue));
        if request.queues.len() < named && !self.auto_queues { Err(Refusal::QueueNotFound) } else { Ok(()) }
    }

    fn remember(&self, grant: &Grant) {
        self.known.add_jobs(grant.jobs().iter().map(|job| (job.claimed.id, &job.claimed.queue)));
    }

    /// Lists the jobs of some queues, merged by sequence number.
    async fn list_merged(&self, query: JobQuery, queues: Vec<QueueName>) -> Result<Page, StoreError> {
        let (mut jobs, mut floor) = (Vec::new(), None);
        for queue in queues {
            let filter = JobFilter { queue: Some(queue), ..query.filter.clone() };
            let page = self.store.list(JobQuery { filter, ..query.clone() }).await?;
            jobs.extend(page.jobs);
            // Below its cursor a queue may have jobs that were not read.
            floor = floor.max(page.next);
        }
        jobs.retain(|job: &Arc<Job>| floor.is_none_or(|floor| job.seq >= floor));
        jobs.sort_by_key(|job| Reverse(job.seq));
        if jobs.len() > query.limit {
            jobs.truncate(query.limit);
            floor = jobs.last().map(|job| job.seq);
        }
        Ok(Page { jobs, next: floor })
    }

    /// Lists all jobs and drops foreign ones. The work is bounded, so a page may be short.
    async fn list_filtered(&self, mut query: JobQuery) -> Result<Page, StoreError> {
        let (mut jobs, limit) = (Vec::new(), query.limit);
        for _ in 0..PAGES_MAX {
            let page = self.store.list(query.clone()).await?;
            for job in page.jobs.into_iter().filter(|job| self.scope.covers(&job.queue)) {
                if jobs.len() == limit {
                    let next = jobs.last().map(|last: &Arc<Job>| last.seq);
                    return Ok(Page { jobs, next });
                }
                jobs.push(job);
            }
            query.before = page.next;
            if page.next.is_none() {
                return Ok(Page { jobs, next: None });
            }
            if jobs.len() == limit {
                break;
            }
        }
        Ok(Page { jobs, next: query.before })
    }
}

/// Refuses a hidden dependency as if it did not exist.
fn first_hidden(list: &str, given: &[DependencyRef], hidden: &BTreeSet<JobId>) -> Option<Refusal> {
    let is_hidden = |dependency: &&DependencyRef| job_of(dependency).is_some_and(|id| hidden.contains(&id));
    // The form of a workflow gives dependencies by their number in the batch.
    let named = given.iter().filter(|dependency| !matches!(dependency, DependencyRef::BatchIndex(_)));
    let (position, first) = named.enumerate().find(|(_, dependency)| is_hidden(dependency))?;
    let name = job_of(first)?.to_string();
    Some(Refusal::DependencyUnknown { field: format!("{list}[{position}]"), name })
}

fn job_of(dependency: &DependencyRef) -> Option<JobId> {
    match dependency {
        DependencyRef::Job(id) => Some(*id),
        DependencyRef::Local(_) | DependencyRef::BatchIndex(_) => None,
    }
}

/// Puts the verdicts on visible items at their places; hidden ones do not exist.
fn merge<T>(visible: Vec<bool>, verdicts: Vec<Result<T, Refusal>>) -> Vec<Result<T, Refusal>> {
    let mut verdicts = verdicts.into_iter();
    let missing = || Err(Refusal::JobNotFound);
    visible
        .into_iter()
        .map(|visible| if visible { verdicts.next().unwrap_or_else(missing) } else { missing() })
        .collect()
}

impl StoreLayer for ScopedStore {
    fn inner(&self) -> &dyn Store {
        &*self.store
    }

    fn submit(&self, request: SubmitRequest) -> StoreFuture<'_, Result<Vec<Submitted>, BatchRefusal>> {
        Box::pin(async move {
            match self.refusal_of(&request).await? {
                Some(refusal) => Ok(Err(refusal)),
                None => self.store.submit(request).await,
            }
        })
    }

    fn claim_or_park(&self, mut request: ClaimRequest, park: Park) -> StoreFuture<'_, Result<Grant, Refusal>> {
        Box::pin(async move {
            if let Err(refusal) = self.restrict(&mut request) {
                return Ok(Err(refusal));
            }
            if request.queues.is_empty() {
                if let Park::Until(end) = park {
                    end.await;
                }
                return Ok(Ok(Grant::delivered(Vec::new())));
            }
            let grant = self.store.claim_or_park(request, park).await?;
            grant.iter().for_each(|grant| self.remember(grant));
            Ok(grant)
        })
    }

    fn settle(&self, settlements: Vec<Settlement>) -> StoreFuture<'_, Vec<Result<StateKind, Refusal>>> {
        Box::pin(async move {
            let (kept, visible) = self.split(settlements, |settlement| settlement.id).await?;
            let verdicts = if kept.is_empty() { Vec::new() } else { self.store.settle(kept).await? };
            Ok(merge(visible, verdicts))
        })
    }

    fn settle_and_claim(
        &self,
        settlements: Vec<Settlement>,
        mut request: ClaimRequest,
    ) -> StoreFuture<'_, Result<SettledGrant, Refusal>> {
        Box::pin(async move {
            if let Err(refusal) = self.restrict(&mut request) {
                return Ok(Err(refusal));
            }
            if request.queues.is_empty() {
                let verdicts = StoreLayer::settle(self, settlements).await?;
                return Ok(Ok(SettledGrant { verdicts, grant: Grant::delivered(Vec::new()) }));
            }
            let (kept, visible) = self.split(settlements, |settlement| settlement.id).await?;
            let settled = self.store.settle_and_claim(kept, request).await?;
            Ok(settled.map(|SettledGrant { verdicts, grant }| {
                self.remember(&grant);
                SettledGrant { verdicts: merge(visible, verdicts), grant }
            }))
        })
    }

    fn heartbeat(&self, heartbeats: Vec<Heartbeat>) -> StoreFuture<'_, Vec<Result<LeaseRenewal, Refusal>>> {
        Box::pin(async move {
            let (kept, visible) = self.split(heartbeats, |heartbeat| heartbeat.id).await?;
            let verdicts = if kept.is_empty() { Vec::new() } else { self.store.heartbeat(kept).await? };
            Ok(merge(visible, verdicts))
        })
    }

    fn admin(&self, command: AdminCommand) -> StoreFuture<'_, Result<AdminResponse, Refusal>> {
        Box::pin(async move {
            let opens_workflow = matches!(command, AdminCommand::OpenWorkflow { .. });
            let refusal = match &command {
                AdminCommand::PutQueue { queue, .. }
                | AdminCommand::PauseQueue { queue }
                | AdminCommand::ResumeQueue { queue }
                | AdminCommand::DeleteQueue { queue, .. } => {
                    (!self.scope.covers(queue)).then_some(Refusal::QueueNotFound)
                }
                AdminCommand::SubmitHeld { id }
                | AdminCommand::Cancel { id, .. }
                | AdminCommand::Requeue { id, .. }
                | AdminCommand::TakeBack { id, .. }
                | AdminCommand::DeadLetter { id, .. }
                | AdminCommand::RunNow { id }
                | AdminCommand::Edit { id, .. }
                | AdminCommand::Delete { id }
                | AdminCommand::ChangeStatus { id, .. } => {
                    (!self.is_visible(*id).await?).then_some(Refusal::JobNotFound)
                }
                AdminCommand::OpenWorkflow { .. } => None,
                AdminCommand::CloseWorkflow { id }
                | AdminCommand::CancelWorkflow { id, .. }
                | AdminCommand::RetryWorkflow { id } => {
                    (!self.is_workflow_visible(*id).await?).then_some(Refusal::WorkflowNotFound)
                }
            };
            match refusal {
                Some(refusal) => Ok(Err(refusal)),
                None => {
                    let done = self.store.admin(command).await?;
                    if let Ok(AdminResponse::Workflow { id, .. }) = &done
                        && opens_workflow
                    {
                        workflow_scope::write(&*self.store, *id, &self.scope).await?;
                    }
                    Ok(done)
                }
            }
        })
    }

    fn get(&self, jobs: Vec<JobRef>) -> StoreFuture<'_, Vec<Option<Arc<Job>>>> {
        Box::pin(async move {
            let jobs = self.store.get(jobs).await?;
            Ok(jobs.into_iter().map(|job| job.filter(|job| self.scope.covers(&job.queue))).collect())
        })
    }

    fn payloads(&self, jobs: Vec<Seq>) -> StoreFuture<'_, Vec<Option<Payload>>> {
        Box::pin(async move {
            let visible = StoreLayer::get(self, jobs.iter().map(|seq| JobRef::Seq(*seq)).collect()).await?;
            let payloads = self.store.payloads(jobs).await?;
            Ok(payloads.into_iter().zip(visible).map(|(payload, job)| payload.filter(|_| job.is_some())).collect())
        })
    }

    fn list(&self, query: JobQuery) -> StoreFuture<'_, Page> {
        Box::pin(async move {
            match &query.filter.queue {
                Some(queue) if self.scope.covers(queue) => self.store.list(query).await,
                Some(_) => Ok(Page { jobs: Vec::new(), next: None }),
                None => {
                    let names = self.scope.exact_names().filter(|names| names.len() <= MERGED_QUEUES_MAX);
                    match names {
                        Some(names) => {
                            let names: BTreeSet<QueueName> = names.into_iter().cloned().collect();
                            self.list_merged(query, Vec::from_iter(names)).await
                        }
                        None => self.list_filtered(query).await,
                    }
                }
            }
        })
    }

    fn count_ahead(&self, position: QueuePosition) -> StoreFuture<'_, u64> {
        if !self.scope.covers(&position.queue) {
            return Box::pin(async { Ok(0) });
        }
        self.store.count_ahead(position)
    }

    fn queue(&self, name: QueueName) -> StoreFuture<'_, Option<QueueStats>> {
        if !self.scope.covers(&name) {
            return Box::pin(async { Ok(None) });
        }
        self.store.queue(name)
    }

    fn queues(&self) -> StoreFuture<'_, Vec<QueueStats>> {
        Box::pin(async move {
            let mut queues = self.store.queues().await?;
            queues.retain(|report| self.scope.covers(&report.queue.name));
            Ok(queues)
        })
    }

    /// The counters are those of all queues: a token with some queues sees none.
    fn ocypod_totals(&self) -> StoreFuture<'_, Totals> {
        Box::pin(async { Ok(Totals::default()) })
    }

    fn workflow(&self, id: WorkflowId) -> StoreFuture<'_, Option<Arc<Workflow>>> {
        Box::pin(async move {
            let workflow = self.store.workflow(id).await?;
            if workflow.is_some() && !self.is_workflow_visible(id).await? {
                return Ok(None);
            }
            Ok(workflow)
        })
    }

    fn workflows(&self, query: WorkflowQuery) -> StoreFuture<'_, WorkflowPage> {
        Box::pin(async move {
            let page = self.store.workflows(query).await?;
            let mut workflows = Vec::with_capacity(page.workflows.len());
            for workflow in page.workflows {
                if self.is_workflow_visible(workflow.id).await? {
                    workflows.push(workflow);
                }
            }
            Ok(WorkflowPage { workflows, next: page.next })
        })
    }

    fn members(&self, query: MemberQuery) -> StoreFuture<'_, Page> {
        Box::pin(async move {
            if !self.is_workflow_visible(query.workflow).await? {
                return Ok(Page { jobs: Vec::new(), next: None });
            }
            self.store.members(query).await
        })
    }

    fn reported_workers(&self, since: Timestamp) -> StoreFuture<'_, Vec<ReportedWorker>> {
        Box::pin(async move {
            let mut workers = self.store.reported_workers(since).await?;
            workers.retain(|worker| worker.seen.queues.iter().any(|queue| self.scope.covers(queue)));
            Ok(workers)
        })
    }
}
