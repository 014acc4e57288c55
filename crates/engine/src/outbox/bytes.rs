//! Primitive values of the outbox's records: lengths and numbers as big-endian integers.

use super::OutboxFormatError;

/// Appends values to a record.
#[derive(Debug, Default)]
pub(super) struct RecordWriter(pub(super) Vec<u8>);

impl RecordWriter {
    pub(super) fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    pub(super) fn number(&mut self, number: u32) {
        self.0.extend_from_slice(&number.to_be_bytes());
    }

    pub(super) fn millis(&mut self, millis: i64) {
        self.0.extend_from_slice(&millis.to_be_bytes());
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        // Records are far smaller than 4 GiB: payloads and results are bounded.
        self.number(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        self.0.extend_from_slice(bytes);
    }

    pub(super) fn option<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
        self.byte(u8::from(value.is_some()));
        if let Some(value) = value {
            write(self, value);
        }
    }
}

/// Reads what [`RecordWriter`] has written.
#[derive(Debug)]
pub(super) struct RecordParser<'a>(pub(super) &'a [u8]);

impl<'a> RecordParser<'a> {
    pub(super) fn byte(&mut self) -> Result<u8, OutboxFormatError> {
        let (first, rest) = self.0.split_first().ok_or(OutboxFormatError)?;
        self.0 = rest;
        Ok(*first)
    }

    pub(super) fn number(&mut self) -> Result<u32, OutboxFormatError> {
        self.array().map(u32::from_be_bytes)
    }

    pub(super) fn millis(&mut self) -> Result<i64, OutboxFormatError> {
        self.array().map(i64::from_be_bytes)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], OutboxFormatError> {
        let (array, rest) = self.0.split_first_chunk().ok_or(OutboxFormatError)?;
        self.0 = rest;
        Ok(*array)
    }

    pub(super) fn bytes(&mut self) -> Result<&'a [u8], OutboxFormatError> {
        let length = usize::try_from(self.number()?).map_err(|_| OutboxFormatError)?;
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(OutboxFormatError)?;
        self.0 = rest;
        Ok(bytes)
    }

    pub(super) fn text(&mut self) -> Result<&'a str, OutboxFormatError> {
        std::str::from_utf8(self.bytes()?).map_err(|_| OutboxFormatError)
    }

    pub(super) fn option<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, OutboxFormatError>,
    ) -> Result<Option<T>, OutboxFormatError> {
        match self.byte()? {
            0 => Ok(None),
            1 => read(self).map(Some),
            _ => Err(OutboxFormatError),
        }
    }

    /// Reads a list with a length prefix. Each item has at least one byte.
    pub(super) fn list<T>(
        &mut self,
        mut read: impl FnMut(&mut Self) -> Result<T, OutboxFormatError>,
    ) -> Result<Vec<T>, OutboxFormatError> {
        let length = usize::try_from(self.number()?).map_err(|_| OutboxFormatError)?;
        let mut list = Vec::with_capacity(length.min(self.0.len()));
        for _ in 0..length {
            list.push(read(self)?);
        }
        Ok(list)
    }
}
