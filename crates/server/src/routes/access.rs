//! `/v1/tokens` and `/v1/audit`.

use longshore_api::ErrorCode;
use longshore_api::access::{CallerPermissions, CreatedToken, NewToken, Token, Tokens};
use longshore_core::access::TokenAction;
use longshore_core::limits::BATCH_ITEMS_MAX;
use longshore_core::rate_limit::RateLimit;
use longshore_core::refusal::Refusal;

use crate::access::tokens::{self, NewTokenSpec, Revocation, TokenError};
use crate::access::{ActiveToken, CallerState as State, TokenRecord, audit};
use crate::convert::{instant, time, times};
use crate::state::AppState;
use crate::wire::body::{JsonBody, NoBody};
use crate::wire::path::TokenPath;
use crate::wire::problem::ApiError;
use crate::wire::query::{NoQuery, Query};
use crate::wire::response::{ApiResult, created, no_content, ok};

/// Entries of a page if the query has no limit.
const LIMIT_DEFAULT: usize = 100;

/// `POST /v1/tokens`: the response is the only one that has the token.
pub(crate) async fn create(State(app): State<AppState>, _: NoQuery, body: JsonBody) -> ApiResult {
    let NewToken { name, actions, queues, expires_at, rate, burst } = body.required()?;
    let spec = NewTokenSpec { name, actions, queues, expires_at: expires_at.map(instant), rate, burst };
    let (record, secret) = match tokens::create(&*app.store, spec).await {
        Ok(token) => token,
        Err(TokenError::Invalid(invalid)) => return Err(invalid.into()),
        Err(TokenError::Store(error)) => return app.report_error(Err(error)),
    };
    app.report_error(app.access.refresh().await)?;
    created(&CreatedToken { token: secret.reveal().to_owned(), details: to_wire(&app, &record) })
}

/// `GET /v1/tokens`
pub(crate) async fn list(State(app): State<AppState>, _: NoQuery) -> ApiResult {
    let tokens = app.report_error(tokens::list(&*app.store).await)?;
    ok(&Tokens { tokens: tokens.iter().map(|token| to_wire(&app, token)).collect() })
}

/// `GET /v1/tokens/self`: what the caller may do. Every token may ask.
pub(crate) async fn own(State(app): State<AppState>, _: NoQuery) -> ApiResult {
    ok(&match app.token() {
        Some(ActiveToken { record, .. }) => CallerPermissions {
            id: Some(record.id.clone()),
            name: Some(record.name.clone()),
            actions: record.permissions.actions.actions().collect(),
            queues: record.permissions.queues.patterns().iter().map(ToString::to_string).collect(),
            expires_at: times(record.expires_at),
        },
        // Only a server without tokens, or this process itself, has callers without one.
        None => CallerPermissions {
            id: None,
            name: None,
            actions: TokenAction::ALL.to_vec(),
            queues: vec!["*".to_owned()],
            expires_at: None,
        },
    })
}

/// `DELETE /v1/tokens/{id}`: takes effect on this server at once, on others within 5 s. With
/// `keep_last` the last token is refused.
pub(crate) async fn revoke(
    State(app): State<AppState>,
    TokenPath(id): TokenPath,
    mut query: Query,
    _: NoBody,
) -> ApiResult {
    let keep_last = query.flag("keep_last")?;
    query.end()?;
    let revoked = app.report_error(tokens::revoke(&*app.store, &id, keep_last).await)?;
    app.report_error(app.access.refresh().await)?;
    match revoked {
        Revocation::Revoked => no_content(),
        Revocation::NotFound => Err(ApiError::new(ErrorCode::TokenNotFound, "there is no token with this id")),
        Revocation::IsLast => Err(Refusal::Illegal(
            "this is the last token: without any, the server trusts every program and proxy of its own machine \
             (create another one first, or revoke it without keep_last)",
        )
        .into()),
    }
}

/// `GET /v1/audit`, newest first.
pub(crate) async fn audit(State(app): State<AppState>, mut query: Query) -> ApiResult {
    let limit = query.up_to("limit", 1, BATCH_ITEMS_MAX)?.unwrap_or(LIMIT_DEFAULT);
    let cursor = query.take("cursor");
    let before = query.parse("before")?.map(instant);
    query.end()?;
    ok(&audit::page(&app, cursor.as_deref(), before, limit).await?)
}

fn to_wire(app: &AppState, record: &TokenRecord) -> Token {
    let used = app.access.token(&record.id).and_then(|token| token.last_used_at(app.now()));
    Token {
        id: record.id.clone(),
        name: record.name.clone(),
        actions: record.permissions.actions.actions().collect(),
        queues: record.permissions.queues.patterns().iter().map(ToString::to_string).collect(),
        created_at: time(record.created_at),
        expires_at: times(record.expires_at),
        last_used_at: times(record.last_used_at.max(used)),
        rate: record.rate_limit.map(RateLimit::rate),
        burst: record.rate_limit.map(RateLimit::burst),
    }
}
