//! The sentences of `GET /v1/jobs/{id}/why`. All clients show them as they are.

use longshore_api::enums::State;
use longshore_api::system::{ExplainedReason, Reason};
use longshore_core::failure::Failure;
use longshore_core::id::JobId;

/// Ids of other jobs that a sentence names.
const IDS_MAX: usize = 5;

/// What a summary says beside the reasons.
pub(crate) struct JobFacts<'a> {
    pub state: State,
    pub runnable: bool,
    pub ahead: Option<u64>,
    pub requeued_as: Option<JobId>,
    pub error: Option<&'a Failure>,
}

/// Adds the sentence of a reason.
pub(crate) fn explain(reason: Reason, state: State) -> ExplainedReason {
    let text = sentence(&clause(&reason, state));
    ExplainedReason { reason, text }
}

/// Returns one sentence about the job.
pub(crate) fn summary(job: &JobFacts<'_>, reasons: &[Reason]) -> String {
    if job.state.terminal() {
        return sentence(&ended(job));
    }
    let is_unserved = |reason: &&Reason| matches!(reason, Reason::NoWorker { .. });
    if job.runnable {
        return sentence(&match (reasons.iter().find(is_unserved), job.ahead) {
            (Some(unserved), _) => format!("it is ready, but {}", clause(unserved, job.state)),
            (None, Some(ahead)) if ahead > 0 => format!("it is ready, after {}", counted(ahead, "other job")),
            (None, Some(_)) => "it is ready: the next claim can get it".to_owned(),
            (None, None) => "its lease has expired: the next claim can take it over".to_owned(),
        });
    }
    let Some(first) = reasons.first() else { return sentence(&format!("it is {}", words(job.state))) };
    if job.state == State::Running {
        return sentence(&clause(first, job.state));
    }
    let others = match reasons.len() - 1 {
        0 => String::new(),
        more => format!(", and for {}", counted(more, "other reason")),
    };
    sentence(&format!("it waits: {}{others}", clause(first, job.state)))
}

fn ended(job: &JobFacts<'_>) -> String {
    let state = match job.state {
        State::Completed => "it has completed".to_owned(),
        State::Cancelled => "it was cancelled".to_owned(),
        State::Failed | State::DeadLetter => {
            let code = job.error.map(|error| error.code.as_deref().unwrap_or(error.category.as_str()));
            let code = code.map_or(String::new(), |code| format!(" by the error \"{code}\""));
            format!("it has ended as {}{code}", words(job.state))
        }
        State::Pending | State::Scheduled | State::Delayed | State::Running | State::Retrying => {
            format!("it is {}", words(job.state))
        }
    };
    match job.requeued_as {
        Some(clone) => format!("{state}, and was requeued as {clone}"),
        None => format!("{state} and will not run again by itself"),
    }
}

/// The state in words.
fn words(state: State) -> &'static str {
    match state {
        State::DeadLetter => "a dead letter",
        State::Pending
        | State::Scheduled
        | State::Delayed
        | State::Running
        | State::Retrying
        | State::Completed
        | State::Failed
        | State::Cancelled => state.as_str(),
    }
}

