//! `/job/{id}/status`

use longshore_core::status::Status;

use super::super::answer::{Answer, ok};
use super::super::call::Call;
use super::find;

pub(crate) async fn status(call: Call) -> Answer {
    let job = find(&call.app, call.job()?).await?;
    ok(&Status::of(&job).word())
}
