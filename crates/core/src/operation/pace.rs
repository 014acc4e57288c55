//! The pace of an operation: the size of its slices, and the pause after each.

use crate::time::Duration;

/// Most jobs of a slice.
pub const SLICE_JOBS_MAX: usize = 100;
/// Slices per second of a slow operation: the jobs of a second are spread.
const SLICES_PER_SECOND: u32 = 10;

/// Returns how many jobs a slice has.
///
/// ```
/// use longshore_core::operation::pace::slice_size;
///
/// assert_eq!([None, Some(1), Some(10), Some(55), Some(5_000)].map(slice_size), [100, 1, 1, 6,
/// 100]);
/// ```
pub fn slice_size(rate: Option<u32>) -> usize {
    let Some(rate) = rate else { return SLICE_JOBS_MAX };
    usize::try_from(rate.div_ceil(SLICES_PER_SECOND)).unwrap_or(SLICE_JOBS_MAX).clamp(1, SLICE_JOBS_MAX)
}

/// Returns the time from the start of a slice to that of the next. It is rounded up, so that the
/// rate is never exceeded.
///
/// ```
/// use longshore_core::Duration;
/// use longshore_core::operation::pace::pause_after;
///
/// assert_eq!(pause_after(Some(3), 1), Duration::from_millis(334));
/// assert_eq!(pause_after(Some(100), 10), Duration::from_millis(100));
/// assert_eq!(pause_after(None, 100), Duration::ZERO);
/// ```
pub fn pause_after(rate: Option<u32>, jobs: usize) -> Duration {
    let Some(rate) = rate else { return Duration::ZERO };
    let millis = (jobs as u64).saturating_mul(1_000).div_ceil(u64::from(rate.max(1)));
    Duration::from_millis(millis)
}
