//! `/job/{id}/status`

use longshore_core::ocypod::status::Status;

use super::super::request::OcypodRequest;
use super::super::response::{Answer, ok};
use super::find;

pub(crate) async fn status(call: OcypodRequest) -> Answer {
    let job = find(&call.app, call.job()?).await?;
    ok(&Status::of(&job).as_str())
}
