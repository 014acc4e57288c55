//! `/job/{id}/status`

use longshore_core::status::Status;

use super::super::request::Call;
use super::super::response::{Answer, ok};
use super::find;

pub(crate) async fn status(call: Call) -> Answer {
    let job = find(&call.app, call.job()?).await?;
    ok(&Status::of(&job).as_str())
}
