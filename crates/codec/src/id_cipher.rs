//! Job ids that contain the encrypted sequence number, so that a store needs no index over random
//! ids.
//!
//! An id is a version 4 UUID: 122 bits that look random. 64 of them are the sequence number,
//! encrypted by a Feistel network with a secret key of the store; the others are random. Decrypting
//! any id yields a number, so the store compares the id with the record of that number. Each store
//! has its own round function, because PostgreSQL must compute it in SQL.

use longshore_core::id::{JobId, Seq, WorkflowId};
use longshore_core::rng::Rng;

/// The keys of the rounds, and the round function.
#[derive(Clone)]
pub struct IdCipher<K, const ROUNDS: usize> {
    keys: [K; ROUNDS],
    round: fn(u32, K) -> u32,
}

impl<K, const ROUNDS: usize> std::fmt::Debug for IdCipher<K, ROUNDS> {
    /// Leaves out the secret keys.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("IdCipher")
    }
}

impl<K: Copy, const ROUNDS: usize> IdCipher<K, ROUNDS> {
    pub fn new(keys: [K; ROUNDS], round: fn(u32, K) -> u32) -> Self {
        Self { keys, round }
    }

    pub fn encrypt(&self, seq: Seq, rng: &mut dyn Rng) -> JobId {
        let (mut left, mut right) = (high_half(seq.0), low_half(seq.0));
        for key in self.keys {
            (left, right) = (right, left ^ (self.round)(right, key));
        }
        let encrypted = (u64::from(left) << 32) | u64::from(right);
        let random = rng.next_u64();
        // 48 encrypted bits, version, 12 encrypted bits | variant, 4 encrypted bits, 58 random
        // bits.
        let front = (encrypted & !0xffff) | 0x4000 | ((encrypted & 0xffff) >> 4);
        let back = (0b10 << 62) | ((encrypted & 0xf) << 58) | (random >> 6);
        let wide = (u128::from(front) << 64) | u128::from(back);
        JobId::from_bytes(wide.to_be_bytes())
    }

    /// Returns the sequence number in this id. For an id of another store it is an arbitrary
    /// number.
    pub fn decrypt(&self, id: JobId) -> Seq {
        let wide = u128::from_be_bytes(*id.as_bytes());
        let (front, back) = (low(wide >> 64), low(wide));
        let encrypted = (front & !0xffff) | ((front & 0xfff) << 4) | ((back >> 58) & 0xf);
        let (mut left, mut right) = (high_half(encrypted), low_half(encrypted));
        for key in self.keys.iter().rev() {
            (left, right) = (right ^ (self.round)(left, *key), left);
        }
        Seq((u64::from(left) << 32) | u64::from(right))
    }

    /// Returns the number of a workflow, whose id has the format of a job id.
    pub fn seq_of_workflow(&self, id: WorkflowId) -> Seq {
        self.decrypt(JobId::from_bytes(*id.as_bytes()))
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the lower half is the result")]
pub fn low(wide: u128) -> u64 {
    wide as u64
}

#[expect(clippy::cast_possible_truncation, reason = "the lower half is the result")]
pub fn low_half(wide: u64) -> u32 {
    wide as u32
}

pub fn high_half(wide: u64) -> u32 {
    low_half(wide >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use longshore_core::rng::SeededRng;

    /// A Feistel network is a permutation for every round function.
    #[test]
    fn ids_are_version_4_uuids_and_decrypt_to_their_number() {
        let mut rng = SeededRng::new(1);
        let cipher = IdCipher::new([3_u32, 5, 8], |half, key| half.wrapping_mul(0x9e37_79b9).rotate_left(11) ^ key);
        let mut seen = std::collections::HashSet::new();
        for number in (0..2_000).chain([u64::MAX, 1 << 40, u64::from(u32::MAX)]) {
            let id = cipher.encrypt(Seq(number), &mut rng);
            assert_eq!(cipher.decrypt(id), Seq(number));
            assert_eq!(cipher.seq_of_workflow(WorkflowId::from_bytes(*id.as_bytes())), Seq(number));
            assert!(seen.insert(id));
            let text = id.to_string();
            assert_eq!(&text[14..15], "4");
            assert!("89ab".contains(&text[19..20]));
            assert_eq!(text.parse::<JobId>().unwrap(), id);
        }
    }
}
