//! The format of a record: version, body, checksum.
//!
//! # Format 1
//!
//! A record is `version (1 byte) · body · CRC-32 (4 bytes, little endian)`. The checksum covers the
//! key under which the record is stored (8 bytes, little endian), the version and the body. A
//! record that is stored under a wrong key is therefore detected as well.
//!
//! The body is a sequence of values in the order of [`crate::job::encode`]:
//! - unsigned integers as LEB128, signed integers as zigzag LEB128
//! - timestamps as milliseconds since the record's `created_at`
//! - byte strings with a length prefix, options with a prefix byte 0 or 1
//! - enumerations by their index in `ALL`
//! - queues, types and policies by their number in the [`crate::Dictionary`]
//!
//! Fields that were added later follow: each is absent, or a byte that is not zero and its value.
//! Zero bytes may follow as padding.
//!
//! To change the format: add `FORMAT` 2, keep decoding 1, add a fixture written by the old program
//! under `fixtures/`, and never reuse an index of an enumeration.

/// The version that this program writes.
pub const FORMAT: u8 = 1;

/// The bytes are not a valid record: they are corrupt or of another format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeError;

#[derive(Debug, Default)]
pub struct Encoder {
    pub bytes: Vec<u8>,
}

impl Encoder {
    pub fn byte(&mut self, byte: u8) {
        self.bytes.push(byte);
    }

    pub fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.bytes.push(low_bits(number) | 0x80);
            number >>= 7;
        }
        self.bytes.push(low_bits(number));
    }

    pub fn zigzag(&mut self, number: i64) {
        self.varint(((number << 1) ^ (number >> 63)).cast_unsigned());
    }

    pub fn text(&mut self, bytes: &[u8]) {
        self.varint(bytes.len() as u64);
        self.bytes.extend_from_slice(bytes);
    }

    pub fn fixed<const N: usize>(&mut self, bytes: &[u8; N]) {
        self.bytes.extend_from_slice(bytes);
    }

    pub fn option<T>(&mut self, option: Option<T>, write: impl FnOnce(&mut Self, T)) {
        self.byte(u8::from(option.is_some()));
        if let Some(value) = option {
            write(self, value);
        }
    }

    pub fn flag(&mut self, flag: bool) {
        self.byte(u8::from(flag));
    }
}

fn low_bits(number: u64) -> u8 {
    (number & 0x7f).to_le_bytes()[0]
}

#[derive(Debug)]
pub struct Decoder<'a> {
    rest: &'a [u8],
}

impl<'a> Decoder<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    #[inline]
    pub fn byte(&mut self) -> Result<u8, DecodeError> {
        let (first, rest) = self.rest.split_first().ok_or(DecodeError)?;
        self.rest = rest;
        Ok(*first)
    }

    #[inline]
    pub fn varint(&mut self) -> Result<u64, DecodeError> {
        // Fast path: most numbers fit in one byte.
        let first = self.byte()?;
        if first < 0x80 {
            return Ok(u64::from(first));
        }
        let mut number = u64::from(first & 0x7f);
        for shift in (7..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(DecodeError)
    }

    #[inline]
    pub fn varint_as<T: TryFrom<u64>>(&mut self) -> Result<T, DecodeError> {
        T::try_from(self.varint()?).map_err(|_| DecodeError)
    }

    #[inline]
    pub fn zigzag(&mut self) -> Result<i64, DecodeError> {
        let number = self.varint()?;
        Ok((number >> 1).cast_signed() ^ -((number & 1).cast_signed()))
    }

    pub fn bytes(&mut self) -> Result<&'a [u8], DecodeError> {
        let length = self.varint_as()?;
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or(DecodeError)?;
        self.rest = rest;
        Ok(bytes)
    }

    pub fn text(&mut self) -> Result<&'a str, DecodeError> {
        std::str::from_utf8(self.bytes()?).map_err(|_| DecodeError)
    }

    #[inline]
    pub fn fixed<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(DecodeError)?;
        self.rest = rest;
        Ok(*bytes)
    }

    #[inline]
    pub fn option<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Option<T>, DecodeError> {
        if self.flag()? { read(self).map(Some) } else { Ok(None) }
    }

    #[inline]
    pub fn flag(&mut self) -> Result<bool, DecodeError> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(DecodeError),
        }
    }

    /// Decodes a value from its index in a closed list.
    #[inline]
    pub fn variant<T: Copy>(&mut self, all: &[T]) -> Result<T, DecodeError> {
        all.get(usize::from(self.byte()?)).copied().ok_or(DecodeError)
    }

    /// Decodes a list with a length prefix. Allocates at most one item per remaining byte.
    pub fn list<T>(
        &mut self,
        mut read: impl FnMut(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, DecodeError> {
        let length: usize = self.varint_as()?;
        let mut list = Vec::with_capacity(length.min(self.rest.len()));
        for _ in 0..length {
            list.push(read(self)?);
        }
        Ok(list)
    }

    /// Skips these bytes if they are next. Returns whether they were.
    pub fn skip(&mut self, bytes: &[u8]) -> bool {
        let rest = self.rest.strip_prefix(bytes);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    /// Checks that only zero bytes remain.
    pub fn end_or_padding(&self) -> Result<(), DecodeError> {
        // The fold reads all bytes, which the compiler vectorizes; a search with early exit is
        // slower.
        if self.rest.iter().fold(0, |all, byte| all | byte) == 0 { Ok(()) } else { Err(DecodeError) }
    }

    pub fn end(&self) -> Result<(), DecodeError> {
        if self.rest.is_empty() { Ok(()) } else { Err(DecodeError) }
    }
}

/// Appends the checksum of a value that is stored under `key`.
pub fn append_checksum(key: u64, mut bytes: Vec<u8>) -> Vec<u8> {
    let sum = checksum(key, &bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes
}

/// Returns the value without its checksum, or an error if the checksum differs.
pub fn verify_checksum(key: u64, record: &[u8]) -> Result<&[u8], DecodeError> {
    let (bytes, sum) = record.split_last_chunk::<4>().ok_or(DecodeError)?;
    if checksum(key, bytes) == u32::from_le_bytes(*sum) { Ok(bytes) } else { Err(DecodeError) }
}

/// Returns a record without most of its padding. The last values of a body may be zeroes as well,
/// so some zeroes are kept.
pub fn trim_padding(bytes: &[u8]) -> &[u8] {
    const TRAILING_ZEROES_MAX: usize = 32;
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    bytes.get(..end + TRAILING_ZEROES_MAX).unwrap_or(bytes)
}

pub fn checksum(key: u64, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&key.to_le_bytes());
    hasher.update(bytes);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_round_trip() {
        for number in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            let mut encoder = Encoder::default();
            encoder.varint(number);
            assert_eq!(Decoder::new(&encoder.bytes).varint(), Ok(number));
        }
        for number in [0, -1, 1, i64::MIN, i64::MAX, -12_345] {
            let mut encoder = Encoder::default();
            encoder.zigzag(number);
            assert_eq!(Decoder::new(&encoder.bytes).zigzag(), Ok(number));
        }
    }

    #[test]
    fn flipped_bit_or_wrong_key_is_detected() {
        let record = append_checksum(7, b"some record".to_vec());
        assert_eq!(verify_checksum(7, &record), Ok(&b"some record"[..]));
        assert_eq!(verify_checksum(8, &record), Err(DecodeError));
        for bit in 0..record.len() * 8 {
            let mut flipped = record.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(verify_checksum(7, &flipped), Err(DecodeError));
        }
        assert_eq!(verify_checksum(7, b"abc"), Err(DecodeError));
    }
}
