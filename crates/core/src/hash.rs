//! The hash function of indexes.

/// Returns the 64-bit FNV-1a hash of a text. The value is stored: it must never change.
pub fn fnv1a(text: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}
