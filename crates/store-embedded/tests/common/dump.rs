//! Dumps everything visible of a store as text. A new field breaks the build here, so that it is
//! added.

use std::fmt::{Display, Write as _};

use longshore_core::attempt::{Attempt, AttemptEnd};
use longshore_core::dependency::{Dependencies, EndedByDependency};
use longshore_core::failure::Failure;
use longshore_core::history::Transition;
use longshore_core::id::Seq;
use longshore_core::job::{Counters, Job};
use longshore_core::lease::Lease;
use longshore_core::policy::{AdmissionSettings, Policy, Retention, Retry};
use longshore_core::state::{State, StateKind};
use longshore_core::submit::Payload;
use longshore_core::tags::Tags;
use longshore_core::time::{Duration, Timestamp};
use longshore_core::workflow::{MemberCounts, Membership, Workflow, WorkflowOperation};
use longshore_engine::{Queue, count_of};
use longshore_store::{MemberQuery, QueueStats, StoreError, StoreReader, WorkflowQuery};
use longshore_testkit::block_on::block_on;

use super::{jobs_above, payloads_of};

/// Queues by name, then jobs in order of creation.
pub(crate) fn describe(store: &dyn StoreReader) -> Result<String, StoreError> {
    let mut text = String::new();
    for report in block_on(store.queues())? {
        queue(&mut text, &report);
    }
    let mut jobs = jobs_above(store, Seq(0))?;
    jobs.reverse();
    let payloads = payloads_of(store, &jobs)?;
    for (one, its_payload) in jobs.iter().zip(&payloads) {
        job(&mut text, one);
        line(&mut text, "payload", its_payload.as_ref().map_or("missing".to_owned(), payload));
    }
    let mut query = WorkflowQuery { state: None, limit: 1_000, before: None };
    loop {
        let page = block_on(store.workflows(query))?;
        for one in &page.workflows {
            workflow(&mut text, one);
            let members = block_on(store.members(MemberQuery { workflow: one.id, limit: 1_000, after: Seq(0) }))?;
            let seqs: Vec<String> = members.jobs.iter().map(|job| job.seq.to_string()).collect();
            line(&mut text, "members", seqs.join(" "));
        }
        query.before = page.next;
        if page.next.is_none() {
            return Ok(text);
        }
    }
}

fn workflow(text: &mut String, workflow: &Workflow) {
    let Workflow { id, number, name, open, created_at, members_added: joined, cancelled, operation, tally } = workflow;
    let MemberCounts { counts, records } = tally;
    writeln!(text, "workflow {number} {id}").expect("text takes everything");
    line(text, "name", quoted(name.as_deref()));
    line(text, "state", format!("{}, open {open}, created {}", workflow.state(), at(*created_at)));
    let all = StateKind::ALL.iter().map(|state| format!("{state} {}", count_of(counts, *state)));
    line(text, "counts", format!("{}; {records} of {joined} records", all.collect::<Vec<_>>().join(", ")));
    let doing = |WorkflowOperation { action: what, cursor: reached, last_seq: until, changed }: &WorkflowOperation| {
        format!("{what:?} from {reached} to {until}, {changed} changed")
    };
    line(text, "cancelled", cancelled);
    line(text, "operation", or_none(operation.as_ref(), doing));
}

fn line(text: &mut String, name: &str, value: impl Display) {
    writeln!(text, "  {name}: {value}").expect("text takes everything");
}

fn or_none<T>(value: Option<T>, show: impl FnOnce(T) -> String) -> String {
    value.map_or("-".to_owned(), show)
}

fn quoted(value: Option<&str>) -> String {
    or_none(value, |text| format!("{text:?}"))
}

fn at(value: Timestamp) -> String {
    value.as_millis().to_string()
}

fn length(value: Option<Duration>) -> String {
    or_none(value, |length| format!("{}ms", length.as_millis()))
}

/// Long values are shown by length and checksum.
fn bytes(bytes: &[u8]) -> String {
    if bytes.len() > 300 {
        return format!("{} bytes, CRC-32 {:08x}", bytes.len(), crc32fast::hash(bytes));
    }
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{} bytes {hex}", bytes.len())
}

fn payload(payload: &Payload) -> String {
    match payload {
        Payload::Json(json) => format!("json, {}", bytes(json)),
        Payload::Binary(binary) => format!("binary, {}", bytes(binary)),
    }
}

