//! Job ids in which the store finds the sequence number again, so that no index over random ids has to be written.
//!
//! An id is a UUID of version 4: 122 bits that look random. 64 of them are the sequence number under a permutation that is keyed with a secret of
//! the store, the others are random. Whoever unseals an id gets a number to look at; only the record there says whether the id is its own.

use longshore_core::dice::Dice;
use longshore_core::id::{JobId, Seq, WorkflowId};

const ROUNDS: usize = 8;

#[derive(Clone)]
pub(crate) struct IdSeal {
    keys: [u32; ROUNDS],
}

impl std::fmt::Debug for IdSeal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("IdSeal")
    }
}

impl IdSeal {
    pub(crate) fn new(secret: [u8; 16]) -> Self {
        let wide = u128::from_le_bytes(secret);
        let mut state = low(wide) ^ low(wide >> 64).rotate_left(32);
        let keys = std::array::from_fn(|_| {
            state = mix(state.wrapping_add(0x9E37_79B9_7F4A_7C15) ^ low(wide >> 64));
            high_half(state)
        });
        Self { keys }
    }

    pub(crate) fn seal(&self, seq: Seq, dice: &mut dyn Dice) -> JobId {
        let (mut left, mut right) = (high_half(seq.0), low_half(seq.0));
        for key in self.keys {
            (left, right) = (right, left ^ round(right, key));
        }
        let sealed = (u64::from(left) << 32) | u64::from(right);
        let chance = dice.roll();
        // 48 bits, version, 12 bits | variant, 4 of the sealed bits, 58 random ones.
        let front = (sealed & !0xffff) | 0x4000 | ((sealed & 0xffff) >> 4);
        let back = (0b10 << 62) | ((sealed & 0xf) << 58) | (chance >> 6);
        let wide = (u128::from(front) << 64) | u128::from(back);
        JobId::from_bytes(wide.to_be_bytes())
    }

    /// The number of a workflow; its id is made like that of a job.
    pub(crate) fn number_of(&self, id: WorkflowId) -> Seq {
        self.unseal(JobId::from_bytes(*id.as_bytes()))
    }

    /// The number that this id would have; of a foreign id it is any number.
    pub(crate) fn unseal(&self, id: JobId) -> Seq {
        let wide = u128::from_be_bytes(*id.as_bytes());
        let (front, back) = (low(wide >> 64), low(wide));
        let sealed = (front & !0xffff) | ((front & 0xfff) << 4) | ((back >> 58) & 0xf);
        let (mut left, mut right) = (high_half(sealed), low_half(sealed));
        for key in self.keys.iter().rev() {
            (left, right) = (right ^ round(left, *key), left);
        }
        Seq((u64::from(left) << 32) | u64::from(right))
    }
}

fn round(half: u32, key: u32) -> u32 {
    high_half(mix(u64::from(half) ^ (u64::from(key) << 32) ^ u64::from(key)))
}

fn mix(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

#[expect(clippy::cast_possible_truncation, reason = "the lower half is what is wanted")]
fn low(wide: u128) -> u64 {
    wide as u64
}

#[expect(clippy::cast_possible_truncation, reason = "the lower half is what is wanted")]
fn low_half(wide: u64) -> u32 {
    wide as u32
}

fn high_half(wide: u64) -> u32 {
    low_half(wide >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use longshore_core::dice::SeededDice;

    #[test]
    fn ids_are_uuids_of_version_4_and_lead_back_to_their_number() {
        let mut dice = SeededDice::new(1);
        let seal = IdSeal::new([7; 16]);
        let mut seen = std::collections::HashSet::new();
        for number in (0..2_000).chain([u64::MAX, 1 << 40, u64::from(u32::MAX)]) {
            let id = seal.seal(Seq(number), &mut dice);
            assert_eq!(seal.unseal(id), Seq(number));
            assert!(seen.insert(id));
            let text = id.to_string();
            assert_eq!(&text[14..15], "4");
            assert!("89ab".contains(&text[19..20]));
            assert_eq!(text.parse::<JobId>().unwrap(), id);
        }
    }

    /// Neighbours share no more bits than chance would have it, and another store's secret gives other ids.
    #[test]
    fn ids_of_neighbours_look_unrelated() {
        let mut dice = SeededDice::new(2);
        let seal = IdSeal::new([9; 16]);
        let bits = |seal: &IdSeal, number, dice: &mut SeededDice| {
            u128::from_be_bytes(*seal.seal(Seq(number), dice).as_bytes())
        };
        let mut differing = 0;
        for number in 0..1_000 {
            differing += (bits(&seal, number, &mut dice) ^ bits(&seal, number + 1, &mut dice)).count_ones();
        }
        let average = f64::from(differing) / 1_000.0;
        assert!((55.0..67.0).contains(&average), "{average} of 122 bits differ");
        let other = IdSeal::new([10; 16]);
        assert_ne!(other.unseal(seal.seal(Seq(5), &mut dice)), Seq(5));
    }
}
