//! `GET /job/{id}`

use super::super::job::{Field, Object};
use super::super::request::OcypodRequest;
use super::super::response::{Answer, ok};
use super::find;

pub(crate) async fn get(call: OcypodRequest) -> Answer {
    let (app, id) = (&call.app, call.job()?);
    let fields = Field::asked(call.query())?;
    let job = find(app, id).await?;
    let payload = if fields.contains(&Field::Input) {
        app.call_store(app.store.payloads(vec![job.seq])).await?.into_iter().next().flatten()
    } else {
        None
    };
    ok(&Object { job: &job, payload: payload.as_ref(), fields: &fields })
}
