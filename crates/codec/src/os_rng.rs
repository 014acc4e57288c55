//! Randomness of the operating system, taken in larger helpings.

use longshore_core::rng::Rng;

const HELPING: usize = 4_096;

/// Unguessable: lease tokens are made from it.
#[derive(Clone)]
pub struct SystemDice {
    bytes: [u8; HELPING],
    used: usize,
}

impl Default for SystemDice {
    fn default() -> Self {
        Self { bytes: [0; HELPING], used: HELPING }
    }
}

impl std::fmt::Debug for SystemDice {
    /// What comes next is nobody's business.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SystemDice")
    }
}

impl Rng for SystemDice {
    fn next_u64(&mut self) -> u64 {
        if self.used >= HELPING {
            self.fill();
        }
        let bytes = self.bytes.get(self.used..).and_then(|rest| rest.first_chunk::<8>()).copied().unwrap_or_default();
        self.used += 8;
        u64::from_le_bytes(bytes)
    }
}

impl SystemDice {
    fn fill(&mut self) {
        // Without randomness there are no secrets, and nothing may be answered: the process must not go on.
        if getrandom::fill(&mut self.bytes).is_err() {
            std::process::abort();
        }
        self.used = 0;
    }
}
