//! `docs/settings.md` and `docs/errors.md` are generated from the tables in `longshore-api`.
//!
//! `UPDATE_DOCS=1` writes the pages; a normal run compares them.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use longshore_api::ErrorCode;
use longshore_api::settings::{SettingField, Settings as WireSettings};
use longshore_core::Duration;
use longshore_core::patch::locked_settings;
use longshore_core::policy::Settings;
use longshore_core::profile::Profile;

const SETTINGS_HEAD: &str = "\
<!-- Generated from crates/api/src/settings.rs and crates/core/src/profile.rs by
     UPDATE_DOCS=1 cargo test -p longshore-testkit --test reference_pages -->

# Settings

A queue has a profile and settings. The profile gives every setting a value; the queue overrides some of them.
A job may override `retry`, `execution_timeout`, `lease`, `lifetime`, `retention` and `max_reclaims` of its queue.

Use `standard` unless a program depends on one of the five specifications. Its jobs retry twice with backoff, stay
claimed for 30 seconds per heartbeat, and end as dead letters that an operator can requeue.

| profile | use it for |
| --- | --- |
| `standard` | everything else |
| `gopherqueue` | programs written for the GopherQueue job model |
| `taskharbor` | programs written for TaskHarbor |
| `ocypod` | clients of Ocypod; see [ocypod.md](ocypod.md) |
| `weave` | programs written for weave-queue |
| `document` | the document job lifecycle: explicit submission, no detours |

- An absent setting is inherited: by a job from its queue, by a queue from its profile.
- Durations are text (`1h15m5s`; units w, d, h, m, s, ms) or a number of seconds, at most 36500d.
- A response contains all settings, resolved, and can be sent back.
- A job keeps the settings of its creation. Only `idempotency`, `external_ids`, `payload_max`, `priority_order`,
  `submit`, `delayed_start`, `max_queued` and `wait_target` are read from the queue on use.
";

const ERRORS_HEAD: &str = "\
<!-- Generated from crates/api/src/error.rs by
     UPDATE_DOCS=1 cargo test -p longshore-testkit --test reference_pages -->

# Errors

An error response is `application/problem+json`. `code` identifies the error, `detail` says what was wrong with this
request, `field` names the field at fault, `allowed` lists the values of a closed set, `request_id` is the
`x-request-id` of the response. A request with a status from 400 to 499 changes nothing.

`retry` says whether the same request may be sent again:

| `retry` | meaning |
| --- | --- |
| `never` | the request would fail again |
| `safe` | the request changed nothing; retry with backoff |
| `unknown` | the request may have been applied; repeat it only with the same idempotency key or lease token |

A response may be more precise than the code: `store_unavailable` has `unknown` if the store failed after it had
received the request.

| code | status | `retry` | when | what to do |
| --- | --- | --- | --- | --- |
";

#[test]
fn settings_page_is_up_to_date() {
    compare("docs/settings.md", &settings_page());
}

#[test]
fn errors_page_is_up_to_date() {
    compare("docs/errors.md", &errors_page());
}

fn compare(name: &str, page: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, page).expect("the page can be written");
        return;
    }
    let stored = fs::read_to_string(&path).unwrap_or_default();
    let difference = page.lines().zip(stored.lines()).find(|(generated, stored)| generated != stored);
    assert!(stored == page, "{name} is out of date (first difference: {difference:?}); run with UPDATE_DOCS=1");
}

fn settings_page() -> String {
    let mut page = SETTINGS_HEAD.to_owned();
    let rows = rows("", WireSettings::FIELDS);
    page += "\n## Values by profile\n\n| setting |";
    Profile::ALL.iter().for_each(|profile| write!(page, " `{profile}` |").unwrap());
    page += "\n| --- |";
    Profile::ALL.iter().for_each(|_| page += " --- |");
    for (path, _) in &rows {
        write!(page, "\n| `{path}` |").unwrap();
        for profile in Profile::ALL {
            let lock = if is_locked(path, *profile) { " (locked)" } else { "" };
            write!(page, " {}{lock} |", value(path, &Settings::of_profile(*profile))).unwrap();
        }
    }
    page += "\n\nA locked setting may be repeated with its value; another value is refused.\n";
    page += "\n## Meanings\n\n| setting | type | meaning | special values |\n| --- | --- | --- | --- |\n";
    for (path, field) in &rows {
        let mut paragraphs = paragraphs(field.docs).into_iter();
        let meaning = paragraphs.next().expect("every setting has a description");
        let special = paragraphs.collect::<Vec<_>>().join(" ");
        writeln!(page, "| `{path}` | {} | {meaning} | {special} |", kind(field)).unwrap();
    }
    page
}

