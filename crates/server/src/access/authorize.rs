//! Compares the caller of a request with what its route needs.

use axum::body::Body;
use axum::extract::{FromRequestParts, MatchedPath, RawPathParams, Request, State};
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use longshore_api::ErrorCode;
use longshore_core::access::{AccessDecision, AccessTarget, ActionSet, TokenAction};
use longshore_core::id::{JobId, QueueName, Seq, WorkflowId};
use longshore_core::refusal::Refusal;
use longshore_store::JobRef;
use serde_json::Value;
use tokio::task::JoinError;

use super::audit::AuditedCall;
use super::table::{QueueSource, RouteRule, rule_of};
use super::{ActiveToken, Caller, RequestOrigin, browser};
use crate::dialects::ocypod;
use crate::state::AppState;
use crate::wire::body::{JsonBody, SMALL};
use crate::wire::problem::ApiError;

/// The middleware of all routes that the general router serves.
pub(crate) async fn authorize(State(app): State<AppState>, request: Request, next: Next) -> Response {
    let Some(origin) = request.extensions().get::<RequestOrigin>().cloned() else {
        // Fail closed: the connection adds the caller to every request.
        return ApiError::new(ErrorCode::Internal, "internal error: the request has no caller").into_response();
    };
    let Some(route) = request.extensions().get::<MatchedPath>().cloned() else {
        return browser::secure(next.run(request).await);
    };
    let rule = rule_of(request.method().as_str(), route.as_str());
    match audited_call(&rule, &origin, &request) {
        None => browser::secure(respond(&app, &origin, &rule, route.as_str(), request, next).await),
        Some(call) => {
            // A client that leaves drops the future of its request, but not this task: what was
            // applied is listed.
            let tasks = app.tasks.clone();
            let audited = async move {
                let response = respond(&app, &origin, &rule, route.as_str(), request, next).await;
                call.finish(&app, response).await
            };
            match tasks.spawn(audited).await.map_err(JoinError::try_into_panic) {
                Ok(response) => browser::secure(response),
                // The connection counts panics.
                Err(Ok(panic)) => std::panic::resume_unwind(panic),
                Err(Err(_)) => ApiError::new(ErrorCode::StoreUnavailable, "the server stops").into_response(),
            }
        }
    }
}

/// Serves a request that its caller may make, and refuses others.
async fn respond(
    app: &AppState,
    origin: &RequestOrigin,
    rule: &RouteRule,
    route: &str,
    request: Request,
    next: Next,
) -> Response {
    match &origin.caller {
        Caller::Trusted => next.run(request).await,
        Caller::Anonymous if rule.needs.is_empty() => next.run(request).await,
        Caller::Anonymous => ApiError::new(ErrorCode::Unauthorized, super::MISSING).into_response(),
        Caller::Token(token) => match check_route(app, token, rule, request).await {
            Ok(request) => next.run(request).await,
            Err(error) if ocypod::is_ocypod_path(route) => ocypod::error_response(error),
            Err(error) => error.into_response(),
        },
    }
}

fn audited_call(rule: &RouteRule, origin: &RequestOrigin, request: &Request) -> Option<AuditedCall> {
    let admin = ActionSet::of(&[TokenAction::Admin]);
    let action = if rule.needs.has_any_of(admin) { TokenAction::Admin } else { TokenAction::Operate };
    rule.is_audited.then(|| AuditedCall::new(origin.clone(), action, request.method(), request.uri().path()))
}

/// Checks a request with a token. Returns it unchanged if it is allowed.
async fn check_route(
    app: &AppState,
    token: &ActiveToken,
    rule: &RouteRule,
    request: Request,
) -> Result<Request, ApiError> {
    if rule.needs.is_empty() {
        return Ok(request);
    }
    let (mut parts, body) = request.into_parts();
    let param = first_param(&mut parts).await.unwrap_or_default();
    let has_action = token.record.permissions.actions.has_any_of(rule.needs);
    match rule.source {
        QueueSource::Path => {
            if let Ok(queue) = QueueName::new(&param) {
                check(token, rule.needs, AccessTarget::Queue(&queue))?;
            } else if !has_action {
                return Err(missing_action(rule.needs));
            }
        }
        QueueSource::Everything => check(token, rule.needs, AccessTarget::Everything)?,
        QueueSource::OwnQueues => check(token, rule.needs, AccessTarget::OwnQueues)?,
        // With the action, the scoped store decides whether the job or workflow exists.
        QueueSource::Job | QueueSource::JobNumber | QueueSource::Workflow | QueueSource::Schedule if has_action => {}
        QueueSource::Job => check_job(app, token, rule.needs, param.parse().ok().map(JobRef::Id)).await?,
        QueueSource::JobNumber => {
            let number = param.parse().ok().map(|number| JobRef::Seq(Seq(number)));
            check_job(app, token, rule.needs, number).await?;
        }
        QueueSource::Workflow => check_workflow(app, token, rule.needs, param.parse().ok()).await?,
        QueueSource::Schedule => return Err(missing_action(rule.needs)),
        QueueSource::Body if has_action => {}
        QueueSource::Body => return Err(check_body(app, token, rule.needs, &parts, body).await),
    }
    Ok(Request::from_parts(parts, body))
}

