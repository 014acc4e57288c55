//! Changes of many jobs: by id, or all that match a filter.

use clap::Args;
use longshore::Client;
use longshore_api::admin::{Bulk, BulkFilter, BulkResult};
use longshore_api::enums::{BulkAction, State};
use longshore_api::states::States;
use serde::Serialize;

use super::parse::{self, counted};
use crate::context::Context;
use crate::terminal::error::{CliError, ExitKind};

/// Most jobs that the server changes in one request.
const BULK_LIMIT: u64 = 1_000;

/// Arguments of which one must be given: ids, or a part of a filter.
pub(crate) const SELECTORS: [&str; 6] = ["ids", "queue", "state", "job_type", "tag", "error_code"];

/// A filter by queue, type, tag and error code. A job matches if all given parts match.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Filter {
    /// Jobs of this queue
    #[arg(short, long)]
    pub(crate) queue: Option<String>,
    /// Jobs of this type
    #[arg(short = 't', long = "type", value_name = "TYPE")]
    pub(crate) job_type: Option<String>,
    /// Jobs with this tag: KEY, or KEY:VALUE
    #[arg(long)]
    pub(crate) tag: Option<String>,
    /// Jobs whose error has this code
    #[arg(long, value_name = "CODE")]
    pub(crate) error_code: Option<String>,
}

impl Filter {
    pub(crate) fn is_empty(&self) -> bool {
        let Self { queue, job_type, tag, error_code } = self;
        [queue, job_type, tag, error_code].iter().all(|part| part.is_none())
    }

    fn to_wire(&self, states: Vec<State>) -> BulkFilter {
        let Self { queue, job_type, tag, error_code } = self.clone();
        BulkFilter { queue, state: Some(States(states)), job_type, tag, error_code }
    }
}

/// Limits of a change by filter.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct BulkScope {
    /// Change at most N jobs [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: Option<u64>,
    /// Print what would be changed, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// A filter that includes the state.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Matching {
    #[command(flatten)]
    pub(crate) filter: Filter,
    /// Jobs in this state
    #[arg(short, long, value_parser = parse::state)]
    pub(crate) state: Option<State>,
}

impl Matching {
    pub(crate) fn is_empty(&self) -> bool {
        self.state.is_none() && self.filter.is_empty()
    }

    /// Returns the filter of a request. Without a state it has all states that the action applies
    /// to, so that the server neither counts nor tries other jobs.
    fn to_wire(&self, action: BulkAction) -> BulkFilter {
        let states = self.state.map_or_else(|| applicable_states(action), |state| vec![state]);
        self.filter.to_wire(states)
    }
}

fn applicable_states(action: BulkAction) -> Vec<State> {
    let applies = |state: &State| match action {
        BulkAction::Cancel => !state.terminal(),
        BulkAction::Delete => state.terminal(),
        BulkAction::Requeue => state.terminal() && *state != State::Completed,
    };
    State::ALL.iter().copied().filter(applies).collect()
}

fn past_tense(action: BulkAction) -> &'static str {
    match action {
        BulkAction::Requeue => "requeued",
        BulkAction::Cancel => "cancelled",
        BulkAction::Delete => "deleted",
    }
}

/// Counts the jobs that a change would apply to, up to the limit of one request. `more` says that
/// others match.
pub(crate) async fn count_matching(
    client: &Client,
    action: BulkAction,
    matching: &Matching,
) -> Result<BulkResult, CliError> {
    let filter = matching.to_wire(action);
    Ok(client.bulk(&Bulk { action, filter, limit: Some(BULK_LIMIT), dry_run: Some(true) }).await?)
}

/// Repeats the request until all matching jobs are changed, the limit is reached, or the
/// remaining jobs refuse the change.
pub(crate) async fn change_matching(
    context: &Context,
    client: &Client,
    action: BulkAction,
    matching: &Matching,
    scope: &BulkScope,
) -> Result<(), CliError> {
    let mut total = BulkResult { matched: 0, changed: 0, more: true };
    while total.more {
        let left = scope.limit.map_or(BULK_LIMIT, |limit| limit.saturating_sub(total.matched));
        if left == 0 {
            break;
        }
        let bulk = Bulk {
            action,
            filter: matching.to_wire(action),
            limit: Some(left.min(BULK_LIMIT)),
            dry_run: scope.dry_run.then_some(true),
        };
        let done = client.bulk(&bulk).await?;
        total = BulkResult {
            matched: total.matched + done.matched,
            changed: total.changed + done.changed,
            more: done.more,
        };
        // Jobs that refuse the change match every time.
        if scope.dry_run || done.changed == 0 {
            break;
        }
    }
    if context.output.json {
        return context.output.json(&total);
    }
    let changed_to = past_tense(action);
    let more = if total.more { ", and more match" } else { "" };
    if scope.dry_run {
        let jobs = counted(total.matched, "job");
        let or_more = if total.more { " or more" } else { "" };
        return context.output.line(&format!("{jobs}{or_more} would be {changed_to}; nothing was changed"));
    }
    let refused = match total.matched.saturating_sub(total.changed) {
        0 => String::new(),
        refused => format!(", {refused} refused by the server"),
    };
    context.output.line(&format!("{} {changed_to}{refused}{more}", counted(total.changed, "job")))
}

