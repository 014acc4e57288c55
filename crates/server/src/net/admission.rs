//! Overload: how much the store has to do, and which requests are refused meanwhile.
//!
//! The load is the number of calls that wait for the store. A batch counts as one call per
//! [`ITEMS_PER_UNIT`] items. Above its threshold a class of requests is refused before its body is
//! read: reads first, then submissions, and last the requests of workers and operators, because
//! they end work and make room. The store serves these first, too (`store/src/mailbox.rs`).

use std::sync::atomic::{AtomicU64, Ordering};

use axum::http::Method;
use longshore_api::ErrorCode;
use longshore_store::StoreOp;

use crate::wire::problem::ApiError;

/// Items of a batch that count as one call.
const ITEMS_PER_UNIT: usize = 20;
/// Worker requests are refused at this multiple of the limit for submissions.
const WORK_FACTOR: u64 = 4;
/// The `Retry-After` of a refused client grows with its number, up to this many seconds: clients
/// that were refused together do not come back together.
const RETRY_AFTER_SECONDS_MAX: u64 = 3;

/// The kinds of requests, in the order in which they are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestClass {
    Read,
    Submit,
    /// Requests of workers, operators and administrators.
    Work,
}

impl RequestClass {
    pub(crate) const ALL: [Self; 3] = [Self::Read, Self::Submit, Self::Work];

    /// Returns the class of a request; `None` if it is never refused: probes, metrics, files.
    pub(crate) fn of(method: &Method, path: &str) -> Option<Self> {
        let reads = matches!(*method, Method::GET | Method::HEAD);
        if let Some(v1) = path.strip_prefix("/v1/") {
            return Some(match *method {
                _ if reads => Self::Read,
                Method::POST if submits(v1) => Self::Submit,
                _ => Self::Work,
            });
        }
        let ocypod = path.strip_prefix("/queue/").is_some_and(|rest| rest.ends_with("/job"));
        match *method {
            Method::POST if ocypod => Some(Self::Submit),
            Method::GET if ocypod => Some(Self::Work),
            _ if path.starts_with("/queue") || path.starts_with("/job/") || path.starts_with("/tag/") => {
                Some(if reads { Self::Read } else { Self::Work })
            }
            _ => None,
        }
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Submit => "submit",
            Self::Work => "work",
        }
    }
}

/// Whether a POST adds jobs. `path` follows `/v1/`.
fn submits(path: &str) -> bool {
    let is_member = |parent: &str| path.starts_with(parent) && path.ends_with("/jobs");
    path == "workflows" || is_member("queues/") || is_member("workflows/")
}

/// The load of the store, and its limits.
#[derive(Debug)]
pub(crate) struct Admission {
    /// Calls that wait for the store.
    load: AtomicU64,
    /// Load from which submissions are refused.
    max: u64,
    /// Refused requests by class.
    refused: [AtomicU64; RequestClass::ALL.len()],
}

impl Admission {
    pub(crate) fn new(in_flight_max: usize) -> Self {
        Self { load: AtomicU64::new(0), max: (in_flight_max as u64).max(1), refused: Default::default() }
    }

    /// A call of the store begins. Returns what [`Self::end`] takes off again.
    pub(crate) fn begin(&self, operation: StoreOp, items: usize) -> u32 {
        // A tick is a call of the server itself, and there is one at a time.
        if operation == StoreOp::Tick {
            return 0;
        }
        let units = u32::try_from(items.div_ceil(ITEMS_PER_UNIT)).unwrap_or(u32::MAX).max(1);
        self.load.fetch_add(u64::from(units), Ordering::Relaxed);
        units
    }

    pub(crate) fn end(&self, units: u32) {
        if units > 0 {
            self.load.fetch_sub(u64::from(units), Ordering::Relaxed);
        }
    }

    pub(crate) fn load(&self) -> u64 {
        self.load.load(Ordering::Relaxed)
    }

    pub(crate) fn refused(&self, class: RequestClass) -> u64 {
        self.refused.get(class as usize).map_or(0, |refused| refused.load(Ordering::Relaxed))
    }

    fn threshold(&self, class: RequestClass) -> u64 {
        match class {
            RequestClass::Read => (self.max / 2).max(1),
            RequestClass::Submit => self.max,
            RequestClass::Work => self.max.saturating_mul(WORK_FACTOR),
        }
    }

