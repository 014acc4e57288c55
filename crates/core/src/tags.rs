//! Tags of a job: a map of keys and values, or a list of keys.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::id::{validate_length, validate_name};
use crate::limits::{TAG_KEY_CHARS_MAX, TAG_VALUE_CHARS_MAX, TAGS_MAX};
use crate::refusal::Invalid;

/// Labels for searching.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Tags {
    #[default]
    None,
    Map(BTreeMap<Arc<str>, Option<Arc<str>>>),
    /// Order and repetitions are kept.
    List(Vec<Arc<str>>),
}

impl Tags {
    /// Checks tags of the API: keys are names.
    pub fn validate_strict(&self) -> Result<(), Invalid> {
        self.validate_lenient()?;
        for (key, _) in self.pairs() {
            validate_name("tags", key, TAG_KEY_CHARS_MAX)?;
        }
        Ok(())
    }

    /// Checks tags of the Ocypod dialect: keys are any text.
    pub fn validate_lenient(&self) -> Result<(), Invalid> {
        if self.pairs().count() > TAGS_MAX {
            return Err(Invalid::new("tags", format!("may be at most {TAGS_MAX}")));
        }
        for (key, value) in self.pairs() {
            validate_length("tags", key, TAG_KEY_CHARS_MAX)?;
            validate_length("tags", value.unwrap_or_default(), TAG_VALUE_CHARS_MAX)?;
            // PostgreSQL texts cannot hold this character.
            if [key, value.unwrap_or_default()].iter().any(|text| text.contains('\0')) {
                return Err(Invalid::new("tags", "may not contain the character U+0000"));
            }
        }
        Ok(())
    }

    /// Returns keys with their values; the entries of a list have no value.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        let (map, list) = match self {
            Self::None => (None, None),
            Self::Map(map) => (Some(map), None),
            Self::List(list) => (None, Some(list)),
        };
        let of_map = map.into_iter().flatten().map(|(key, value)| (key.as_ref(), value.as_deref()));
        let of_list = list.into_iter().flatten().map(|key| (key.as_ref(), None));
        of_map.chain(of_list)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves G-10.11, O-13, O-54.
    #[test]
    fn map_and_list_give_pairs() {
        let map = Tags::Map([("tenant".into(), Some("acme".into()))].into());
        assert_eq!(map.pairs().collect::<Vec<_>>(), [("tenant", Some("acme"))]);
        let list = Tags::List(vec!["batch-7".into(), "alice".into()]);
        assert_eq!(list.pairs().collect::<Vec<_>>(), [("batch-7", None), ("alice", None)]);
        assert!(map.validate_strict().is_ok() && list.validate_strict().is_ok());
        assert!(Tags::List(vec!["a b".into()]).validate_strict().is_err());
        assert!(Tags::List(vec!["a b".into()]).validate_lenient().is_ok());
        assert!(Tags::List(vec!["x".into(); 65]).validate_strict().is_err());
        assert!(Tags::List(vec!["a\0".into()]).validate_lenient().is_err());
        assert!(Tags::Map([("a".into(), Some("\0".into()))].into()).validate_strict().is_err());
    }
}
