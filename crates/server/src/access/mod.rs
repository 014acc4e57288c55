//! Access: who sends a request, and what the server lets this caller do.
//!
//! 1. The connection calls [`Access::admit`] before it reads the body. Without a token in the store
//!    this is one atomic load; with tokens it is a look-up and one hash of a short text.
//! 2. [`authorize`](mod@authorize) compares the caller with the row of the route in `table.rs`.
//! 3. Handlers get the server's state by [`CallerState`]: its store is the one that the caller may
//!    see (`scoped_store.rs`). Streams end when [`AppState::token_ended`] resolves.
//! 4. Calls of operators and administrators are written to the audit log (`audit.rs`) before they
//!    are answered.
//!
//! - `record.rs`, [`tokens`]: stored tokens; `limiter.rs`: slows down addresses with bad tokens
//! - `browser.rs`: host names, security headers; `known_queues.rs`: queues of jobs;
//!   `workflow_scope.rs`: who sees a workflow without members

pub(crate) mod audit;
pub(crate) mod authorize;
pub(crate) mod browser;
mod known_queues;
mod limiter;
mod record;
mod refresh;
mod scoped_store;
pub(crate) mod table;
pub mod tokens;
mod workflow_scope;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, Ordering};
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, Method, header};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use longshore_api::ErrorCode;
use longshore_core::Timestamp;
use longshore_core::access::{QueueScope, TokenParts, is_expired};
use longshore_core::id::QueueName;
use longshore_core::rate_limit::RateBucket;
use longshore_store::Store;
use longshore_store::clock::monotonic;
use parking_lot::{Mutex, RwLock};
use tokio_util::sync::CancellationToken;

use self::known_queues::KnownQueues;
use self::limiter::BadTokenLimiter;
use self::record::SecretDigest;
pub use self::record::{TokenRecord, TokenSecret};
pub(crate) use self::refresh::keep_current;
use crate::dialects::ocypod::is_ocypod_path;
use crate::state::AppState;
use crate::wire::problem::ApiError;

/// The other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// This process itself: it holds the store, and needs no token.
    InProcess,
    Address(IpAddr),
}

/// Who sends a request.
#[derive(Clone, Debug)]
pub(crate) enum Caller {
    /// The store has no token and the client is on this machine, or inside of the process.
    Trusted,
    /// A request of a public route.
    Anonymous,
    Token(Arc<ActiveToken>),
}

/// The caller and the address of a request. Requests carry it to their handlers.
#[derive(Clone, Debug)]
pub(crate) struct RequestOrigin {
    pub(crate) caller: Caller,
    pub(crate) peer: Peer,
}

/// A token in memory.
#[derive(Debug)]
pub(crate) struct ActiveToken {
    pub(crate) record: TokenRecord,
    /// The store as this token sees it.
    pub(crate) store: Arc<dyn Store>,
    /// Cancelled when the token is revoked or expires: long polls and streams end.
    ended: CancellationToken,
    /// Set by every request; the background task turns it into a time.
    is_used: AtomicBool,
    /// The minute of the last use that this server knows, in milliseconds.
    used_at: AtomicI64,
    /// The minute that this server has stored.
    stored_use: AtomicI64,
    refusals: audit::RefusalCount,
    bucket: Mutex<RateBucket>,
}

impl ActiveToken {
    /// Counts a request. Fails if the token has sent too many.
    fn count_request(&self) -> Result<(), ApiError> {
        let Some(limit) = self.record.rate_limit else { return Ok(()) };
        let wait = match self.bucket.lock().take(limit, monotonic()) {
            Ok(()) => return Ok(()),
            Err(wait) => wait,
        };
        let detail = format!("the token may send {} requests and jobs per second: wait and try again", limit.rate());
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        Err(ApiError::new(ErrorCode::RateLimited, detail).retry_after(seconds))
    }

