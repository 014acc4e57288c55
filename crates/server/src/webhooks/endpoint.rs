//! Endpoints in the store. Their secrets leave this file only as signatures, and once as text.

use std::sync::Arc;

use longshore_api::ErrorCode;
use longshore_api::webhook::{PutWebhook, Webhook};
use longshore_core::id::validate_name;
use longshore_core::limits::QUEUE_NAME_CHARS_MAX;
use longshore_core::rng::Rng;
use longshore_core::target_url::validate_target_url;
use longshore_core::webhook::WebhookEvent;
use longshore_core::{Duration, Timestamp};
use longshore_engine::{CALLBACKS, EndpointRecord, EventSet, QueuePattern, SystemKind};
use longshore_store::{
    Expected, OsRng, Store, StoreError, SystemChange, SystemQuery, SystemRecord, SystemRefusal, SystemWrite,
};
use longshore_webhooks::sign::{SECRET_BYTES, Secret};
use longshore_webhooks::target::Target;
use serde::{Deserialize, Serialize};

use crate::convert::{time, times};
use crate::wire::problem::ApiError;

/// How long the secret before a rotation signs too.
const ROTATION_OVERLAP: Duration = Duration::from_hours(24);
pub(crate) const ENDPOINTS_MAX: usize = 1_000;
const QUEUES_MAX: usize = 100;
/// Attempts to write an endpoint that others change at the same time.
const WRITES_MAX: usize = 8;

/// An endpoint with its secrets. `Debug` hides them.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    pub(crate) name: Arc<str>,
    pub(crate) url: String,
    pub(crate) events: EventSet,
    pub(crate) queues: Vec<QueuePattern>,
    pub(crate) enabled: bool,
    pub(crate) disabled_reason: Option<String>,
    secret: Secret,
    /// The secret before the last rotation, and until when it signs too.
    previous: Option<(Secret, Timestamp)>,
    created_at: Timestamp,
    updated_at: Timestamp,
    /// `None` if it is not stored yet.
    revision: Option<u64>,
}

/// The part of the record that only the server reads, as JSON. It has no `Debug`: it has secrets.
#[derive(Serialize, Deserialize)]
struct ServerPart {
    url: String,
    secret: String,
    #[serde(default)]
    previous: Option<(String, i64)>,
    created_at: i64,
    updated_at: i64,
    #[serde(default)]
    disabled_reason: Option<String>,
}

impl Endpoint {
    fn new(name: &str, now: Timestamp) -> Self {
        Self {
            name: name.into(),
            url: String::new(),
            events: EventSet::default(),
            queues: Vec::new(),
            enabled: true,
            disabled_reason: None,
            secret: new_secret(),
            previous: None,
            created_at: now,
            updated_at: now,
            revision: None,
        }
    }

    pub(crate) fn of_record(record: &SystemRecord) -> Option<Self> {
        let EndpointRecord { enabled, events, queues, server_part } = EndpointRecord::decode(&record.value).ok()?;
        let part: ServerPart = serde_json::from_slice(&server_part).ok()?;
        let previous = match part.previous {
            Some((secret, until)) => Some((Secret::parse(&secret)?, Timestamp::from_millis(until))),
            None => None,
        };
        Some(Self {
            name: std::str::from_utf8(&record.key).ok()?.into(),
            url: part.url,
            events,
            queues,
            enabled,
            disabled_reason: part.disabled_reason,
            secret: Secret::parse(&part.secret)?,
            previous,
            created_at: Timestamp::from_millis(part.created_at),
            updated_at: Timestamp::from_millis(part.updated_at),
            revision: Some(record.revision),
        })
    }

    fn to_change(&self) -> Option<SystemChange> {
        let part = ServerPart {
            url: self.url.clone(),
            secret: self.secret.reveal(),
            previous: self.previous.as_ref().map(|(secret, until)| (secret.reveal(), until.as_millis())),
            created_at: self.created_at.as_millis(),
            updated_at: self.updated_at.as_millis(),
            disabled_reason: self.disabled_reason.clone(),
        };
        let record = EndpointRecord {
            enabled: self.enabled,
            events: self.events,
            queues: self.queues.clone(),
            server_part: serde_json::to_vec(&part).ok()?,
        };
        Some(SystemChange {
            kind: SystemKind::Webhook,
            key: self.name.as_bytes().to_vec(),
            expected: self.revision.map_or(Expected::Absent, Expected::Revision),
            value: Some(record.encode()),
            append_job_ids: false,
        })
    }

    /// Whether the endpoint is disabled because its receiver answered 410.
    pub(crate) fn is_gone(&self) -> bool {
        !self.enabled && self.disabled_reason.is_some()
    }

    pub(crate) fn is_reserved(&self) -> bool {
        &*self.name == CALLBACKS
    }

    /// Returns the secrets that sign now, the newest first.
    pub(crate) fn secrets(&self, now: Timestamp) -> impl Iterator<Item = &Secret> {
        let previous = self.previous.as_ref().filter(move |(_, until)| now < *until);
        std::iter::once(&self.secret).chain(previous.map(|(secret, _)| secret))
    }

