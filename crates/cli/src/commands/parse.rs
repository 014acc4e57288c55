//! Values of flags, counts with nouns, suggestions for typos.

use longshore_api::enums::{Priority, Profile, State};
use serde_json::value::RawValue;

use crate::terminal::error::CliError;

fn comma_separated(values: impl Iterator<Item = &'static str>) -> String {
    values.collect::<Vec<_>>().join(", ")
}

pub(crate) fn state(text: &str) -> Result<State, String> {
    let states = || comma_separated(State::ALL.iter().map(|state| state.as_str()));
    State::parse(&text.replace('-', "_")).ok_or_else(|| format!("expected one of {}", states()))
}

pub(crate) fn profile(text: &str) -> Result<Profile, String> {
    let profiles = || comma_separated(Profile::ALL.iter().map(|profile| profile.as_str()));
    Profile::parse(text).ok_or_else(|| format!("expected one of {}", profiles()))
}

pub(crate) fn priority(text: &str) -> Result<Priority, String> {
    let priorities = || comma_separated(Priority::ALL.iter().map(|priority| priority.as_str()));
    Priority::parse(text).ok_or_else(|| format!("expected one of {}, or 0 to 4", priorities()))
}

/// Formats a count with its noun; the plural has an `s`.
pub(crate) fn counted(count: impl TryInto<u64>, noun: &str) -> String {
    let count = count.try_into().unwrap_or(u64::MAX);
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

/// Checks JSON and keeps its text byte for byte.
pub(crate) fn json(text: &str, subject: &str) -> Result<Box<RawValue>, CliError> {
    serde_json::from_str(text).map_err(|error| {
        let position = format!("line {}, column {}", error.line(), error.column());
        CliError::refused(format!("{subject} is not JSON ({position})")).hint(
            "quote JSON for the shell, as in --payload '{\"to\":\"ann\"}' or '\"text\"'; submit bytes with --binary",
        )
    })
}

/// Returns the candidate with the smallest edit distance, if it is at most a third of the length.
pub(crate) fn nearest<'a>(text: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let rated = candidates.map(|candidate| (strsim::damerau_levenshtein(text, candidate), candidate));
    let (distance, candidate) = rated.min()?;
    (distance <= candidate.len().max(text.len()).div_ceil(3)).then_some(candidate)
}

/// Returns a suggestion for a message of serde about an unknown field.
pub(crate) fn suggest(message: &str) -> Option<String> {
    let (_, rest) = message.split_once("unknown field `")?;
    let (field, expected) = rest.split_once('`')?;
    // Every second part is between backticks.
    let candidate = nearest(field, expected.split('`').skip(1).step_by(2))?;
    Some(format!("did you mean \"{candidate}\"?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_a_plural() {
        assert_eq!(
            [counted(0_u64, "job"), counted(1_u32, "job"), counted(2_usize, "job")],
            ["0 jobs", "1 job", "2 jobs"]
        );
    }

    #[test]
    fn a_typo_has_a_suggestion() {
        let message = "unknown field `leese`, expected one of `retry`, `lease`, `lifetime`";
        assert_eq!(suggest(message).as_deref(), Some("did you mean \"lease\"?"));
        assert_eq!(suggest("unknown field `zebra`, expected one of `retry`, `lease`"), None);
        assert_eq!(suggest("missing field `type`"), None);
    }
}