/// Returns the first parameter of the path.
async fn first_param(parts: &mut Parts) -> Option<String> {
    let params = RawPathParams::from_request_parts(parts, &()).await.ok()?;
    params.iter().next().map(|(_, value)| value.to_owned())
}

/// Decides about a call from the token alone.
pub(crate) fn check(token: &ActiveToken, needs: ActionSet, target: AccessTarget<'_>) -> Result<(), ApiError> {
    match token.record.permissions.decide(needs, target) {
        AccessDecision::Allowed => Ok(()),
        AccessDecision::Hidden => Err(Refusal::QueueNotFound.into()),
        AccessDecision::Forbidden if token.record.permissions.actions.has_any_of(needs) => {
            Err(ApiError::new(ErrorCode::Forbidden, "this call has no queue: it needs a token for the queues \"*\""))
        }
        AccessDecision::Forbidden => Err(missing_action(needs)),
    }
}

fn missing_action(needs: ActionSet) -> ApiError {
    let words: Vec<&str> = needs.actions().map(TokenAction::as_str).collect();
    let detail = format!("the token lacks the action \"{}\"", words.join("\" or \""));
    ApiError::new(ErrorCode::Forbidden, detail)
}

/// Refuses a call to a job for lack of an action. A job that the token cannot see does not exist.
pub(crate) async fn check_job(
    app: &AppState,
    token: &ActiveToken,
    needs: ActionSet,
    job: Option<JobRef>,
) -> Result<(), ApiError> {
    if !token.sees_everything() {
        let job = job.ok_or(Refusal::JobNotFound)?;
        let found = app.call_store(token.store.get(vec![job])).await?;
        found.into_iter().next().flatten().ok_or(Refusal::JobNotFound)?;
    }
    Err(missing_action(needs))
}

/// Like [`check_job`], for the hot routes.
pub(crate) async fn check_hot_job(app: &AppState, token: &ActiveToken, id: JobId) -> Result<(), ApiError> {
    let needs = ActionSet::of(&[TokenAction::Work]);
    if token.record.permissions.actions.has_any_of(needs) {
        return Ok(());
    }
    check_job(app, token, needs, Some(JobRef::Id(id))).await
}

async fn check_workflow(
    app: &AppState,
    token: &ActiveToken,
    needs: ActionSet,
    id: Option<WorkflowId>,
) -> Result<(), ApiError> {
    if !token.sees_everything() {
        let id = id.ok_or(Refusal::WorkflowNotFound)?;
        app.call_store(token.store.workflow(id)).await?.ok_or(Refusal::WorkflowNotFound)?;
    }
    Err(missing_action(needs))
}

/// Returns the error of a call that lacks its action. A foreign queue in its body comes first.
async fn check_body(app: &AppState, token: &ActiveToken, needs: ActionSet, parts: &Parts, body: Body) -> ApiError {
    let names_foreign = |value: &Value| {
        let mut queues = Vec::new();
        collect_queues(value, &mut queues);
        queues.iter().any(|queue| !token.record.permissions.queues.covers(queue))
    };
    let length = parts.headers.get(axum::http::header::CONTENT_LENGTH);
    let length: usize = length.and_then(|length| length.to_str().ok()?.parse().ok()).unwrap_or(usize::MAX);
    if length <= SMALL
        && let Ok(body) = JsonBody::whole(app, &parts.headers, body).await
        && let Ok(value) = serde_json::from_slice(body.bytes())
        && names_foreign(&value)
    {
        return Refusal::QueueNotFound.into();
    }
    missing_action(needs)
}

/// Collects the queues of the jobs of a workflow, at any depth. Payloads are opaque.
fn collect_queues(value: &Value, queues: &mut Vec<QueueName>) {
    match value {
        Value::Object(fields) => {
            let name = fields.get("queue").and_then(Value::as_str);
            queues.extend(name.and_then(|name| QueueName::new(name).ok()));
            for field in ["jobs", "chain", "group", "chord", "finally"] {
                fields.get(field).into_iter().for_each(|inner| collect_queues(inner, queues));
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect_queues(item, queues)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
