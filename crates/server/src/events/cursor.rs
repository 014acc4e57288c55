//! The position in an event log: `<epoch>-<number>`.

use std::fmt;
use std::str::FromStr;

/// The position after one event. The epoch names the log: another process has another one, so a
/// cursor of before a restart, or of another server, is recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cursor {
    pub(crate) epoch: u64,
    pub(crate) number: u64,
}

/// Digits of the epoch, in hexadecimal.
const EPOCH_DIGITS: usize = 16;

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{}", self.epoch, self.number)
    }
}

/// What a cursor has to look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MalformedCursor;

impl fmt::Display for MalformedCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the id of an earlier event, such as 9f86d081884c7d65-42")
    }
}

impl FromStr for Cursor {
    type Err = MalformedCursor;

    fn from_str(text: &str) -> Result<Self, MalformedCursor> {
        let (epoch, number) = text.split_once('-').ok_or(MalformedCursor)?;
        let is_hex = |c: u8| c.is_ascii_digit() || (b'a'..=b'f').contains(&c);
        let is_epoch = epoch.len() == EPOCH_DIGITS && epoch.bytes().all(is_hex);
        // One text for each cursor: no sign, no leading zeros.
        let is_number = number == "0" || (!number.starts_with('0') && number.bytes().all(|c| c.is_ascii_digit()));
        if !is_epoch || !is_number {
            return Err(MalformedCursor);
        }
        let epoch = u64::from_str_radix(epoch, 16).map_err(|_| MalformedCursor)?;
        Ok(Self { epoch, number: number.parse().map_err(|_| MalformedCursor)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_are_parsed_strictly() {
        let cursor = Cursor { epoch: 0x9f, number: 42 };
        assert_eq!(cursor.to_string(), "000000000000009f-42");
        assert_eq!(cursor.to_string().parse(), Ok(cursor));
        assert_eq!("000000000000009f-0".parse(), Ok(Cursor { epoch: 0x9f, number: 0 }));
        let long = format!("{:016x}-{}", 1, u128::from(u64::MAX) + 1);
        for bad in ["", "-", "42", "9f-42", "000000000000009F-42", "000000000000009f-", "000000000000009f-+1"] {
            assert_eq!(bad.parse::<Cursor>(), Err(MalformedCursor), "{bad:?}");
        }
        for bad in ["000000000000009f-042", "000000000000009f-4 ", "000000000000009f-4-2", "+00000000000009f-4", &long]
        {
            assert_eq!(bad.parse::<Cursor>(), Err(MalformedCursor), "{bad:?}");
        }
    }
}
