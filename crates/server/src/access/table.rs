//! The action that each route needs, and what the call is about.
//!
//! A test compares the table with the list of routes: a route without a row fails the build of the
//! tests, and is open only to administrators of everything.

use std::collections::HashMap;
use std::sync::LazyLock;

use longshore_core::access::{ActionSet, TokenAction};

/// Where the queue of a call is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueSource {
    /// The parameter of the path is the queue.
    Path,
    /// The parameter is the id of a job.
    Job,
    /// The parameter is the number of a job, in the Ocypod dialect.
    JobNumber,
    /// The parameter is the id of a workflow; its members have queues.
    Workflow,
    /// The jobs in the body name queues.
    Body,
    /// The parameter is the name of a schedule, which has a queue.
    Schedule,
    /// A listing, or a batch with one verdict per item: foreign queues are missing.
    OwnQueues,
    /// The call has no queue: it needs `*`.
    Everything,
}

/// What a route needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RouteRule {
    /// One of these actions. Empty: the route is public.
    pub(crate) needs: ActionSet,
    pub(crate) source: QueueSource,
    /// Whether the call is written to the audit log.
    pub(crate) is_audited: bool,
}

const SUBMIT: ActionSet = ActionSet::of(&[TokenAction::Submit]);
const WORK: ActionSet = ActionSet::of(&[TokenAction::Work]);
const READ: ActionSet = ActionSet::of(&[TokenAction::Read]);
const OPERATE: ActionSet = ActionSet::of(&[TokenAction::Operate]);
const ADMIN: ActionSet = ActionSet::of(&[TokenAction::Admin]);
/// `admin` includes reading what it changes.
const READ_OR_ADMIN: ActionSet = ActionSet::of(&[TokenAction::Read, TokenAction::Admin]);
/// Every token has at least one of them.
const ANY_ACTION: ActionSet = ActionSet::of(TokenAction::ALL);
const PUBLIC: ActionSet = ActionSet::of(&[]);

type Row = (&'static str, &'static str, ActionSet, QueueSource);

