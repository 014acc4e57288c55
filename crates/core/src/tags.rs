//! Labels of a job: a map of keys and values, or a plain list. One set, two ways to show it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::id::{bounded_text, name_text};
use crate::limits::{TAG_KEY_CHARS_MAX, TAG_VALUE_CHARS_MAX, TAGS_MAX};
use crate::refusal::Invalid;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Tags {
    #[default]
    None,
    Map(BTreeMap<Arc<str>, Option<Arc<str>>>),
    /// Kept as it was given: order and repetitions included.
    List(Vec<Arc<str>>),
}

impl Tags {
    /// Tags whose keys are names, as our own API takes them.
    pub fn check_named(&self) -> Result<(), Invalid> {
        self.check_free()?;
        for (key, _) in self.pairs() {
            name_text("tags", key, TAG_KEY_CHARS_MAX)?;
        }
        Ok(())
    }

    /// Tags that may be any text, as the Ocypod dialect takes them.
    pub fn check_free(&self) -> Result<(), Invalid> {
        if self.pairs().count() > TAGS_MAX {
            return Err(Invalid::new("tags", format!("may be at most {TAGS_MAX}")));
        }
        for (key, value) in self.pairs() {
            bounded_text("tags", key, TAG_KEY_CHARS_MAX)?;
            bounded_text("tags", value.unwrap_or_default(), TAG_VALUE_CHARS_MAX)?;
            // Tags are looked up as text, and not every store has room for this one in its texts.
            if [key, value.unwrap_or_default()].iter().any(|text| text.contains('\0')) {
                return Err(Invalid::new("tags", "may not contain the character U+0000"));
            }
        }
        Ok(())
    }

    /// Keys with their values, a list's entries as keys without one.
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
    fn a_map_and_a_list_are_the_same_labels() {
        let map = Tags::Map([("tenant".into(), Some("acme".into()))].into());
        assert_eq!(map.pairs().collect::<Vec<_>>(), [("tenant", Some("acme"))]);
        let list = Tags::List(vec!["batch-7".into(), "alice".into()]);
        assert_eq!(list.pairs().collect::<Vec<_>>(), [("batch-7", None), ("alice", None)]);
        assert!(map.check_named().is_ok() && list.check_named().is_ok());
        assert!(Tags::List(vec!["a b".into()]).check_named().is_err());
        assert!(Tags::List(vec!["a b".into()]).check_free().is_ok());
        assert!(Tags::List(vec!["x".into(); 65]).check_named().is_err());
        assert!(Tags::List(vec!["a\0".into()]).check_free().is_err());
        assert!(Tags::Map([("a".into(), Some("\0".into()))].into()).check_named().is_err());
    }
}
