//! The round function of job ids: `hashint4extended` of PostgreSQL, so that `submit()` in SQL
//! derives the same ids.

use longshore_codec::id_cipher::{self, high_half, low, low_half};

const ROUNDS: usize = 6;

pub(crate) type PostgresIdCipher = id_cipher::IdCipher<u64, ROUNDS>;

pub(crate) fn new_id_cipher(secret: [u8; 16]) -> PostgresIdCipher {
    let wide = u128::from_be_bytes(secret);
    let (front, back) = (low(wide >> 64), low(wide));
    let keys = std::array::from_fn(|round| {
        let number = u32::try_from(round).unwrap_or(0);
        hash(number, front) ^ back.rotate_left(number * 8)
    });
    PostgresIdCipher::new(keys, round)
}

fn round(half: u32, key: u64) -> u32 {
    low_half(hash(half, key))
}

/// `hashint4extended(number, seed)` of PostgreSQL: lookup3 of Bob Jenkins for one word. PostgreSQL
/// cannot change it, because hash partitions depend on it.
fn hash(number: u32, seed: u64) -> u64 {
    let start = 0x9e37_79b9_u32.wrapping_add(4).wrapping_add(3_923_095);
    let (mut a, mut b, mut c) = (start, start, start);
    if seed != 0 {
        a = a.wrapping_add(high_half(seed));
        b = b.wrapping_add(low_half(seed));
        // Mix of the seed.
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
    // Final mix.
    c = (c ^ b).wrapping_sub(b.rotate_left(14));
    a = (a ^ c).wrapping_sub(c.rotate_left(11));
    b = (b ^ a).wrapping_sub(a.rotate_left(25));
    c = (c ^ b).wrapping_sub(b.rotate_left(16));
    a = (a ^ c).wrapping_sub(c.rotate_left(4));
    b = (b ^ a).wrapping_sub(a.rotate_left(14));
    c = (c ^ b).wrapping_sub(b.rotate_left(24));
    (u64::from(b) << 32) | u64::from(c)
}

#[cfg(test)]
mod tests {
    use super::*;
    use longshore_core::id::Seq;
    use longshore_core::rng::SeededRng;

    /// Values of PostgreSQL 15.
    #[test]
    fn hash_equals_hashint4extended() {
        assert_eq!(hash(42, 12_345_678_901_234).cast_signed(), 3_133_038_028_154_581_527);
        assert_eq!(hash(7, 0).cast_signed(), -3_288_951_424_994_980_865);
        assert_eq!(hash((-5_i32).cast_unsigned(), (-77_i64).cast_unsigned()).cast_signed(), 3_760_591_024_194_977_190);
    }

    #[test]
    fn ids_of_consecutive_numbers_look_unrelated() {
        let mut rng = SeededRng::new(2);
        let cipher = new_id_cipher([9; 16]);
        let mut bits = |number| u128::from_be_bytes(*cipher.encrypt(Seq(number), &mut rng).as_bytes());
        let differing: u32 = (0..1_000).map(|number| (bits(number) ^ bits(number + 1)).count_ones()).sum();
        assert!((55_000..67_000).contains(&differing), "{differing} of 122,000 bits differ");
    }
}