#[rustfmt::skip]
pub(crate) const ROWS: &[Row] = {
    use QueueSource::{Body, Everything, Job, OwnQueues, Path, Schedule, Workflow};
    &[
        ("get", "/v1/queues", READ_OR_ADMIN, OwnQueues),
        ("put", "/v1/queues/{queue}", ADMIN, Path),
        ("get", "/v1/queues/{queue}", READ_OR_ADMIN, Path),
        ("delete", "/v1/queues/{queue}", ADMIN, Path),
        ("post", "/v1/queues/{queue}/pause", OPERATE, Path),
        ("post", "/v1/queues/{queue}/resume", OPERATE, Path),
        ("post", "/v1/queues/{queue}/jobs", SUBMIT, Path),
        ("get", "/v1/jobs", READ, OwnQueues),
        ("post", "/v1/jobs/bulk", OPERATE, OwnQueues),
        ("get", "/v1/jobs/{id}", READ, Job),
        ("patch", "/v1/jobs/{id}", OPERATE, Job),
        ("delete", "/v1/jobs/{id}", OPERATE, Job),
        ("get", "/v1/jobs/{id}/payload", READ, Job),
        ("get", "/v1/jobs/{id}/attempts", READ, Job),
        ("get", "/v1/jobs/{id}/history", READ, Job),
        ("get", "/v1/jobs/{id}/inputs", READ, Job),
        ("get", "/v1/jobs/{id}/why", READ, Job),
        ("get", "/v1/jobs/{id}/wait", READ, Job),
        ("get", "/v1/jobs/{id}/deliveries", READ, Job),
        ("post", "/v1/jobs/{id}/submit", SUBMIT, Job),
        ("post", "/v1/jobs/{id}/cancel", OPERATE, Job),
        ("post", "/v1/jobs/{id}/requeue", OPERATE, Job),
        ("post", "/v1/jobs/{id}/dead-letter", OPERATE, Job),
        ("post", "/v1/jobs/{id}/run-now", OPERATE, Job),
        ("post", "/v1/claims", WORK, OwnQueues),
        ("post", "/v1/jobs/{id}/complete", WORK, Job),
        ("post", "/v1/jobs/{id}/fail", WORK, Job),
        ("post", "/v1/jobs/{id}/heartbeat", WORK, Job),
        ("post", "/v1/jobs/{id}/snooze", WORK, Job),
        ("post", "/v1/jobs/{id}/release", WORK, Job),
        ("post", "/v1/jobs/{id}/children", WORK, Job),
        ("post", "/v1/settlements", WORK, OwnQueues),
        ("post", "/v1/heartbeats", WORK, OwnQueues),
        ("post", "/v1/workflows", SUBMIT, Body),
        ("get", "/v1/workflows", READ, OwnQueues),
        ("get", "/v1/workflows/{id}", READ, Workflow),
        ("post", "/v1/workflows/{id}/jobs", SUBMIT, Workflow),
        ("post", "/v1/workflows/{id}/close", SUBMIT, Workflow),
        ("post", "/v1/workflows/{id}/cancel", OPERATE, Workflow),
        ("post", "/v1/workflows/{id}/retry", OPERATE, Workflow),
        ("get", "/v1/stats", READ, OwnQueues),
        ("get", "/v1/workers", READ, OwnQueues),
        ("post", "/v1/workers/{worker}/quiet", OPERATE, Everything),
        ("post", "/v1/workers/{worker}/stop", OPERATE, Everything),
        ("post", "/v1/workers/{worker}/resume", OPERATE, Everything),
        ("get", "/v1/info", READ, OwnQueues),
        ("post", "/v1/tokens", ADMIN, Everything),
        ("get", "/v1/tokens", ADMIN, Everything),
        ("get", "/v1/tokens/self", ANY_ACTION, OwnQueues),
        ("delete", "/v1/tokens/{id}", ADMIN, Everything),
        ("get", "/v1/audit", ADMIN, Everything),
        ("get", "/v1/clock", READ, Everything),
        ("post", "/v1/clock/advance", ADMIN, Everything),
        ("get", "/metrics", READ, Everything),
        ("get", "/openapi.json", PUBLIC, Everything),
        ("get", "/livez", PUBLIC, Everything),
        ("get", "/readyz", PUBLIC, Everything),
        ("get", "/", PUBLIC, Everything),
        ("get", "/v1/schedules", READ_OR_ADMIN, OwnQueues),
        ("put", "/v1/schedules/{name}", ADMIN, Schedule),
        ("get", "/v1/schedules/{name}", READ_OR_ADMIN, Schedule),
        ("delete", "/v1/schedules/{name}", ADMIN, Schedule),
        ("get", "/v1/schedules/{name}/ticks", READ_OR_ADMIN, Schedule),
        ("post", "/v1/schedules/{name}/pause", OPERATE, Schedule),
        ("post", "/v1/schedules/{name}/resume", OPERATE, Schedule),
        ("post", "/v1/schedules/{name}/trigger", SUBMIT, Schedule),
        ("get", "/v1/webhooks", READ_OR_ADMIN, Everything),
        ("put", "/v1/webhooks/{name}", ADMIN, Everything),
        ("get", "/v1/webhooks/{name}", READ_OR_ADMIN, Everything),
        ("delete", "/v1/webhooks/{name}", ADMIN, Everything),
        ("post", "/v1/webhooks/{name}/rotate", ADMIN, Everything),
        ("post", "/v1/webhooks/{name}/test", ADMIN, Everything),
        ("get", "/v1/webhooks/{name}/deliveries", READ_OR_ADMIN, Everything),
        ("post", "/v1/deliveries/{id}/redeliver", OPERATE, OwnQueues),
        ("get", "/v1/events", READ, OwnQueues),
        ("get", "/v1/types", READ, OwnQueues),
        ("get", "/v1/types/{type}", READ, OwnQueues),
        ("get", "/v1/attention", READ, OwnQueues),
        ("get", "/v1/dead-letters/groups", READ, OwnQueues),
        ("post", "/v1/operations", OPERATE, OwnQueues),
        ("get", "/v1/operations", READ, OwnQueues),
        ("get", "/v1/operations/{id}", READ, OwnQueues),
        ("post", "/v1/operations/{id}/continue", OPERATE, OwnQueues),
        ("post", "/v1/operations/{id}/stop", OPERATE, OwnQueues),
        ("post", "/v1/operations/{id}/undo", OPERATE, OwnQueues),
    ]
};

/// The routes of the Ocypod dialect.
#[rustfmt::skip]
pub(crate) const OCYPOD_ROWS: &[Row] = {
    use QueueSource::{JobNumber, OwnQueues, Path};
    &[
        ("get", "/health", READ, OwnQueues),
        ("get", "/info", READ, OwnQueues),
        ("get", "/info/version", READ, OwnQueues),
        ("get", "/queue", READ_OR_ADMIN, OwnQueues),
        ("get", "/queue/{name}", READ_OR_ADMIN, Path),
        ("put", "/queue/{name}", ADMIN, Path),
        ("delete", "/queue/{name}", ADMIN, Path),
        ("get", "/queue/{name}/size", READ_OR_ADMIN, Path),
        ("get", "/queue/{name}/job_ids", READ_OR_ADMIN, Path),
        ("get", "/queue/{name}/job", WORK, Path),
        ("post", "/queue/{name}/job", SUBMIT, Path),
        ("get", "/job/{id}", READ, JobNumber),
        ("patch", "/job/{id}", WORK, JobNumber),
        ("delete", "/job/{id}", OPERATE, JobNumber),
        ("get", "/job/{id}/status", READ, JobNumber),
        ("get", "/job/{id}/output", READ, JobNumber),
        ("put", "/job/{id}/output", WORK, JobNumber),
        ("put", "/job/{id}/heartbeat", WORK, JobNumber),
        ("get", "/tag/{tag}", READ, OwnQueues),
    ]
};

