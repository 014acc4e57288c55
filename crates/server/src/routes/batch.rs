//! Batches of new jobs: each member is read by itself, and the first that is refused, for whatever reason, speaks for all.

use std::collections::BTreeMap;

use longshore_api::job::{NewJob as Given, Submitted as Told};
use longshore_core::engine::{BatchRefusal, Submission, SubmitRequest, Submitted};
use longshore_core::id::QueueName;
use longshore_core::limits::BATCH_ITEMS_MAX;
use longshore_core::refusal::Refusal;
use longshore_core::submit::NewJob;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::convert::enums::ToWire;
use crate::convert::new_job;
use crate::state::AppState;
use crate::wire::json;
use crate::wire::problem::{ApiError, ItemError};

/// Whether a member may name its own queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueField {
    Refused,
    Allowed,
    /// Nothing else says which.
    Required,
}

/// Members as far as they could be read; the others are represented by stand-ins that the rules refuse.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub members: Vec<Submission>,
    invalid_items: Vec<(usize, ItemError)>,
    /// Dependencies that are no ids, by member: the rules know them as nobody's.
    malformed_dependencies: Vec<(usize, String)>,
    /// Where members stand in the body, unless that is `jobs[place]`.
    paths: BTreeMap<usize, String>,
    /// The header `Idempotency-Key` of a single submission.
    header_key: Option<String>,
}

impl Batch {
    /// A batch for one job, whose idempotency key may come as a header.
    pub(crate) fn with_header_key(header_key: Option<String>) -> Self {
        Self { header_key, ..Self::default() }
    }

    /// As `add`, of a member that stands at another path than `jobs[place]`.
    pub(crate) fn add_at(
        &mut self,
        path: String,
        text: &str,
        queue: &QueueName,
        own_queue: QueueField,
    ) -> Result<(), ApiError> {
        self.paths.insert(self.members.len(), path);
        self.add(text, queue, own_queue)
    }

    pub(crate) fn check_size(members: usize) -> Result<(), ApiError> {
        if (1..=BATCH_ITEMS_MAX).contains(&members) {
            return Ok(());
        }
        Err(ApiError::validation("jobs", &format!("must be 1-{BATCH_ITEMS_MAX} jobs")))
    }

    pub(crate) fn add(&mut self, text: &str, queue: &QueueName, own_queue: QueueField) -> Result<(), ApiError> {
        let place = self.members.len();
        match self.read(place, text, queue, own_queue) {
            Ok(submission) => self.members.push(submission),
            Err(failure) => {
                self.invalid_items.push((place, failure));
                self.members.push(Submission { queue: queue.clone(), job: placeholder(text)? });
            }
        }
        Ok(())
    }

    fn read(
        &mut self,
        place: usize,
        text: &str,
        queue: &QueueName,
        own_queue: QueueField,
    ) -> Result<Submission, ItemError> {
        let mut given: Given = json::object(text)?;
        self.take_header_key(&mut given)?;
        let queue = match (given.queue.take(), own_queue) {
            (None, QueueField::Required) => return Err(ItemError::validation("queue", "is required")),
            (None, QueueField::Allowed | QueueField::Refused) => queue.clone(),
            (Some(name), QueueField::Allowed | QueueField::Required) => QueueName::new(&name)?,
            (Some(_), QueueField::Refused) => return Err(ItemError::validation("queue", "is not a known field")),
        };
        let named = given.after.iter().chain(&given.after_any).flatten();
        let odd = |name: &&String| !name.starts_with('#') && name.parse::<longshore_core::id::JobId>().is_err();
        self.malformed_dependencies.extend(named.filter(odd).take(1).map(|name| (place, name.clone())));
        Ok(Submission { queue, job: new_job::read(given)? })
    }

