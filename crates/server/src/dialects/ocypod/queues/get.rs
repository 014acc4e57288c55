//! `GET /queue/{name}`

use super::super::answer::{Answer, ok};
use super::super::call::Call;
use super::super::settings::shown;

pub(crate) async fn get(call: Call) -> Answer {
    ok(&shown(&call.known_queue().await?.queue.policy))
}
