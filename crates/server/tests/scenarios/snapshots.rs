//! Snapshots of the server's state.

use std::collections::BTreeMap;

use longshore_api::{Duration, Time};
use longshore_testkit::target::*;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::http_subject::HttpSubject;
use crate::requests::text_of;

pub(crate) fn millis(value: &Value) -> Option<Millis> {
    value.as_str().map(|text| text.parse::<Time>().unwrap().0)
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn number(value: &Value) -> u32 {
    value.as_u64().unwrap().try_into().unwrap()
}

fn priority(value: &Value) -> u8 {
    let names = ["critical", "high", "normal", "low", "bulk"];
    names.iter().position(|name| value == name).unwrap() as u8
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap()
}

pub(crate) fn job(http: &mut HttpSubject, job: Handle) -> Option<JobSnapshot> {
    let path = format!("/v1/jobs/{}", http.id_of(job)?);
    let reply = http.get_reply(&path)?;
    let record = reply.json();
    let typed: longshore_api::job::Job = serde_json::from_slice(&reply.body).unwrap();
    let attempts = http.get(&format!("{path}/attempts")).unwrap();
    let history = http.get(&format!("{path}/history")).unwrap();
    // Only attempts show the lease version of a job without a lease.
    let weave = http.get(&format!("{path}?view=weave")).unwrap();
    let handle = |id: &Value| id.as_str().and_then(|id| http.handles.get(id).copied());
    let (counters, lease, error) = (&record["counters"], &record["lease"], &record["error"]);
    if let Some(version) = lease["version"].as_u64() {
        assert_eq!(Some(version), weave["lease_version"].as_u64());
    }
    assert_eq!(record["attempt"], counters["starts"]);
    Some(JobSnapshot {
        queue: text(&record["queue"])?,
        job_type: text(&record["type"])?,
        state: text(&record["state"])?,
        priority: priority(&record["priority"]),
        effective_priority: priority(&record["effective_priority"]),
        starts: number(&counters["starts"]),
        failures: number(&counters["failures"]),
        retries_scheduled: number(&counters["retries_scheduled"]),
        requeues: number(&counters["requeues"]),
        reclaims: number(&counters["reclaims"]),
        lease_version: weave["lease_version"].as_u64()?,
        lease_expires_at: millis(&lease["expires_at"]),
        deadline_at: millis(&lease["deadline_at"]),
        worker: text(&lease["worker"]),
        cancel_requested: record["cancel_requested"].as_bool()?,
        created_at: millis(&record["created_at"])?,
        updated_at: millis(&record["updated_at"])?,
        run_at: millis(&record["run_at"]),
        scheduled_at: millis(&record["scheduled_at"]),
        started_at: millis(&record["started_at"]),
        first_started_at: millis(&record["first_started_at"]),
        last_heartbeat_at: millis(&record["last_heartbeat_at"]),
        attempt_ended_at: millis(&record["attempt_ended_at"]),
        completed_at: millis(&record["completed_at"]),
        progress: typed.progress.as_deref().map(text_of),
        checkpoint: typed.checkpoint.as_deref().map(text_of),
        result: typed.result.as_deref().map(text_of),
        error: (!error.is_null()).then(|| ErrorSnapshot {
            category: text(&error["category"]).unwrap(),
            code: text(&error["code"]),
            message: text(&error["message"]).unwrap(),
        }),
        waiting_on: number(&record["waiting_on"]) as usize,
        parent: handle(&record["parent"]),
        requeued_from: handle(&record["requeued_from"]),
        requeued_as: handle(&record["requeued_as"]),
        tags: tags(&record["tags"]),
        correlation_id: text(&record["correlation_id"]),
        callback_url: text(&record["callback_url"]),
        traceparent: text(&record["traceparent"]),
        idempotency_key: text(&record["idempotency_key"]),
        external_id: text(&record["external_id"]),
        retry_limit: number(&record["policy"]["retry"]["limit"]),
        attempts: list(&attempts["attempts"]).iter().map(attempt).collect(),
        history: list(&history["history"]).iter().map(step).collect(),
    })
}

fn tags(tags: &Value) -> BTreeMap<String, Option<String>> {
    match tags {
        Value::Array(names) => names.iter().map(|name| (text(name).unwrap(), None)).collect(),
        Value::Object(pairs) => pairs.iter().map(|(key, value)| (key.clone(), text(value))).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => panic!("tags are shown as {tags}"),
    }
}

fn attempt(attempt: &Value) -> AttemptSnapshot {
    AttemptSnapshot {
        number: number(&attempt["number"]),
        lease_version: attempt["lease_version"].as_u64().unwrap(),
        worker: text(&attempt["worker"]).unwrap_or_default(),
        started_at: millis(&attempt["started_at"]).unwrap(),
        ended_at: millis(&attempt["ended_at"]),
        outcome: text(&attempt["outcome"]),
        category: text(&attempt["error"]["category"]),
        next_delay: attempt["next_delay"].as_str().map(|delay| delay.parse::<Duration>().unwrap().0 as Millis),
    }
}

fn step(step: &Value) -> HistorySnapshot {
    HistorySnapshot {
        from: text(&step["from"]),
        to: text(&step["to"]).unwrap(),
        at: millis(&step["at"]).unwrap(),
        cause: text(&step["cause"]).unwrap(),
    }
}

pub(crate) fn queue(queue: &Value) -> QueueSnapshot {
    let counts = queue["counts"].as_object().unwrap();
    QueueSnapshot {
        profile: text(&queue["profile"]).unwrap(),
        paused: queue["paused"].as_bool().unwrap(),
        counts: counts.iter().map(|(state, jobs)| (state.clone(), jobs.as_u64().unwrap())).collect(),
    }
}

pub(crate) fn view(http: &mut HttpSubject, job: Handle, view: &str) -> Option<BTreeMap<String, String>> {
    let path = format!("/v1/jobs/{}?view={view}", http.id_of(job)?);
    let reply = http.get_reply(&path)?;
    let shown: BTreeMap<String, Box<RawValue>> = serde_json::from_slice(&reply.body).unwrap();
    let field = |(name, raw): (String, Box<RawValue>)| {
        let text = if name == "output" { text_of(&raw) } else { plain(http, &name, &value(&raw)) };
        (name, text)
    };
    Some(shown.into_iter().map(field).collect())
}

fn value(raw: &RawValue) -> Value {
    serde_json::from_str(raw.get()).unwrap()
}

/// Returns a field of a view as text, with handles of jobs and times in milliseconds.
fn plain(http: &HttpSubject, name: &str, value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Number(seq) if name == "id" => http.seqs[&seq.as_u64().unwrap()].to_string(),
        // Generated by this subject and checked by claims.
        _ if name == "input" => "null".to_owned(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(text) => {
            let instant = || text.parse::<Time>().ok().map(|time| time.0.to_string());
            let handle = || http.handles.get(text).map(ToString::to_string);
            instant().or_else(handle).unwrap_or_else(|| text.clone())
        }
        Value::Array(parts) => parts.iter().map(|part| plain(http, name, part)).collect::<Vec<_>>().join(","),
        Value::Object(pairs) if pairs.is_empty() => "null".to_owned(),
        Value::Object(pairs) => {
            let pair = |(key, value): (&String, &Value)| match value.as_str() {
                Some(value) => format!("{key}={value}"),
                None => key.clone(),
            };
            pairs.iter().map(pair).collect::<Vec<_>>().join(",")
        }
    }
}
