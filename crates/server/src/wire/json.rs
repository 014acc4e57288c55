//! Strict JSON parsing, in which every error has exactly one code.
//!
//! | error | code |
//! | --- | --- |
//! | not JSON, deeper than 64 levels, or a duplicate field | `bad_request` |
//! | a field that is unknown, missing or of the wrong type | `validation`, with the field |
//!
//! JSON values of users (payload, result, progress, checkpoint) are kept byte for byte.

mod depth;
mod duplicate_fields;

use std::fmt;
use std::marker::PhantomData;

use longshore_api::ErrorCode;
use longshore_api::enums::{PRIORITIES, Priority};
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

use self::depth::count_brackets;
pub(crate) use self::depth::depth;
use self::duplicate_fields::find_duplicate_field;
use super::nearest::suggestion;
use super::problem::ItemError;

/// Nesting depth of a body.
pub(crate) const DEPTH_MAX: usize = 64;

/// Characters of a name that an error repeats.
const NAME_CHARS_MAX: usize = 100;

/// Returns the text of a body. Checks encoding and depth.
pub(crate) fn text(bytes: &[u8]) -> Result<&str, ItemError> {
    let text = std::str::from_utf8(bytes).map_err(|_| bad("the body is not UTF-8"))?;
    // A text cannot be deeper than it has brackets. Most texts have few.
    if count_brackets(bytes) > DEPTH_MAX && depth(bytes) > DEPTH_MAX {
        return Err(bad(format!("the body nests deeper than {DEPTH_MAX} levels")));
    }
    Ok(text)
}

/// Whether the text can only be an array.
pub(crate) fn is_array(text: &str) -> bool {
    text.trim_start_matches(WHITESPACE).starts_with('[')
}

/// White space of JSON.
const WHITESPACE: [char; 4] = [' ', '\n', '\r', '\t'];

/// Parses an object.
pub(crate) fn object<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, ItemError> {
    // serde would accept an array of field values.
    if !text.trim_start_matches(WHITESPACE).starts_with('{') {
        return Err(match serde_json::from_str::<IgnoredAny>(text) {
            Ok(_) => ItemError::new(ErrorCode::Validation, "an object is expected"),
            Err(error) => bad(not_json(&error)),
        });
    }
    serde_json::from_str(text).map_err(|_| diagnose::<T>(text))
}

/// Parses an object, and returns `None` if anything is wrong with it.
pub(crate) fn valid_object<'a, T: Deserialize<'a>>(text: &'a str) -> Option<T> {
    serde_json::from_str(text).ok().map(|Object(value)| value)
}

/// Finds the error in a text that failed to parse. Slow: it parses the text up to three times.
fn diagnose<'a, T: Deserialize<'a>>(text: &'a str) -> ItemError {
    if let Err(error) = serde_json::from_str::<IgnoredAny>(text) {
        return bad(not_json(&error));
    }
    if let Some(name) = find_duplicate_field(text) {
        return bad(format!("\"{}\" is given twice", truncated_name(&name)));
    }
    let mut reader = serde_json::Deserializer::from_str(text);
    match serde_path_to_error::deserialize::<_, T>(&mut reader) {
        Ok(_) => bad("the body is invalid"),
        // An unpaired surrogate in an escape.
        Err(error) if !error.inner().is_data() => bad(not_json(error.inner())),
        Err(error) => {
            let path = error.path().to_string();
            explain(if path == "." { "" } else { &path }, &error.into_inner().to_string())
        }
    }
}

fn bad(detail: impl Into<String>) -> ItemError {
    ItemError::new(ErrorCode::BadRequest, detail)
}

fn not_json(error: &serde_json::Error) -> String {
    format!("the body is not JSON (line {}, column {})", error.line(), error.column())
}

fn truncated_name(name: &str) -> String {
    name.chars().take(NAME_CHARS_MAX).collect()
}

/// Converts an error of serde. Leaves out the value, which may be long or a secret.
fn explain(path: &str, message: &str) -> ItemError {
    let message = message.rsplit_once(" at line ").map_or(message, |(message, _)| message);
    let field_path = |name: &str| {
        let parent = if path.is_empty() { String::new() } else { format!("{}.", truncated_name(path)) };
        // The path may already end with the name.
        if path == name || path.ends_with(&format!(".{name}")) {
            truncated_name(path)
        } else {
            format!("{parent}{}", truncated_name(name))
        }
    };
    if let Some((name, known)) = unknown_field(message) {
        let hint = suggestion(&truncated_name(name), known);
        return ItemError::validation(&field_path(name), &format!("is not a known field{hint}"));
    }
    if let Some(name) = message.strip_prefix("missing field `").and_then(|rest| rest.strip_suffix('`')) {
        return ItemError::validation(&field_path(name), "is required");
    }
    let field = if path.is_empty() { "body".to_owned() } else { truncated_name(path) };
    match message.rsplit_once("expected ") {
        Some((_, expected)) => ItemError {
            allowed: closed_set(expected),
            ..ItemError::validation(&field, &format!("must be {}", describe_type(expected)))
        },
        None => ItemError::validation(&field, "is invalid"),
    }
}

