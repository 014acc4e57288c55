//! Short calls for tests.

use std::sync::Arc;

use bytes::Bytes;
use longshore_core::claim::ClaimOptions;
use longshore_core::id::{JobId, JobType, QueueName};
use longshore_core::patch::{PolicyPatch, SettingsPatch};
use longshore_core::profile::Profile;
use longshore_core::settle::Outcome;
use longshore_core::state::StateKind;
use longshore_core::submit::{NewJob, Payload};
use longshore_core::{Duration, Refusal};
use longshore_engine::{AdminCommand, ClaimRequest, Settlement, Submission, SubmitRequest, Submitted};
use longshore_store::{ClaimedJob, JobRef, Store, StoreError};
use longshore_store_postgres::{PostgresOptions, PostgresStore};

pub fn queue() -> QueueName {
    QueueName::new("q").expect("a name")
}

/// Opens a store with the database clock on the current runtime.
pub async fn open(url: &str, schema: &str) -> Arc<PostgresStore> {
    let options = PostgresOptions { schema: schema.to_owned(), ..PostgresOptions::new(url) };
    let handle = tokio::runtime::Handle::current();
    Arc::new(PostgresStore::start(options, handle).await.expect("the store opens"))
}

pub async fn put_queue(store: &dyn Store, lease: Duration) {
    let job = PolicyPatch { lease: Some(lease), ..PolicyPatch::default() };
    let overrides = Some(Box::new(SettingsPatch { job, ..SettingsPatch::default() }));
    let command = AdminCommand::PutQueue { queue: queue(), profile: Some(Profile::Standard), overrides };
    store.admin(command).await.expect("the store answers").expect("the queue is put");
}

pub fn job(key: &str) -> SubmitRequest {
    let payload = Payload::Json(Bytes::from(format!("\"{key}\"")));
    let mut job = NewJob::new(JobType::new("work").expect("a name"), payload);
    job.idempotency_key = Some(key.into());
    SubmitRequest::new(vec![Submission { queue: queue(), job }])
}

pub async fn submit(store: &dyn Store, key: &str) -> Result<Submitted, StoreError> {
    Ok(store.submit(job(key)).await?.expect("nothing is wrong with it").remove(0))
}

pub async fn claim(store: &dyn Store, limit: usize) -> Result<Vec<ClaimedJob>, StoreError> {
    let request = ClaimRequest { queues: vec![queue()], limit, types: Vec::new(), terms: ClaimOptions::default() };
    Ok(store.claim(request).await?.expect("nothing is wrong with it"))
}

pub async fn complete(store: &dyn Store, job: &ClaimedJob) -> Result<Result<StateKind, Refusal>, StoreError> {
    let outcome = Outcome::Complete { result: None, progress: None };
    let settlement = Settlement { id: job.claimed.id, token: Some(job.claimed.token), outcome };
    Ok(store.settle(vec![settlement]).await?.remove(0))
}

pub async fn state(store: &dyn Store, id: JobId) -> Option<StateKind> {
    let found = store.get(vec![JobRef::Id(id)]).await.expect("the store answers").remove(0);
    found.map(|job| job.kind())
}
