//! Suggestions for misspelt names.

/// The known name that is closest to `word`, if it is close enough to have been meant.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let rated = known.into_iter().map(|name| (strsim::damerau_levenshtein(word, name), name));
    let near = |distance: usize, name: &str| distance <= name.len().max(word.len()).div_ceil(3);
    let (_, name) = rated.filter(|(distance, name)| near(*distance, name) || is_part(word, name)).min()?;
    Some(name)
}

/// One name begins with the other: `life` for `lifetime`.
fn is_part(word: &str, name: &str) -> bool {
    word.len() > 2 && (name.starts_with(word) || word.starts_with(name))
}

/// `; did you mean "delay"?`, or nothing.
pub(crate) fn suggestion<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(word, known).map(|name| format!("; did you mean \"{name}\"?")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_close_is_suggested() {
        let known = ["retry", "lease", "lifetime", "idempotency_key"];
        assert_eq!(nearest("leese", known), Some("lease"));
        assert_eq!(nearest("idempotencyKey", known), Some("idempotency_key"));
        assert_eq!(nearest("retries", known), Some("retry"));
        assert_eq!(nearest("colour", known), None);
        assert_eq!(suggestion("life", known), "; did you mean \"lifetime\"?");
        assert_eq!(suggestion("x", []), "");
    }
}