/// Returns the name of an unknown field, and the known names.
fn unknown_field(message: &str) -> Option<(&str, impl Iterator<Item = &str>)> {
    let rest = message.strip_prefix("unknown field `")?;
    let (name, known) = rest
        .rsplit_once("`, expected ")
        .or_else(|| rest.split_once("`, there are no fields"))
        .or_else(|| Some((rest.strip_suffix('`')?, "")))?;
    // Every second part is between backticks.
    Some((name, known.split('`').skip(1).step_by(2)))
}

/// Returns the words of a closed set, if serde expected one.
fn closed_set(expected: &str) -> Vec<String> {
    let several = || expected.strip_prefix("one or several of ")?.strip_suffix(", separated by commas");
    match expected.strip_prefix("one of ").or_else(several) {
        Some(words) => words.split(", ").map(str::to_owned).collect(),
        None if expected == PRIORITIES => Priority::WORDS.iter().map(|word| (*word).to_owned()).collect(),
        None => Vec::new(),
    }
}

/// Replaces names of Rust types by words of JSON.
fn describe_type(expected: &str) -> &str {
    match expected {
        "u64" | "u32" | "u16" | "u8" | "usize" => "a whole number from 0 up",
        "f64" => "a number",
        "a string" => "text",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        "a map" => "an object",
        other => other,
    }
}

/// A value that must be an object. The derived implementation of a struct would also accept an
/// array of its field values.
#[derive(Debug)]
pub(crate) struct Object<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(StrictObjectVisitor(PhantomData))
    }
}

struct StrictObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for StrictObjectVisitor<T> {
    type Value = Object<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(Object)
    }
}

/// Hands the objects of an array to `add`, one after the other, in one pass over the text.
///
/// Returns `None` if the text is not such an array, or if `add` returns `None`. The caller then
/// parses item by item, to find out what is wrong with each.
pub(crate) fn for_each_object<'a, T: Deserialize<'a>>(text: &'a str, add: impl FnMut(T) -> Option<()>) -> Option<()> {
    let mut reader = serde_json::Deserializer::from_str(text);
    reader.deserialize_seq(ArrayVisitor(add, PhantomData)).ok()?;
    reader.end().ok()
}

struct ArrayVisitor<F, T>(F, PhantomData<T>);

