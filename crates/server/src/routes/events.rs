//! `GET /v1/events`: server-sent events.

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use futures_util::{StreamExt, stream};
use longshore_api::enums::State as JobStateName;
use longshore_api::states::States;
use longshore_core::id::{JobType, QueueName};

use crate::access::CallerState;
use crate::events::{Cursor, EventFilter, StreamStart};
use crate::net::stream_guard;
use crate::state::AppState;
use crate::wire::problem::ApiError;
use crate::wire::query::Query;
use crate::wire::response::ApiResult;

const LAST_EVENT_ID: &str = "Last-Event-ID";

/// `GET /v1/events`: the events that match, from now on or from a cursor on.
pub(crate) async fn events(CallerState(app): CallerState<AppState>, headers: HeaderMap, mut query: Query) -> ApiResult {
    let filter = EventFilter { scope: app.queue_scope(), ..parse_filter(&mut query)? };
    let after: Option<Cursor> = query.parse("after")?;
    query.end()?;
    // A browser repeats the address of its first request: the header is newer.
    let start = last_event_id(&headers)?.or(after).map_or(StreamStart::Now, StreamStart::After);
    let mark = app.call_store(app.store.watch_events()).await?;
    app.events.reached(mark).await;
    let (listener, stopping) = (app.events.listen(filter, start), app.stopping.clone());
    let ended = app.token_ended();
    let chunks = stream::unfold((listener, stopping), |(mut listener, stopping)| async move {
        let chunk = listener.next_chunk(&stopping).await?;
        Some((Ok::<_, std::convert::Infallible>(chunk), (listener, stopping)))
    });
    // A revoked or expired token ends the stream.
    let mut response = Response::new(Body::from_stream(chunks.take_until(Box::pin(ended))));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // nginx passes events on at once.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    Ok(stream_guard::endless(response))
}

fn last_event_id(headers: &HeaderMap) -> Result<Option<Cursor>, ApiError> {
    let Some(value) = headers.get(LAST_EVENT_ID) else { return Ok(None) };
    let parsed = value.to_str().unwrap_or_default().parse();
    parsed.map(Some).map_err(|expected| ApiError::validation(LAST_EVENT_ID, &format!("must be {expected}")))
}

fn parse_filter(query: &mut Query) -> Result<EventFilter, ApiError> {
    let states = match query.take("state").map(|text| text.parse()) {
        None => Vec::new(),
        Some(Ok(States(states))) => states,
        Some(Err(_)) => return Err(ApiError::not_some_of("state", JobStateName::WORDS)),
    };
    Ok(EventFilter {
        queue: query.take("queue").map(|name| QueueName::new(&name)).transpose()?,
        job_type: query.take("type").map(|name| JobType::new(&name)).transpose()?,
        job: query.parse_with("job", "must be the id of a job", |text| text.parse().ok())?,
        workflow: query.parse_with("workflow", "must be the id of a workflow", |text| text.parse().ok())?,
        states: states.into_iter().collect(),
        scope: None,
    })
}
