//! Creates, lists and revokes tokens on a store, with or without a server.

use std::fmt;

use longshore_core::Timestamp;
use longshore_core::access::{ActionSet, Permissions, QueueScope, TokenAction, check_expiry, check_token_name};
use longshore_core::limits::TOKENS_MAX;
use longshore_core::rate_limit::RateLimit;
use longshore_core::refusal::Invalid;
use longshore_engine::SystemKind;
use longshore_store::{Expected, OsRng, Store, StoreError, SystemChange, SystemQuery, SystemRefusal, SystemWrite};

use super::record::{TokenRecord, TokenSecret};

/// Tokens that are read at once.
const PAGE: usize = 1_000;

/// What a new token allows.
#[derive(Clone, Debug)]
pub struct NewTokenSpec {
    pub name: String,
    pub actions: Vec<TokenAction>,
    pub queues: Vec<String>,
    pub expires_at: Option<Timestamp>,
    /// Requests and jobs per second on each server; `None`: without a limit.
    pub rate: Option<u32>,
    /// Requests and jobs that may come at once; `None`: as many as in one second.
    pub burst: Option<u32>,
}

#[derive(Debug)]
pub enum TokenError {
    Invalid(Invalid),
    Store(StoreError),
}

impl fmt::Display for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(invalid) => invalid.fmt(f),
            Self::Store(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for TokenError {}

impl From<Invalid> for TokenError {
    fn from(invalid: Invalid) -> Self {
        Self::Invalid(invalid)
    }
}

impl From<StoreError> for TokenError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// Stores a new token. Returns its record, and the text that its holder sends.
pub async fn create(store: &dyn Store, spec: NewTokenSpec) -> Result<(TokenRecord, TokenSecret), TokenError> {
    let now = store.now();
    check_token_name(&spec.name)?;
    let parse = |(index, pattern): (usize, &String)| {
        pattern.parse().map_err(|invalid: Invalid| invalid.at(format!("queues[{index}]")))
    };
    let patterns = spec.queues.iter().enumerate().map(parse).collect::<Result<_, _>>()?;
    let actions: ActionSet = spec.actions.into_iter().collect();
    let permissions = Permissions::new(actions, QueueScope::new(patterns)?)?;
    check_expiry(spec.expires_at, now)?;
    let rate_limit = RateLimit::new(spec.rate, spec.burst)?;
    if list(store).await?.len() >= TOKENS_MAX {
        return Err(
            Invalid::new("name", format!("cannot be added: there are {TOKENS_MAX} tokens (revoke some)")).into()
        );
    }
    // An id has 64 random bits: a second try is for a collision that will not happen.
    loop {
        let (id, digest, secret) = TokenSecret::generate(&mut OsRng::default());
        let record = TokenRecord {
            id,
            name: spec.name.clone(),
            digest,
            permissions: permissions.clone(),
            created_at: now,
            expires_at: spec.expires_at,
            last_used_at: None,
            rate_limit,
        };
        let change = SystemChange::put(SystemKind::Token, record.id.as_bytes(), Expected::Absent, record.encode());
        if store.write_system(SystemWrite::new(vec![change])).await?.is_ok() {
            return Ok((record, secret));
        }
    }
}

/// Lists all tokens, oldest first. A record that cannot be decoded is left out: it opens no door.
pub async fn list(store: &dyn Store) -> Result<Vec<TokenRecord>, StoreError> {
    let mut tokens: Vec<TokenRecord> = read(store).await?.into_iter().filter_map(|(_, token)| token).collect();
    tokens.sort_by(|a, b| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
    Ok(tokens)
}

/// Reads all records with their revisions; `None` for one that cannot be decoded.
pub(crate) async fn read(store: &dyn Store) -> Result<Vec<(u64, Option<TokenRecord>)>, StoreError> {
    let (mut tokens, mut start) = (Vec::new(), Vec::new());
    loop {
        let query = SystemQuery { kind: SystemKind::Token, start, end: None, limit: PAGE, descending: false };
        let page = store.system_records(query).await?;
        tokens.extend(page.iter().map(|record| (record.revision, TokenRecord::decode(&record.key, &record.value))));
        let Some(last) = page.last().filter(|_| page.len() == PAGE) else { return Ok(tokens) };
        start = [last.key.as_slice(), &[0]].concat();
    }
}

/// Whether the store has a token, expired or not.
pub async fn has_any(store: &dyn Store) -> Result<bool, StoreError> {
    let query = SystemQuery { kind: SystemKind::Token, start: Vec::new(), end: None, limit: 1, descending: false };
    Ok(!store.system_records(query).await?.is_empty())
}

/// How a revocation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Revocation {
    Revoked,
    NotFound,
    /// It is the last token of the store, and was kept: without any token the server trusts its own
    /// machine, and with it every proxy there.
    IsLast,
}

/// Deletes a token. With `keep_last` the last one stays.
pub async fn revoke(store: &dyn Store, id: &str, keep_last: bool) -> Result<Revocation, StoreError> {
    loop {
        let Some((revision, _)) = find(store, id).await? else { return Ok(Revocation::NotFound) };
        if keep_last && store.system_records(SystemQuery::all(SystemKind::Token, 2)).await?.len() < 2 {
            return Ok(Revocation::IsLast);
        }
        let change = SystemChange::delete(SystemKind::Token, id.as_bytes(), Expected::Revision(revision));
        match store.write_system(SystemWrite::new(vec![change])).await? {
            Ok(_) => return Ok(Revocation::Revoked),
            // Its time of use was written meanwhile.
            Err(SystemRefusal::Conflict { .. } | SystemRefusal::Submission(_)) => {}
        }
    }
}

async fn find(store: &dyn Store, id: &str) -> Result<Option<(u64, TokenRecord)>, StoreError> {
    let end = Some([id.as_bytes(), &[0]].concat());
    let start = id.as_bytes().to_vec();
    let query = SystemQuery { kind: SystemKind::Token, start, end, limit: 1, descending: false };
    let found = store.system_records(query).await?.into_iter().next();
    Ok(found.and_then(|record| Some((record.revision, TokenRecord::decode(&record.key, &record.value)?))))
}

/// Stores the minute of the last use. A token that was changed or revoked meanwhile stays as it is.
pub(crate) async fn record_use(store: &dyn Store, id: &str, at: Timestamp) -> Result<(), StoreError> {
    let Some((revision, record)) = find(store, id).await? else { return Ok(()) };
    if record.last_used_at.is_some_and(|last| last >= at) {
        return Ok(());
    }
    let record = TokenRecord { last_used_at: Some(at), ..record };
    let expected = Expected::Revision(revision);
    let change = SystemChange::put(SystemKind::Token, id.as_bytes(), expected, record.encode());
    // No cache depends on the time of use.
    drop(store.write_system(SystemWrite::unannounced(vec![change])).await?);
    Ok(())
}
