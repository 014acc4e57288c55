//! All limits of the system. The unit is last in a name; values from outside are checked on
//! creation.

use crate::refusal::Invalid;
use crate::time::Duration;

/// Jobs of one submission or claim, settlements of one request, rows of one page.
pub const BATCH_ITEMS_MAX: usize = 1_000;

/// Payloads and checkpoints of one claim: the job that reaches this size is its last one.
pub const CLAIM_BYTES_MAX: usize = 16 << 20;

/// Types of one claim.
pub const CLAIM_TYPES_MAX: usize = 100;

/// Jobs per second of an operation.
pub const OPERATION_RATE_MAX: u32 = 10_000;
/// Jobs that an operation treats before it waits.
pub const OPERATION_CANARY_MAX: u32 = 100;
/// Operations that have not ended.
pub const OPERATIONS_MAX: usize = 100;

pub const QUEUE_NAME_CHARS_MAX: usize = 128;
pub const SCHEDULE_NAME_CHARS_MAX: usize = 128;
pub const PAUSE_NOTE_CHARS_MAX: usize = 1_024;
pub const TYPE_CHARS_MAX: usize = 256;
pub const WORKER_VERSION_CHARS_MAX: usize = 128;
pub const WORKER_CHARS_MAX: usize = 256;
pub const IDEMPOTENCY_KEY_CHARS_MAX: usize = 256;
pub const EXTERNAL_ID_CHARS_MAX: usize = 256;
pub const CORRELATION_ID_CHARS_MAX: usize = 256;
pub const CALLBACK_URL_CHARS_MAX: usize = 2_048;
pub const REF_CHARS_MAX: usize = 128;
pub const TAGS_MAX: usize = 64;
pub const TAG_KEY_CHARS_MAX: usize = 128;
pub const TAG_VALUE_CHARS_MAX: usize = 256;
pub const REASON_CHARS_MAX: usize = 1_024;

pub const ERROR_CODE_CHARS_MAX: usize = 256;
pub const ERROR_MESSAGE_CHARS_MAX: usize = 8_192;
pub const ERROR_CAUSE_CHARS_MAX: usize = 8_192;

pub const PAYLOAD_BYTES_DEFAULT: u32 = 1 << 20;
pub const PAYLOAD_BYTES_MAX: u32 = 16 << 20;

pub const DEPENDENCIES_MAX: usize = 1_000;
/// Jobs of the longest chain of dependencies.
pub const DEPENDENCY_DEPTH_MAX: u32 = 100;

/// Jobs of a new workflow; an open workflow accepts [`BATCH_ITEMS_MAX`] more per request.
pub const WORKFLOW_JOBS_MAX: usize = 2_000;
/// Dependencies of all jobs of such a request: a group after a group multiplies.
pub const WORKFLOW_EDGES_MAX: usize = 100_000;
pub const WORKFLOW_NAME_CHARS_MAX: usize = 256;

pub const RETRY_LIMIT_MAX: u32 = 1_000_000;
pub const BACKOFF_DELAYS_MAX: usize = 100;
pub const BACKOFF_MULTIPLIER_MIN: f64 = 1.0;
pub const BACKOFF_MULTIPLIER_MAX: f64 = 1_000.0;

/// Longest duration: about a hundred years, so that a timestamp plus a duration cannot overflow.
pub const DURATION_MAX: Duration = Duration::MAX;

/// Kept transitions of a job: the first and the last `HISTORY_MAX - 1`.
pub const HISTORY_MAX: usize = 100;
/// Kept attempts of a job: the last ones.
pub const ATTEMPTS_MAX: usize = 100;

/// Further records that one command may change, mostly dependents; later ticks do the rest. The
/// last of them may also read its dependencies, at most `DEPENDENCIES_MAX`.
pub const CASCADE_JOBS_MAX: usize = 1_000;

/// Refuses a duration above [`DURATION_MAX`].
pub fn check_duration(field: &'static str, duration: Duration) -> Result<(), Invalid> {
    if duration <= DURATION_MAX {
        return Ok(());
    }
    Err(Invalid::new(field, format!("must be at most {DURATION_MAX}")))
}

const _: () = assert!(PAYLOAD_BYTES_DEFAULT <= PAYLOAD_BYTES_MAX);
const _: () = assert!(HISTORY_MAX >= 2 && ATTEMPTS_MAX >= 1);

pub const TOKENS_MAX: usize = 10_000;
/// Requests and jobs per second of a token, and the same for its burst.
pub const TOKEN_RATE_MAX: u32 = 1_000_000;
pub const TOKEN_NAME_CHARS_MAX: usize = 128;
/// Queue patterns of one token.
pub const TOKEN_QUEUES_MAX: usize = 100;
