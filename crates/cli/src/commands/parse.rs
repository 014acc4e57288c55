//! Words and values as they are typed.

use longshore_api::enums::{Priority, Profile, State};
use serde_json::value::RawValue;

use crate::terminal::error::CliError;

/// All words of a set, for messages.
fn listed(words: impl Iterator<Item = &'static str>) -> String {
    words.collect::<Vec<_>>().join(", ")
}

pub(crate) fn state(word: &str) -> Result<State, String> {
    let known = || listed(State::ALL.iter().map(|state| state.as_str()));
    State::parse(&word.replace('-', "_")).ok_or_else(|| format!("expected one of {}", known()))
}

pub(crate) fn profile(word: &str) -> Result<Profile, String> {
    let known = || listed(Profile::ALL.iter().map(|profile| profile.as_str()));
    Profile::parse(word).ok_or_else(|| format!("expected one of {}", known()))
}

pub(crate) fn priority(word: &str) -> Result<Priority, String> {
    let known = || listed(Priority::ALL.iter().map(|priority| priority.as_str()));
    Priority::parse(word).ok_or_else(|| format!("expected one of {}, or 0 to 4", known()))
}

/// A number with its noun: the plural has an `s`.
pub(crate) fn counted(count: impl TryInto<u64>, noun: &str) -> String {
    let count = count.try_into().unwrap_or(u64::MAX);
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

/// JSON as it was typed, byte for byte.
pub(crate) fn json(text: &str, what: &str) -> Result<Box<RawValue>, CliError> {
    serde_json::from_str(text).map_err(|error| {
        let place = format!("line {}, column {}", error.line(), error.column());
        CliError::refused(format!("{what} is not JSON ({place})")).hint(
            "quote it for the shell, as in --payload '{\"to\":\"ann\"}'; text is '\"text\"'; bytes go with --binary",
        )
    })
}

/// The nearest of some words, if it is near enough to have been meant.
pub(crate) fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let rated = known.map(|candidate| (strsim::damerau_levenshtein(word, candidate), candidate));
    let (distance, candidate) = rated.min()?;
    (distance <= candidate.len().max(word.len()).div_ceil(3)).then_some(candidate)
}

/// serde's complaint about an unknown field, with a guess at what was meant.
pub(crate) fn guess(complaint: &str) -> Option<String> {
    let (_, rest) = complaint.split_once("unknown field `")?;
    let (word, known) = rest.split_once('`')?;
    // Every second piece stands between backticks.
    let candidate = nearest(word, known.split('`').skip(1).step_by(2))?;
    Some(format!("did you mean \"{candidate}\"?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_job_and_two_jobs() {
        assert_eq!(
            [counted(0_u64, "job"), counted(1_u32, "job"), counted(2_usize, "job")],
            ["0 jobs", "1 job", "2 jobs"]
        );
    }

    #[test]
    fn what_was_meant_is_guessed() {
        let told = "unknown field `leese`, expected one of `retry`, `lease`, `lifetime`";
        assert_eq!(guess(told).as_deref(), Some("did you mean \"lease\"?"));
        assert_eq!(guess("unknown field `zebra`, expected one of `retry`, `lease`"), None);
        assert_eq!(guess("missing field `type`"), None);
    }
}
