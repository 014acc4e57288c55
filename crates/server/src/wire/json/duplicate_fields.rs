//! Duplicate fields, which serde does not report for maps.

use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Fields with JSON values of users.
const OPAQUE: [&str; 4] = ["payload", "result", "progress", "checkpoint"];

/// Returns the first duplicate field outside of the values of users.
pub(super) fn find_duplicate_field(text: &str) -> Option<String> {
    let mut duplicate = None;
    let mut reader = serde_json::Deserializer::from_str(text);
    // The text is valid JSON: an error here has no meaning.
    drop(DuplicateFieldFinder(&mut duplicate).deserialize(&mut reader));
    duplicate
}

struct DuplicateFieldFinder<'a>(&'a mut Option<String>);

impl<'de> DeserializeSeed<'de> for DuplicateFieldFinder<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for DuplicateFieldFinder<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut names = HashSet::new();
        while let Some(name) = map.next_key::<String>()? {
            if OPAQUE.contains(&name.as_str()) {
                map.next_value::<IgnoredAny>()?;
            } else {
                map.next_value_seed(DuplicateFieldFinder(&mut *self.0))?;
            }
            if names.contains(&name) {
                self.0.get_or_insert(name);
            } else {
                names.insert(name);
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while list.next_element_seed(DuplicateFieldFinder(&mut *self.0))?.is_some() {}
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}
