//! Closed sets of strings: one macro defines the enum, its strings and their parser.

use std::fmt;

/// A string that is not in the closed set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownValue {
    /// All strings of the set.
    pub expected: &'static [&'static str],
}

impl fmt::Display for UnknownValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected one of {}", self.expected.join(", "))
    }
}

impl std::error::Error for UnknownValue {}

/// Defines an enum whose variants are strings: `ALL`, `WORDS`, `as_str`, `parse`, `FromStr`,
/// `Display`.
///
/// ```
/// longshore_types::string_enum!(
///     /// Color of a traffic light.
///     Light { Red = "red", Green = "green" }
/// );
/// assert_eq!(Light::parse("red"), Some(Light::Red));
/// assert_eq!(Light::Green.to_string(), "green");
/// ```
#[macro_export]
macro_rules! string_enum {
    ($(#[$attribute:meta])* $name:ident {
        $($(#[$variant_attribute:meta])* $variant:ident = $string:literal),+ $(,)?
    }) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$variant_attribute])* $variant),+ }

        impl $name {
            /// All values, in their order.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];
            /// The strings of all values, in the same order.
            pub const WORDS: &'static [&'static str] = &[$($string),+];

            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $string),+ }
            }

            /// Returns the value with this string.
            pub fn parse(text: &str) -> Option<Self> {
                match text { $($string => Some(Self::$variant),)+ _ => None }
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl ::std::str::FromStr for $name {
            type Err = $crate::UnknownValue;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Self::parse(text).ok_or($crate::UnknownValue { expected: Self::WORDS })
            }
        }
    };
}

/// Defines a [`string_enum!`] of the wire: with JSON and an OpenAPI schema, behind features.
///
/// `as "Name"` gives the schema another name than the type.
macro_rules! wire_enum {
    ($(#[doc = $doc:tt])+ $name:ident $(as $schema_name:literal)? {
        $($(#[doc = $variant_doc:tt])* $variant:ident = $string:literal),+ $(,)?
    }) => {
        $crate::string_enum!(
            $(#[doc = $doc])+
            $name { $($(#[doc = $variant_doc])* $variant = $string),+ }
        );

        #[cfg(feature = "serde")]
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        // The derived implementation accepts more than strings, and reports other JSON as a syntax
        // error.
        #[cfg(feature = "serde")]
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let visitor = $crate::string_enum::EnumVisitor { strings: Self::WORDS, parse: Self::parse };
                deserializer.deserialize_str(visitor)
            }
        }

        // The derived schema would use the names of the Rust variants.
        #[cfg(feature = "schema")]
        impl utoipa::PartialSchema for $name {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
                let values: &[(&'static str, &[&str])] = &[$(($string, &[$($variant_doc),*])),+];
                $crate::string_enum::schema(&[$($doc),+], values).into()
            }
        }

        #[cfg(feature = "schema")]
        impl utoipa::ToSchema for $name {
            $(fn name() -> std::borrow::Cow<'static, str> {
                std::borrow::Cow::Borrowed($schema_name)
            })?
        }
    };
}
pub(crate) use wire_enum;

/// Schema of a closed set of strings: its description lists the values with their meanings.
#[cfg(feature = "schema")]
pub(crate) fn schema(description: &[&str], values: &[(&'static str, &[&str])]) -> utoipa::openapi::schema::Object {
    use utoipa::openapi::schema::{ObjectBuilder, Type};
    let paragraph = |lines: &[&str]| lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ");
    let mut text = paragraph(description);
    let described = values.iter().filter(|(_, lines)| !lines.is_empty());
    for (index, (value, lines)) in described.enumerate() {
        text += if index == 0 { "\n\n" } else { "\n" };
        text += &format!("- `{value}`: {}", paragraph(lines));
    }
    ObjectBuilder::new()
        .schema_type(Type::String)
        .description(Some(text))
        .enum_values(Some(values.iter().map(|(value, _)| *value)))
        .build()
}

/// Reads a string of a closed set.
#[cfg(feature = "serde")]
pub(crate) struct EnumVisitor<T: 'static> {
    pub(crate) strings: &'static [&'static str],
    pub(crate) parse: fn(&str) -> Option<T>,
}

#[cfg(feature = "serde")]
impl<T> serde::de::Visitor<'_> for EnumVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "one of {}", self.strings.join(", "))
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
        (self.parse)(text).ok_or_else(|| E::custom(UnknownValue { expected: self.strings }))
    }
}

#[cfg(all(test, feature = "serde"))]
mod tests {
    use crate::StateKind;

    #[test]
    fn enum_round_trips_through_json() {
        for state in StateKind::ALL {
            let text = serde_json::to_string(state).unwrap();
            assert_eq!(text, format!("\"{state}\""));
            assert_eq!(state.as_str().parse(), Ok(*state));
            assert_eq!(serde_json::from_str::<StateKind>(&text).unwrap(), *state);
        }
        for bad in ["true", "7", "{\"running\":null}", "[]", "null", "\"Running\""] {
            assert!(serde_json::from_str::<StateKind>(bad).unwrap_err().is_data(), "{bad}");
        }
    }
}
