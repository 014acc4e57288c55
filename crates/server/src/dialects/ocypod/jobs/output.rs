//! `GET /job/{id}/output`, `PUT /job/{id}/output`

use longshore_core::ocypod::status::StatusChange;
use longshore_core::view;

use super::super::request::OcypodRequest;
use super::super::response::{Answer, ok};
use super::find;
use super::patch::{apply, output_max};
use crate::convert::raw;

pub(crate) async fn get(call: OcypodRequest) -> Answer {
    let job = find(&call.app, call.job()?).await?;
    ok(&view::ocypod(&job, None).output.as_ref().map(raw::to_raw_json))
}

/// Any JSON; `null` is one.
pub(crate) async fn put(call: OcypodRequest) -> Answer {
    let (app, id) = (call.app.clone(), call.job()?);
    let bytes_max = output_max(&app, id).await?;
    let output = call.json_around(bytes_max)?.value()?;
    apply(&app, id, StatusChange { status: None, output: Some(output) }).await
}
