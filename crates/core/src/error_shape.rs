//! The shape of an error message: its text with holes where it varies from job to job.
//!
//! Dead letters with one error code and one shape are one group. The holes:
//!
//! | hole | stands for |
//! | --- | --- |
//! | `‹n›` | a number, with its sign, separators and unit of time: `-3`, `1,234.5`, `250ms`, `2/5` |
//! | `‹id›` | a UUID, a hexadecimal or a mixed token: `9f2c4e01`, `0x7ffe`, `a1b2c3` |
//! | `‹text›` | quoted text, with its quotes |
//! | `‹time›` | a date, with or without its time: `2026-07-24T06:00:00Z` |
//! | `‹address›` | an IPv4 address, with or without its port |
//! | `‹email›` | an e-mail address |
//!
//! The shape is a heuristic: it may merge two causes and may split one. It is read once from left
//! to right, in time linear in the message.

use std::net::{Ipv4Addr, SocketAddrV4};

use crate::hash::fnv1a;

mod token;

use token::{Piece, TextToken};

/// Longest shape. A longer one is cut and ends with `…`.
pub const SHAPE_CHARS_MAX: usize = 300;

const QUOTES: [(char, char); 6] = [('"', '"'), ('\'', '\''), ('`', '`'), ('“', '”'), ('‘', '’'), ('«', '»')];

/// Returns the shape of an error message.
///
/// ```
/// use longshore_core::error_shape::shape;
///
/// assert_eq!(shape("card 9f2c4e01 declined: \"no funds\""), "card ‹id› declined: ‹text›");
/// assert_eq!(shape("timeout after 30s (attempt 2/5)"), "timeout after ‹n› (attempt ‹n›)");
/// ```
pub fn shape(message: &str) -> String {
    let mut reader = ShapeReader::new(message);
    while reader.step() {}
    reader.finish()
}

/// Returns the id of the group of a code and a message: 16 hexadecimal digits.
///
/// It is the 64-bit FNV-1a hash of `code`, a line feed and the shape. A shape has no line feed. A
/// failure without a code has the code `""`. The value is shown to clients and kept in operations:
/// it must never change for a given shape.
pub fn group_id(code: &str, message: &str) -> String {
    format_group_id(group_key(code, &shape(message)))
}

/// Returns the number that [`group_id`] writes, from a shape.
pub fn group_key(code: &str, shape: &str) -> u64 {
    fnv1a(&format!("{code}\n{shape}"))
}

/// Returns the text of a group's number.
pub fn format_group_id(key: u64) -> String {
    format!("{key:016x}")
}

/// Reads a group id. Returns `None` for every other text.
pub fn parse_group_id(text: &str) -> Option<u64> {
    let is_lower_hex = text.len() == 16 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    is_lower_hex.then(|| u64::from_str_radix(text, 16).ok()).flatten()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hole {
    Number,
    Id,
    Text,
    Time,
    Address,
    Email,
}

impl Hole {
    fn text(self) -> &'static str {
        match self {
            Self::Number => "‹n›",
            Self::Id => "‹id›",
            Self::Text => "‹text›",
            Self::Time => "‹time›",
            Self::Address => "‹address›",
            Self::Email => "‹email›",
        }
    }
}

/// A hole at the end of the shape, which what follows may widen.
#[derive(Clone, Copy)]
struct OpenHole {
    hole: Hole,
    /// Where it starts in the shape and in the message.
    shape_start: usize,
    message_start: usize,
}

struct ShapeReader<'a> {
    message: &'a str,
    position: usize,
    shape: String,
    shape_chars: usize,
    open_hole: Option<OpenHole>,
    /// Where the present word starts in the shape: an `@` makes it the name of an e-mail address.
    word_start: usize,
    /// Quotes of [`QUOTES`] that are not closed in the rest of the message. Each is sought once.
    unclosed: [bool; QUOTES.len()],
    is_cut: bool,
}

