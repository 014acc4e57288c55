//! Query strings: unknown and duplicate parameters are rejected.

use std::fmt::Display;
use std::str::FromStr;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use longshore_api::Duration;
use longshore_core::id::Seq;

use super::nearest::suggestion;
use super::problem::ApiError;

/// The parameters of a request. A route takes them one by one; [`Query::end`] rejects the rest.
#[derive(Debug)]
pub(crate) struct Query {
    unread: Vec<(String, String)>,
    /// Parameters of the route, for suggestions.
    known: Vec<&'static str>,
}

impl<S: Send + Sync> FromRequestParts<S> for Query {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        Self::parse_text(parts.uri.query().unwrap_or_default())
    }
}

impl Query {
    fn parse_text(text: &str) -> Result<Self, ApiError> {
        let mut unread: Vec<(String, String)> = Vec::new();
        for (name, value) in form_urlencoded::parse(text.as_bytes()) {
            if unread.iter().any(|(other, _)| *other == name) {
                let name: String = name.chars().take(100).collect();
                return Err(ApiError::bad_request(format!("the parameter \"{name}\" is given twice")));
            }
            unread.push((name.into_owned(), value.into_owned()));
        }
        Ok(Self { unread, known: Vec::new() })
    }

    pub(crate) fn take(&mut self, name: &'static str) -> Option<String> {
        if self.unread.is_empty() {
            return None;
        }
        self.known.push(name);
        let index = self.unread.iter().position(|(other, _)| other == name)?;
        Some(self.unread.swap_remove(index).1)
    }

    /// Takes a word of a closed set.
    pub(crate) fn one_of<T>(
        &mut self,
        name: &'static str,
        words: &[&str],
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, ApiError> {
        let Some(value) = self.take(name) else { return Ok(None) };
        parse(&value).map(Some).ok_or_else(|| ApiError::not_one_of(name, words))
    }

    /// Takes a parameter that `parse` accepts; rejects it with `reason` otherwise.
    pub(crate) fn parse_with<T>(
        &mut self,
        name: &'static str,
        reason: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, ApiError> {
        let Some(value) = self.take(name) else { return Ok(None) };
        parse(&value).map(Some).ok_or_else(|| ApiError::validation(name, reason))
    }

    /// Takes a parameter whose error says what its type expects.
    pub(crate) fn parse<T: FromStr<Err: Display>>(&mut self, name: &'static str) -> Result<Option<T>, ApiError> {
        let parse = |value: String| value.parse();
        let invalid = |expected: T::Err| ApiError::validation(name, &format!("must be {expected}"));
        self.take(name).map(parse).transpose().map_err(invalid)
    }

    /// Takes a text of 1 to `most_chars` characters.
    pub(crate) fn text(&mut self, name: &'static str, most_chars: usize) -> Result<Option<Arc<str>>, ApiError> {
        let in_limit = |text: &str| (1..=most_chars).contains(&text.chars().count()).then(|| Arc::from(text));
        self.parse_with(name, &format!("must be 1-{most_chars} characters"), in_limit)
    }

    pub(crate) fn duration(&mut self, name: &'static str, most: Duration) -> Result<Option<Duration>, ApiError> {
        // A number means seconds, as in a body.
        let seconds = |text: &str| number::<u32>(text).map(|seconds| Duration::from_secs(seconds.into()));
        let in_limit = |text: &str| text.parse().ok().or_else(|| seconds(text)).filter(|length| *length <= most);
        self.parse_with(name, &format!("must be a duration of at most {most}, such as \"30s\""), in_limit)
    }

    /// Takes an integer from `least` to `most`.
    pub(crate) fn up_to(&mut self, name: &'static str, least: usize, most: usize) -> Result<Option<usize>, ApiError> {
        let in_range = |text: &str| number(text).filter(|number| (least..=most).contains(number));
        self.parse_with(name, &format!("must be {least}-{most}"), in_range)
    }

    /// Takes the cursor that an earlier page returned as `next`.
    pub(crate) fn cursor(&mut self) -> Result<Option<Seq>, ApiError> {
        let seq = |text: &str| number(text).map(Seq);
        self.parse_with("cursor", "must be \"next\" of an earlier page", seq)
    }

    pub(crate) fn flag(&mut self, name: &'static str) -> Result<bool, ApiError> {
        let parse = |text: &str| match text {
            "true" => Some(true),
            "false" => Some(false),
            _ => None,
        };
        Ok(self.one_of(name, &["true", "false"], parse)?.unwrap_or(false))
    }

    /// Rejects unread parameters, so that a typo is never ignored.
    pub(crate) fn end(self) -> Result<(), ApiError> {
        let Some((name, _)) = self.unread.first() else { return Ok(()) };
        let name: String = name.chars().take(100).collect();
        let hint = match self.known.as_slice() {
            [] => ": this route has no parameters".to_owned(),
            known => suggestion(&name, known.iter().copied()),
        };
        Err(ApiError::validation(&name, &format!("is not a known parameter{hint}")))
    }
}

/// Parses digits only, without a sign.
fn number<T: FromStr>(text: &str) -> Option<T> {
    text.parse().ok().filter(|_| text.bytes().all(|c| c.is_ascii_digit()))
}

/// The query of a route without parameters.
#[derive(Debug)]
pub(crate) struct NoQuery;

impl<S: Send + Sync> FromRequestParts<S> for NoQuery {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        Query::from_request_parts(parts, state).await?.end()?;
        Ok(Self)
    }
}