/// What a reason says, without the capital letter and the full stop.
fn clause(reason: &Reason, state: State) -> String {
    match reason {
        Reason::QueuePaused { queue } => format!("queue \"{queue}\" is paused until it is resumed"),
        Reason::Held => "the job is held until a client submits it".to_owned(),
        Reason::WaitingOn { count, after, after_any } => waiting_on(*count, after, after_any),
        Reason::DelayedUntil { at } => format!("the job is delayed until {at}"),
        Reason::BackoffUntil { at, failures } => {
            format!("the job has failed {} and is tried again at {at}", counted(*failures, "time"))
        }
        Reason::Lifetime { at } if state.terminal() => format!("the lifetime of the job ended at {at}"),
        Reason::Lifetime { at } => format!("the lifetime of the job ends at {at}, before it can run"),
        Reason::Behind { ahead: 1 } => "1 ready job is claimed before it".to_owned(),
        Reason::Behind { ahead } => format!("{ahead} ready jobs are claimed before it"),
        Reason::NoWorker { queue, last_seen_at, types } => {
            let types: Vec<String> = types.iter().take(IDS_MAX).map(|name| format!("\"{name}\"")).collect();
            let last = match last_seen_at {
                Some(at) => format!("the last claim from the queue was at {at}"),
                None => "this server has seen no claim from the queue".to_owned(),
            };
            format!("no worker claims the type {} from queue \"{queue}\"; {last}", types.join(", "))
        }
        Reason::Concurrency { limit } => format!("the limit of {} is reached", counted(*limit, "running job")),
        Reason::Rate { limit } => format!("the rate limit of {limit} is reached"),
        Reason::Running { worker, started_at, expires_at } => {
            let worker = worker.as_ref().map_or("a worker".to_owned(), |name| format!("worker \"{name}\""));
            let since = started_at.map_or(String::new(), |at| format!(" since {at}"));
            let until = expires_at.map_or(String::new(), |at| format!(", with a lease until {at}"));
            format!("{worker} has run the job{since}{until}")
        }
    }
}

fn waiting_on(count: usize, after: &[String], after_any: &[String]) -> String {
    let all = (!after.is_empty()).then(|| format!("all of {} must complete", list(after)));
    let any = (!after_any.is_empty()).then(|| format!("one of {} must end", list(after_any)));
    let parts: Vec<String> = [all, any].into_iter().flatten().collect();
    let what = if parts.is_empty() { String::new() } else { format!(": {}", parts.join(", and ")) };
    format!("the job waits for {}{what}", counted(count, "other job"))
}

