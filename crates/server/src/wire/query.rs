//! Query strings: every parameter known, none twice.

use std::fmt::Display;
use std::str::FromStr;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use longshore_api::Duration;
use longshore_core::id::Seq;

use super::nearest::suggestion;
use super::problem::ApiError;

/// The parameters of a request, taken out one by one; what is left over at the end is refused.
#[derive(Debug)]
pub(crate) struct Query {
    left: Vec<(String, String)>,
    /// Parameters that the call knows, for suggestions.
    known: Vec<&'static str>,
}

impl<S: Send + Sync> FromRequestParts<S> for Query {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        Self::read(parts.uri.query().unwrap_or_default())
    }
}

impl Query {
    fn read(text: &str) -> Result<Self, ApiError> {
        let mut left: Vec<(String, String)> = Vec::new();
        for (name, value) in form_urlencoded::parse(text.as_bytes()) {
            if left.iter().any(|(other, _)| *other == name) {
                let name: String = name.chars().take(100).collect();
                return Err(ApiError::bad_request(format!("the parameter \"{name}\" is given twice")));
            }
            left.push((name.into_owned(), value.into_owned()));
        }
        Ok(Self { left, known: Vec::new() })
    }

    pub(crate) fn take(&mut self, name: &'static str) -> Option<String> {
        if self.left.is_empty() {
            return None;
        }
        self.known.push(name);
        let place = self.left.iter().position(|(given, _)| given == name)?;
        Some(self.left.swap_remove(place).1)
    }

    /// A word of a closed set.
    pub(crate) fn one_of<T>(
        &mut self,
        name: &'static str,
        words: &[&str],
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, ApiError> {
        let Some(value) = self.take(name) else { return Ok(None) };
        read(&value).map(Some).ok_or_else(|| ApiError::not_one_of(name, words))
    }

    /// A parameter that is read by `read`, or refused for `reason`.
    pub(crate) fn read_with<T>(
        &mut self,
        name: &'static str,
        reason: &str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, ApiError> {
        let Some(value) = self.take(name) else { return Ok(None) };
        read(&value).map(Some).ok_or_else(|| ApiError::validation(name, reason))
    }

    /// A parameter whose type says what it expects.
    pub(crate) fn parse<T: FromStr<Err: Display>>(&mut self, name: &'static str) -> Result<Option<T>, ApiError> {
        let read = |value: String| value.parse();
        let refused = |expected: T::Err| ApiError::validation(name, &format!("must be {expected}"));
        self.take(name).map(read).transpose().map_err(refused)
    }

    /// A text that is compared with others. What is longer than they may be is a mistake.
    pub(crate) fn text(&mut self, name: &'static str, most_chars: usize) -> Result<Option<Arc<str>>, ApiError> {
        let short = |text: &str| (1..=most_chars).contains(&text.chars().count()).then(|| Arc::from(text));
        self.read_with(name, &format!("must be 1-{most_chars} characters"), short)
    }

    pub(crate) fn duration(&mut self, name: &'static str, most: Duration) -> Result<Option<Duration>, ApiError> {
        // Seconds may be a plain number, as in a body.
        let seconds = |text: &str| number::<u32>(text).map(|seconds| Duration::from_secs(seconds.into()));
        let within = |text: &str| text.parse().ok().or_else(|| seconds(text)).filter(|length| *length <= most);
        self.read_with(name, &format!("must be a duration of at most {most}, such as \"30s\""), within)
    }

    /// A whole number within bounds.
    pub(crate) fn up_to(&mut self, name: &'static str, least: usize, most: usize) -> Result<Option<usize>, ApiError> {
        let within = |text: &str| number(text).filter(|number| (least..=most).contains(number));
        self.read_with(name, &format!("must be {least}-{most}"), within)
    }

    /// Where an earlier page said to go on.
    pub(crate) fn cursor(&mut self) -> Result<Option<Seq>, ApiError> {
        let read = |text: &str| number(text).map(Seq);
        self.read_with("cursor", "must be what \"next\" of an earlier page said", read)
    }

    pub(crate) fn flag(&mut self, name: &'static str) -> Result<bool, ApiError> {
        let read = |text: &str| match text {
            "true" => Some(true),
            "false" => Some(false),
            _ => None,
        };
        Ok(self.one_of(name, &["true", "false"], read)?.unwrap_or(false))
    }

    /// Nothing may be left: a typo must never be silently ignored.
    pub(crate) fn end(self) -> Result<(), ApiError> {
        let Some((name, _)) = self.left.first() else { return Ok(()) };
        let name: String = name.chars().take(100).collect();
        let hint = match self.known.as_slice() {
            [] => ": this call takes none".to_owned(),
            known => suggestion(&name, known.iter().copied()),
        };
        Err(ApiError::validation(&name, &format!("is not a known parameter{hint}")))
    }
}

/// Digits, and nothing else.
fn number<T: FromStr>(text: &str) -> Option<T> {
    text.parse().ok().filter(|_| text.bytes().all(|c| c.is_ascii_digit()))
}

/// A call without parameters.
#[derive(Debug)]
pub(crate) struct NoQuery;

impl<S: Send + Sync> FromRequestParts<S> for NoQuery {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        Query::from_request_parts(parts, state).await?.end()?;
        Ok(Self)
    }
}