impl<'a> ShapeReader<'a> {
    fn new(message: &'a str) -> Self {
        Self {
            message,
            position: 0,
            shape: String::new(),
            shape_chars: 0,
            open_hole: None,
            word_start: 0,
            unclosed: [false; QUOTES.len()],
            is_cut: false,
        }
    }

    fn rest(&self) -> &'a str {
        self.message.get(self.position..).unwrap_or_default()
    }

    fn previous_char(&self) -> Option<char> {
        self.message.get(..self.position).and_then(|before| before.chars().next_back())
    }

    /// Reads the next piece. Returns false at the end, and where the shape is full.
    fn step(&mut self) -> bool {
        let Some(next) = self.rest().chars().next() else { return false };
        if self.shape_chars >= SHAPE_CHARS_MAX {
            // A fold of trailing whitespace loses nothing.
            self.is_cut = !self.rest().trim_matches(is_blank).is_empty();
            return false;
        }
        if is_blank(next) {
            self.fold_blanks();
        } else if next.is_alphanumeric() || self.is_sign(next) {
            self.read_token();
        } else if next == '@' && self.read_email() || self.read_quoted(next) {
        } else {
            self.position += next.len_utf8();
            self.push_char(next);
        }
        true
    }

    fn fold_blanks(&mut self) {
        let rest = self.rest();
        self.position += rest.len() - rest.trim_start_matches(is_blank).len();
        if !self.shape.is_empty() && !self.shape.ends_with(' ') {
            self.push_char(' ');
        }
    }

    /// A sign belongs to a number unless it joins it to something.
    fn is_sign(&self, next: char) -> bool {
        matches!(next, '-' | '+')
            && self.rest().chars().nth(1).is_some_and(|digit| digit.is_ascii_digit())
            && self
                .previous_char()
                .is_none_or(|before| is_blank(before) || matches!(before, '(' | '[' | '=' | ':' | ','))
    }

    fn read_token(&mut self) {
        let start = self.position;
        let rest = self.rest();
        let signed = rest.trim_start_matches(['-', '+']);
        let sign_bytes = rest.len() - signed.len();
        let token = TextToken::at_start_of(signed);
        self.position += sign_bytes + token.bytes;
        for piece in token.pieces {
            match piece {
                Piece::Literal(text) => self.push_str(text),
                Piece::Number => self.push_hole(Hole::Number, start),
                Piece::Id => self.push_hole(Hole::Id, start),
            }
        }
    }

    /// Adds a hole. One that follows another after a single joining character widens that one.
    fn push_hole(&mut self, hole: Hole, message_start: usize) {
        let joined = self.open_hole.filter(|open| {
            let between = self.shape.get(open.shape_start + open.hole.text().len()..).unwrap_or_default();
            let mut chars = between.chars();
            let is_joiner = chars.next().is_none_or(is_joiner) && chars.next().is_none();
            is_joiner && matches!(open.hole, Hole::Number | Hole::Id | Hole::Time | Hole::Address)
        });
        let (start, from, widened) = match joined {
            Some(open) => {
                let kept = self.message.get(open.message_start..self.position).unwrap_or_default();
                let is_id = open.hole == Hole::Id || hole == Hole::Id;
                let widened = if is_id { Hole::Id } else { classify_number(kept) };
                (open.shape_start, open.message_start, widened)
            }
            None => (self.shape.len(), message_start, hole),
        };
        self.truncate(start);
        self.append(widened.text());
        self.open_hole = Some(OpenHole { hole: widened, shape_start: start, message_start: from });
    }

    /// Replaces the present word and the domain after `@`. Returns false if it is no address.
    fn read_email(&mut self) -> bool {
        let domain = self.rest().get(1..).unwrap_or_default();
        let length = domain.find(|c: char| !c.is_alphanumeric() && !matches!(c, '.' | '-')).unwrap_or(domain.len());
        let domain = domain.get(..length).unwrap_or_default().trim_end_matches(['.', '-']);
        let is_domain = domain
            .rsplit_once('.')
            .is_some_and(|(host, top)| !host.is_empty() && top.len() >= 2 && top.chars().all(char::is_alphabetic));
        if !is_domain || self.word_start >= self.shape.len() {
            return false;
        }
        self.position += 1 + domain.len();
        self.truncate(self.word_start);
        self.open_hole = None;
        self.append(Hole::Email.text());
        true
    }

    /// Replaces quoted text. Returns false for every other character, and for an open quote.
    fn read_quoted(&mut self, quote: char) -> bool {
        let Some((index, (_, close))) = QUOTES.iter().copied().enumerate().find(|(_, (open, _))| *open == quote) else {
            return false;
        };
        let is_closed = !self.unclosed.get(index).copied().unwrap_or(true);
        let is_opening =
            self.previous_char().is_none_or(|before| before != '\\' && !(quote == '\'' && before.is_alphanumeric()));
        if !is_closed || !is_opening {
            return false;
        }
        let inside = self.rest().get(quote.len_utf8()..).unwrap_or_default();
        let Some(bytes) = quoted_bytes(inside, close) else {
            if let Some(flag) = self.unclosed.get_mut(index) {
                *flag = true;
            }
            return false;
        };
        self.position += quote.len_utf8() + bytes;
        self.open_hole = None;
        self.append(Hole::Text.text());
        true
    }

    fn push_char(&mut self, c: char) {
        self.shape.push(c);
        self.shape_chars += 1;
        if !is_word_char(c) {
            self.word_start = self.shape.len();
        }
    }

    fn push_str(&mut self, text: &str) {
        for c in text.chars() {
            if self.shape_chars >= SHAPE_CHARS_MAX {
                self.is_cut = true;
                return;
            }
            self.push_char(c);
        }
    }

    fn append(&mut self, text: &str) {
        self.shape.push_str(text);
        self.shape_chars += text.chars().count();
    }

    fn truncate(&mut self, length: usize) {
        self.shape_chars -= self.shape.get(length..).unwrap_or_default().chars().count();
        self.shape.truncate(length);
    }

    fn finish(mut self) -> String {
        self.shape.truncate(self.shape.trim_end().len());
        if self.is_cut {
            self.shape.push('…');
        }
        self.shape
    }
}

