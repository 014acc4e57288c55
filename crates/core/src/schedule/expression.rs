//! The syntax of cron expressions: five fields, or six with seconds first, or a nickname.
//!
//! The library accepts more than the API describes, such as the name of a weekday in the field of
//! the hour. Names are therefore replaced here, field by field, before the library parses numbers.

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};

use crate::refusal::Invalid;

/// Longest cron expression.
pub(super) const CRON_CHARS_MAX: usize = 256;

const NICKNAMES: [(&str, &str); 7] = [
    ("@hourly", "0 * * * *"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@weekly", "0 0 * * 0"),
    ("@monthly", "0 0 1 * *"),
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
];

const MONTHS: [&str; 12] = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
const WEEKDAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

/// A parsed expression.
#[derive(Clone, Debug)]
pub(super) struct Expression {
    pub(super) cron: Cron,
    /// The hour field begins with `*`: the expression follows elapsed time over clock changes.
    pub(super) is_elapsed: bool,
}

/// What the words of a field stand for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FieldKind {
    Number,
    DayOfMonth,
    Month,
    Weekday,
}

const FIELDS: [FieldKind; 6] = [
    FieldKind::Number,
    FieldKind::Number,
    FieldKind::Number,
    FieldKind::DayOfMonth,
    FieldKind::Month,
    FieldKind::Weekday,
];

impl Expression {
    pub(super) fn parse(text: &str) -> Result<Self, Invalid> {
        if text.len() > CRON_CHARS_MAX {
            return Err(Invalid::new("cron", format!("must be at most {CRON_CHARS_MAX} characters")));
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ' || byte == b'\t') {
            return Err(Invalid::new("cron", "must be ASCII characters and spaces"));
        }
        let text = expand_nickname(text.trim())?.to_ascii_uppercase();
        let mut fields: Vec<&str> = text.split_ascii_whitespace().collect();
        if fields.len() == 5 {
            fields.insert(0, "0");
        }
        if fields.len() != FIELDS.len() {
            return Err(Invalid::new("cron", "must have five fields, or six with seconds first"));
        }
        let given = fields;
        let fields: Vec<String> =
            given.iter().zip(FIELDS).map(|(field, kind)| replace_names(field, kind)).collect::<Result<_, _>>()?;
        let is_elapsed = fields.get(2).is_some_and(|hour| hour.starts_with('*'));
        let parser = CronParser::builder().seconds(Seconds::Required).year(Year::Disallowed).build();
        let cron = parser.parse(&fields.join(" "));
        let cron = cron.map_err(|error| {
            // The library does not name the field: it is the one that is invalid among stars.
            let alone = |index: usize, field: &str| {
                let stars = (0..FIELDS.len()).map(|other| if other == index { field } else { "*" });
                parser.parse(&stars.collect::<Vec<_>>().join(" "))
            };
            let invalid = fields.iter().enumerate().find(|(index, field)| alone(*index, field).is_err());
            let place = invalid.and_then(|(index, _)| given.get(index));
            let place = place.map(|field| format!(" in the field \"{field}\"")).unwrap_or_default();
            Invalid::new("cron", format!("is not a cron expression{place}: {error}"))
        })?;
        Ok(Self { cron, is_elapsed })
    }
}

fn expand_nickname(text: &str) -> Result<&str, Invalid> {
    if !text.starts_with('@') {
        return Ok(text);
    }
    let found = NICKNAMES.iter().find(|(nickname, _)| nickname.eq_ignore_ascii_case(text));
    found.map(|(_, fields)| *fields).ok_or_else(|| {
        let known: Vec<&str> = NICKNAMES.iter().map(|(nickname, _)| *nickname).collect();
        Invalid::new("cron", format!("must be five or six fields, or one of {}", known.join(", ")))
    })
}

/// Replaces the names of a field by numbers, and `?` by `*`.
fn replace_names(field: &str, kind: FieldKind) -> Result<String, Invalid> {
    if field.split(',').any(str::is_empty) {
        return Err(Invalid::new("cron", format!("has an empty item in the field \"{field}\"")));
    }
    let (mut replaced, mut rest) = (String::with_capacity(field.len()), field);
    while let Some(first) = rest.chars().next() {
        let letters = rest.chars().take_while(char::is_ascii_alphabetic).count();
        let (word, after) = rest.split_at(letters.max(1));
        rest = after;
        match first {
            '?' => replaced.push('*'),
            '*' | '/' | ',' | '-' | '0'..='9' => replaced.push(first),
            '#' if kind == FieldKind::Weekday => replaced.push('#'),
            _ => {
                let number = number_of(word, kind, replaced.chars().last());
                let number = number.ok_or_else(|| {
                    let hint = if kind == FieldKind::Number { "" } else { " (names have three letters)" };
                    Invalid::new("cron", format!("has the unknown word \"{word}\" in the field \"{field}\"{hint}"))
                })?;
                replaced.push_str(&number);
            }
        }
    }
    // The library knows Sunday as 7 in ranges only.
    Ok(if kind == FieldKind::Weekday { replaced.replace("7L", "0L") } else { replaced })
}

/// Returns the number that a word stands for; `before` is the character before the word.
fn number_of(word: &str, kind: FieldKind, before: Option<char>) -> Option<String> {
    let follows_digit = before.is_some_and(|before| before.is_ascii_digit());
    let index = |names: &[&str], name: &str| names.iter().position(|other| *other == name);
    match kind {
        FieldKind::Number => None,
        FieldKind::DayOfMonth => matches!(word, "L" | "W" | "LW").then(|| word.to_owned()),
        FieldKind::Month => index(&MONTHS, word).filter(|_| !follows_digit).map(|month| (month + 1).to_string()),
        // Without a day it would never match.
        FieldKind::Weekday if word == "L" => follows_digit.then(|| "L".to_owned()),
        FieldKind::Weekday if follows_digit => None,
        FieldKind::Weekday => {
            let (name, last) = word.split_at_checked(3)?;
            let day = index(&WEEKDAYS, name).filter(|_| matches!(last, "" | "L"))?;
            // A range may end on Sunday.
            let day = if day == 0 && before == Some('-') { 7 } else { day };
            Some(format!("{day}{last}"))
        }
    }
}
