//! Batches of new jobs: each item is parsed by itself, so that the error lists all invalid items.

use std::collections::BTreeMap;
use std::sync::Arc;

use longshore_api::job::NewJob as WireJob;
use longshore_core::id::QueueName;
use longshore_core::limits::BATCH_ITEMS_MAX;
use longshore_core::refusal::Refusal;
use longshore_core::submit::DependencyRef;
use longshore_core::trace_context::TraceParent;
use longshore_engine::{BatchRefusal, InvalidSubmission, ParsedSubmission, Submission, SubmitRequest, Submitted};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::convert::new_job::{self, PlainJob};
use crate::state::AppState;
use crate::wire::json;
use crate::wire::problem::{ApiError, ItemError};

/// Whether a member may name its own queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueField {
    Refused,
    Allowed,
    /// The request names no other queue.
    Required,
}

/// The items of a batch, valid or not. The engine refuses a batch with invalid items.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub members: Vec<ParsedSubmission>,
    /// The errors of the invalid items, with all details of the wire.
    invalid_items: Vec<(usize, ItemError)>,
    /// Dependencies that are no ids, by member. The rules get the nil id instead.
    malformed_dependencies: Vec<(usize, String)>,
    /// Paths of members in the body, if other than `jobs[index]`.
    paths: BTreeMap<usize, String>,
    /// The header `Idempotency-Key` of a single submission.
    header_key: Option<String>,
}

impl Batch {
    /// A batch for one job, whose idempotency key may come as a header.
    pub(crate) fn with_header_key(header_key: Option<String>) -> Self {
        Self { header_key, ..Self::default() }
    }

    /// Like `add`, for a member at another path than `jobs[index]`.
    pub(crate) fn add_at(&mut self, path: String, text: &str, queue: &QueueName, own_queue: QueueField) {
        self.paths.insert(self.members.len(), path);
        self.add(text, queue, own_queue);
    }