fn queue(text: &mut String, report: &QueueStats) {
    let QueueStats { queue, counts, oldest_scheduled_at } = report;
    let Queue { name, profile, overrides, policy: its_policy, admission: its_admission, paused, deleting: leaving } =
        &**queue;
    writeln!(text, "queue {name}").expect("text takes everything");
    line(text, "profile", profile);
    line(text, "paused", paused);
    line(text, "leaving", or_none(leaving.as_ref(), |mode| format!("{mode:?}")));
    let all = StateKind::ALL.iter().map(|state| format!("{state} {}", count_of(counts, *state)));
    line(text, "counts", all.collect::<Vec<_>>().join(", "));
    line(text, "oldest_scheduled_at", or_none(*oldest_scheduled_at, at));
    policy(text, its_policy);
    admission(text, its_admission);
    // Overrides are visible in the settings. This checks that they round-trip.
    let again = overrides.resolve(*profile).expect("the overrides are good");
    line(text, "overrides give the settings", again.policy == **its_policy && again.admission == *its_admission);
}

fn policy(text: &mut String, policy: &Policy) {
    let Policy {
        profile,
        retry,
        execution_timeout,
        lease,
        on_lease_expiry,
        max_reclaims,
        reclaim,
        fencing,
        lifetime,
        retention,
        requeue_order,
        manual_requeue,
        cancel_running,
        clear_error_on_success,
    } = policy;
    let Retry { limit, counts, backoff, jitter, honour_retry_after, on_permanent, on_exhausted, on_timeout, on_system } =
        retry;
    let Retention { completed, failed, dead_letter, cancelled } = retention;
    let delays: Vec<String> = backoff.delays.iter().map(|delay| length(Some(*delay))).collect();
    line(
        text,
        "policy",
        format!(
            "{profile}, timeout {}, lease {}, {on_lease_expiry}, reclaims {}, {reclaim}, fencing {fencing}, lifetime {}, \
             {requeue_order}, requeue {manual_requeue}, cancel {cancel_running}, clears error {clear_error_on_success}",
            length(*execution_timeout),
            length(*lease),
            or_none(*max_reclaims, |most| most.to_string()),
            length(*lifetime),
        ),
    );
    line(
        text,
        "retry",
        format!(
            "{limit} {counts}, {} {} x{} up to {} [{}], jitter {} {}, retry_after {honour_retry_after}, permanent {on_permanent}, \
             exhausted {on_exhausted}, timeout {on_timeout}, system {on_system}",
            backoff.kind.as_str(),
            length(Some(backoff.base)),
            backoff.multiplier,
            length(backoff.cap),
            delays.join(" "),
            jitter.kind,
            jitter.factor,
        ),
    );
    let kept = [completed, failed, dead_letter, cancelled].map(|kept| length(*kept));
    line(text, "retention", kept.join(" "));
}

fn admission(text: &mut String, admission: &AdmissionSettings) {
    let AdmissionSettings {
        idempotency,
        external_ids,
        payload_max,
        priority_order,
        submit,
        delayed_start,
        max_queued,
        wait_target,
    } = admission;
    let most = or_none(*max_queued, |most| most.to_string());
    line(
        text,
        "admission",
        format!(
            "idempotency {} {}, external ids {external_ids}, payload {payload_max}, by priority {priority_order}, {submit}, \
             delayed start {delayed_start}, at most {most}",
            idempotency.scope,
            length(idempotency.window),
        ),
    );
    if let Some(target) = wait_target {
        line(text, "wait target", target);
    }
}

#[expect(clippy::too_many_lines, reason = "one line for each field of a job")]
fn job(text: &mut String, job: &Job) {
    let Job {
        id,
        seq,
        queue,
        job_type,
        state,
        counters,
        lease_version,
        priority,
        inherited_priority,
        policy: its_policy,
        tags,
        correlation_id,
        callback_url,
        traceparent,
        schedule,
        idempotency,
        external_id,
        created_at,
        updated_at,
        scheduled_at,
        started_at,
        first_started_at,
        last_heartbeat_at,
        attempt_ended_at,
        lifetime_ends_at,
        progress,
        checkpoint,
        result,
        error,
        dependencies: its_dependencies,
        unfinished_dependents: live_dependents,
        pending_propagation,
        parent,
        membership,
        requeued_from,
        requeued_as,
        last_settlement: settled,
        attempts,
        history,
    } = job;
    let Counters { starts, failures, retries_scheduled, requeues, reclaims } = counters;
    writeln!(text, "job {seq} {id}").expect("text takes everything");
    line(text, "queue", queue);
    line(text, "type", job_type);
    line(text, "state", state_words(state));
    line(text, "counters", format!("{starts} {failures} {retries_scheduled} {requeues} {reclaims}"));
    line(text, "lease version", lease_version.0);
    line(text, "priority", format!("{priority}, inherited {inherited_priority}"));
    policy(text, its_policy);
    line(text, "tags", tag_words(tags));
    schedule.iter().for_each(|schedule| line(text, "schedule", format!("{schedule:?}")));
    traceparent.iter().for_each(|parent| line(text, "traceparent", parent));
    let texts = [correlation_id, callback_url, external_id].map(|text| quoted(text.as_deref()));
    line(text, "correlation, callback, external id", texts.join(" "));
    let key = |key: &longshore_core::job::IdempotencyKey| format!("{:?} {} {}", key.key, key.scope, key.job_type);
    line(text, "idempotency", or_none(idempotency.as_ref(), key));
    line(text, "created, updated", format!("{} {}", at(*created_at), at(*updated_at)));
    let times = [scheduled_at, started_at, first_started_at, last_heartbeat_at, attempt_ended_at, lifetime_ends_at]
        .map(|time| or_none(*time, at));
    line(text, "times", times.join(" "));
    for (name, note) in [("progress", progress), ("checkpoint", checkpoint), ("result", result)] {
        line(text, name, or_none(note.as_ref(), |note| bytes(note)));
    }
    line(text, "error", or_none(error.as_deref(), failure));
    line(text, "dependencies", dependencies(its_dependencies));
    line(text, "dependents", format!("{live_dependents} live, propagation {pending_propagation:?}"));
    let ids = [parent, requeued_from, requeued_as].map(|id| or_none(*id, |id| id.to_string()));
    line(text, "parent, requeued from, requeued as", ids.join(" "));
    let member = |member: &Membership| format!("{:?} in {}", member.reference, member.workflow);
    line(text, "member", or_none(membership.as_ref(), member));
    line(text, "settled", or_none(*settled, |(token, outcome)| format!("{outcome} {}", bytes(token.as_bytes()))));
    attempts.iter().for_each(|one| line(text, "attempt", attempt(one)));
    history.transitions().iter().for_each(|step| line(text, "move", move_words(step)));
}

