//! Randomness of the operating system, taken in larger helpings.

use longshore_core::rng::Rng;

const BUFFER_BYTES: usize = 4_096;

/// Unguessable: lease tokens are made from it.
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

impl std::fmt::Debug for OsRng {
    /// What comes next is nobody's business.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SystemDice")
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
    fn fill(&mut self) {
        // Without randomness there are no secrets, and nothing may be answered: the process must not go on.
        if getrandom::fill(&mut self.bytes).is_err() {
            std::process::abort();
        }
        self.used = 0;
    }
}
