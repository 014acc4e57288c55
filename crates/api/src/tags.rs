//! Tags of a job: a map of keys and values, or a list of keys.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// Tags in a response: always a map. Tags that were given as a list have `null` values.
pub type TagMap = BTreeMap<String, Option<String>>;

/// Tags in a request: a map of keys and values, or a list of keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Tags {
    Map(TagMap),
    List(Vec<String>),
}

impl<'de> Deserialize<'de> for Tags {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MapOrList;
        impl<'de> Visitor<'de> for MapOrList {
            type Value = Tags;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of texts or a list of texts")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Tags, A::Error> {
                let mut tags = TagMap::new();
                while let Some((key, value)) = map.next_entry::<String, Option<String>>()? {
                    if tags.insert(key, value).is_some() {
                        return Err(A::Error::custom("expected every key once"));
                    }
                }
                Ok(Tags::Map(tags))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Tags, A::Error> {
                let mut tags = Vec::new();
                while let Some(tag) = list.next_element()? {
                    tags.push(tag);
                }
                Ok(Tags::List(tags))
            }
        }
        deserializer.deserialize_any(MapOrList)
    }
}
