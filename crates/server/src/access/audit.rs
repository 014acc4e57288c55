//! The audit log: every call of an operator or administrator, also refused ones.
//!
//! An entry is written after the call, because it has the outcome, and before the response: a
//! change
//! that was acknowledged is in the log. The call goes on if its client leaves. If the entry cannot
//! be written, the call is answered with
//! `store_unavailable`, and it is unknown whether it was applied. Calls with a wrong token are not
//! listed: any client could fill the log with them. Of the refused calls of a token, ten per minute
//! are listed.

use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use longshore_api::RetryAdvice;
use longshore_api::access::{AuditEntry, AuditPage};
use longshore_api::enums::{AuditOutcome, TokenAction};
use longshore_core::Timestamp;
use longshore_core::access::TOKEN_PREFIX;
use longshore_core::rng::Rng;
use longshore_engine::SystemKind;
use longshore_store::clock::monotonic;
use longshore_store::{Expected, OsRng, Store, StoreError, SystemChange, SystemQuery, SystemWrite};
use parking_lot::Mutex;

use super::record::{hex, unhex};
use super::{Caller, Peer, RequestOrigin};
use crate::convert::time;
use crate::state::AppState;
use crate::wire::problem::ApiError;

/// How long entries are kept.
const KEPT_MS: i64 = 90 * 24 * 3_600_000;
/// Entries of one deletion.
const PRUNE_SLICE: usize = 500;
/// Deletions of one run.
const PRUNE_SLICES_MAX: usize = 20;
/// Bytes of a key: the time in milliseconds, the monotonic time of the node, and random bytes.
const KEY_BYTES: usize = 24;
const VERSION: u8 = 1;
/// Refused calls of one token that are listed per minute.
const REFUSALS_PER_MINUTE_MAX: u32 = 10;
/// Characters of a target.
const TARGET_CHARS_MAX: usize = 512;

/// A call that will be written to the log.
#[derive(Debug)]
pub(crate) struct AuditedCall {
    pub(crate) origin: RequestOrigin,
    pub(crate) action: TokenAction,
    pub(crate) target: String,
}

impl AuditedCall {
    /// `path` has no query string.
    pub(crate) fn new(origin: RequestOrigin, action: TokenAction, method: &Method, path: &str) -> Self {
        // A caller may put a token where its id belongs.
        let path = path.find(TOKEN_PREFIX).and_then(|start| path.get(..start + TOKEN_PREFIX.len())).unwrap_or(path);
        Self { origin, action, target: format!("{method} {path}").chars().take(TARGET_CHARS_MAX).collect() }
    }

    /// Writes the call to the log. Returns the response that the client may see.
    pub(crate) async fn finish(self, app: &AppState, response: Response) -> Response {
        let caller = match &self.origin.caller {
            Caller::Token(token) => Some(token),
            Caller::Trusted | Caller::Anonymous => None,
        };
        let token = caller.map(|token| token.record.id.clone());
        let name = caller.map(|token| token.record.name.clone());
        let now = app.now();
        let outcome = outcome_of(response.status());
        if outcome == AuditOutcome::Refused && caller.is_some_and(|token| !token.refusals.admits(now)) {
            return response;
        }
        let entry = AuditEntry {
            at: time(now),
            token,
            name,
            action: self.action,
            target: self.target,
            outcome,
            address: match self.origin.peer {
                Peer::Address(address) => Some(address.to_canonical().to_string()),
                Peer::InProcess => None,
            },
        };
        match app.call_store(Box::pin(append(&*app.store, now, &entry))).await {
            Ok(()) => response,
            Err(_) if !response.status().is_success() => response,
            Err(error) => error.retry(RetryAdvice::Unknown).into_response(),
        }
    }
}

/// Counts the refused calls of a token in one minute: a token without rights cannot fill the disk.
#[derive(Debug, Default)]
pub(crate) struct RefusalCount(Mutex<(i64, u32)>);

