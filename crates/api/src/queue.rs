//! Queues.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::enums::{Profile, State};
use crate::serde_util::maybe_object;
use crate::settings::Settings;
use crate::time::Time;

/// `PUT /v1/queues/{queue}`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct PutQueue {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
    /// When given, replaces all earlier overrides.
    #[serde(deserialize_with = "maybe_object", skip_serializing_if = "Option::is_none")]
    pub settings: Option<Settings>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Queue {
    pub name: String,
    pub profile: Profile,
    /// Resolved: the profile with the queue's overrides.
    pub settings: Settings,
    pub paused: bool,
    /// Jobs in each state.
    #[cfg_attr(feature = "schema", schema(value_type = BTreeMap<String, u64>))]
    pub counts: BTreeMap<State, u64>,
    /// When the job that has stood longest in line came into it.
    pub oldest_scheduled_at: Option<Time>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Queues {
    pub queues: Vec<Queue>,
}
