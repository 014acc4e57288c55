//! Queues.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::enums::{Profile, State};
use crate::serde_util::maybe_object;
use crate::settings::Settings;
use crate::time::Time;

/// Creates or changes a queue: `PUT /v1/queues/{queue}`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct PutQueue {
    /// Profile of the queue. Absent: the default profile of the server, or the present one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
    /// Replaces all earlier overrides. Absent: the overrides stay.
    #[serde(deserialize_with = "maybe_object", skip_serializing_if = "Option::is_none")]
    pub settings: Option<Settings>,
}

/// A queue with its settings and counts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Queue {
    /// Name of the queue.
    pub name: String,
    /// Profile of the queue.
    pub profile: Profile,
    /// Resolved settings: the profile with the overrides of the queue.
    pub settings: Settings,
    /// What is set on the queue itself, as `settings` of a PUT; empty if it only inherits.
    #[serde(default)]
    pub overrides: Settings,
    /// Paths of settings that the profile locks. A path of an object locks all settings in it.
    #[serde(default)]
    pub locked: Vec<String>,
    /// Whether claims get no jobs from this queue.
    pub paused: bool,
    /// Jobs in each state.
    #[cfg_attr(feature = "schema", schema(value_type = BTreeMap<String, u64>))]
    pub counts: BTreeMap<State, u64>,
    /// When the job that has been ready for the longest time became ready; `null` without ready
    /// jobs.
    pub oldest_scheduled_at: Option<Time>,
}

/// All queues, by name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Queues {
    /// The queues.
    pub queues: Vec<Queue>,
}
