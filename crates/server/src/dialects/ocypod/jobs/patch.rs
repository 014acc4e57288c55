//! `PATCH /job/{id}`

use std::fmt;

use bytes::Bytes;
use longshore_core::id::Seq;
use longshore_core::ocypod::status::{Status, StatusChange};
use longshore_engine::AdminCommand;
use serde::Deserialize;
use serde::de::{Deserializer, Error, Visitor};
use serde_json::value::RawValue;

use super::super::request::{OcypodRequest, payload_max};
use super::super::response::{Answer, OcypodError, done};
use super::{find, look};
use crate::app::AppState;

#[derive(Default, Deserialize)]
#[serde(default)]
struct Given<'a> {
    status: Option<Word>,
    #[serde(borrow)]
    output: Option<&'a RawValue>,
}

struct Word(Status);

impl<'de> Deserialize<'de> for Word {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Words;

        impl Visitor<'_> for Words {
            type Value = Word;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("one of")?;
                Status::ALL.iter().try_for_each(|status| write!(f, " `{status}`"))
            }

            fn visit_str<E: Error>(self, word: &str) -> Result<Word, E> {
                // The older documentation's word for a job in line.
                let known = if word == "created" { Some(Status::Queued) } else { Status::parse(word) };
                known.map(Word).ok_or_else(|| {
                    E::custom(format_args!("unknown variant, expected {}", &self as &dyn serde::de::Expected))
                })
            }
        }

        deserializer.deserialize_str(Words)
    }
}

/// Changes the status, the output, or both at once. Nothing to change is fine, whatever the id.
pub(crate) async fn patch(call: OcypodRequest) -> Answer {
    let (app, id) = (call.app.clone(), call.job()?);
    let bytes_max = output_max(&app, id).await?;
    let body = call.json_around(bytes_max)?;
    let Given { status, output } = body.object()?;
    let change = StatusChange {
        status: status.map(|Word(status)| status),
        output: output.map(|output| Bytes::copy_from_slice(output.get().as_bytes())),
    };
    if change == StatusChange::default() {
        return done();
    }
    apply(&app, id, change).await
}

pub(super) async fn apply(app: &AppState, id: Seq, change: StatusChange) -> Answer {
    let job = find(app, id).await?;
    match app.call_store(app.store.admin(AdminCommand::ChangeStatus { id: job.id, change })).await? {
        Ok(_) => done(),
        Err(refusal) => Err(OcypodError::refused(refusal, &job.queue, Some(id))),
    }
}

/// What the output of a job may weigh: as much as its queue takes as input.
pub(super) async fn output_max(app: &AppState, id: Seq) -> Result<u32, OcypodError> {
    let Some(job) = look(app, id).await? else { return Ok(payload_max()) };
    let queue = app.call_store(app.store.queue(job.queue.clone())).await?;
    Ok(queue.map_or(payload_max(), |report| report.queue.intake.payload_max))
}
