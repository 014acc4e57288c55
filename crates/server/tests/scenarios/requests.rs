//! Converts commands of the testkit to request bodies.

use longshore_testkit::target::{Command, Edit, Millis, NewJob, Outcome, Settings};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

/// Returns JSON unchanged and other text as a JSON string. A [`Value`] would lose digits.
pub(crate) fn any_json(text: &str) -> Value {
    match serde_json::from_str::<Value>(text) {
        Ok(Value::Number(_)) => json!(format!("{DIGITS}{text}{DIGITS}")),
        Ok(value) => value,
        Err(_) => Value::from(text),
    }
}

/// Marks a number that must be sent unchanged.
const DIGITS: &str = "|digits|";

/// Returns the bytes of a body.
pub(crate) fn body_text(body: &Value) -> String {
    body.to_string().replace(&format!("\"{DIGITS}"), "").replace(&format!("{DIGITS}\""), "")
}

/// Returns the argument of [`any_json`].
pub(crate) fn text_of(raw: &RawValue) -> String {
    match serde_json::from_str::<Value>(raw.get()).unwrap() {
        Value::String(text) => text,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => raw.get().to_owned(),
    }
}

/// Escapes a name for a path.
pub(crate) fn segment(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
    name.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

pub(crate) fn duration(millis: Millis) -> Value {
    if millis < 0 { json!(millis as f64 / 1_000.0) } else { json!(format!("{millis}ms")) }
}

pub(crate) fn instant(millis: Millis) -> Value {
    json!(longshore_api::Time(millis).to_string())
}

/// Converts dotted paths to nested objects.
pub(crate) fn settings(settings: &Settings) -> Map<String, Value> {
    let mut whole = Map::new();
    for (path, value) in settings {
        let mut parts: Vec<&str> = path.split('.').collect();
        let last = parts.pop().unwrap();
        let mut object = Some(&mut whole);
        for part in parts {
            let inner = object.map(|object| object.entry(part).or_insert_with(|| Value::Object(Map::new())));
            // A parent that is not an object stays: the request is invalid anyway.
            object = inner.and_then(Value::as_object_mut);
        }
        object.map(|object| object.insert(last.to_owned(), setting(last, value)));
    }
    whole
}

fn setting(name: &str, value: &str) -> Value {
    if name == "delays" {
        return value.split(',').filter(|delay| !delay.is_empty()).map(Value::from).collect();
    }
    // Null is a value of these settings. For others it means absent, where the model expects a
    // fault.
    if value == "null" && !["max_reclaims", "max_queued", "wait_target"].contains(&name) {
        return Value::from(value);
    }
    // Numbers, `true`, `false` and `null` are JSON; other values are text.
    serde_json::from_str(value).unwrap_or_else(|_| Value::from(value))
}

/// Returns an item of a batch with its payload and dependencies.
pub(crate) fn new_job(new: &NewJob, payload: Option<Value>, after: &[String], after_any: &[String]) -> Value {
    let mut job = settings(&new.settings);
    let mut put = |name: &str, value: Option<Value>| job.extend(value.map(|value| (name.to_owned(), value)));
    put("type", Some(json!(new.job_type)));
    // JSON cannot be empty; an empty payload is binary.
    put("payload_base64", payload.is_none().then(|| json!("")));
    put("payload", payload);
    put("priority", new.priority.map(|priority| json!(priority)));
    put("run_at", new.run_at.map(instant));
    put("delay", new.delay.map(duration));
    put("idempotency_key", new.idempotency_key.as_ref().map(|key| json!(key)));
    put("external_id", new.external_id.as_ref().map(|id| json!(id)));
    put("tags", (!new.tags.is_empty()).then(|| tags(&new.tags)));
    put("correlation_id", new.correlation_id.as_ref().map(|id| json!(id)));
    put("callback_url", new.callback_url.as_ref().map(|url| json!(url)));
    put("traceparent", new.traceparent.as_ref().map(|parent| json!(parent)));
    put("after", (!after.is_empty()).then(|| json!(after)));
    put("after_any", (!after_any.is_empty()).then(|| json!(after_any)));
    put("ref", new.reference.as_ref().map(|name| json!(name)));
    put("hold", new.hold.map(|hold| json!(hold)));
    Value::Object(job)
}

/// Returns a map if a tag has a value, else a list.
fn tags(tags: &std::collections::BTreeMap<String, Option<String>>) -> Value {
    if !tags.is_empty() && tags.values().all(Option::is_none) {
        return tags.keys().map(|tag| json!(tag)).collect();
    }
    json!(tags)
}

/// Returns the last segment of the path, and the body.
pub(crate) fn claim(command: &Command) -> Value {
    let Command::Claim { queues, worker, limit, types, lease, execution_timeout } = command else {
        panic!("{command:?} is no claim")
    };
    let mut body = json!({ "queues": queues, "worker": worker, "limit": limit, "types": types });
    let durations = [("lease", lease), ("execution_timeout", execution_timeout)];
    for (name, value) in durations {
        if let Some(millis) = value {
            body[name] = duration(*millis);
        }
    }
    body
}

pub(crate) fn settlement(outcome: &Outcome) -> (&'static str, Value) {
    match outcome {
        Outcome::Complete { result, progress } => {
            let mut body = Map::new();
            body.extend(result.as_ref().map(|result| ("result".to_owned(), any_json(result))));
            body.extend(progress.as_ref().map(|progress| ("progress".to_owned(), any_json(progress))));
            ("complete", Value::Object(body))
        }
        Outcome::Snooze { delay } => ("snooze", json!({ "delay": duration(*delay) })),
        Outcome::Release => ("release", json!({})),
        Outcome::Fail { category, code, message, retry_after, unrecoverable } => {
            let mut error = json!({ "category": category, "message": message, "final": unrecoverable });
            if let Some(code) = code {
                error["code"] = json!(code);
            }
            if let Some(retry_after) = retry_after {
                error["retry_after"] = duration(*retry_after);
            }
            ("fail", json!({ "error": error }))
        }
    }
}

pub(crate) fn edit(edit: &Edit) -> Value {
    let mut body = Map::new();
    let mut put = |name: &str, value: Option<Value>| body.extend(value.map(|value| (name.to_owned(), value)));
    put("priority", edit.priority.map(|priority| json!(priority)));
    put("type", edit.job_type.as_ref().map(|name| json!(name)));
    put("tags", edit.tags.as_ref().map(tags));
    put("correlation_id", edit.correlation_id.as_ref().map(|id| json!(id)));
    put("callback_url", edit.callback_url.as_ref().map(|url| json!(url)));
    put("retry", edit.retry_limit.map(|limit| json!({ "limit": limit })));
    Value::Object(body)
}
