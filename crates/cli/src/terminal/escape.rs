//! Escapes control characters in output.
//!
//! Job data is untrusted: control characters can move the cursor, rename the window, or type
//! answers for the user.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Whether a character is a control character, a bidirectional override or a line separator.
fn is_unsafe_char(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{2028}' | '\u{2029}' | '\u{200e}' | '\u{200f}' | '\u{061c}')
        || matches!(character, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Escapes text for one line, including line breaks and tabs.
pub(crate) fn escape_line(text: &str) -> Cow<'_, str> {
    escaped(text, |_| false)
}

/// Escapes text that may have several lines and tabs.
pub(crate) fn safe_lines(text: &str) -> Cow<'_, str> {
    escaped(text, |character| matches!(character, '\n' | '\t'))
}

fn escaped(text: &str, allowed: impl Fn(char) -> bool) -> Cow<'_, str> {
    let bad = |character: char| is_unsafe_char(character) && !allowed(character);
    if !text.contains(bad) {
        return Cow::Borrowed(text);
    }
    let mut written = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        if bad(character) {
            written.extend(character.escape_default());
        } else {
            written.push(character);
        }
    }
    Cow::Owned(written)
}

/// Escapes unsafe characters in JSON without changing its value: they occur only inside strings,
/// where `\uXXXX` means the same.
pub(crate) fn safe_json(text: &str) -> Cow<'_, str> {
    let bad = |character: char| is_unsafe_char(character) && !matches!(character, '\n' | '\t');
    if !text.contains(bad) {
        return Cow::Borrowed(text);
    }
    let mut written = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        match character {
            // Valid JSON has a carriage return only between values.
            '\r' => written.push(' '),
            character if bad(character) => drop(write!(written, "\\u{:04x}", u32::from(character))),
            character => written.push(character),
        }
    }
    Cow::Owned(written)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(escape_line("a\u{1b}[31mb"), "a\\u{1b}[31mb");
        assert_eq!(escape_line("a\nb\tc\r"), "a\\nb\\tc\\r");
        assert_eq!(safe_lines("a\nb\tc\r\u{7f}"), "a\nb\tc\\r\\u{7f}");
        assert_eq!(escape_line("\u{9b}2J\u{202e}"), "\\u{9b}2J\\u{202e}");
        assert!(matches!(escape_line("plain, Grüße, 漢字, 🙂"), Cow::Borrowed(_)));
    }

    #[test]
    fn escaping_keeps_the_value_of_json() {
        let text = "{\"a\":\"\u{9b}\u{7f}\u{202e} é\",\r\n\t\"b\":1.10}";
        let shown = safe_json(text);
        assert!(
            !shown.contains(|character: char| is_unsafe_char(character) && !matches!(character, '\n' | '\t')),
            "{shown}"
        );
        let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(value(text), value(&shown));
    }
}
