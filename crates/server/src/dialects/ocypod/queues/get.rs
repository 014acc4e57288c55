//! `GET /queue/{name}`

use super::super::request::Call;
use super::super::response::{Answer, ok};
use super::super::settings::shown;

pub(crate) async fn get(call: Call) -> Answer {
    ok(&shown(&call.known_queue().await?.queue.policy))
}