/// Result of a change for one of several ids.
#[derive(Debug, Serialize)]
pub(crate) struct JobVerdict {
    id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<State>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cancel_requested: Option<bool>,
    /// Id of the clone, if the job was requeued as a clone.
    #[serde(skip_serializing_if = "Option::is_none")]
    requeued_as: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    dry_run: bool,
}

impl JobVerdict {
    pub(crate) fn done(id: &str) -> Self {
        Self {
            id: id.to_owned(),
            state: None,
            cancel_requested: None,
            requeued_as: None,
            code: None,
            detail: None,
            dry_run: false,
        }
    }

    pub(crate) fn state(id: &str, state: State) -> Self {
        Self { state: Some(state), ..Self::done(id) }
    }

    pub(crate) fn cancelled(id: &str, state: State, requested: Option<bool>) -> Self {
        Self { cancel_requested: requested, ..Self::state(id, state) }
    }

    pub(crate) fn requeued(id: &str, new_id: &str, state: State) -> Self {
        let requeued_as = (id != new_id).then(|| new_id.to_owned());
        Self { requeued_as, ..Self::state(id, state) }
    }
}

/// Changes each job by its own request. A refusal of one job does not stop the others.
pub(crate) async fn apply_to_each<F>(
    context: &Context,
    client: &Client,
    ids: &[String],
    (word, dry_run): (&str, bool),
    change: impl Fn(String) -> F,
) -> Result<(), CliError>
where
    F: Future<Output = Result<JobVerdict, longshore::Error>>,
{
    let mut refusals = Vec::new();
    for id in ids {
        let verdict = if dry_run {
            client.job(id).await.map(|job| JobVerdict { dry_run: true, ..JobVerdict::state(id, job.state) })
        } else {
            change(id.clone()).await
        };
        let verdict = verdict.map_err(CliError::from).map_err(|failure| failure.context(id));
        match verdict {
            Ok(verdict) if context.output.json => context.output.json_line(&verdict)?,
            Ok(verdict) => print_verdict(context, &verdict, word)?,
            Err(failure) if failure.exit_kind == ExitKind::Refused && ids.len() > 1 => {
                print_refusal(context, id, &failure)?;
                refusals.push(failure);
            }
            Err(failure) => return Err(failure),
        }
    }
    match refusals.len() {
        0 => Ok(()),
        refused => Err(CliError::refused(format!("{refused} of {} jobs refused", ids.len()))),
    }
}

fn print_verdict(context: &Context, verdict: &JobVerdict, word: &str) -> Result<(), CliError> {
    let JobVerdict { id, state, cancel_requested, requeued_as, dry_run, .. } = verdict;
    let line = match (state, requeued_as) {
        (Some(state), _) if *dry_run => format!("{id} is {state} and would be {word}; nothing was changed"),
        (Some(state), _) if *cancel_requested == Some(true) => {
            format!("{id} is {state}: its next heartbeat tells the worker to stop")
        }
        (Some(state), Some(clone)) => format!("{id} {word} as {clone} ({state})"),
        (Some(state), None) => format!("{id} {word} ({state})"),
        (None, _) => format!("{id} {word}"),
    };
    context.output.line(&line)
}

fn print_refusal(context: &Context, id: &str, failure: &CliError) -> Result<(), CliError> {
    if context.output.json {
        let problem = failure.problem.as_deref();
        let verdict = JobVerdict {
            code: problem.map(|problem| problem.code.clone()),
            detail: problem.map(|problem| problem.detail.clone()),
            ..JobVerdict::done(id)
        };
        return context.output.json_line(&verdict);
    }
    context.output.info(&failure.message);
    Ok(())
}