    /// Refuses a request if its class has to give way.
    pub(crate) fn check(&self, class: RequestClass) -> Result<(), ApiError> {
        if self.load() < self.threshold(class) { Ok(()) } else { Err(self.refuse(class)) }
    }

    /// Like [`Self::check`], without looking at the request while the server has capacity.
    pub(crate) fn check_request(&self, method: &Method, path: &str) -> Result<(), ApiError> {
        if self.load() < self.threshold(RequestClass::Read) {
            return Ok(());
        }
        RequestClass::of(method, path).map_or(Ok(()), |class| self.check(class))
    }

    #[cold]
    fn refuse(&self, class: RequestClass) -> ApiError {
        let refused = self.refused.get(class as usize).map_or(0, |refused| refused.fetch_add(1, Ordering::Relaxed));
        let seconds = 1 + refused % RETRY_AFTER_SECONDS_MAX;
        let detail = "the server is overloaded: too many calls wait for the store, and nothing of this one was applied \
                      (try again later)";
        ApiError::new(ErrorCode::StoreUnavailable, detail).retry_after(seconds)
    }
}

#[cfg(test)]
mod tests {
    use longshore_api::RetryAdvice;

    use super::*;
    use crate::access::table::{OCYPOD_ROWS, ROWS};

    #[test]
    fn classes_are_refused_in_order() {
        let admission = Admission::new(10);
        let mut admitted = Vec::new();
        for _ in 0..40 {
            admitted.push(RequestClass::ALL.map(|class| admission.check(class).is_ok()));
            assert_eq!(admission.begin(StoreOp::Submit, 1), 1);
        }
        let count = |class: usize| admitted.iter().filter(|checks| checks[class]).count();
        assert_eq!((count(0), count(1), count(2)), (5, 10, 40));
        assert!(admission.check(RequestClass::Work).is_err());
        for _ in 0..36 {
            admission.end(1);
        }
        assert!(RequestClass::ALL.iter().all(|class| admission.check(*class).is_ok()), "4 of 10 are left");
    }

    #[test]
    fn batches_weigh_more_and_ticks_nothing() {
        let admission = Admission::new(100);
        assert_eq!(admission.begin(StoreOp::Tick, 1), 0);
        assert_eq!(admission.begin(StoreOp::Claim, 0), 1, "its size is known afterwards");
        assert_eq!(admission.begin(StoreOp::Submit, 1_000), 50);
        assert_eq!(admission.load(), 51);
        admission.end(50);
        admission.end(1);
        assert_eq!(admission.load(), 0);
    }

    #[test]
    fn a_refusal_is_safe_to_retry_and_names_different_times() {
        let admission = Admission::new(1);
        admission.begin(StoreOp::Submit, 1);
        let refusals: Vec<ApiError> = (0..4).map(|_| admission.check(RequestClass::Submit).unwrap_err()).collect();
        assert!(refusals.iter().all(|refusal| refusal.problem().status == 503));
        assert!(refusals.iter().all(|refusal| refusal.problem().retry == RetryAdvice::Safe));
        let seconds: Vec<u64> = refusals.iter().map(ApiError::retry_after_seconds).collect();
        assert_eq!(seconds, [1, 2, 3, 1]);
        assert_eq!(RequestClass::ALL.map(|class| admission.refused(class)), [0, 4, 0]);
    }

    #[test]
    fn every_route_has_its_class() {
        for (method, path, ..) in ROWS.iter().chain(OCYPOD_ROWS) {
            let method_of = method.to_uppercase().parse().unwrap();
            let class = RequestClass::of(&method_of, path);
            let expected = match (*method, *path) {
                (
                    _,
                    "/metrics" | "/openapi.json" | "/livez" | "/readyz" | "/" | "/health" | "/info" | "/info/version",
                ) => None,
                ("get", "/queue/{name}/job") => Some(RequestClass::Work),
                ("get", _) => Some(RequestClass::Read),
                (
                    "post",
                    "/v1/queues/{queue}/jobs" | "/v1/workflows" | "/v1/workflows/{id}/jobs" | "/queue/{name}/job",
                ) => Some(RequestClass::Submit),
                _ => Some(RequestClass::Work),
            };
            assert_eq!(class, expected, "{method} {path}");
        }
    }
}