/// Returns the bytes of quoted text and its closing quote. A backslash hides the next character.
fn quoted_bytes(inside: &str, close: char) -> Option<usize> {
    let mut chars = inside.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        if c == '\\' {
            chars.next();
            continue;
        }
        // An apostrophe within a word closes nothing.
        let is_within_word = close == '\'' && chars.peek().is_some_and(|(_, after)| after.is_alphanumeric());
        if c == close && !is_within_word {
            return Some(at + c.len_utf8());
        }
    }
    None
}

/// Names a number with joining characters in it: a date, an address, or a number.
fn classify_number(text: &str) -> Hole {
    let is_date = text.len() >= 10
        && text.bytes().take(10).enumerate().all(|(at, byte)| match at {
            4 | 7 => byte == b'-',
            _ => byte.is_ascii_digit(),
        });
    let is_address = text.len() <= 21 && (text.parse::<Ipv4Addr>().is_ok() || text.parse::<SocketAddrV4>().is_ok());
    if is_date {
        Hole::Time
    } else if is_address {
        Hole::Address
    } else {
        Hole::Number
    }
}

fn is_blank(c: char) -> bool {
    c.is_whitespace() || c.is_control()
}

fn is_joiner(c: char) -> bool {
    matches!(c, '.' | ',' | ':' | '-' | '_' | '/' | '+' | '=' | '~')
}

fn is_word_char(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '+' | '%' | '‹' | '›')
}

#[cfg(test)]
mod tests;