/// Settings without objects, each with its path.
fn rows(prefix: &str, fields: &'static [SettingField]) -> Vec<(String, &'static SettingField)> {
    let row = |field: &'static SettingField| {
        let path = format!("{prefix}{}", field.name);
        if field.fields.is_empty() { vec![(path, field)] } else { rows(&format!("{path}."), field.fields) }
    };
    fields.iter().flat_map(row).collect()
}

fn paragraphs(docs: &[&str]) -> Vec<String> {
    let lines = docs.split(|line| line.trim().is_empty());
    lines.map(|lines| lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")).collect()
}

fn kind(field: &SettingField) -> String {
    if field.values.is_empty() {
        return field.kind.to_owned();
    }
    field.values.iter().map(|value| format!("`{value}`")).collect::<Vec<_>>().join(", ")
}

fn is_locked(path: &str, profile: Profile) -> bool {
    locked_settings(profile).iter().any(|locked| path == *locked || path.starts_with(&format!("{locked}.")))
}

/// Value of a setting in a profile, as the wire shows it.
fn value(path: &str, settings: &Settings) -> String {
    let Settings { policy, admission } = settings;
    let (retry, retention) = (&policy.retry, &policy.retention);
    let duration = |duration: Option<Duration>| duration.unwrap_or_default().to_string();
    let number = |number: Option<u64>| number.map_or("null".to_owned(), |number| number.to_string());
    match path {
        "retry.limit" => retry.limit.to_string(),
        "retry.counts" => retry.counts.to_string(),
        "retry.backoff.kind" => retry.backoff.kind.as_str().to_owned(),
        "retry.backoff.base" => retry.backoff.base.to_string(),
        "retry.backoff.multiplier" => retry.backoff.multiplier.to_string(),
        "retry.backoff.cap" => duration(retry.backoff.cap),
        "retry.backoff.delays" => format!("{:?}", retry.backoff.delays),
        "retry.jitter.kind" => retry.jitter.kind.to_string(),
        "retry.jitter.factor" => retry.jitter.factor.to_string(),
        "retry.honour_retry_after" => retry.honour_retry_after.to_string(),
        "retry.on_permanent" => retry.on_permanent.to_string(),
        "retry.on_exhausted" => retry.on_exhausted.to_string(),
        "retry.on_timeout" => retry.on_timeout.to_string(),
        "retry.on_system" => retry.on_system.to_string(),
        "execution_timeout" => duration(policy.execution_timeout),
        "lease" => duration(policy.lease),
        "on_lease_expiry" => policy.on_lease_expiry.to_string(),
        "max_reclaims" => number(policy.max_reclaims.map(u64::from)),
        "reclaim" => policy.reclaim.to_string(),
        "fencing" => policy.fencing.to_string(),
        "idempotency.scope" => admission.idempotency.scope.to_string(),
        "idempotency.window" => duration(admission.idempotency.window),
        "external_ids" => admission.external_ids.to_string(),
        "lifetime" => duration(policy.lifetime),
        "retention.completed" => duration(retention.completed),
        "retention.failed" => duration(retention.failed),
        "retention.dead_letter" => duration(retention.dead_letter),
        "retention.cancelled" => duration(retention.cancelled),
        "payload_max" => admission.payload_max.to_string(),
        "priority_order" => admission.priority_order.to_string(),
        "requeue_order" => policy.requeue_order.to_string(),
        "submit" => admission.submit.to_string(),
        "delayed_start" => admission.delayed_start.to_string(),
        "manual_requeue" => policy.manual_requeue.to_string(),
        "cancel_running" => policy.cancel_running.to_string(),
        "clear_error_on_success" => policy.clear_error_on_success.to_string(),
        "max_queued" => number(admission.max_queued),
        "wait_target" => admission.wait_target.map_or_else(|| "null".to_owned(), |target| target.to_string()),
        other => panic!("setting {other} of the wire is not in this table"),
    }
}

fn errors_page() -> String {
    let mut page = ERRORS_HEAD.to_owned();
    for code in ErrorCode::ALL {
        let retry = format!("{:?}", code.retry()).to_lowercase();
        writeln!(page, "| `{}` | {} | `{retry}` | {} | {} |", code.code(), code.status(), code.cause(), code.remedy())
            .unwrap();
    }
    page
}
