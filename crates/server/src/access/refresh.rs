//! Keeps the tokens in memory current: revocations, expiry, times of use, age of the audit log.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use longshore_core::Timestamp;
use longshore_core::access::is_expired;
use longshore_engine::SystemKind;
use longshore_store::{Store, StoreError};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::scoped_store::ScopedStore;
use super::{
    Access, ActiveToken, OPEN, TOKENS, TokenMap, TokenRecord, UNREADABLE, audit, minute_of, tokens, workflow_scope,
};
use crate::state::AppState;

/// Time between two checks of the version: a revocation takes effect within 5 s on every node.
const POLL: Duration = Duration::from_secs(1);
/// A store that answers later counts as unreadable.
const POLL_TIMEOUT: Duration = Duration::from_secs(2);
/// The last chance of the store before its tokens count as unreadable.
const LAST_POLL_TIMEOUT: Duration = Duration::from_millis(500);
/// How long the tokens in memory count after they could last be compared with the store.
const VALID_FOR: Duration = Duration::from_secs(4);
/// Time between two slices of the deletion of old audit entries.
const PRUNE: Duration = Duration::from_secs(60);

/// Compares the tokens with the store every second, until the server has drained.
pub(crate) async fn keep_current(app: AppState) {
    let (mut last_success, mut last_prune) = (Instant::now(), Instant::now());
    let mut next_scope = Vec::new();
    loop {
        let has_drained = tokio::select! {
            () = app.drained.cancelled() => true,
            () = sleep(POLL) => false,
        };
        if has_drained {
            store_uses(&app).await;
            return;
        }
        let limit = if app.access.is_readable() {
            VALID_FOR.saturating_sub(last_success.elapsed()).clamp(LAST_POLL_TIMEOUT, POLL_TIMEOUT)
        } else {
            POLL_TIMEOUT
        };
        match timeout(limit, app.access.refresh()).await {
            Ok(Ok(())) => last_success = Instant::now(),
            failed if last_success.elapsed() >= VALID_FOR => {
                let error = failed.ok().and_then(Result::err);
                app.access.admit_none(&error.map_or_else(|| "timeout".to_owned(), |error| error.to_string()));
            }
            _ => {}
        }
        app.access.end_expired(app.now());
        store_uses(&app).await;
        if last_prune.elapsed() >= PRUNE {
            last_prune = Instant::now();
            if let Err(error) = audit::prune(&*app.store, app.now()).await {
                tracing::debug!(%error, "old audit entries not deleted: trying again");
            }
            next_scope = workflow_scope::prune(&*app.store, next_scope).await.unwrap_or_default();
        }
    }
}

/// Stores the minutes in which tokens were used, each at most once.
async fn store_uses(app: &AppState) {
    for (token, at) in app.access.take_uses(app.now()) {
        match tokens::record_use(&*app.store, &token.record.id, Timestamp::from_millis(at)).await {
            Ok(()) => token.stored_use.store(at, Ordering::Relaxed),
            Err(error) => {
                tracing::debug!(%error, "time of use of a token not stored: trying again");
                return;
            }
        }
    }
}

impl Access {
    /// Reads the tokens again if a record has changed on any node.
    pub(crate) async fn refresh(&self) -> Result<(), StoreError> {
        let _alone = self.refreshing.lock().await;
        let version = self.store.system_version(SystemKind::Token).await?;
        if *self.version.lock() == Some(version) {
            return Ok(());
        }
        let records = tokens::read(&*self.store).await?;
        let has_tokens = !records.is_empty();
        self.replace(records.into_iter().filter_map(|(_, token)| token).collect());
        let mode = if has_tokens { TOKENS } else { OPEN };
        if self.mode.swap(mode, Ordering::AcqRel) == OPEN && has_tokens && !self.is_in_process.load(Ordering::Relaxed) {
            std::mem::take(&mut *self.open_ended.lock()).cancel();
        }
        *self.version.lock() = Some(version);
        Ok(())
    }

    fn is_readable(&self) -> bool {
        self.mode.load(Ordering::Acquire) != UNREADABLE
    }

    /// Admits no request with a token until the tokens are read again. Open streams end.
    fn admit_none(&self, error: &str) {
        if self.mode.swap(UNREADABLE, Ordering::AcqRel) != UNREADABLE {
            tracing::error!(error, "tokens cannot be read: no request is admitted");
        }
        self.replace(Vec::new());
        self.version.lock().take();
    }

    /// Replaces the tokens in memory. Tokens that are gone or changed end.
    fn replace(&self, records: Vec<TokenRecord>) {
        let old = Arc::clone(&self.tokens.read());
        let mut tokens: TokenMap = HashMap::with_capacity(records.len());
        for record in records {
            let same = old.get(&record.id).filter(|known| {
                let known = &known.record;
                known.digest.is_equal(&record.digest)
                    && known.permissions == record.permissions
                    && known.expires_at == record.expires_at
                    && known.rate_limit == record.rate_limit
            });
            let token = match same {
                Some(known) => {
                    let used_at = record.last_used_at.map_or(i64::MIN, Timestamp::as_millis);
                    known.used_at.fetch_max(used_at, Ordering::Relaxed);
                    Arc::clone(known)
                }
                None => Arc::new(self.activate(record)),
            };
            tokens.insert(token.record.id.clone(), token);
        }
        for (id, token) in old.iter() {
            if tokens.get(id).is_none_or(|current| !Arc::ptr_eq(current, token)) {
                token.ended.cancel();
            }
        }
        *self.tokens.write() = Arc::new(tokens);
    }

    fn activate(&self, record: TokenRecord) -> ActiveToken {
        let store: Arc<dyn Store> = if record.permissions.queues.covers_everything() {
            Arc::clone(&self.store)
        } else {
            let (store, known) = (Arc::clone(&self.store), Arc::clone(&self.known));
            Arc::new(ScopedStore::new(store, record.permissions.queues.clone(), known, self.auto_queues))
        };
        let used_at = record.last_used_at.map_or(i64::MIN, Timestamp::as_millis);
        ActiveToken {
            store,
            ended: CancellationToken::new(),
            is_used: AtomicBool::new(false),
            used_at: AtomicI64::new(used_at),
            stored_use: AtomicI64::new(used_at),
            refusals: audit::RefusalCount::default(),
            bucket: Mutex::default(),
            record,
        }
    }

    fn end_expired(&self, now: Timestamp) {
        for token in self.tokens.read().values() {
            if is_expired(token.record.expires_at, now) {
                token.ended.cancel();
            }
        }
    }

    /// Returns the tokens whose last use is not stored, with its minute.
    fn take_uses(&self, now: Timestamp) -> Vec<(Arc<ActiveToken>, i64)> {
        let tokens = Arc::clone(&self.tokens.read());
        let mut uses = Vec::new();
        for token in tokens.values() {
            if token.is_used.swap(false, Ordering::Relaxed) {
                token.used_at.fetch_max(minute_of(now).as_millis(), Ordering::Relaxed);
            }
            let used_at = token.used_at.load(Ordering::Relaxed);
            if used_at > token.stored_use.load(Ordering::Relaxed) {
                uses.push((Arc::clone(token), used_at));
            }
        }
        uses
    }
}
