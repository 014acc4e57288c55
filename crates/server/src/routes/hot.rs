//! The routes that workers and submitters call all the time, dispatched without the general router.
//!
//! The router has these routes too. It serves every other spelling of their paths, such as one with
//! percent-encoding or a query string.

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::Method;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use longshore_api::ErrorCode;
use longshore_core::access::{AccessTarget, ActionSet, TokenAction};
use longshore_core::id::{JobId, QueueName};
use longshore_store::clock::monotonic;
use tower::ServiceExt;

use super::jobs::submit::{self, SubmitHeaders};
use super::leases::{claim, heartbeat, settle};
use super::record_request;
use crate::access::{Caller, CallerState as State, RequestOrigin, authorize};
use crate::state::AppState;
use crate::wire::body::JsonBody;
use crate::wire::path::{JobPath, QueuePath};
use crate::wire::problem::ApiError;
use crate::wire::query::NoQuery;
use crate::wire::response::ApiResult;

/// The body of a request: a small one is read before the dispatch.
pub(crate) enum RequestBody {
    Whole(Bytes),
    Stream(Body),
}

/// Dispatches a request, and measures it.
pub(crate) async fn respond(
    app: &AppState,
    router: Router,
    mut parts: Parts,
    body: RequestBody,
    origin: RequestOrigin,
) -> Response {
    let Some(route) = HotRoute::of(&parts) else {
        let body = match body {
            RequestBody::Whole(bytes) => Body::from(bytes),
            RequestBody::Stream(body) => body,
        };
        parts.extensions.insert(origin);
        return match router.oneshot(Request::from_parts(parts, body)).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
    };
    let (started, pattern) = (monotonic(), route.pattern());
    let response = match route.check(app, &origin.caller).await {
        Ok(()) => route.respond(&app.for_caller(&origin.caller), &parts, body).await.into_response(),
        Err(error) => error.into_response(),
    };
    record_request(app, "POST", pattern, response.status(), monotonic().saturating_sub(started));
    response
}

/// A `POST` whose path has the usual spelling.
#[derive(Clone, Debug, PartialEq, Eq)]
enum HotRoute {
    Submit(QueueName),
    Claim,
    Complete(JobId),
    Heartbeat(JobId),
    Settlements,
    Heartbeats,
}

impl HotRoute {
    fn of(parts: &Parts) -> Option<Self> {
        if parts.method != Method::POST || parts.uri.query().is_some() {
            return None;
        }
        let path = parts.uri.path().strip_prefix("/v1/")?;
        match path {
            "claims" => return Some(Self::Claim),
            "settlements" => return Some(Self::Settlements),
            "heartbeats" => return Some(Self::Heartbeats),
            _ => {}
        }
        if let Some(queue) = path.strip_prefix("queues/").and_then(|rest| rest.strip_suffix("/jobs")) {
            return QueueName::new(queue).ok().map(Self::Submit);
        }
        let (id, verb) = path.strip_prefix("jobs/")?.split_once('/')?;
        match verb {
            "complete" => id.parse().ok().map(Self::Complete),
            "heartbeat" => id.parse().ok().map(Self::Heartbeat),
            _ => None,
        }
    }

