//! Compares the answer to a statement with the expected one, and prints both.

use super::matching::{Context, Got, Matcher, show_job};
use super::steps::{Expectation, Expected, Member};
use super::values::{CODES, show_offset};
use super::workflows::show_workflow;
use crate::target::{Answer, Claimed, Command, Handle, Millis, Submitted};

/// Expected and actual, if they differ.
pub(super) type Mismatch = (String, String);

/// Compares an answer with the expected one. `binds`: names of the jobs that the command creates.
pub(super) fn judge(
    command: &Command,
    answer: &Answer,
    expected: &Expected,
    binds: &[usize],
    context: Context<'_>,
) -> Result<(), Mismatch> {
    let differ = |expected: String| Err((expected, show_answer(answer, context)));
    match (expected, answer) {
        (Expected::Refused(want), Answer::Refused { code }) if want == code => Ok(()),
        (Expected::Refused(want), _) => differ(format!("refused: {want}")),
        (_, Answer::Refused { .. }) => differ(show_expected(expected, context)),
        (_, Answer::State { job, .. }) if is_other_job(command, *job, binds) => {
            differ(if binds.is_empty() { "the same job again" } else { "a new job" }.to_owned())
        }
        (Expected::Workflow(want), Answer::WorkflowState { state, .. }) if want == state => Ok(()),
        (Expected::Known(name, want), Answer::Workflow { workflow, jobs })
            if context.workflow_handles.get(*name) == Some(&Some(*workflow)) && members_fit(want, jobs, context) =>
        {
            Ok(())
        }
        (Expected::Accepted | Expected::Done, Answer::Submitted(jobs) | Answer::Workflow { jobs, .. }) => {
            if jobs.iter().any(|job| job.duplicate) { differ("a new job".to_owned()) } else { Ok(()) }
        }
        (Expected::Accepted, _) => Ok(()),
        (Expected::Done, Answer::Done | Answer::FannedOut { .. } | Answer::WorkflowState { .. }) => Ok(()),
        (Expected::State(want), Answer::State { state, .. }) if want == state => Ok(()),
        (Expected::CancelRequested, Answer::CancelRequested) => Ok(()),
        (Expected::Members(want), Answer::Submitted(got) | Answer::Workflow { jobs: got, .. })
            if members_fit(want, got, context) =>
        {
            Ok(())
        }
        (Expected::Claimed(want), Answer::Claimed(got)) if claims_fit(want, got, context) => Ok(()),
        (Expected::SettledAndClaimed(want, jobs), Answer::SettledAndClaimed { verdicts, claimed })
            if want.iter().zip(verdicts).all(|(want, got)| verdict_fits(want.as_deref(), got))
                && jobs.as_ref().is_none_or(|jobs| claims_fit(jobs, claimed, context)) =>
        {
            Ok(())
        }
        (Expected::Extended(fields), Answer::Extended { expires_at, cancel_requested }) => {
            let fits = |(name, matcher): &(String, Matcher)| match name.as_str() {
                "expires" => matcher.matches(&expires_at.map_or(Got::Null, Got::Time), context),
                _ => matcher.matches(&Got::Flag(*cancel_requested), context),
            };
            if fields.iter().all(fits) { Ok(()) } else { differ(show_expected(expected, context)) }
        }
        _ => differ(show_expected(expected, context)),
    }
}

/// Whether a requeue must create a clone: `requeue a as b`.
fn is_other_job(command: &Command, answered: Handle, binds: &[usize]) -> bool {
    matches!(command, Command::Requeue { job, .. } if (*job == answered) != binds.is_empty())
}

fn members_fit(want: &[Member], got: &[Submitted], context: Context<'_>) -> bool {
    want.len() == got.len() && want.iter().zip(got).all(|(want, got)| member_fits(want, got, context))
}

fn member_fits(want: &Member, got: &Submitted, context: Context<'_>) -> bool {
    match want {
        Member::Accepted => !got.duplicate,
        Member::State(state) => !got.duplicate && got.state.as_ref() == Some(state),
        Member::DuplicateGone => got.duplicate && got.job.is_none() && got.state.is_none(),
        Member::DuplicateOf(name, state) => {
            got.duplicate
                && got.job.is_some()
                && context.handles.get(*name) == Some(&got.job)
                && (state.is_none() || *state == got.state)
        }
    }
}

/// Without an expectation, a settlement must not be refused.
fn verdict_fits(want: Option<&str>, got: &str) -> bool {
    want.map_or_else(|| !CODES.contains(&got), |want| want == got)
}

fn claims_fit(want: &[Expectation], got: &[Claimed], context: Context<'_>) -> bool {
    want.len() == got.len() && want.iter().zip(got).all(|(want, got)| claim_fits(want, got, context))
}

fn claim_fits(want: &Expectation, got: &Claimed, context: Context<'_>) -> bool {
    let extra = |(name, matcher): &(String, Matcher)| match name.as_str() {
        "expires" => matcher.matches(&got.expires_at.map_or(Got::Null, Got::Time), context),
        "deadline" => matcher.matches(&got.deadline_at.map_or(Got::Null, Got::Time), context),
        _ => matcher.matches(&Got::Number(i64::from(got.attempt)), context),
    };
    context.handles.get(want.job) == Some(&Some(got.job)) && want.version == got.version && want.extra.iter().all(extra)
}