impl RefusalCount {
    /// Whether a refused call is written to the log.
    fn admits(&self, now: Timestamp) -> bool {
        let minute = now.as_millis().div_euclid(60_000);
        let mut count = self.0.lock();
        if count.0 != minute {
            *count = (minute, 0);
        }
        count.1 = count.1.saturating_add(1);
        count.1 <= REFUSALS_PER_MINUTE_MAX
    }
}

fn outcome_of(status: StatusCode) -> AuditOutcome {
    if status.is_server_error() {
        AuditOutcome::Failed
    } else if status.is_client_error() {
        AuditOutcome::Refused
    } else {
        AuditOutcome::Applied
    }
}

/// Appends an entry. Keys are in order of time. The monotonic clock orders the entries of one
/// millisecond, and of virtual time; random bytes keep nodes apart.
async fn append(store: &dyn Store, now: Timestamp, entry: &AuditEntry) -> Result<(), StoreError> {
    let mut value = vec![VERSION];
    // Texts and numbers: serializing them cannot fail.
    value.extend(serde_json::to_vec(entry).unwrap_or_default());
    let nanos = u64::try_from(monotonic().as_nanos()).unwrap_or(u64::MAX);
    let key = [time_key(now), nanos.to_be_bytes(), OsRng::default().next_u64().to_be_bytes()].concat();
    let change = SystemChange::put(SystemKind::Audit, key, Expected::Absent, value);
    drop(store.write_system(SystemWrite::unannounced(vec![change])).await?);
    Ok(())
}

fn oldest_kept(now: Timestamp) -> Timestamp {
    Timestamp::from_millis(now.as_millis().saturating_sub(KEPT_MS))
}

fn time_key(at: Timestamp) -> [u8; 8] {
    u64::try_from(at.as_millis()).unwrap_or(0).to_be_bytes()
}

/// Returns entries before a cursor and before an instant, newest first.
pub(crate) async fn page(
    app: &AppState,
    cursor: Option<&str>,
    before: Option<Timestamp>,
    limit: usize,
) -> Result<AuditPage, ApiError> {
    let invalid = || ApiError::validation("cursor", "must be \"next\" of an earlier page");
    let end = match cursor {
        Some(cursor) => Some(unhex::<KEY_BYTES>(cursor).ok_or_else(invalid)?.to_vec()),
        None => None,
    };
    let instant = before.map(|at| time_key(at).to_vec());
    let end = match (end, instant) {
        (Some(end), Some(instant)) => Some(end.min(instant)),
        (end, instant) => end.or(instant),
    };
    let query = SystemQuery { kind: SystemKind::Audit, start: Vec::new(), end, limit: limit + 1, descending: true };
    let mut records = app.call_store(app.store.system_records(query)).await?;
    let has_more = records.len() > limit;
    records.truncate(limit);
    let next = records.last().filter(|_| has_more).map(|record| hex(&record.key));
    let oldest = time_key(oldest_kept(app.now()));
    let is_kept = |key: &[u8]| key.first_chunk().is_some_and(|at: &[u8; 8]| *at >= oldest);
    let decode = |value: &[u8]| {
        let (version, json) = value.split_first()?;
        serde_json::from_slice(json).ok().filter(|_: &AuditEntry| *version == VERSION)
    };
    let kept = records.iter().filter(|record| is_kept(&record.key));
    Ok(AuditPage { entries: kept.filter_map(|record| decode(&record.value)).collect(), next })
}

/// Deletes entries that are older than 90 days, in slices.
pub(crate) async fn prune(store: &dyn Store, now: Timestamp) -> Result<(), StoreError> {
    for _ in 0..PRUNE_SLICES_MAX {
        let end = Some(time_key(oldest_kept(now)).to_vec());
        let query =
            SystemQuery { kind: SystemKind::Audit, start: Vec::new(), end, limit: PRUNE_SLICE, descending: false };
        let old = store.system_records(query).await?;
        let count = old.len();
        let delete = old.into_iter().map(|record| SystemChange::delete(SystemKind::Audit, record.key, Expected::Any));
        let changes: Vec<_> = delete.collect();
        if !changes.is_empty() {
            drop(store.write_system(SystemWrite::unannounced(changes)).await?);
        }
        if count < PRUNE_SLICE {
            break;
        }
    }
    Ok(())
}
