//! Division of the memory for caches.

use longshore_core::job::Job;

/// Memory for all caches of a store, unless the options say otherwise.
pub const DEFAULT_CACHE_BYTES: u64 = 8 << 20;

/// Memory of a cached record besides the structure itself: its strings, history and map entry.
const JOB_HEAP_BYTES: u64 = 256;
/// Smallest number of records in the cache. A batch holds as many in any case.
const JOBS_MIN: u64 = 2_048;

/// Limits of the caches: half for pages of the writer, a quarter for records, an eighth for
/// payloads, an eighth for pages of the readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CacheBudget {
    bytes: u64,
    readers: u64,
}

impl CacheBudget {
    pub(crate) fn new(bytes: u64, readers: usize) -> Self {
        Self { bytes, readers: u64::try_from(readers).unwrap_or(1).max(1) }
    }

    /// Returns the page cache of the writer in KiB.
    pub(crate) fn writer_kib(self) -> i64 {
        kib(self.bytes / 2)
    }

    /// Returns the page cache of one reader in KiB.
    pub(crate) fn reader_kib(self) -> i64 {
        kib(self.bytes / 8 / self.readers)
    }

    pub(crate) fn jobs_max(self) -> usize {
        let job_bytes = size_of::<Job>() as u64 + JOB_HEAP_BYTES;
        usize::try_from((self.bytes / 4 / job_bytes).max(JOBS_MIN)).unwrap_or(usize::MAX)
    }

    pub(crate) fn payload_bytes_max(self) -> usize {
        usize::try_from(self.bytes / 8).unwrap_or(usize::MAX)
    }
}

fn kib(bytes: u64) -> i64 {
    i64::try_from(bytes >> 10).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_add_up_to_the_budget() {
        let budget = CacheBudget::new(64 << 20, 2);
        assert_eq!((budget.writer_kib(), budget.reader_kib()), (32 << 10, 4 << 10));
        assert_eq!(budget.payload_bytes_max(), 8 << 20);
        let records = budget.jobs_max() * (size_of::<Job>() + 256);
        assert!((15 << 20..=16 << 20).contains(&records), "{records}");
    }
}