fn show_expected(expected: &Expected, context: Context<'_>) -> String {
    let name = |name: usize| context.names.get(name).cloned().unwrap_or_default();
    let fields = |list: &[(String, Matcher)]| {
        list.iter().map(|(name, matcher)| format!(" {name}={}", matcher.show(context))).collect::<String>()
    };
    match expected {
        Expected::Accepted => "accepted".to_owned(),
        Expected::Refused(code) => format!("refused: {code}"),
        Expected::Done => "done".to_owned(),
        Expected::State(state) | Expected::Workflow(state) => state.clone(),
        Expected::CancelRequested => "cancel requested".to_owned(),
        Expected::Extended(list) => format!("lease extended{}", fields(list)),
        Expected::Claimed(list) if list.is_empty() => "none".to_owned(),
        Expected::Claimed(list) => {
            let show = |e: &Expectation| format!("{} v{}{}", name(e.job), e.version, fields(&e.extra));
            list.iter().map(show).collect::<Vec<_>>().join(", ")
        }
        Expected::SettledAndClaimed(verdicts, claimed) => {
            let verdicts: Vec<&str> = verdicts.iter().map(|word| word.as_deref().unwrap_or("accepted")).collect();
            let claimed = claimed.clone().map_or(Expected::Accepted, Expected::Claimed);
            format!("settled: {}; claimed: {}", verdicts.join(", "), show_expected(&claimed, context))
        }
        Expected::Members(list) | Expected::Known(_, list) => {
            let show = |member: &Member| match member {
                Member::Accepted => "a new job".to_owned(),
                Member::State(state) => state.clone(),
                Member::DuplicateGone => "duplicate of a job that is gone".to_owned(),
                Member::DuplicateOf(job, state) => {
                    format!("duplicate of {} {}", name(*job), state.as_deref().unwrap_or_default())
                }
            };
            let members = list.iter().map(show).collect::<Vec<_>>().join(", ");
            match expected {
                Expected::Known(workflow, _) => {
                    let name = context.workflows.get(*workflow).cloned().unwrap_or_default();
                    format!("known as {name}: {members}")
                }
                _ => members,
            }
        }
    }
}

/// Prints an answer in the words of the scenario language.
pub(super) fn show_answer(answer: &Answer, context: Context<'_>) -> String {
    let until = |at: Option<Millis>| at.map_or_else(|| "no end".to_owned(), |at| show_offset(at - context.start));
    match answer {
        Answer::Done => "done".to_owned(),
        Answer::State { state, .. } | Answer::WorkflowState { state, .. } => state.clone(),
        Answer::CancelRequested => "cancel requested".to_owned(),
        Answer::Refused { code } => format!("refused: {code}"),
        Answer::Extended { expires_at, cancel_requested } => {
            let wish = if *cancel_requested { ", cancel requested" } else { "" };
            format!("lease until {}{wish}", until(*expires_at))
        }
        Answer::SettledAndClaimed { verdicts, claimed } => {
            let claimed = show_answer(&Answer::Claimed(claimed.clone()), context);
            format!("settled: {}; claimed: {claimed}", verdicts.join(", "))
        }
        Answer::Claimed(jobs) if jobs.is_empty() => "none".to_owned(),
        Answer::Claimed(jobs) => {
            let show = |c: &Claimed| {
                let (name, deadline) = (show_job(c.job, context), c.deadline_at);
                let deadline = deadline.map(|at| format!(", deadline {}", until(Some(at)))).unwrap_or_default();
                format!("{name} v{} (attempt {}, lease until {}{deadline})", c.version, c.attempt, until(c.expires_at))
            };
            jobs.iter().map(show).collect::<Vec<_>>().join(", ")
        }
        Answer::Submitted(jobs) | Answer::Workflow { jobs, .. } => {
            let show = |s: &Submitted| match (s.duplicate, s.job, &s.state) {
                (false, _, state) => state.clone().unwrap_or_default(),
                (true, Some(job), state) => {
                    format!("duplicate of {} {}", show_job(job, context), state.as_deref().unwrap_or_default())
                }
                (true, None, _) => "duplicate of a job that is gone".to_owned(),
            };
            let jobs = shortened(&jobs.iter().map(show).collect::<Vec<_>>());
            match answer {
                Answer::Workflow { workflow, .. } => format!("{}: {jobs}", show_workflow(*workflow, context)),
                _ => jobs,
            }
        }
        Answer::FannedOut { jobs, finally } => {
            let names: Vec<String> = jobs.iter().chain(finally).map(|job| show_job(*job, context)).collect();
            format!("spawned {}", shortened(&names))
        }
    }
}

/// Appends the reason of a refusal, for messages.
pub(super) fn with_reason(shown: String, reason: Option<&str>) -> String {
    reason.map_or(shown.clone(), |reason| format!("{shown} ({reason})"))
}

fn shortened(list: &[String]) -> String {
    match list {
        [first, .., last] if list.len() > 8 => format!("{first}, … {} in all …, {last}", list.len()),
        _ => list.join(", "),
    }
}