    /// The key of the header stands for that of the body; they must not differ.
    fn take_header_key(&mut self, given: &mut Given) -> Result<(), ItemError> {
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

    /// What is wrong with the only member.
    pub(crate) fn take_unreadable(&mut self) -> Option<ItemError> {
        self.invalid_items.pop().map(|(_, failure)| failure)
    }

    /// Whether a member could not be read: the batch will be refused, and the rules are asked only for what they say of the others.
    fn invalid_items(&self) -> bool {
        !self.invalid_items.is_empty()
    }

    /// Everybody's complaints, by place.
    pub(crate) fn refusal(self, refusal: BatchRefusal) -> ApiError {
        if refusal.errors.is_empty() {
            return refusal.first.into();
        }
        let paths = self.paths.clone();
        let path = |place: usize| paths.get(&place).cloned().unwrap_or_else(|| format!("jobs[{place}]"));
        ApiError::batch(self.item_errors(refusal), path)
    }

    fn item_errors(self, refusal: BatchRefusal) -> Vec<(usize, ItemError)> {
        let Self { invalid_items: unreadable, malformed_dependencies: odd, .. } = self;
        let stands_in = |place: usize| unreadable.iter().any(|(other, _)| *other == place);
        let by_rules = refusal.errors.into_iter().filter(|(place, _)| !stands_in(*place)).map(|(place, refusal)| {
            let named = odd.iter().find(|(other, _)| *other == place);
            let refusal = match (refusal, named) {
                (Refusal::DependencyUnknown(id), Some((_, name))) if id.starts_with(NIL_ID_PREFIX) => {
                    Refusal::DependencyUnknown(name.chars().take(100).collect())
                }
                (refusal, _) => refusal,
            };
            (place, ItemError::from(refusal))
        });
        let mut all: Vec<_> = by_rules.collect();
        all.extend(unreadable.iter().cloned());
        all.sort_by_key(|(place, _)| *place);
        all
    }

    /// The one member of a request that was no batch.
    pub(crate) fn single_refusal(self, refusal: BatchRefusal) -> ApiError {
        if refusal.errors.is_empty() {
            return refusal.first.into();
        }
        let first = self.item_errors(refusal).into_iter().next();
        first.map_or_else(|| ApiError::bad_request("the job was refused"), |(_, failure)| failure.into())
    }

    /// Hands the batch to the store.
    pub(crate) async fn submit(
        self,
        app: &AppState,
        request: impl FnOnce(Vec<Submission>) -> SubmitRequest,
        refused: impl FnOnce(Self, BatchRefusal) -> ApiError,
    ) -> Result<Vec<Submitted>, ApiError> {
        let Self { members, invalid_items: unreadable, malformed_dependencies: odd, paths, header_key } = self;
        let doubtful =
            Self { members: Vec::new(), invalid_items: unreadable, malformed_dependencies: odd, paths, header_key };
        match app.submit(request(members)).await? {
            Ok(submitted) if doubtful.invalid_items() => {
                // Impossible: the rules never take a stand-in.
                tracing::error!(jobs = submitted.len(), "a batch with an unreadable member was taken");
                Err(ApiError::new(longshore_api::ErrorCode::Internal, "a batch with an unreadable member was taken"))
            }
            Ok(submitted) => Ok(submitted),
            Err(refusal) => Err(refused(doubtful, refusal)),
        }
    }
}

/// How the id of nobody begins.
const NIL_ID_PREFIX: &str = "00000000-0000-0000";

/// In the place of a job that cannot be read; its references are read as far as that goes.
fn placeholder(text: &str) -> Result<NewJob, ApiError> {
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
    let loose = Some(text).filter(|text| text.trim_start().starts_with('{'));
    let loose: PartialJob<'_> = loose.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let list = |raw: Option<&RawValue>| -> Vec<String> {
        raw.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default()
    };
    let reference: Option<String> = loose.reference.and_then(|raw| serde_json::from_str(raw.get()).ok());
    Ok(new_job::stand_in(reference.as_deref(), &list(loose.after), &list(loose.after_any))?)
}

pub(crate) fn to_wire(submitted: &Submitted) -> Told {
    Told {
        id: submitted.id.to_string(),
        seq: submitted.seq.0,
        state: submitted.state.map(ToWire::wire),
        duplicate: submitted.duplicate,
        same_payload: None,
    }
}
