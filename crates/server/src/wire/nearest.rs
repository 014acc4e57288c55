//! Suggestions for misspelt names.

/// Returns the known name that is closest to `word`, if it is close enough.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let distances = known.into_iter().map(|name| (strsim::damerau_levenshtein(word, name), name));
    let near = |distance: usize, name: &str| distance <= name.len().max(word.len()).div_ceil(3);
    let (_, name) = distances.filter(|(distance, name)| near(*distance, name) || is_prefix(word, name)).min()?;
    Some(name)
}

/// Whether one name is a prefix of the other: `life` of `lifetime`.
fn is_prefix(word: &str, name: &str) -> bool {
    word.len() > 2 && (name.starts_with(word) || word.starts_with(name))
}

/// Returns `; did you mean "delay"?`, or an empty text.
pub(crate) fn suggestion<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(word, known).map(|name| format!("; did you mean \"{name}\"?")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_close_names_are_suggested() {
        let known = ["retry", "lease", "lifetime", "idempotency_key"];
        assert_eq!(nearest("leese", known), Some("lease"));
        assert_eq!(nearest("idempotencyKey", known), Some("idempotency_key"));
        assert_eq!(nearest("retries", known), Some("retry"));
        assert_eq!(nearest("colour", known), None);
        assert_eq!(suggestion("life", known), "; did you mean \"lifetime\"?");
        assert_eq!(suggestion("x", []), "");
    }
}
