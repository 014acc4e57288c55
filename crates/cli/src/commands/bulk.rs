//! Changes to many jobs: named one by one, or all that match a filter.

use clap::Args;
use longshore_api::admin::{Bulk, BulkFilter, BulkResult};
use longshore_api::enums::{BulkAction, State};
use longshore_api::states::States;
use longshore_client::Client;
use serde::Serialize;

use super::parse::{self, counted};
use crate::context::Context;
use crate::terminal::error::{CliError, ExitKind};

/// What the server changes in one call.
const BULK_LIMIT: u64 = 1_000;

/// All that is given must hold.
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

    fn wire(&self, state: Option<State>) -> BulkFilter {
        let Self { queue, job_type, tag, error_code } = self.clone();
        BulkFilter { queue, state: state.map(States::from), job_type, tag, error_code }
    }
}

/// How far a change of many jobs goes.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct BulkScope {
    /// At most this many jobs; all of them unless given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: Option<u64>,
    /// Only say what would be changed
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// Jobs by filter, with their state.
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
}

fn done_word(action: BulkAction) -> &'static str {
    match action {
        BulkAction::Requeue => "requeued",
        BulkAction::Cancel => "cancelled",
        BulkAction::Delete => "deleted",
    }
}

/// How many jobs match that have not ended. Each state is counted up to one call's limit; `more` says that others match.
pub(crate) async fn count_unfinished(
    client: &Client,
    action: BulkAction,
    given: &Matching,
) -> Result<BulkResult, CliError> {
    // A filter without a state matches ended jobs, too.
    let states =
        State::ALL.iter().copied().filter(|state| given.state.map_or(!state.terminal(), |only| only == *state));
    let mut total = BulkResult { matched: 0, changed: 0, more: false };
    for state in states {
        let filter = given.filter.wire(Some(state));
        let found = client.bulk(&Bulk { action, filter, limit: Some(BULK_LIMIT), dry_run: Some(true) }).await?;
        total = BulkResult { matched: total.matched + found.matched, more: total.more || found.more, ..total };
    }
    Ok(total)
}

/// Goes on until all that match are changed, the limit is reached, or what is left refuses.
pub(crate) async fn change_matching(
    context: &Context,
    client: &Client,
    action: BulkAction,
    matching: &Matching,
    extent: &BulkScope,
) -> Result<(), CliError> {
    let mut total = BulkResult { matched: 0, changed: 0, more: true };
    while total.more {
        let left = extent.limit.map_or(BULK_LIMIT, |limit| limit.saturating_sub(total.matched));
        if left == 0 {
            break;
        }
        let bulk = Bulk {
            action,
            filter: matching.filter.wire(matching.state),
            limit: Some(left.min(BULK_LIMIT)),
            dry_run: extent.dry_run.then_some(true),
        };
        let done = client.bulk(&bulk).await?;
        total = BulkResult {
            matched: total.matched + done.matched,
            changed: total.changed + done.changed,
            more: done.more,
        };
        // What refused once would only match again.
        if extent.dry_run || done.changed == 0 {
            break;
        }
    }
    if context.screen.json {
        return context.screen.json(&total);
    }
    let word = done_word(action);
    let more = if total.more { ", and more match" } else { "" };
    if extent.dry_run {
        let jobs = counted(total.matched, "job");
        let or_more = if total.more { " or more" } else { "" };
        return context.screen.line(&format!("{jobs}{or_more} would be {word}; nothing was changed"));
    }
    let unchanged = total.matched.saturating_sub(total.changed);
    let kept = if unchanged > 0 { format!(", {unchanged} matched and did not allow it") } else { String::new() };
    context.screen.line(&format!("{} {word}{kept}{more}", counted(total.changed, "job")))
}

/// What became of one of several named jobs.
#[derive(Debug, Serialize)]
pub(crate) struct Verdict {
    id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<State>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cancel_requested: Option<bool>,
    /// The id that runs now, where it is another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    requeued_as: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    dry_run: bool,
}

impl Verdict {
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

    pub(crate) fn requeued(id: &str, runs: &str, state: State) -> Self {
        let requeued_as = (id != runs).then(|| runs.to_owned());
        Self { requeued_as, ..Self::state(id, state) }
    }
}

/// Each named job has its own verdict; one refusal does not keep the others from it.
pub(crate) async fn apply_to_each<F>(
    context: &Context,
    client: &Client,
    ids: &[String],
    (word, dry_run): (&str, bool),
    change: impl Fn(String) -> F,
) -> Result<(), CliError>
where
    F: Future<Output = Result<Verdict, longshore_client::Error>>,
{
    let mut refusals = Vec::new();
    for id in ids {
        let verdict = if dry_run {
            client.job(id).await.map(|job| Verdict { dry_run: true, ..Verdict::state(id, job.state) })
        } else {
            change(id.clone()).await
        };
        let verdict = verdict.map_err(CliError::from).map_err(|failure| failure.context(id));
        match verdict {
            Ok(verdict) if context.screen.json => context.screen.json_line(&verdict)?,
            Ok(verdict) => tell(context, &verdict, word)?,
            Err(failure) if failure.ending == ExitKind::Refused && ids.len() > 1 => {
                tell_refusal(context, id, &failure)?;
                refusals.push(failure);
            }
            Err(failure) => return Err(failure),
        }
    }
    match refusals.len() {
        0 => Ok(()),
        refused => Err(CliError::refused(format!("{refused} of {} jobs did not allow it", ids.len()))),
    }
}

fn tell(context: &Context, verdict: &Verdict, word: &str) -> Result<(), CliError> {
    let Verdict { id, state, cancel_requested, requeued_as, dry_run, .. } = verdict;
    let line = match (state, requeued_as) {
        (Some(state), _) if *dry_run => format!("{id} is {state} and would be {word}; nothing was changed"),
        (Some(state), _) if *cancel_requested == Some(true) => {
            format!("{id} is {state}: its worker is asked to stop at its next heartbeat")
        }
        (Some(state), Some(clone)) => format!("{id} {word} as {clone} ({state})"),
        (Some(state), None) => format!("{id} {word} ({state})"),
        (None, _) => format!("{id} {word}"),
    };
    context.screen.line(&line)
}

fn tell_refusal(context: &Context, id: &str, failure: &CliError) -> Result<(), CliError> {
    if context.screen.json {
        let problem = failure.problem.as_deref();
        let verdict = Verdict {
            code: problem.map(|problem| problem.code.clone()),
            detail: problem.map(|problem| problem.detail.clone()),
            ..Verdict::done(id)
        };
        return context.screen.json_line(&verdict);
    }
    context.screen.info(&failure.message);
    Ok(())
}