type RuleMap = HashMap<(&'static str, &'static str), RouteRule>;

static RULES: LazyLock<RuleMap> = LazyLock::new(|| {
    let rule = |(method, path, needs, source): &Row| {
        let is_audited =
            *method != "get" && needs.has_any_of(ActionSet::of(&[TokenAction::Operate, TokenAction::Admin]));
        ((*method, *path), RouteRule { needs: *needs, source: *source, is_audited })
    };
    ROWS.iter().chain(OCYPOD_ROWS).map(rule).collect()
});

/// Returns the rule of a route. A route without a row needs an administrator of everything.
pub(crate) fn rule_of(method: &str, path: &str) -> RouteRule {
    let method = match method {
        "GET" | "HEAD" => "get",
        "POST" => "post",
        "PUT" => "put",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => "",
    };
    if method == "get" && path.starts_with("/ui") {
        return RouteRule { needs: PUBLIC, source: QueueSource::Everything, is_audited: false };
    }
    match RULES.get(&(method, path)).copied() {
        Some(rule) => rule,
        // Ocypod answers some paths to every method as if it were GET.
        None if method != "get" && OCYPOD_ROWS.iter().any(|row| row.1 == path) => rule_of("GET", path),
        None => RouteRule { needs: ADMIN, source: QueueSource::Everything, is_audited: false },
    }
}

/// Whether a request needs no token, by its path.
pub(crate) fn is_public(method: &axum::http::Method, path: &str) -> bool {
    let reads = matches!(*method, axum::http::Method::GET | axum::http::Method::HEAD);
    reads && (matches!(path, "/" | "/livez" | "/readyz" | "/openapi.json" | "/ui") || path.starts_with("/ui/"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routes::{ROUTES, VIRTUAL_ROUTES};

    #[test]
    fn every_route_has_a_row() {
        for (method, path) in ROUTES.iter().chain(VIRTUAL_ROUTES) {
            let is_static = *method == "get" && path.starts_with("/ui");
            assert!(is_static || RULES.contains_key(&(*method, *path)), "add {method} {path} to access/table.rs");
        }
        assert_eq!(RULES.len(), ROWS.len() + OCYPOD_ROWS.len(), "a route has two rows");
    }

    #[test]
    fn public_routes_are_those_of_the_contract() {
        let public: Vec<_> = ROWS.iter().filter(|row| row.2.is_empty()).map(|row| row.1).collect();
        assert_eq!(public, ["/openapi.json", "/livez", "/readyz", "/"]);
        for path in public {
            assert!(is_public(&axum::http::Method::GET, path) && !is_public(&axum::http::Method::POST, path), "{path}");
        }
        assert!(is_public(&axum::http::Method::GET, "/ui/app.js") && !is_public(&axum::http::Method::GET, "/uix"));
    }

    #[test]
    fn an_unknown_route_is_for_administrators_of_everything() {
        let rule = rule_of("POST", "/v1/brand/new");
        assert_eq!((rule.needs, rule.source, rule.is_audited), (ADMIN, QueueSource::Everything, false));
        // Ocypod answers a POST of this path as its GET.
        assert_eq!(rule_of("POST", "/queue/{name}/size").needs, READ_OR_ADMIN);
    }

    /// A handler that reads `axum::extract::State` would work on the store of all queues.
    #[test]
    fn handlers_use_the_store_of_their_caller() {
        let mut folders = vec![std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/routes")];
        let mut files = 0;
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let text = std::fs::read_to_string(&path).unwrap();
                let text: String = text.split_whitespace().collect();
                let imports = text.contains("axum::extract::State;")
                    || text
                        .split("axum::extract::{")
                        .skip(1)
                        .any(|rest| rest.split('}').next().unwrap_or_default().split(',').any(|name| name == "State"));
                let is_exempt = path.ends_with("routes/mod.rs") || path.ends_with("routes/fallback.rs");
                assert!(is_exempt || !imports, "{path:?}: use crate::access::CallerState as State");
                files += 1;
            }
        }
        assert!(files > 15);
    }
}
