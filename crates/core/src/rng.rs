//! Randomness, injected by the caller so that a run can be repeated.

/// Source of random bits. In production it must be unguessable: lease tokens are made from it.
pub trait Rng {
    fn next_u64(&mut self) -> u64;
}

impl dyn Rng + '_ {
    pub fn bytes16(&mut self) -> [u8; 16] {
        let bits = (u128::from(self.next_u64()) << 64) | u128::from(self.next_u64());
        bits.to_be_bytes()
    }

    /// Returns a uniform number from 0 to 1, both included.
    pub fn unit(&mut self) -> f64 {
        const TOP: u64 = (1 << 53) - 1;
        // 53 bits are what an f64 holds exactly.
        #[expect(clippy::cast_precision_loss, reason = "53 bits fit an f64")]
        let unit = (self.next_u64() >> 11) as f64 / TOP as f64;
        unit
    }

    /// Returns a uniform number from 0 to `max`, both included.
    pub fn uniform_inclusive(&mut self, max: u64) -> u64 {
        // Multiply-shift: the bias is below 2^-20 for every duration the system accepts.
        let span = u128::from(max) + 1;
        let scaled = (u128::from(self.next_u64()) * span) >> 64;
        u64::try_from(scaled).unwrap_or(max)
    }
}

/// Seeded generator (SplitMix64) for tests and simulations; not for tokens in production.
#[derive(Clone, Debug)]
pub struct SeededRng(u64);

impl SeededRng {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }
}

impl Rng for SeededRng {
    fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uniform_stays_in_range() {
        let mut seeded = SeededRng::new(7);
        let rng: &mut dyn Rng = &mut seeded;
        let mut seen = [false; 4];
        for _ in 0..200 {
            seen[usize::try_from(rng.uniform_inclusive(3)).unwrap()] = true;
            assert!((0.0..=1.0).contains(&rng.unit()));
        }
        assert_eq!(seen, [true; 4]);
        assert_eq!(rng.uniform_inclusive(0), 0);
    }
}
