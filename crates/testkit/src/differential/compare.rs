//! What counts as a difference, and how it is reported.

use std::collections::BTreeMap;
use std::fmt::Debug;

use crate::model::ANY_TEXT;
use crate::target::{ErrorSnapshot, JobSnapshot, QueueSnapshot, WorkflowSnapshot};

pub(super) const VIEWS: [&str; 5] = ["gopherqueue", "taskharbor", "ocypod", "weave", "document"];

/// Field, value of the model, value of the target.
pub(super) type Difference = (String, String, String);

fn difference(field: &str, expected: &impl Debug, got: &impl Debug) -> Difference {
    (field.to_owned(), format!("{expected:?}"), format!("{got:?}"))
}

macro_rules! compare_fields {
    ($found:ident, $expected:ident, $got:ident: $($field:ident),* $(,)?) => {
        $(if $expected.$field != $got.$field {
            $found.push(difference(stringify!($field), &$expected.$field, &$got.$field));
        })*
    };
}

/// Returns the fields that differ. Without a difference nothing is allocated.
pub(super) fn job_differences(expected: &JobSnapshot, got: &JobSnapshot) -> Vec<Difference> {
    let mut found = Vec::new();
    compare_fields!(found, expected, got:
        queue, job_type, state, priority, effective_priority, starts, failures, retries_scheduled, requeues, reclaims,
        lease_version, lease_expires_at, deadline_at, worker, cancel_requested, created_at, updated_at, run_at,
        scheduled_at, started_at, first_started_at, last_heartbeat_at, attempt_ended_at, completed_at, progress,
        checkpoint, result, parent, requeued_from, requeued_as, tags, correlation_id, callback_url, traceparent,
        idempotency_key, external_id, retry_limit,
    );
    if !same_error(expected.error.as_ref(), got.error.as_ref()) {
        found.push(difference("error", &expected.error, &got.error));
    }
    // The dependencies of a job are compared while it waits.
    if expected.state == "pending" && expected.waiting_on != got.waiting_on {
        found.push(difference("waiting_on", &expected.waiting_on, &got.waiting_on));
    }
    compare_rows(&mut found, "attempts", &expected.attempts, &got.attempts);
    compare_rows(&mut found, "history", &expected.history, &got.history);
    found
}

/// Compares two lists and reports the first row that differs.
fn compare_rows<T: PartialEq + Debug>(found: &mut Vec<Difference>, name: &str, expected: &[T], got: &[T]) {
    if expected == got {
        return;
    }
    let rows = expected.len().max(got.len());
    if let Some(row) = (0..rows).find(|row| expected.get(*row) != got.get(*row)) {
        found.push(difference(&format!("{name}[{row}]"), &expected.get(row), &got.get(row)));
    }
}

fn same_error(expected: Option<&ErrorSnapshot>, got: Option<&ErrorSnapshot>) -> bool {
    match (expected, got) {
        (Some(expected), Some(got)) => {
            expected.category == got.category && expected.code == got.code && same_text(&expected.message, &got.message)
        }
        (None, None) => true,
        _ => false,
    }
}

fn same_text(expected: &str, got: &str) -> bool {
    expected == ANY_TEXT || expected == got
}

pub(super) fn queue_difference(expected: Option<&QueueSnapshot>, got: Option<&QueueSnapshot>) -> Option<Difference> {
    (expected != got).then(|| difference("queue", &expected, &got))
}

pub(super) fn workflow_differences(
    expected: Option<&WorkflowSnapshot>,
    got: Option<&WorkflowSnapshot>,
) -> Vec<Difference> {
    let (Some(expected), Some(got)) = (expected, got) else {
        let word = |known: bool| if known { "exists" } else { "gone" };
        let (expected, got) = (word(expected.is_some()), word(got.is_some()));
        return if expected == got { Vec::new() } else { vec![difference("workflow", &expected, &got)] };
    };
    let mut found = Vec::new();
    compare_fields!(found, expected, got: state, open, counts, members);
    found
}

type View = BTreeMap<String, String>;

pub(super) fn view_differences(expected: Option<View>, got: Option<View>) -> Vec<Difference> {
    let (Some(expected), Some(got)) = (&expected, &got) else {
        return if expected == got { Vec::new() } else { vec![difference("view", &expected, &got)] };
    };
    let mut found = Vec::new();
    for (field, value) in expected {
        let other = got.get(field);
        if !other.is_some_and(|other| same_text(value, other)) {
            found.push(difference(field, value, &other));
        }
    }
    for (field, value) in got {
        if !expected.contains_key(field) {
            found.push(difference(field, &"no such field", value));
        }
    }
    found
}
