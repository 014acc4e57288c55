//! `GET /v1/clock`, `POST /v1/clock/advance`: in virtual time only.

use axum::extract::State;
use longshore_api::ErrorCode;
use longshore_api::system::{Advance, Clock};

use crate::app::AppState;
use crate::convert::{length, time};
use crate::wire::answer::{Answer, ok};
use crate::wire::body::JsonBody;
use crate::wire::problem::ApiError;
use crate::wire::query::NoQuery;

pub(crate) async fn clock(State(app): State<AppState>, _: NoQuery) -> Answer {
    ok(&Clock { now: time(app.now()) })
}

/// Everything that falls due on the way has happened when this answers.
pub(crate) async fn advance(State(app): State<AppState>, _: NoQuery, body: JsonBody) -> Answer {
    let Advance { by } = body.required()?;
    let time_of_store = app.virtual_time.as_ref();
    let time_of_store =
        time_of_store.ok_or_else(|| ApiError::new(ErrorCode::NotFound, "time passes by itself here"))?;
    let now = app.report_error(time_of_store.advance(length(by)).await)?;
    ok(&Clock { now: time(now) })
}
