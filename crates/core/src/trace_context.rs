//! W3C trace context: the span that has submitted a job.
//!
//! A job carries the `traceparent` of its submitter. The first attempt continues that trace. A
//! retry begins a new trace that links to it, because it may run hours later.

use std::fmt::{self, Display, Formatter};

use crate::refusal::Invalid;

/// Flags that are kept: sampled, and random trace id. The W3C reserves the others.
const KNOWN_FLAGS: u8 = 0b11;
const SAMPLED: u8 = 0b01;
/// Length of a `traceparent` of version 00.
const LENGTH: usize = 55;

/// A `traceparent`: trace id, id of the parent span, flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TraceParent {
    pub trace_id: [u8; 16],
    pub span_id: [u8; 8],
    pub flags: u8,
}

impl TraceParent {
    /// Parses the text of the W3C grammar. Returns `None` if it is invalid.
    ///
    /// A higher version may have more fields behind; it is read as version 00, as the W3C says.
    pub fn parse(text: &str) -> Option<Self> {
        let (known, rest) = text.as_bytes().split_at_checked(LENGTH)?;
        let [v0, v1, b'-', ids @ .., b'-', f0, f1] = known else { return None };
        let version = hex_byte(*v0, *v1)?;
        let is_version_valid = match version {
            0 => rest.is_empty(),
            u8::MAX => false,
            _ => rest.is_empty() || rest.starts_with(b"-"),
        };
        let (trace_id, span_id) = ids.split_at_checked(32)?;
        let span_id = span_id.strip_prefix(b"-")?;
        let parent = Self {
            trace_id: hex_bytes(trace_id)?,
            span_id: hex_bytes(span_id)?,
            flags: hex_byte(*f0, *f1)? & KNOWN_FLAGS,
        };
        (is_version_valid && parent.trace_id != [0; 16] && parent.span_id != [0; 8]).then_some(parent)
    }

    /// Parses the field of a job.
    pub fn parse_field(text: &str) -> Result<Self, Invalid> {
        let reason = "must be a W3C traceparent: 00-, 32 hex digits, -, 16 hex digits, -, 2 hex digits, in lower case";
        Self::parse(text).ok_or_else(|| Invalid::new("traceparent", reason))
    }

    /// Whether the submitter records its trace.
    pub fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }
}

impl Display for TraceParent {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("00-")?;
        self.trace_id.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str("-")?;
        self.span_id.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        write!(f, "-{:02x}", self.flags)
    }
}

/// The grammar has lower case only.
fn hex_byte(high: u8, low: u8) -> Option<u8> {
    let digit = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    Some(digit(high)? << 4 | digit(low)?)
}

fn hex_bytes<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let (pairs, rest) = text.as_chunks::<2>();
    if pairs.len() != N || !rest.is_empty() {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = hex_byte(*high, *low)?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn the_example_of_the_w3c_is_read_and_written() {
        let parent = TraceParent::parse(EXAMPLE).unwrap();
        assert_eq!((parent.trace_id[0], parent.span_id[7], parent.flags), (0x0a, 0x31, 1));
        assert!(parent.is_sampled());
        assert_eq!(parent.to_string(), EXAMPLE);
        assert!(!TraceParent::parse(&EXAMPLE.replace("-01", "-00")).unwrap().is_sampled());
    }

    #[test]
    fn reserved_flags_are_dropped_and_higher_versions_become_version_00() {
        assert_eq!(TraceParent::parse(&EXAMPLE.replace("-01", "-ff")).unwrap().flags, 3);
        for text in [EXAMPLE.replacen("00", "cc", 1), format!("{}-what-ever", EXAMPLE.replacen("00", "01", 1))] {
            assert_eq!(TraceParent::parse(&text).unwrap().to_string(), EXAMPLE, "{text}");
        }
    }

    #[test]
    fn other_texts_are_refused() {
        let none = |text: &str| assert_eq!(TraceParent::parse(text), None, "{text}");
        let (trace, span) = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331");
        none("");
        none(&EXAMPLE.replacen("00", "ff", 1));
        none(&EXAMPLE.to_uppercase());
        none(&EXAMPLE.replace(trace, &"0".repeat(32)));
        none(&EXAMPLE.replace(span, &"0".repeat(16)));
        none(&format!("{EXAMPLE}-"));
        none(&format!("{EXAMPLE}0"));
        none(&format!("{}x", EXAMPLE.replacen("00", "01", 1)));
        none(&EXAMPLE[..54]);
        none(&EXAMPLE.replace('-', "_"));
        none(&EXAMPLE.replace("-b7", "b-7"));
        none(&format!(" {}", &EXAMPLE[1..]));
        for (index, _) in EXAMPLE.char_indices() {
            let (before, after) = (&EXAMPLE[..index], &EXAMPLE[index + 1..]);
            none(&format!("{before}g{after}"));
            none(&format!("{before}{after}"));
            none(&format!("{before}é{after}"));
        }
    }
}
