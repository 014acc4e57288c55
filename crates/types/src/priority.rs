//! Five levels of urgency; the lower number is claimed first.

use std::fmt;
use std::str::FromStr;

use crate::string_enum::UnknownValue;

/// Urgency of a job. Ordered: `Critical` is the least value. In JSON a name, or a level 0 to 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    Critical,
    High,
    Normal,
    Low,
    Bulk,
}

/// What a priority looks like, for error messages.
pub const PRIORITY_FORMAT: &str = "critical, high, normal, low or bulk, or a number from 0 to 4";

impl Priority {
    /// All priorities, the most urgent first.
    pub const ALL: &'static [Self] = &[Self::Critical, Self::High, Self::Normal, Self::Low, Self::Bulk];
    /// The names of all priorities, in the same order.
    pub const WORDS: &'static [&'static str] = &["critical", "high", "normal", "low", "bulk"];
    /// Number of priorities.
    pub const COUNT: usize = Self::ALL.len();

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::High => "high",
            Self::Normal => "normal",
            Self::Low => "low",
            Self::Bulk => "bulk",
        }
    }

    pub fn level(self) -> u8 {
        match self {
            Self::Critical => 0,
            Self::High => 1,
            Self::Normal => 2,
            Self::Low => 3,
            Self::Bulk => 4,
        }
    }

    pub fn from_level(level: u8) -> Option<Self> {
        Self::ALL.get(usize::from(level)).copied()
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|priority| priority.as_str() == name)
    }

    /// Parses a name, or the digit of a level, as in a query string.
    pub fn parse(text: &str) -> Option<Self> {
        let level = || (text.len() == 1).then(|| text.parse().ok()).flatten();
        Self::from_name(text).or_else(|| Self::from_level(level()?))
    }

    pub fn more_urgent(self, other: Self) -> Self {
        self.min(other)
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Priority {
    type Err = UnknownValue;

    fn from_str(text: &str) -> Result<Self, UnknownValue> {
        Self::parse(text).ok_or(UnknownValue { expected: Self::WORDS })
    }
}

#[cfg(feature = "serde")]
mod json {
    use std::fmt;

    use serde::de::{Error, Visitor};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::{PRIORITY_FORMAT, Priority};

    impl Serialize for Priority {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.serialize_str(self.as_str())
        }
    }

    impl<'de> Deserialize<'de> for Priority {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            deserializer.deserialize_any(NameOrLevel)
        }
    }

    struct NameOrLevel;

    fn invalid<E: Error>() -> E {
        E::custom(format_args!("expected {PRIORITY_FORMAT}"))
    }

    impl Visitor<'_> for NameOrLevel {
        type Value = Priority;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(PRIORITY_FORMAT)
        }

        fn visit_str<E: Error>(self, name: &str) -> Result<Priority, E> {
            Priority::from_name(name).ok_or_else(invalid)
        }

        fn visit_u64<E: Error>(self, level: u64) -> Result<Priority, E> {
            u8::try_from(level).ok().and_then(Priority::from_level).ok_or_else(invalid)
        }

        fn visit_i64<E: Error>(self, _: i64) -> Result<Priority, E> {
            Err(invalid())
        }
    }
}

#[cfg(feature = "schema")]
mod schema {
    use utoipa::openapi::schema::{ObjectBuilder, OneOfBuilder, Type};
    use utoipa::openapi::{RefOr, Schema};
    use utoipa::{PartialSchema, ToSchema};

    use super::Priority;

    impl PartialSchema for Priority {
        fn schema() -> RefOr<Schema> {
            let names = ObjectBuilder::new().schema_type(Type::String).enum_values(Some(Self::WORDS.iter().copied()));
            let level = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(0)).maximum(Some(4));
            let description = "Urgency of a job: a name, or a level from 0 (critical) to 4 (bulk). \
                               Responses contain the name.";
            OneOfBuilder::new().item(names).item(level).description(Some(description)).into()
        }
    }

    impl ToSchema for Priority {}
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves G-3.1, G-3.2, G-3.3, G-3.4, G-3.5.
    #[test]
    fn five_levels_from_critical_to_bulk() {
        let names: Vec<_> = (0..5).map(|level| Priority::from_level(level).unwrap().as_str()).collect();
        assert_eq!(names, ["critical", "high", "normal", "low", "bulk"]);
        assert!(Priority::ALL.iter().all(|priority| Priority::from_level(priority.level()) == Some(*priority)));
        assert_eq!(Priority::from_level(5), None);
        assert_eq!(Priority::Bulk.more_urgent(Priority::High), Priority::High);
        assert!(Priority::ALL.iter().map(|priority| priority.as_str()).eq(Priority::WORDS.iter().copied()));
        let parse = Priority::parse;
        assert_eq!(
            (parse("3"), parse("low"), parse("+3"), parse("5")),
            (Some(Priority::Low), Some(Priority::Low), None, None)
        );
    }

    #[cfg(feature = "serde")]
    #[test]
    fn json_is_a_name_or_a_level() {
        let read = |json: &str| serde_json::from_str::<Priority>(json).ok();
        assert_eq!(
            (read("\"high\""), read("1"), read("4")),
            (Some(Priority::High), Some(Priority::High), Some(Priority::Bulk))
        );
        for bad in ["5", "-1", "1.0", "\"1\"", "\"High\"", "null", "true"] {
            assert_eq!(read(bad), None, "{bad}");
        }
        assert_eq!(serde_json::to_string(&Priority::Bulk).unwrap(), "\"bulk\"");
    }
}
