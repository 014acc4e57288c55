//! Records as bytes.
//!
//! # Format 1
//!
//! A record is `version (1 byte) · body · CRC-32 (4 bytes, little endian)`. The checksum covers the sequence number under which the record is filed
//! (8 bytes, little endian), the version and the body, so that a record in the wrong place is found out, too.
//!
//! The body is a row of numbers and byte strings in the order of [`job::encode`]: unsigned numbers as LEB128, signed ones zigzag first, instants as
//! milliseconds since the record's `created_at`, byte strings with their length in front, options as a byte 0 or 1 in front, enumerations by their
//! place in the list that `ALL` gives. Queues, types and policies are numbers into tables of their own (`names.rs`). Any number of zeroes may follow.
//!
//! To change it: add `FORMAT` 2, keep reading 1, add a fixture written by the old program under `fixtures/`, and never reuse a place in an enumeration.

pub mod job;
pub mod key;
pub mod policy;
pub mod totals;
pub mod workflow;

/// The version this program writes.
pub const FORMAT: u8 = 1;

/// The bytes are not what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeError;

#[derive(Debug, Default)]
pub struct Writer {
    pub bytes: Vec<u8>,
}

impl Writer {
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

    pub fn fixed(&mut self, bytes: &[u8; 16]) {
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
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
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
        // Most are small.
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
    pub fn fixed(&mut self) -> Result<[u8; 16], DecodeError> {
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

    /// A value by its place in a closed list.
    #[inline]
    pub fn variant<T: Copy>(&mut self, all: &[T]) -> Result<T, DecodeError> {
        all.get(usize::from(self.byte()?)).copied().ok_or(DecodeError)
    }

    /// A list with its length in front; no more memory is taken than the bytes can fill.
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

    /// Passes over these bytes, if they are the next ones.
    pub fn skip(&mut self, bytes: &[u8]) -> bool {
        let rest = self.rest.strip_prefix(bytes);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    /// Nothing more, or zeroes.
    pub fn end_or_padding(&self) -> Result<(), DecodeError> {
        // Looks at all of them, which is quicker than to stop at the first that is none.
        if self.rest.iter().fold(0, |all, byte| all | byte) == 0 { Ok(()) } else { Err(DecodeError) }
    }

    pub fn end(&self) -> Result<(), DecodeError> {
        if self.rest.is_empty() { Ok(()) } else { Err(DecodeError) }
    }
}

/// Adds the checksum of a value that is filed under `key`.
pub fn append_checksum(key: u64, mut bytes: Vec<u8>) -> Vec<u8> {
    let sum = checksum(key, &bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes
}

/// The value without its checksum, if that is right.
pub fn verify_checksum(key: u64, sealed: &[u8]) -> Result<&[u8], DecodeError> {
    let (bytes, sum) = sealed.split_last_chunk::<4>().ok_or(DecodeError)?;
    if checksum(key, bytes) == u32::from_le_bytes(*sum) { Ok(bytes) } else { Err(DecodeError) }
}

/// A record without most of the zeroes at its end. Some of them may be its own: more than those are left.
pub fn trim_padding(bytes: &[u8]) -> &[u8] {
    const OWN_MAX: usize = 32;
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    bytes.get(..end + OWN_MAX).unwrap_or(bytes)
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
            let mut writer = Writer::default();
            writer.varint(number);
            assert_eq!(Reader::new(&writer.bytes).varint(), Ok(number));
        }
        for number in [0, -1, 1, i64::MIN, i64::MAX, -12_345] {
            let mut writer = Writer::default();
            writer.zigzag(number);
            assert_eq!(Reader::new(&writer.bytes).zigzag(), Ok(number));
        }
    }

    #[test]
    fn a_flipped_bit_or_a_wrong_place_is_found() {
        let sealed = append_checksum(7, b"some record".to_vec());
        assert_eq!(verify_checksum(7, &sealed), Ok(&b"some record"[..]));
        assert_eq!(verify_checksum(8, &sealed), Err(DecodeError));
        for bit in 0..sealed.len() * 8 {
            let mut flipped = sealed.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(verify_checksum(7, &flipped), Err(DecodeError));
        }
        assert_eq!(verify_checksum(7, b"abc"), Err(DecodeError));
    }
}