    /// Counts the jobs of a batch beyond the first, which the request has paid for.
    pub(crate) fn count_jobs(&self, jobs: usize) {
        if let Some(limit) = self.record.rate_limit
            && jobs > 1
        {
            self.bucket.lock().charge(limit, jobs - 1, monotonic());
        }
    }

    /// Returns the minute of the last use.
    pub(crate) fn last_used_at(&self, now: Timestamp) -> Option<Timestamp> {
        if self.is_used.load(Ordering::Relaxed) {
            return Some(minute_of(now));
        }
        Some(self.used_at.load(Ordering::Relaxed)).filter(|at| *at != i64::MIN).map(Timestamp::from_millis)
    }

    /// Whether the token sees every queue.
    pub(crate) fn sees_everything(&self) -> bool {
        self.record.permissions.queues.covers_everything()
    }
}

fn minute_of(now: Timestamp) -> Timestamp {
    Timestamp::from_millis(now.as_millis().div_euclid(60_000) * 60_000)
}

/// Why a request is not admitted.
#[derive(Debug)]
pub(crate) struct Denied {
    pub(crate) error: ApiError,
    /// How long the answer waits.
    pub(crate) delay: Duration,
}

impl From<ApiError> for Denied {
    fn from(error: ApiError) -> Self {
        Self { error, delay: Duration::ZERO }
    }
}

/// How the server decides about requests.
const OPEN: u8 = 0;
const TOKENS: u8 = 1;
/// The tokens cannot be read: nothing is known about revocations, so no request is admitted.
const UNREADABLE: u8 = 2;

type TokenMap = HashMap<String, Arc<ActiveToken>>;

/// The tokens of the store in memory, and the limits of callers without one.
#[derive(Debug)]
pub(crate) struct Access {
    mode: AtomicU8,
    tokens: RwLock<Arc<TokenMap>>,
    /// Cancelled when the store gets its first token: streams that were opened without one end.
    open_ended: Mutex<CancellationToken>,
    /// Every client is this process, which needs no token.
    pub(crate) is_in_process: AtomicBool,
    /// The version of the records that `tokens` was read from.
    version: Mutex<Option<u64>>,
    /// Held while the tokens are read, so that an older reading never replaces a newer one.
    refreshing: tokio::sync::Mutex<()>,
    limiter: BadTokenLimiter,
    known: Arc<KnownQueues>,
    store: Arc<dyn Store>,
    auto_queues: bool,
    /// Host names, beside those of the machine, under which a server without tokens answers.
    allowed_hosts: Vec<String>,
}

impl Access {
    pub(crate) fn new(store: Arc<dyn Store>, auto_queues: bool, allowed_hosts: Vec<String>) -> Self {
        Self {
            // Until the tokens are read, no request is admitted.
            mode: AtomicU8::new(UNREADABLE),
            tokens: RwLock::default(),
            open_ended: Mutex::default(),
            is_in_process: AtomicBool::new(false),
            version: Mutex::new(None),
            refreshing: tokio::sync::Mutex::new(()),
            limiter: BadTokenLimiter::default(),
            known: Arc::default(),
            store,
            auto_queues,
            allowed_hosts,
        }
    }

    /// Whether the store has a token.
    pub(crate) fn has_tokens(&self) -> bool {
        self.mode.load(Ordering::Acquire) == TOKENS
    }

    /// Returns a token in memory.
    pub(crate) fn token(&self, id: &str) -> Option<Arc<ActiveToken>> {
        self.tokens.read().get(id).cloned()
    }

