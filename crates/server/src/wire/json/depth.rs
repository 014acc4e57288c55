//! The nesting depth of a text, before it is parsed.

/// Counts the opening brackets of a text, those in strings included.
pub(super) fn count_brackets(bytes: &[u8]) -> usize {
    // Short blocks, so that a byte holds the count of one: the compiler vectorizes this.
    let count = |block: &[u8]| block.iter().fold(0_u8, |sum, byte| sum.wrapping_add(u8::from(byte | 0x20 == b'{')));
    bytes.chunks(128).map(|block| usize::from(count(block))).sum()
}

/// Returns the nesting depth of a text, which need not be JSON. Ignores brackets in strings.
pub(crate) fn depth(bytes: &[u8]) -> usize {
    let (mut now, mut most) = (0_usize, 0);
    let mut rest = bytes.iter();
    while let Some(byte) = rest.next() {
        match byte {
            b'"' => rest = after_string(rest.as_slice()).iter(),
            b'{' | b'[' => {
                now += 1;
                most = most.max(now);
            }
            b'}' | b']' => now = now.saturating_sub(1),
            _ => {}
        }
    }
    most
}

/// Returns what follows a string. The text starts behind the opening quote.
fn after_string(mut text: &[u8]) -> &[u8] {
    loop {
        let Some(at) = quote_or_backslash(text) else { return &[] };
        match text.split_at_checked(at) {
            Some((_, [b'"', rest @ ..])) => return rest,
            Some((_, [_, _, rest @ ..])) => text = rest,
            Some(_) | None => return &[],
        }
    }
}

/// Returns the position of the first quote or backslash. Reads eight bytes at a time.
fn quote_or_backslash(text: &[u8]) -> Option<usize> {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    const HIGHS: u64 = u64::from_ne_bytes([0x80; 8]);
    // The lowest set bit marks the first byte that is zero.
    let zero_bytes = |word: u64| word.wrapping_sub(ONES) & !word & HIGHS;
    let (words, rest) = text.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        let found = zero_bytes(word ^ (ONES * u64::from(b'"'))) | zero_bytes(word ^ (ONES * u64::from(b'\\')));
        if found != 0 {
            return Some(index * 8 + found.trailing_zeros() as usize / 8);
        }
    }
    let at = rest.iter().position(|byte| matches!(byte, b'"' | b'\\'))?;
    Some(words.len() * 8 + at)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares the depth with that of a scan byte by byte.
    #[test]
    fn depth_ignores_strings_of_any_length_and_escape() {
        fn slow_depth(text: &str) -> usize {
            let (mut now, mut most, mut in_string, mut escaped) = (0_usize, 0, false, false);
            for byte in text.bytes() {
                match byte {
                    _ if escaped => escaped = false,
                    b'\\' if in_string => escaped = true,
                    b'"' => in_string = !in_string,
                    b'{' | b'[' if !in_string => {
                        now += 1;
                        most = most.max(now);
                    }
                    b'}' | b']' if !in_string => now = now.saturating_sub(1),
                    _ => {}
                }
            }
            most
        }
        let (mut seed, parts) = (1_u32, ["[", "]", "{", "}", "\"", "\\", "aaaaaaaa", "b", "\u{e4}", ":,", "\"[[\""]);
        for _ in 0..20_000 {
            let mut text = String::new();
            for _ in 0..12 {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                text.push_str(parts[(seed >> 16) as usize % parts.len()]);
            }
            assert_eq!(depth(text.as_bytes()), slow_depth(&text), "{text}");
        }
    }
}