    fn rotate(&mut self, now: Timestamp) {
        let old = std::mem::replace(&mut self.secret, new_secret());
        self.previous = Some((old, now + ROTATION_OVERLAP));
        self.updated_at = now;
    }

    /// Applies a PUT. What it leaves out has its default; `enabled` stays as it was.
    fn apply(&mut self, settings: &EndpointSettings, now: Timestamp) {
        let EndpointSettings { url, events, queues, enabled } = settings.clone();
        (self.url, self.events, self.queues, self.updated_at) = (url, events, queues, now);
        self.enabled = enabled.unwrap_or(self.enabled);
        if self.enabled {
            self.disabled_reason = None;
        }
    }

    pub(crate) fn to_wire(&self, now: Timestamp) -> Webhook {
        Webhook {
            name: self.name.to_string(),
            url: (!self.is_reserved()).then(|| self.url.clone()),
            events: self.events.events().collect(),
            queues: self.queues.iter().map(|pattern| pattern.as_str().to_owned()).collect(),
            enabled: self.enabled,
            disabled_reason: self.disabled_reason.clone(),
            created_at: time(self.created_at),
            updated_at: time(self.updated_at),
            previous_secret_until: times(self.previous.as_ref().map(|(_, until)| *until).filter(|until| now < *until)),
            secret: None,
        }
    }

    /// Returns the endpoint with its secret, for the response that creates the secret.
    pub(crate) fn to_wire_with_secret(&self, now: Timestamp) -> Webhook {
        Webhook { secret: Some(self.secret.reveal()), ..self.to_wire(now) }
    }
}

fn new_secret() -> Secret {
    let mut random = [0; SECRET_BYTES];
    let mut rng = OsRng::default();
    random.as_chunks_mut::<8>().0.iter_mut().for_each(|bytes| *bytes = rng.next_u64().to_le_bytes());
    Secret::new(random)
}

/// A checked PUT.
#[derive(Clone, Debug)]
pub(crate) struct EndpointSettings {
    url: String,
    events: EventSet,
    queues: Vec<QueuePattern>,
    enabled: Option<bool>,
}

impl EndpointSettings {
    pub(crate) fn read(put: PutWebhook) -> Result<Self, ApiError> {
        validate_target_url("url", &put.url)?;
        if Target::parse(&put.url).is_none() {
            return Err(ApiError::validation("url", "has an invalid host"));
        }
        let events = match &put.events {
            None => WebhookEvent::OF_JOBS.into_iter().collect(),
            Some(events) => read_events(events)?,
        };
        let queues = match &put.queues {
            None => vec!["*".to_owned()],
            Some(queues) if (1..=QUEUES_MAX).contains(&queues.len()) => queues.clone(),
            Some(_) => return Err(ApiError::validation("queues", &format!("must have 1 to {QUEUES_MAX} items"))),
        };
        let reason = "must be a queue name, or a prefix of names that ends in *";
        let pattern = |(index, text): (usize, &String)| {
            QueuePattern::new(text).ok_or_else(|| ApiError::validation(&format!("queues[{index}]"), reason))
        };
        let queues = queues.iter().enumerate().map(pattern).collect::<Result<_, _>>()?;
        Ok(Self { url: put.url, events, queues, enabled: put.enabled })
    }
}

fn read_events(events: &[String]) -> Result<EventSet, ApiError> {
    let words = WebhookEvent::OF_JOBS.map(WebhookEvent::as_str);
    if events.is_empty() {
        return Err(ApiError::not_one_of("events", &words));
    }
    let event = |(index, word): (usize, &String)| {
        let event = WebhookEvent::parse(word).filter(|event| WebhookEvent::OF_JOBS.contains(event));
        event.ok_or_else(|| ApiError::not_one_of(&format!("events[{index}]"), &words))
    };
    events.iter().enumerate().map(event).collect()
}

/// Checks the name of an endpoint that is created or changed.
pub(crate) fn check_name(name: &str) -> Result<(), ApiError> {
    validate_name("name", name, QUEUE_NAME_CHARS_MAX)?;
    if name == CALLBACKS {
        let reason = "must not be \"callbacks\": that endpoint is reserved for the callback URLs of jobs";
        return Err(ApiError::validation("name", reason));
    }
    Ok(())
}

pub(crate) fn not_found(name: &str) -> ApiError {
    ApiError::new(ErrorCode::WebhookNotFound, format!("no webhook endpoint has the name \"{name}\""))
}

/// Reads an endpoint.
pub(crate) async fn find(store: &dyn Store, name: &str) -> Result<Option<Endpoint>, StoreError> {
    let record = super::deliveries::read_one(store, SystemKind::Webhook, name.as_bytes()).await?;
    Ok(record.as_ref().and_then(Endpoint::of_record))
}

/// Reads all endpoints by name, the reserved one included.
pub(crate) async fn read_all(store: &dyn Store) -> Result<Vec<SystemRecord>, StoreError> {
    store.system_records(SystemQuery::all(SystemKind::Webhook, ENDPOINTS_MAX + 2)).await
}