    /// Finds out who sends a request.
    pub(crate) fn admit(
        &self,
        method: &Method,
        path: &str,
        headers: &HeaderMap,
        peer: Peer,
        now: impl FnOnce() -> Timestamp,
    ) -> Result<RequestOrigin, Denied> {
        let Peer::Address(address) = peer else { return Ok(RequestOrigin { caller: Caller::Trusted, peer }) };
        let mode = self.mode.load(Ordering::Acquire);
        if mode == OPEN {
            browser::check_host(headers, &self.allowed_hosts)?;
            check_not_forwarded(headers)?;
            if address.to_canonical().is_loopback() {
                return Ok(RequestOrigin { caller: Caller::Trusted, peer });
            }
        }
        if table::is_public(method, path) {
            return Ok(RequestOrigin { caller: Caller::Anonymous, peer });
        }
        if mode == UNREADABLE {
            return Err(ApiError::new(ErrorCode::StoreUnavailable, UNREADABLE_DETAIL).into());
        }
        if mode == OPEN {
            let detail =
                "this server has no tokens and serves its own machine only: create one with `longshore tokens create`";
            return Err(ApiError::new(ErrorCode::Unauthorized, detail).into());
        }
        match self.identify(headers, path, now) {
            Ok(token) => {
                token.is_used.store(true, Ordering::Relaxed);
                Ok(RequestOrigin { caller: Caller::Token(token), peer })
            }
            Err(detail) => {
                // Only a wrong token is a guess: a client without one gets its error at once.
                let delay = if detail == MISSING { Duration::ZERO } else { self.limiter.delay(address) };
                Err(Denied { error: ApiError::new(ErrorCode::Unauthorized, detail), delay })
            }
        }
    }

    /// Returns the token of a request, or why it has none. All wrong tokens have the same answer.
    fn identify(
        &self,
        headers: &HeaderMap,
        path: &str,
        now: impl FnOnce() -> Timestamp,
    ) -> Result<Arc<ActiveToken>, &'static str> {
        let mut values = headers.get_all(header::AUTHORIZATION).iter();
        let value = match (values.next(), values.next()) {
            (None, _) => return Err(MISSING),
            (Some(value), None) => value.to_str().map_err(|_| WRONG)?,
            (Some(_), Some(_)) => return Err(WRONG),
        };
        let (scheme, text) = value.split_once(' ').ok_or(WRONG)?;
        let password;
        let text = if scheme.eq_ignore_ascii_case("bearer") {
            text.trim()
        } else if scheme.eq_ignore_ascii_case("basic") && is_ocypod_path(path) {
            password = basic_password(text.trim()).ok_or(WRONG)?;
            password.as_str()
        } else {
            return Err(WRONG);
        };
        let parts = TokenParts::parse(text).ok_or(WRONG)?;
        let digest = SecretDigest::of(parts.secret);
        let token = self.token(parts.id).ok_or(WRONG)?;
        if !token.record.digest.is_equal(&digest) {
            return Err(WRONG);
        }
        if token.record.expires_at.is_some() && is_expired(token.record.expires_at, now()) {
            return Err(EXPIRED);
        }
        Ok(token)
    }
}

/// Headers by which a proxy names the client that it forwards for.
static FORWARDED: [HeaderName; 3] =
    [header::FORWARDED, HeaderName::from_static("x-forwarded-for"), HeaderName::from_static("x-real-ip")];

/// Refuses a request of a proxy on this machine: its client may be anywhere.
fn check_not_forwarded(headers: &HeaderMap) -> Result<(), ApiError> {
    if FORWARDED.iter().any(|name| headers.contains_key(name)) {
        let detail = "this server has no tokens, and a proxy has forwarded this request: \
                      create a token with `longshore tokens create`";
        return Err(ApiError::new(ErrorCode::Unauthorized, detail));
    }
    Ok(())
}

impl RequestOrigin {
    /// Counts the request for the rate limit of its token. A request that ends work of a lease is
    /// never refused: the work would be done again.
    pub(crate) fn count_request(&self, method: &Method, path: &str) -> Result<(), ApiError> {
        match &self.caller {
            Caller::Token(token) if token.record.rate_limit.is_some() && !keeps_lease(method, path) => {
                token.count_request()
            }
            Caller::Token(_) | Caller::Trusted | Caller::Anonymous => Ok(()),
        }
    }
}

