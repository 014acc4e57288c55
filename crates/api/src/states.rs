//! Lists of states, separated by commas.

use std::fmt;
use std::str::FromStr;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::enums::State;

/// One or several states, on the wire separated by commas: `failed,dead_letter`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct States(pub Vec<State>);

impl From<State> for States {
    fn from(state: State) -> Self {
        Self(vec![state])
    }
}

/// A text with an unknown state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownState;

impl fmt::Display for UnknownState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "one or several of {}, separated by commas", State::WORDS.join(", "))
    }
}

impl std::error::Error for UnknownState {}

impl FromStr for States {
    type Err = UnknownState;

    fn from_str(text: &str) -> Result<Self, UnknownState> {
        let states = text.split(',').map(|name| State::parse(name).ok_or(UnknownState));
        Ok(Self(states.collect::<Result<_, _>>()?))
    }
}

impl fmt::Display for States {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.0.iter().map(|state| state.as_str()).collect();
        f.write_str(&names.join(","))
    }
}

impl Serialize for States {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for States {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct StatesVisitor;
        impl Visitor<'_> for StatesVisitor {
            type Value = States;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{UnknownState}")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<States, E> {
                text.parse().map_err(|unknown: UnknownState| E::custom(format_args!("expected {unknown}")))
            }
        }
        deserializer.deserialize_str(StatesVisitor)
    }
}

#[cfg(feature = "schema")]
mod schema {
    use utoipa::openapi::schema::{ObjectBuilder, Type};
    use utoipa::openapi::{RefOr, Schema};
    use utoipa::{PartialSchema, ToSchema};

    use super::{States, UnknownState};

    impl PartialSchema for States {
        fn schema() -> RefOr<Schema> {
            let text = ObjectBuilder::new().schema_type(Type::String).description(Some(UnknownState.to_string()));
            text.examples(["failed,dead_letter"]).into()
        }
    }

    impl ToSchema for States {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_round_trip() {
        for text in ["failed", "failed,dead_letter", "pending,scheduled,running"] {
            let states: States = text.parse().unwrap();
            assert_eq!(states.to_string(), text);
            assert_eq!(serde_json::from_str::<States>(&serde_json::to_string(&states).unwrap()).unwrap(), states);
        }
        for bad in ["", "gone", "failed,", ",failed", "failed, dead_letter", "Failed"] {
            assert_eq!(bad.parse::<States>(), Err(UnknownState), "{bad:?}");
        }
    }
}
