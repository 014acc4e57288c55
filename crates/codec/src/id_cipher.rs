//! Job ids in which a store finds the sequence number again, so that no index over random ids has to be written.
//!
//! An id is a UUID of version 4: 122 bits that look random. 64 of them are the sequence number under a permutation (a Feistel network) that is keyed with
//! a secret of the store, the others are random. Whoever unseals an id gets a number to look at; only the record there says whether the id is its own. The
//! rounds are the store's own: what they cannot share is the hash.

use longshore_core::id::{JobId, Seq, WorkflowId};
use longshore_core::rng::Rng;

/// The keys of the rounds, and how a half is mixed with one.
#[derive(Clone)]
pub struct IdCipher<K, const ROUNDS: usize> {
    keys: [K; ROUNDS],
    round: fn(u32, K) -> u32,
}

impl<K, const ROUNDS: usize> std::fmt::Debug for IdCipher<K, ROUNDS> {
    /// Keys are secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("IdSeal")
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
        let sealed = (u64::from(left) << 32) | u64::from(right);
        let chance = rng.next_u64();
        // 48 bits, version, 12 bits | variant, 4 of the sealed bits, 58 random ones.
        let front = (sealed & !0xffff) | 0x4000 | ((sealed & 0xffff) >> 4);
        let back = (0b10 << 62) | ((sealed & 0xf) << 58) | (chance >> 6);
        let wide = (u128::from(front) << 64) | u128::from(back);
        JobId::from_bytes(wide.to_be_bytes())
    }

    /// The number that this id would have; of a foreign id it is any number.
    pub fn decrypt(&self, id: JobId) -> Seq {
        let wide = u128::from_be_bytes(*id.as_bytes());
        let (front, back) = (low(wide >> 64), low(wide));
        let sealed = (front & !0xffff) | ((front & 0xfff) << 4) | ((back >> 58) & 0xf);
        let (mut left, mut right) = (high_half(sealed), low_half(sealed));
        for key in self.keys.iter().rev() {
            (left, right) = (right ^ (self.round)(left, *key), left);
        }
        Seq((u64::from(left) << 32) | u64::from(right))
    }

    /// The number of a workflow; its id is made like that of a job.
    pub fn seq_of_workflow(&self, id: WorkflowId) -> Seq {
        self.decrypt(JobId::from_bytes(*id.as_bytes()))
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the lower half is what is wanted")]
pub fn low(wide: u128) -> u64 {
    wide as u64
}

#[expect(clippy::cast_possible_truncation, reason = "the lower half is what is wanted")]
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

    /// Any function of a half and a key makes a permutation.
    #[test]
    fn ids_are_uuids_of_version_4_and_lead_back_to_their_number() {
        let mut rng = SeededRng::new(1);
        let seal = IdCipher::new([3_u32, 5, 8], |half, key| half.wrapping_mul(0x9e37_79b9).rotate_left(11) ^ key);
        let mut seen = std::collections::HashSet::new();
        for number in (0..2_000).chain([u64::MAX, 1 << 40, u64::from(u32::MAX)]) {
            let id = seal.encrypt(Seq(number), &mut rng);
            assert_eq!(seal.decrypt(id), Seq(number));
            assert_eq!(seal.seq_of_workflow(WorkflowId::from_bytes(*id.as_bytes())), Seq(number));
            assert!(seen.insert(id));
            let text = id.to_string();
            assert_eq!(&text[14..15], "4");
            assert!("89ab".contains(&text[19..20]));
            assert_eq!(text.parse::<JobId>().unwrap(), id);
        }
    }
}