/// Whether a request is a heartbeat or a settlement.
fn keeps_lease(method: &Method, path: &str) -> bool {
    if let Some(rest) = path.strip_prefix("/job/") {
        return *method == Method::PATCH || (*method == Method::PUT && rest.contains('/'));
    }
    *method == Method::POST
        && match path.strip_prefix("/v1/") {
            Some("settlements" | "heartbeats") => true,
            Some(rest) => rest
                .strip_prefix("jobs/")
                .and_then(|rest| rest.split_once('/'))
                .is_some_and(|(_, verb)| matches!(verb, "complete" | "fail" | "heartbeat" | "snooze" | "release")),
            None => false,
        }
}

const UNREADABLE_DETAIL: &str = "the tokens cannot be read from the store: no request is admitted until they can";
const MISSING: &str = "this server needs a token: send \"Authorization: Bearer lsk_…\"";
const WRONG: &str = "the token is not valid: it is malformed, unknown or revoked";
const EXPIRED: &str = "the token has expired: create a new one";

/// Returns the password of HTTP Basic.
fn basic_password(encoded: &str) -> Option<String> {
    let bytes = BASE64_STANDARD.decode(encoded).ok()?;
    let text = String::from_utf8(bytes).ok()?;
    text.split_once(':').map(|(_, password)| password.to_owned())
}

/// The state of the server for a handler, with the store that its caller may see.
///
/// Route files import it as `State`.
#[derive(Debug)]
pub(crate) struct CallerState<S>(pub(crate) S);

impl FromRequestParts<AppState> for CallerState<AppState> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &AppState) -> Result<Self, ApiError> {
        app.for_request(parts).map(Self)
    }
}

impl AppState {
    /// Returns the state for the caller of a request.
    pub(crate) fn for_request(&self, parts: &Parts) -> Result<Self, ApiError> {
        let origin = parts.extensions.get::<RequestOrigin>();
        let unknown = || ApiError::new(ErrorCode::Internal, "internal error: the request has no caller");
        Ok(self.for_caller(&origin.ok_or_else(unknown)?.caller))
    }

    pub(crate) fn for_caller(&self, caller: &Caller) -> Self {
        match caller {
            Caller::Token(token) => self.with_token(token),
            Caller::Trusted | Caller::Anonymous => self.clone(),
        }
    }

    /// Whether the caller may know that this queue exists.
    pub(crate) fn can_see(&self, queue: &QueueName) -> bool {
        self.token().is_none_or(|token| token.record.permissions.queues.covers(queue))
    }

    /// Returns the queues that the caller may see; `None`: all.
    pub(crate) fn queue_scope(&self) -> Option<QueueScope> {
        self.token().filter(|token| !token.sees_everything()).map(|token| token.record.permissions.queues.clone())
    }

    /// Whether the caller sees only some queues.
    pub(crate) fn is_restricted(&self) -> bool {
        self.token().is_some_and(|token| !token.sees_everything())
    }

    /// Resolves when the token of the caller is revoked or expires. Without a token: when the store
    /// gets its first one.
    pub(crate) fn token_ended(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        let ended = match self.token() {
            Some(token) => token.ended.clone(),
            None => self.access.open_ended.lock().clone(),
        };
        ended.cancelled_owned()
    }

    /// Refuses to go on if the token was revoked or expired during the request.
    pub(crate) fn check_token(&self) -> Result<(), ApiError> {
        match self.token() {
            Some(token) if token.ended.is_cancelled() => {
                if self.access.mode.load(Ordering::Acquire) == UNREADABLE {
                    return Err(ApiError::new(ErrorCode::StoreUnavailable, UNREADABLE_DETAIL));
                }
                Err(ApiError::new(ErrorCode::Unauthorized, "the token was revoked or has expired"))
            }
            Some(_) | None => Ok(()),
        }
    }
}
