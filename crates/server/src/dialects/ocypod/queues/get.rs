//! `GET /queue/{name}`

use super::super::request::OcypodRequest;
use super::super::response::{Answer, ok};
use super::super::settings::shown;

pub(crate) async fn get(call: OcypodRequest) -> Answer {
    ok(&shown(&call.known_queue().await?.queue.policy))
}