impl<'de, T: Deserialize<'de>, F: FnMut(T) -> Option<()>> Visitor<'de> for ArrayVisitor<F, T> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of objects")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
        while let Some(Object(item)) = list.next_element::<Object<T>>()? {
            (self.0)(item).ok_or_else(|| A::Error::custom("refused"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use longshore_api::job::NewJob;
    use longshore_api::queue::PutQueue;
    use longshore_api::work::Claim;

    use super::*;

    fn error_of<'a, T: Deserialize<'a>>(json: &'a str) -> String {
        let error = match text(json.as_bytes()).and_then(object::<T>) {
            Ok(_) => return "fine".to_owned(),
            Err(error) => error,
        };
        format!("{} {}", error.code.code(), error.detail)
    }

    #[test]
    fn each_error_has_its_code_and_names_its_field() {
        let cases = [
            (r#"{"type":"a"}"#, "fine"),
            (r#" {"type":"a","payload":{"a":1,"a":2}} "#, "fine"),
            ("", "bad_request the body is not JSON (line 1, column 0)"),
            ("{", "bad_request the body is not JSON (line 1, column 1)"),
            (r#"{"typ":"a""#, "bad_request the body is not JSON (line 1, column 10)"),
            (r#"{"type":"a"}x"#, "bad_request the body is not JSON (line 1, column 13)"),
            ("\u{feff}{}", "bad_request the body is not JSON (line 1, column 1)"),
            ("[]", "validation an object is expected"),
            ("3", "validation an object is expected"),
            (r#"{"typ":"a"}"#, r#"validation "typ" is not a known field; did you mean "type"?"#),
            (r#"{"type":"a","colour":1}"#, r#"validation "colour" is not a known field"#),
            ("{}", r#"validation "type" is required"#),
            (r#"{"type":5}"#, r#"validation "type" must be text"#),
            (r#"{"type":null}"#, r#"validation "type" must be text"#),
            (r#"{"type":"a","type":"a"}"#, r#"bad_request "type" is given twice"#),
            (r#"{"type":"a","retry":{"limit":1,"limit":2}}"#, r#"bad_request "limit" is given twice"#),
            (r#"{"type":"a","tags":{"x":"1","x":"2"}}"#, r#"bad_request "x" is given twice"#),
            (r#"{"type":"a","retry":[]}"#, r#"validation "retry" must be an object"#),
            (
                r#"{"type":"a","retry":{"backoff":{"knd":1}}}"#,
                r#"validation "retry.backoff.knd" is not a known field; did you mean "kind"?"#,
            ),
            (r#"{"type":"a","retry":{"limit":-1}}"#, r#"validation "retry.limit" must be a whole number from 0 up"#),
            (r#"{"type":"a","hold":"yes"}"#, r#"validation "hold" must be true or false"#),
            (
                r#"{"type":"a","priority":"urgent"}"#,
                r#"validation "priority" must be critical, high, normal, low or bulk, or a number from 0 to 4"#,
            ),
            (
                r#"{"type":"a","delay":"5 parsecs"}"#,
                r#"validation "delay" must be a duration such as "1h15m5s" (units w, d, h, m, s, ms) or a number of seconds"#,
            ),
            (
                r#"{"type":"a","retry":{"counts":"starts "}}"#,
                r#"validation "retry.counts" must be one of starts, failures, retries"#,
            ),
            (r#"{"type":"\ud800"}"#, "bad_request"),
        ];
        for (json, expected) in cases {
            let actual = error_of::<NewJob>(json);
            assert!(actual.starts_with(expected), "{json}\n actual: {actual}\n expected: {expected}");
        }
        assert_eq!(error_of::<Claim>(r#"{"queues":"a"}"#), r#"validation "queues" must be a list"#);
        assert_eq!(error_of::<PutQueue>(r#"{"settings":[]}"#), r#"validation "settings" must be an object"#);
        assert_eq!(error_of::<PutQueue>(r#"{"settings":null,"profile":null}"#), "fine");
    }

    fn field_error<'a, T: Deserialize<'a>>(json: &'a str) -> (Option<String>, Vec<String>) {
        let error = text(json.as_bytes()).and_then(object::<T>).err().expect(json);
        (error.field, error.allowed)
    }

    #[test]
    fn the_field_is_a_path_and_closed_sets_are_listed() {
        let field = |name: &str, allowed: &[&str]| {
            (Some(name.to_owned()), allowed.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(field_error::<NewJob>("{"), (None, Vec::new()));
        assert_eq!(field_error::<NewJob>("[]"), (None, Vec::new()));
        assert_eq!(field_error::<NewJob>("{}"), field("type", &[]));
        assert_eq!(field_error::<NewJob>(r#"{"type":"a","retry":{"limmit":1}}"#), field("retry.limmit", &[]));
        assert_eq!(
            field_error::<NewJob>(r#"{"type":"a","priority":"urgent"}"#),
            field("priority", &["critical", "high", "normal", "low", "bulk"])
        );
        assert_eq!(
            field_error::<PutQueue>(r#"{"settings":{"retry":{"counts":"x"}}}"#),
            field("settings.retry.counts", &["starts", "failures", "retries"])
        );
        assert_eq!(
            field_error::<PutQueue>(r#"{"settings":{"reclaim":5}}"#),
            field("settings.reclaim", &["eager", "lazy"])
        );
        assert_eq!(field_error::<Claim>(r#"{"queues":["a",7]}"#), field("queues[1]", &[]));
    }

    #[test]
    fn depth_is_limited_to_64_levels() {
        let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        let job = |levels: usize| format!(r#"{{"type":"a","payload":{}}}"#, nested(levels));
        assert_eq!(error_of::<NewJob>(&job(63)), "fine");
        assert_eq!(error_of::<NewJob>(&job(64)), "bad_request the body nests deeper than 64 levels");
        assert_eq!(error_of::<NewJob>(&job(100_000)), "bad_request the body nests deeper than 64 levels");
        assert_eq!(depth(br#"{"a":"[[[[\"[["}"#), 1);
        assert_eq!(error_of::<NewJob>(&format!(r#"{{"type":"{}"}}"#, "[".repeat(200))), "fine");
    }

    #[test]
    fn objects_of_an_array_are_handed_over_one_by_one() {
        let types = |json: &str| {
            let mut types = Vec::new();
            for_each_object::<NewJob>(json, |job| {
                types.push(job.job_type);
                (types.len() < 4).then_some(())
            })
            .map(|()| types)
        };
        assert_eq!(
            types(r#" [ {"type":"a"} , {"type":"b","payload":[1]} ] "#),
            Some(vec!["a".to_owned(), "b".to_owned()])
        );
        assert_eq!(types("[]"), Some(Vec::new()));
        for bad in
            ["", "{}", "[1]", r#"[["a"]]"#, r#"[{"type":"a"}"#, r#"[{"type":"a"}]x"#, r#"[{"type":"a","type":"a"}]"#]
        {
            assert_eq!(types(bad), None, "{bad}");
        }
        assert_eq!(types(&format!("[{}]", [r#"{"type":"a"}"#; 4].join(","))), None, "the fourth is refused");
    }

    #[test]
    fn long_names_are_truncated_in_errors() {
        let long = format!(r#"{{"{}":1}}"#, "x".repeat(100_000));
        assert!(error_of::<NewJob>(&long).len() < 200);
    }
}