    /// Returns the path in the table of routes.
    fn pattern(&self) -> &'static str {
        match self {
            Self::Submit(_) => "/v1/queues/{queue}/jobs",
            Self::Claim => "/v1/claims",
            Self::Complete(_) => "/v1/jobs/{id}/complete",
            Self::Heartbeat(_) => "/v1/jobs/{id}/heartbeat",
            Self::Settlements => "/v1/settlements",
            Self::Heartbeats => "/v1/heartbeats",
        }
    }

    /// Checks that the caller may send this request. Foreign jobs are missing in its store.
    async fn check(&self, app: &AppState, caller: &Caller) -> Result<(), ApiError> {
        const SUBMIT: ActionSet = ActionSet::of(&[TokenAction::Submit]);
        const WORK: ActionSet = ActionSet::of(&[TokenAction::Work]);
        let token = match caller {
            Caller::Trusted => return Ok(()),
            Caller::Anonymous => return Err(ApiError::new(ErrorCode::Unauthorized, "this route needs a token")),
            Caller::Token(token) => token,
        };
        match self {
            Self::Submit(queue) => authorize::check(token, SUBMIT, AccessTarget::Queue(queue)),
            Self::Claim | Self::Settlements | Self::Heartbeats => {
                authorize::check(token, WORK, AccessTarget::OwnQueues)
            }
            Self::Complete(id) | Self::Heartbeat(id) => authorize::check_hot_job(app, token, *id).await,
        }
    }

    async fn respond(self, app: &AppState, parts: &Parts, body: RequestBody) -> ApiResult {
        let headers = match &self {
            Self::Submit(_) => Some(SubmitHeaders::of(&parts.headers)?),
            Self::Claim | Self::Complete(_) | Self::Heartbeat(_) | Self::Settlements | Self::Heartbeats => None,
        };
        let body = match body {
            RequestBody::Whole(bytes) => JsonBody::of_bytes(&parts.headers, bytes)?,
            RequestBody::Stream(body) => JsonBody::of_stream(app, &parts.headers, body).await?,
        };
        let state = State(app.clone());
        // Boxed: a connection that waits for its next request has no use for the largest of them.
        match self {
            Self::Submit(queue) => {
                let headers = headers.unwrap_or_default();
                Box::pin(submit::submit(state, QueuePath(queue), NoQuery, headers, body)).await
            }
            Self::Claim => Box::pin(claim::claim(state, NoQuery, body)).await,
            Self::Complete(id) => Box::pin(settle::complete(state, JobPath(id), NoQuery, body)).await,
            Self::Heartbeat(id) => Box::pin(heartbeat::heartbeat(state, JobPath(id), NoQuery, body)).await,
            Self::Settlements => Box::pin(settle::settlements(state, NoQuery, body)).await,
            Self::Heartbeats => Box::pin(heartbeat::heartbeats(state, NoQuery, body)).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routes::ROUTES;

    const ID: &str = "0b7fbd3c-6a0e-4c1e-9d5b-2f1f0f6f7a10";

    fn route(method: &str, path: &str) -> Option<HotRoute> {
        HotRoute::of(&axum::http::Request::builder().method(method).uri(path).body(()).unwrap().into_parts().0)
    }

    #[test]
    fn usual_spellings_are_hot_and_in_the_table_of_routes() {
        let paths = [
            "/v1/queues/a.b/jobs".to_owned(),
            "/v1/claims".to_owned(),
            format!("/v1/jobs/{ID}/complete"),
            format!("/v1/jobs/{ID}/heartbeat"),
            "/v1/settlements".to_owned(),
            "/v1/heartbeats".to_owned(),
        ];
        for path in paths {
            let found = route("POST", &path).expect(&path);
            assert!(ROUTES.contains(&("post", found.pattern())), "{path}");
            let expected = found.pattern().replace("{queue}", "a.b").replace("{id}", ID);
            assert_eq!(expected, path);
        }
    }

    #[test]
    fn other_requests_go_to_the_router() {
        let others = [
            ("GET", "/v1/claims".to_owned()),
            ("POST", "/v1/claims?wait=1s".to_owned()),
            ("POST", "/v1/claims?".to_owned()),
            ("POST", "/v1/claims/".to_owned()),
            ("POST", "/v1/queues/a%2eb/jobs".to_owned()),
            ("POST", "/v1/queues//jobs".to_owned()),
            ("POST", "/v1/queues/a/b/jobs".to_owned()),
            ("POST", "/v1/queues/jobs".to_owned()),
            ("POST", format!("/v1/jobs/{ID}/fail")),
            ("POST", format!("/v1/jobs/{ID}/complete/")),
            ("POST", "/v2/claims".to_owned()),
        ];
        for (method, path) in others {
            assert_eq!(route(method, &path), None, "{method} {path}");
        }
    }
}
