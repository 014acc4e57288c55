//! What needs the attention of operators.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::enums::{AttentionCode, Severity};
use crate::time::Time;

/// What needs attention now: `GET /v1/attention`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Attention {
    /// Most severe first, then the oldest. At most 1,000.
    pub items: Vec<AttentionItem>,
}

/// One thing that needs attention.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct AttentionItem {
    /// Why.
    pub code: AttentionCode,
    /// How urgent it is.
    pub severity: Severity,
    /// Since when; `null` if the server does not know.
    pub since: Option<Time>,
    /// Queue; `null` if it concerns no queue.
    pub queue: Option<String>,
    /// Type of the jobs; `null` if it concerns all types.
    #[serde(rename = "type")]
    pub job_type: Option<String>,
    /// Facts of the code, by name.
    #[cfg_attr(feature = "schema", schema(value_type = BTreeMap<String, Object>))]
    pub facts: BTreeMap<String, Value>,
    /// Request that helps; `null` if there is none.
    pub action: Option<AttentionAction>,
}

/// A request of this API that helps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct AttentionAction {
    /// Text of a button.
    pub label: String,
    /// HTTP method.
    pub method: String,
    /// Path of the request.
    pub path: String,
    /// Body of the request; `null` if it has none.
    #[cfg_attr(feature = "schema", schema(value_type = Option<Object>))]
    pub body: Option<Value>,
}
