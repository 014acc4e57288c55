//! Random numbers of the operating system, read in blocks.

use std::fmt;

use longshore_core::rng::Rng;

const BUFFER_BYTES: usize = 4_096;

/// A cryptographically secure generator. Lease tokens and the keys of job ids come from it.
#[derive(Clone)]
pub struct OsRng {
    bytes: [u8; BUFFER_BYTES],
    used: usize,
}

impl Default for OsRng {
    fn default() -> Self {
        Self { bytes: [0; BUFFER_BYTES], used: BUFFER_BYTES }
    }
}

/// The buffered bytes become lease tokens: they stay out of logs.
impl fmt::Debug for OsRng {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OsRng")
    }
}

impl Rng for OsRng {
    fn next_u64(&mut self) -> u64 {
        if self.used >= BUFFER_BYTES {
            self.fill();
        }
        let bytes = self.bytes.get(self.used..).and_then(|rest| rest.first_chunk::<8>()).copied().unwrap_or_default();
        self.used += 8;
        u64::from_le_bytes(bytes)
    }
}

impl OsRng {
    /// Refills the buffer. Aborts the process if the system has no randomness: a predictable token
    /// would let one worker settle the job of another.
    fn fill(&mut self) {
        if getrandom::fill(&mut self.bytes).is_err() {
            std::process::abort();
        }
        self.used = 0;
    }
}
