//! Every limit of the system, in one place. Names put the unit last; a limit that can be crossed from outside is checked where the value is made.

use crate::time::Duration;

/// Jobs of one submission, settlements of one call, jobs of one claim, rows of one page.
pub const BATCH_ITEMS_MAX: usize = 1_000;

/// Types that one claim may ask for.
pub const CLAIM_TYPES_MAX: usize = 100;

pub const QUEUE_NAME_CHARS_MAX: usize = 128;
pub const TYPE_CHARS_MAX: usize = 256;
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
/// A chain of this many jobs is accepted, one more link is refused.
pub const DEPENDENCY_DEPTH_MAX: u32 = 100;

/// Jobs that one call may bring into being as a workflow; an open one grows by [`BATCH_ITEMS_MAX`] a call.
pub const WORKFLOW_JOBS_MAX: usize = 2_000;
/// Dependencies of all jobs of such a call together: a group behind a group multiplies.
pub const WORKFLOW_EDGES_MAX: usize = 100_000;
pub const WORKFLOW_NAME_CHARS_MAX: usize = 256;

pub const RETRY_LIMIT_MAX: u32 = 1_000_000;
pub const BACKOFF_DELAYS_MAX: usize = 100;
pub const BACKOFF_MULTIPLIER_MIN: f64 = 1.0;
pub const BACKOFF_MULTIPLIER_MAX: f64 = 1_000.0;

/// About a hundred years: sums of an instant and a duration stay far from the ends of the clock.
pub const DURATION_MAX: Duration = Duration::from_days(36_500);

/// Kept of a job's past: the first entry and the last `HISTORY_MAX - 1`; the last `ATTEMPTS_MAX` attempts.
pub const HISTORY_MAX: usize = 100;
pub const ATTEMPTS_MAX: usize = 100;

/// Records that one command may touch beyond its own (dependents, mostly); what remains is done by the following ticks. The last job it
/// touches may bring its own dependencies along, at most `DEPENDENCIES_MAX`.
pub const CASCADE_JOBS_MAX: usize = 1_000;

const _: () = assert!(PAYLOAD_BYTES_DEFAULT <= PAYLOAD_BYTES_MAX);
const _: () = assert!(HISTORY_MAX >= 2 && ATTEMPTS_MAX >= 1);
