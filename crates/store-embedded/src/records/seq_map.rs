//! Hash map by sequence number.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use longshore_core::id::Seq;

/// Keyed by sequence numbers, which clients cannot choose, so the hash needs no protection against
/// collisions.
pub(super) type SeqMap<T> = HashMap<Seq, T, BuildHasherDefault<SeqHasher>>;

/// Keeps jobs with adjacent numbers adjacent in the map, because claims use them together. Groups
/// of 64 numbers are scattered.
#[derive(Debug, Default)]
pub(super) struct SeqHasher(u64);

impl Hasher for SeqHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(self.0 ^ u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        const SCATTER: u64 = 0x9E37_79B9_7F4A_7C15;
        const TAG: u64 = 0x7F << 57;
        let group = (number >> 6).wrapping_mul(SCATTER) >> 25;
        // hashbrown selects the bucket by the low bits and compares the highest seven bits first.
        self.0 = group << 6 | number & 63 | number.wrapping_mul(SCATTER) & TAG;
    }
}