/// What becomes of an endpoint that is being changed.
enum EndpointChange<T> {
    /// Writes the endpoint, and returns the value if it was written.
    Write(Endpoint, T),
    /// Writes nothing.
    Return(T),
}

/// Reads an endpoint, changes it, and writes it if it is unchanged since; else tries again.
async fn update<T>(
    store: &dyn Store,
    name: &str,
    mut change: impl FnMut(Option<Endpoint>) -> EndpointChange<T>,
) -> Result<Option<T>, StoreError> {
    for _ in 0..WRITES_MAX {
        let (endpoint, value) = match change(find(store, name).await?) {
            EndpointChange::Write(endpoint, value) => (endpoint, value),
            EndpointChange::Return(value) => return Ok(Some(value)),
        };
        let Some(change) = endpoint.to_change() else { return Ok(None) };
        match store.write_system(SystemWrite::new(vec![change])).await? {
            Ok(_) => return Ok(Some(value)),
            Err(SystemRefusal::Conflict { .. } | SystemRefusal::Submission(_)) => {}
        }
    }
    Ok(None)
}

/// An endpoint after a PUT, and whether the PUT has created it.
pub(crate) struct PutEndpoint {
    pub(crate) endpoint: Endpoint,
    pub(crate) created: bool,
}

/// Creates or replaces an endpoint. Returns `None` if others change it all the time.
pub(crate) async fn put(
    store: &dyn Store,
    name: &str,
    settings: &EndpointSettings,
) -> Result<Option<PutEndpoint>, StoreError> {
    let now = store.now();
    update(store, name, |found| {
        let created = found.is_none();
        let mut endpoint = found.unwrap_or_else(|| Endpoint::new(name, now));
        endpoint.apply(settings, now);
        EndpointChange::Write(endpoint.clone(), PutEndpoint { endpoint, created })
    })
    .await
}

/// Gives an endpoint a new secret. The inner `None` means that there is no such endpoint. The
/// reserved one is created.
pub(crate) async fn rotate(store: &dyn Store, name: &str) -> Result<Option<Option<Endpoint>>, StoreError> {
    let now = store.now();
    update(store, name, |found| {
        let endpoint = match found {
            Some(mut endpoint) => {
                endpoint.rotate(now);
                endpoint
            }
            // Its first secret has not signed anything.
            None if name == CALLBACKS => Endpoint::new(name, now),
            None => return EndpointChange::Return(None),
        };
        EndpointChange::Write(endpoint.clone(), Some(endpoint))
    })
    .await
}

/// Returns the reserved endpoint, which is created with the first callback.
pub(crate) async fn callbacks(store: &dyn Store) -> Result<Option<Endpoint>, StoreError> {
    let now = store.now();
    update(store, CALLBACKS, |found| match found {
        Some(endpoint) => EndpointChange::Return(endpoint),
        None => {
            let endpoint = Endpoint::new(CALLBACKS, now);
            EndpointChange::Write(endpoint.clone(), endpoint)
        }
    })
    .await
}

/// Disables an endpoint whose receiver answered 410, if it still has the URL that answered so.
pub(crate) async fn disable_gone(store: &dyn Store, name: &str, url: &str) -> Result<(), StoreError> {
    let now = store.now();
    let written = update(store, name, |found| match found {
        Some(mut endpoint) if endpoint.url == url && endpoint.enabled => {
            (endpoint.enabled, endpoint.updated_at) = (false, now);
            endpoint.disabled_reason = Some("gone".to_owned());
            EndpointChange::Write(endpoint, true)
        }
        Some(_) | None => EndpointChange::Return(false),
    });
    if written.await? == Some(true) {
        tracing::warn!(webhook = name, "webhook endpoint disabled: its receiver answered 410");
    }
    Ok(())
}

/// Deletes an endpoint. Returns whether it existed.
pub(crate) async fn delete(store: &dyn Store, name: &str) -> Result<bool, StoreError> {
    let key = name.as_bytes();
    let Some(record) = super::deliveries::read_one(store, SystemKind::Webhook, key).await? else { return Ok(false) };
    let change = SystemChange {
        kind: SystemKind::Webhook,
        key: record.key,
        expected: Expected::Any,
        value: None,
        append_job_ids: false,
    };
    Ok(store.write_system(SystemWrite::new(vec![change])).await?.is_ok())
}

/// Creates or replaces an endpoint of the configuration file before the server starts.
///
/// An endpoint that was disabled because its receiver answered 410 stays so, until its URL changes
/// or an operator enables it.
pub async fn declare(store: &dyn Store, name: &str, put: PutWebhook) -> Result<Result<(), ApiError>, StoreError> {
    let mut settings = match check_name(name).and_then(|()| EndpointSettings::read(put)) {
        Ok(settings) => settings,
        Err(error) => return Ok(Err(error)),
    };
    let stored = find(store, name).await?;
    if stored.is_some_and(|stored| stored.disabled_reason.is_some() && stored.url == settings.url) {
        settings.enabled = None;
    }
    let written = self::put(store, name, &settings).await?;
    Ok(written.map(|_| ()).ok_or_else(|| ApiError::new(ErrorCode::StoreUnavailable, "the endpoint is being changed")))
}