    /// Parses an array of jobs in one pass over its text. Returns `None` if an item is invalid, or
    /// if the array has no allowed size.
    pub(crate) fn of_valid_jobs(text: &str, queue: &QueueName) -> Option<Self> {
        let mut batch = Self::default();
        let plain = json::for_each_object::<PlainJob<'_>>(text, |given| {
            let job = new_job::read_plain(&given).ok()?;
            batch.add_valid(Submission { queue: queue.clone(), job })
        });
        if plain.is_none() {
            batch.members.clear();
            json::for_each_object::<WireJob>(text, |given| {
                let submission = batch.convert(batch.members.len(), given, queue, QueueField::Refused).ok()?;
                batch.add_valid(submission)
            })?;
        }
        (!batch.members.is_empty()).then_some(batch)
    }

    /// Returns `None` if the batch is full.
    fn add_valid(&mut self, submission: Submission) -> Option<()> {
        self.members.push(Ok(submission));
        (self.members.len() <= BATCH_ITEMS_MAX).then_some(())
    }

    pub(crate) fn check_size(members: usize) -> Result<(), ApiError> {
        if (1..=BATCH_ITEMS_MAX).contains(&members) {
            return Ok(());
        }
        Err(ApiError::validation("jobs", &format!("must be 1-{BATCH_ITEMS_MAX} jobs")))
    }

    pub(crate) fn add(&mut self, text: &str, queue: &QueueName, own_queue: QueueField) {
        let index = self.members.len();
        match self.read(index, text, queue, own_queue) {
            Ok(submission) => self.members.push(Ok(submission)),
            Err(error) => {
                self.members.push(Err(invalid_submission(text, &error)));
                self.invalid_items.push((index, error));
            }
        }
    }

    fn read(
        &mut self,
        index: usize,
        text: &str,
        queue: &QueueName,
        own_queue: QueueField,
    ) -> Result<Submission, ItemError> {
        if self.header_key.is_none()
            && own_queue != QueueField::Required
            && let Some(plain) = json::valid_object(text)
        {
            return Ok(Submission { queue: queue.clone(), job: new_job::read_plain(&plain)? });
        }
        self.convert(index, json::object(text)?, queue, own_queue)
    }

    fn convert(
        &mut self,
        index: usize,
        mut given: WireJob,
        queue: &QueueName,
        own_queue: QueueField,
    ) -> Result<Submission, ItemError> {
        self.take_header_key(&mut given)?;
        let queue = match (given.queue.take(), own_queue) {
            (None, QueueField::Required) => return Err(ItemError::validation("queue", "is required")),
            (None, QueueField::Allowed | QueueField::Refused) => queue.clone(),
            (Some(name), QueueField::Allowed | QueueField::Required) => QueueName::new(&name)?,
            (Some(_), QueueField::Refused) => return Err(ItemError::validation("queue", "is not a known field")),
        };
        let named = given.after.iter().chain(&given.after_any).flatten();
        let is_malformed =
            |name: &&String| !name.starts_with('#') && name.parse::<longshore_core::id::JobId>().is_err();
        self.malformed_dependencies.extend(named.filter(is_malformed).take(1).map(|name| (index, name.clone())));
        Ok(Submission { queue, job: new_job::read(given)? })
    }

    /// The key of the header stands for that of the body; they must not differ.
    fn take_header_key(&mut self, given: &mut WireJob) -> Result<(), ItemError> {
        let Some(key) = self.header_key.take() else { return Ok(()) };
        match &given.idempotency_key {
            Some(own) if *own != key => {
                let reason = "differs from the header Idempotency-Key: give the key once";
                Err(ItemError::validation("idempotency_key", reason))
            }
            Some(_) => Ok(()),
            None => {
                given.idempotency_key = Some(key);
                Ok(())
            }
        }
    }

    /// Gives the only member the trace context of the request, unless it has its own.
    pub(crate) fn set_traceparent(&mut self, parent: TraceParent) {
        if let Some(Ok(submission)) = self.members.last_mut() {
            submission.job.traceparent.get_or_insert_with(|| Box::new(parent));
        }
    }

    /// Returns the error of the only member.
    pub(crate) fn take_invalid_item(&mut self) -> Option<ItemError> {
        self.invalid_items.pop().map(|(_, failure)| failure)
    }

    /// Converts the refusal of a batch to a response that lists the errors of all items.
    pub(crate) fn refusal(self, refusal: BatchRefusal) -> ApiError {
        if refusal.errors.is_empty() {
            return refusal.first.into();
        }
        let paths = self.paths.clone();
        let path = |index: usize| paths.get(&index).cloned().unwrap_or_else(|| format!("jobs[{index}]"));
        ApiError::batch(self.item_errors(refusal), path)
    }

    fn item_errors(self, refusal: BatchRefusal) -> Vec<(usize, ItemError)> {
        let Self { invalid_items, malformed_dependencies, .. } = self;
        let is_invalid = |index: usize| invalid_items.iter().any(|(other, _)| *other == index);
        let by_rules = refusal.errors.into_iter().filter(|(index, _)| !is_invalid(*index)).map(|(index, refusal)| {
            let named = malformed_dependencies.iter().find(|(other, _)| *other == index);
            let refusal = match (refusal, named) {
                (Refusal::DependencyUnknown { field, name: id }, Some((_, name))) if id.starts_with(NIL_ID_PREFIX) => {
                    Refusal::DependencyUnknown { field, name: name.chars().take(100).collect() }
                }
                (refusal, _) => refusal,
            };
            (index, ItemError::from(refusal))
        });
        let mut all: Vec<_> = by_rules.collect();
        all.extend(invalid_items.iter().cloned());
        all.sort_by_key(|(index, _)| *index);
        all
    }

    /// Converts the refusal of a single job to its response.
    pub(crate) fn single_refusal(self, refusal: BatchRefusal) -> ApiError {
        if refusal.errors.is_empty() {
            return refusal.first.into();
        }
        let first = self.item_errors(refusal).into_iter().next();
        first.map_or_else(|| ApiError::bad_request("the job was refused"), |(_, failure)| failure.into())
    }

    /// Submits the batch to the store.
    pub(crate) async fn submit(
        mut self,
        app: &AppState,
        request: impl FnOnce(Vec<ParsedSubmission>) -> SubmitRequest,
        refused: impl FnOnce(Self, BatchRefusal) -> ApiError,
    ) -> Result<Vec<Submitted>, ApiError> {
        let members = std::mem::take(&mut self.members);
        app.submit(request(members)).await?.map_err(|refusal| refused(self, refusal))
    }
}

/// The start of the nil id.
const NIL_ID_PREFIX: &str = "00000000-0000-0000";

/// Describes an item that could not be parsed, with its reference and dependencies if they can be
/// parsed.
fn invalid_submission(text: &str, error: &ItemError) -> InvalidSubmission {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct PartialJob<'a> {
        #[serde(borrow, rename = "ref")]
        reference: Option<&'a RawValue>,
        #[serde(borrow)]
        after: Option<&'a RawValue>,
        #[serde(borrow)]
        after_any: Option<&'a RawValue>,
    }
    let object = Some(text).filter(|text| text.trim_start().starts_with('{'));
    let partial: PartialJob<'_> = object.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let list = |raw: Option<&RawValue>| -> Vec<DependencyRef> {
        let texts: Option<Vec<String>> = raw.and_then(|raw| serde_json::from_str(raw.get()).ok());
        new_job::dependencies(texts.as_deref())
    };
    let reference: Option<String> = partial.reference.and_then(|raw| serde_json::from_str(raw.get()).ok());
    let field = error.field.clone().unwrap_or_else(|| "job".to_owned());
    InvalidSubmission {
        refusal: Refusal::invalid(field, error.detail.clone()),
        reference: reference.map(Arc::from),
        after: list(partial.after),
        after_any: list(partial.after_any),
    }
}
