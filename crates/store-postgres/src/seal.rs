//! Job ids in which the number is found again, so that no index over random ids has to be written.
//!
//! An id is a UUID of version 4: 64 of its 122 bits are the number under a permutation that is keyed with a secret of the database, the others are
//! random. The rounds use a hash that PostgreSQL has built in (`hashint4extended`), so that `submit` in SQL makes the same ids.

use longshore_core::dice::Dice;
use longshore_core::id::{JobId, Seq};

const ROUNDS: usize = 6;

#[derive(Clone)]
pub(crate) struct IdSeal {
    keys: [u64; ROUNDS],
}

impl std::fmt::Debug for IdSeal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("IdSeal")
    }
}

impl IdSeal {
    pub(crate) fn new(secret: [u8; 16]) -> Self {
        let wide = u128::from_be_bytes(secret);
        let (front, back) = (low(wide >> 64), low(wide));
        let keys = std::array::from_fn(|round| {
            let number = u32::try_from(round).unwrap_or(0);
            hash(number, front) ^ back.rotate_left(number * 8)
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

fn round(half: u32, key: u64) -> u32 {
    low_half(hash(half, key))
}

/// PostgreSQL's `hashint4extended(number, seed)`: Bob Jenkins' lookup3 for one word. It cannot change there: hash partitions depend on it.
fn hash(number: u32, seed: u64) -> u64 {
    let start = 0x9e37_79b9_u32.wrapping_add(4).wrapping_add(3_923_095);
    let (mut a, mut b, mut c) = (start, start, start);
    if seed != 0 {
        a = a.wrapping_add(high_half(seed));
        b = b.wrapping_add(low_half(seed));
        // The first mix.
        a = a.wrapping_sub(c) ^ c.rotate_left(4);
        c = c.wrapping_add(b);
        b = b.wrapping_sub(a) ^ a.rotate_left(6);
        a = a.wrapping_add(c);
        c = c.wrapping_sub(b) ^ b.rotate_left(8);
        b = b.wrapping_add(a);
        a = a.wrapping_sub(c) ^ c.rotate_left(16);
        c = c.wrapping_add(b);
        b = b.wrapping_sub(a) ^ a.rotate_left(19);
        a = a.wrapping_add(c);
        c = c.wrapping_sub(b) ^ b.rotate_left(4);
        b = b.wrapping_add(a);
    }
    a = a.wrapping_add(number);
    // The last mix.
    c = (c ^ b).wrapping_sub(b.rotate_left(14));
    a = (a ^ c).wrapping_sub(c.rotate_left(11));
    b = (b ^ a).wrapping_sub(a.rotate_left(25));
    c = (c ^ b).wrapping_sub(b.rotate_left(16));
    a = (a ^ c).wrapping_sub(c.rotate_left(4));
    b = (b ^ a).wrapping_sub(a.rotate_left(14));
    c = (c ^ b).wrapping_sub(b.rotate_left(24));
    (u64::from(b) << 32) | u64::from(c)
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

    /// As PostgreSQL 15 answers.
    #[test]
    fn the_hash_is_that_of_postgresql() {
        assert_eq!(hash(42, 12_345_678_901_234).cast_signed(), 3_133_038_028_154_581_527);
        assert_eq!(hash(7, 0).cast_signed(), -3_288_951_424_994_980_865);
        assert_eq!(hash((-5_i32).cast_unsigned(), (-77_i64).cast_unsigned()).cast_signed(), 3_760_591_024_194_977_190);
    }

    #[test]
    fn ids_of_neighbours_look_unrelated() {
        let mut dice = SeededDice::new(2);
        let seal = IdSeal::new([9; 16]);
        let mut bits = |number| u128::from_be_bytes(*seal.seal(Seq(number), &mut dice).as_bytes());
        let differing: u32 = (0..1_000).map(|number| (bits(number) ^ bits(number + 1)).count_ones()).sum();
        assert!((55_000..67_000).contains(&differing), "{differing} of 122,000 bits differ");
    }
}