fn move_words(Transition { from, to, at: when, cause }: &Transition) -> String {
    let from = or_none(from.as_ref(), ToString::to_string);
    format!("{from} > {to}, {cause}, {}", at(*when))
}

fn state_words(state: &State) -> String {
    let kind = state.kind();
    match state {
        State::Pending { held, run_at } => format!("{kind}, held {held}, until {}", or_none(*run_at, at)),
        State::Scheduled { position } => format!("{kind} at {position}"),
        State::Delayed { until } | State::Retrying { until } => format!("{kind} until {}", at(*until)),
        State::Running(lease) => {
            let Lease { token, worker, length: its_length, expires_at, deadline_at, cancel_requested, position } =
                lease;
            format!(
                "{kind}, token {}, worker {}, length {}, expires {}, deadline {}, cancel {}, from {position}",
                bytes(token.as_bytes()),
                or_none(worker.as_ref(), ToString::to_string),
                length(*its_length),
                or_none(*expires_at, at),
                or_none(*deadline_at, at),
                quoted(cancel_requested.as_deref()),
            )
        }
        State::Completed { at: when }
        | State::Failed { at: when }
        | State::DeadLetter { at: when }
        | State::Cancelled { at: when } => format!("{kind} at {}", at(*when)),
    }
}

fn tag_words(tags: &Tags) -> String {
    let kind = match tags {
        Tags::None => return "-".to_owned(),
        Tags::Map(_) => "map",
        Tags::List(_) => "list",
    };
    let pairs = tags.pairs().map(|(key, value)| format!("{key:?} = {}", quoted(value)));
    format!("{kind} {}", pairs.collect::<Vec<_>>().join(", "))
}

fn failure(failure: &Failure) -> String {
    let Failure { category, code, message, cause, at: when } = failure;
    format!("{category} {} {message:?} because {}, {}", quoted(code.as_deref()), quoted(cause.as_deref()), at(*when))
}

fn dependencies(dependencies: &Dependencies) -> String {
    let Dependencies { after, after_any, unmet, any_satisfied: any_met, depth, ended_by: ended_through } = dependencies;
    let after: Vec<String> = after.iter().map(|after| format!("{} {}", after.id, after.met)).collect();
    let any: Vec<String> = after_any.iter().map(ToString::to_string).collect();
    let through = or_none(ended_through.as_ref(), |through| {
        let EndedByDependency { dependency, held, run_at } = through;
        format!("{dependency} held {held} until {}", or_none(*run_at, at))
    });
    format!(
        "after [{}], any [{}], {unmet} unmet, any met {any_met}, depth {depth}, through {through}",
        after.join(", "),
        any.join(", ")
    )
}

fn attempt(attempt: &Attempt) -> String {
    let Attempt { id, previous_id, number, worker, lease_version, started_at, end } = attempt;
    let end = or_none(end.as_ref(), |end| {
        let AttemptEnd { at: when, outcome, error, next_delay } = end;
        let error = or_none(error.as_deref(), failure);
        format!("{outcome} at {}, next after {}, error {error}", at(*when), length(*next_delay))
    });
    format!(
        "{number} {id} after {}, worker {}, version {}, {} to {end}",
        or_none(*previous_id, |id| id.to_string()),
        or_none(worker.as_ref(), ToString::to_string),
        lease_version.0,
        at(*started_at),
    )
}
