//! One run of letters and digits, and what of it varies.

use uuid::Uuid;

/// What a token contributes to the shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    Literal(&'a str),
    Number,
    Id,
}

/// A token at the start of a text, and its length there.
pub(super) struct TextToken<'a> {
    pub bytes: usize,
    pub pieces: Vec<Piece<'a>>,
}

/// Letters and digits without a digit that are taken as an id, not as a word.
const WORD_CHARS_MAX: usize = 40;
/// Shortest token of hexadecimal digits, some of them letters, that is an id.
const HEX_CHARS_MIN: usize = 6;
const UUID_CHARS: usize = 36;

impl<'a> TextToken<'a> {
    /// Reads the token at the start of a text: a UUID, or a run of letters and digits.
    pub(super) fn at_start_of(text: &'a str) -> Self {
        if is_uuid(text) {
            return Self { bytes: UUID_CHARS, pieces: vec![Piece::Id] };
        }
        let bytes = text.find(|c: char| !c.is_alphanumeric()).unwrap_or(text.len());
        let run = text.get(..bytes).unwrap_or_default();
        Self { bytes, pieces: pieces_of(run) }
    }
}

fn is_uuid(text: &str) -> bool {
    let Some(head) = text.get(..UUID_CHARS) else { return false };
    let ends_here = text.get(UUID_CHARS..).is_none_or(|rest| !rest.starts_with(char::is_alphanumeric));
    ends_here && head.as_bytes().get(8) == Some(&b'-') && Uuid::try_parse(head).is_ok()
}

fn pieces_of(run: &str) -> Vec<Piece<'_>> {
    let digits = run.bytes().filter(u8::is_ascii_digit).count();
    if digits == 0 {
        let is_word = run.chars().count() <= WORD_CHARS_MAX && !(run.len() >= 16 && is_scrambled(run));
        return vec![if is_word { Piece::Literal(run) } else { Piece::Id }];
    }
    if digits == run.len() || is_time_or_exponent(run) || is_duration(run) {
        return vec![Piece::Number];
    }
    let is_hex = run.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_prefixed_hex = run.strip_prefix("0x").is_some_and(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()));
    if (is_hex && run.len() >= HEX_CHARS_MIN)
        || is_prefixed_hex
        || digit_runs(run) > 1
        || (run.len() >= 8 && is_scrambled(run))
    {
        return vec![Piece::Id];
    }
    around_digits(run)
}

/// Splits a run with one group of digits: `node7`, `5MB`, `OAuth2Error`.
fn around_digits(run: &str) -> Vec<Piece<'_>> {
    let start = run.find(|c: char| c.is_ascii_digit()).unwrap_or(run.len());
    let (before, rest) = run.split_at(start);
    let after = rest.trim_start_matches(|c: char| c.is_ascii_digit());
    let literal = |text| (!str::is_empty(text)).then_some(Piece::Literal(text));
    [literal(before), Some(Piece::Number), literal(after)].into_iter().flatten().collect()
}

fn digit_runs(run: &str) -> usize {
    let mut was_digit = false;
    run.chars()
        .filter(|c| {
            let starts = c.is_ascii_digit() && !was_digit;
            was_digit = c.is_ascii_digit();
            starts
        })
        .count()
}

/// Tells base64 from names such as `HttpURLConnection`: its letters change case all the time.
fn is_scrambled(run: &str) -> bool {
    let class = |c: char| (c.is_ascii_digit(), c.is_uppercase());
    let changes = run.chars().zip(run.chars().skip(1)).filter(|(left, right)| class(*left) != class(*right)).count();
    changes * 5 > run.chars().count() * 2
}

/// `24T06` and `00Z` of a timestamp, `1e9` and `5e` of a float (`3.5e-7`).
fn is_time_or_exponent(run: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    run.strip_suffix(['Z', 'z', 'e', 'E']).is_some_and(is_number)
        || run.split_once(['T', 't', 'e', 'E']).is_some_and(|(left, right)| is_number(left) && is_number(right))
}

/// Numbers with units of time, one after the other: `250ms`, `1m30s`. The unit is part of the hole,
/// because a program that prints `999ms` today prints `1s` tomorrow.
fn is_duration(run: &str) -> bool {
    let mut rest = run;
    while !rest.is_empty() {
        let unit = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        if unit.len() == rest.len() {
            return false;
        }
        let end = unit.find(|c: char| c.is_ascii_digit()).unwrap_or(unit.len());
        let (unit, after) = unit.split_at(end);
        if !matches!(unit, "ns" | "us" | "µs" | "μs" | "ms" | "s" | "sec" | "m" | "min" | "h" | "d") {
            return false;
        }
        rest = after;
    }
    true
}
