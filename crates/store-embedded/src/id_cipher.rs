//! Round function and keys of the id cipher in this store.

use longshore_codec::id_cipher::{self, high_half, low};

const ROUNDS: usize = 8;

pub(crate) type StoreIdCipher = id_cipher::IdCipher<u32, ROUNDS>;

pub(crate) fn store_id_cipher(secret: [u8; 16]) -> StoreIdCipher {
    let wide = u128::from_le_bytes(secret);
    let mut state = low(wide) ^ low(wide >> 64).rotate_left(32);
    let keys = std::array::from_fn(|_| {
        state = mix(state.wrapping_add(0x9E37_79B9_7F4A_7C15) ^ low(wide >> 64));
        high_half(state)
    });
    StoreIdCipher::new(keys, round)
}

fn round(half: u32, key: u32) -> u32 {
    high_half(mix(u64::from(half) ^ (u64::from(key) << 32) ^ u64::from(key)))
}

fn mix(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use longshore_core::id::Seq;
    use longshore_core::rng::SeededRng;

    /// Consecutive ids differ in half of their bits, and another secret decrypts to another number.
    #[test]
    fn ids_of_consecutive_jobs_are_unrelated() {
        let mut rng = SeededRng::new(2);
        let cipher = store_id_cipher([9; 16]);
        let bits = |cipher: &StoreIdCipher, number, rng: &mut SeededRng| {
            u128::from_be_bytes(*cipher.encrypt(Seq(number), rng).as_bytes())
        };
        let mut differing = 0;
        for number in 0..1_000 {
            differing += (bits(&cipher, number, &mut rng) ^ bits(&cipher, number + 1, &mut rng)).count_ones();
        }
        let average = f64::from(differing) / 1_000.0;
        assert!((55.0..67.0).contains(&average), "{average} of 122 bits differ");
        let other = store_id_cipher([10; 16]);
        assert_ne!(other.decrypt(cipher.encrypt(Seq(5), &mut rng)), Seq(5));
    }
}
