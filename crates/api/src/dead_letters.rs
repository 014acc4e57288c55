//! Dead letters in groups.

use serde::{Deserialize, Serialize};

use crate::time::Time;

/// Dead letters by error code and message shape: `GET /v1/dead-letters/groups`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct DeadLetterGroups {
    /// The 200 largest groups, largest first.
    pub groups: Vec<DeadLetterGroup>,
    /// Whether the counts may be too low: there are more than 100,000 dead letters, or the server
    /// still reads them.
    #[serde(default)]
    pub approximate: bool,
}

/// Dead letters with one error code whose messages differ only in numbers, ids and quoted text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct DeadLetterGroup {
    /// Id of the group: 16 hexadecimal digits, the same on every server and after a restart.
    pub id: String,
    /// Error code; `null` for errors without a code.
    pub code: Option<String>,
    /// The message with holes: `‹n›`, `‹id›`, `‹text›`, `‹time›`, `‹address›`, `‹email›`.
    pub shape: String,
    /// Number of dead letters.
    pub count: u64,
    /// Those that ended in the last 60 minutes.
    pub last_hour: u64,
    /// When the oldest of them ended.
    pub first_at: Time,
    /// When the newest of them ended.
    pub last_at: Time,
    /// Types of the jobs, by name; at most 10.
    pub types: Vec<String>,
    /// Queues of the jobs, by name; at most 10.
    #[serde(default)]
    pub queues: Vec<String>,
    /// Id of the newest.
    pub example: String,
}