fn list(ids: &[String]) -> String {
    let shown = ids.iter().take(IDS_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
    match ids.len().saturating_sub(IDS_MAX) {
        0 => shown,
        more => format!("{shown} and {}", counted(more, "other")),
    }
}

fn counted<N: Copy + std::fmt::Display + PartialEq + From<u8>>(count: N, noun: &str) -> String {
    let plural = if count == N::from(1) { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

fn sentence(clause: &str) -> String {
    let mut chars = clause.chars();
    chars.next().map_or(String::new(), |first| format!("{}{}.", first.to_uppercase(), chars.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use longshore_api::Time;
    use longshore_core::Timestamp;
    use longshore_core::failure::Category;

    const AT: Time = Time(1_794_700_800_000);
    const UNTIL: Time = Time(1_794_700_830_000);

    fn ids(count: usize) -> Vec<String> {
        (1..=count).map(|number| format!("j{number}")).collect()
    }

    #[test]
    fn every_reason_has_a_sentence() {
        let queue = || "mail".to_owned();
        let types = vec!["email.send".to_owned()];
        let cases = [
            (Reason::QueuePaused { queue: queue() }, "Queue \"mail\" is paused until it is resumed."),
            (Reason::Held, "The job is held until a client submits it."),
            (
                Reason::WaitingOn { count: 3, after: ids(2), after_any: vec!["k".to_owned()] },
                "The job waits for 3 other jobs: all of j1, j2 must complete, and one of k must end.",
            ),
            (
                Reason::WaitingOn { count: 7, after: ids(7), after_any: vec![] },
                "The job waits for 7 other jobs: all of j1, j2, j3, j4, j5 and 2 others must complete.",
            ),
            (Reason::WaitingOn { count: 1, after: vec![], after_any: vec![] }, "The job waits for 1 other job."),
            (Reason::DelayedUntil { at: AT }, "The job is delayed until 2026-11-15T00:00:00.000Z."),
            (
                Reason::BackoffUntil { at: AT, failures: 2 },
                "The job has failed 2 times and is tried again at 2026-11-15T00:00:00.000Z.",
            ),
            (
                Reason::Lifetime { at: AT },
                "The lifetime of the job ends at 2026-11-15T00:00:00.000Z, before it can run.",
            ),
            (Reason::Behind { ahead: 1 }, "1 ready job is claimed before it."),
            (Reason::Behind { ahead: 2 }, "2 ready jobs are claimed before it."),
            (
                Reason::NoWorker { queue: queue(), last_seen_at: None, types: types.clone() },
                "No worker claims the type \"email.send\" from queue \"mail\"; this server has seen no claim from the queue.",
            ),
            (
                Reason::NoWorker { queue: queue(), last_seen_at: Some(AT), types },
                "No worker claims the type \"email.send\" from queue \"mail\"; the last claim from the queue was at \
                 2026-11-15T00:00:00.000Z.",
            ),
            (Reason::Concurrency { limit: 1 }, "The limit of 1 running job is reached."),
            (Reason::Rate { limit: 10 }, "The rate limit of 10 is reached."),
            (
                Reason::Running { worker: Some("w1".to_owned()), started_at: Some(AT), expires_at: Some(UNTIL) },
                "Worker \"w1\" has run the job since 2026-11-15T00:00:00.000Z, with a lease until 2026-11-15T00:00:30.000Z.",
            ),
            (Reason::Running { worker: None, started_at: None, expires_at: None }, "A worker has run the job."),
        ];
        for (reason, text) in cases {
            let explained = explain(reason.clone(), State::Scheduled);
            assert_eq!((explained.text.as_str(), explained.reason), (text, reason));
        }
        let ended = explain(Reason::Lifetime { at: AT }, State::DeadLetter).text;
        assert_eq!(ended, "The lifetime of the job ended at 2026-11-15T00:00:00.000Z.");
    }

    #[test]
    fn the_summary_leads_with_what_counts() {
        let facts = |state, runnable, ahead| JobFacts { state, runnable, ahead, requeued_as: None, error: None };
        let paused = || Reason::QueuePaused { queue: "mail".to_owned() };
        let unserved =
            || Reason::NoWorker { queue: "mail".to_owned(), last_seen_at: None, types: vec!["t".to_owned()] };
        let cases = [
            (facts(State::Scheduled, true, Some(0)), vec![], "It is ready: the next claim can get it."),
            (
                facts(State::Scheduled, true, Some(1)),
                vec![Reason::Behind { ahead: 1 }],
                "It is ready, after 1 other job.",
            ),
            (
                facts(State::Scheduled, true, Some(2)),
                vec![Reason::Behind { ahead: 2 }, unserved()],
                "It is ready, but no worker claims the type \"t\" from queue \"mail\"; this server has seen no claim from \
                 the queue.",
            ),
            (facts(State::Running, true, None), vec![], "Its lease has expired: the next claim can take it over."),
            (facts(State::Pending, false, None), vec![], "It is pending."),
            (
                facts(State::Scheduled, false, Some(0)),
                vec![paused(), unserved()],
                "It waits: queue \"mail\" is paused until it is resumed, and for 1 other reason.",
            ),
            (
                facts(State::Pending, false, None),
                vec![Reason::Held],
                "It waits: the job is held until a client submits it.",
            ),
            (
                facts(State::Running, false, None),
                vec![Reason::Running { worker: Some("w".to_owned()), started_at: None, expires_at: None }],
                "Worker \"w\" has run the job.",
            ),
            (facts(State::Completed, false, None), vec![], "It has completed and will not run again by itself."),
            (facts(State::Cancelled, false, None), vec![], "It was cancelled and will not run again by itself."),
        ];
        for (job, reasons, text) in cases {
            assert_eq!(summary(&job, &reasons), text);
        }
        let error = Failure::detected(Category::Timeout, "timeout", "too slow", Timestamp::from_millis(0));
        let ended = JobFacts { error: Some(&error), ..facts(State::DeadLetter, false, None) };
        let text = "It has ended as a dead letter by the error \"timeout\" and will not run again by itself.";
        assert_eq!(summary(&ended, &[]), text);
    }
}
