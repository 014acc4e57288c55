//! Tokens and the audit log.

use serde::{Deserialize, Serialize};

use crate::enums::{AuditOutcome, TokenAction};
use crate::time::Time;

/// A new token: `POST /v1/tokens`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewToken {
    /// A name for people, 1-128 printable characters.
    #[cfg_attr(feature = "schema", schema(min_length = 1, max_length = 128))]
    pub name: String,
    /// What the token allows.
    #[cfg_attr(feature = "schema", schema(min_items = 1))]
    pub actions: Vec<TokenAction>,
    /// Names of queues, or starts of names with `*` at the end. `*` is every queue.
    #[cfg_attr(feature = "schema", schema(min_items = 1, max_items = 100))]
    pub queues: Vec<String>,
    /// When the token ends; absent: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Time>,
    /// Requests per second on each server, 1-1000000; a submission counts as its number of jobs.
    /// Absent: without a limit.
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 1_000_000))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<u32>,
    /// Requests that may come at once, 1-1000000; absent: as many as in one second. Needs `rate`.
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 1_000_000))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<u32>,
}

/// A token, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Token {
    /// The part of the token that names it: `lsk_<id>_…`.
    pub id: String,
    /// Name for people.
    pub name: String,
    /// What the token allows.
    pub actions: Vec<TokenAction>,
    /// Its queues.
    pub queues: Vec<String>,
    /// When it was created.
    pub created_at: Time,
    /// When it ends; `null`: never.
    pub expires_at: Option<Time>,
    /// Last use, to the minute.
    pub last_used_at: Option<Time>,
    /// Requests per second on each server; `null`: without a limit.
    #[serde(default)]
    pub rate: Option<u32>,
    /// Requests that may come at once; `null`: without a limit.
    #[serde(default)]
    pub burst: Option<u32>,
}

/// A created token, with its text.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct CreatedToken {
    /// The text to send as `Authorization: Bearer`. It is shown only here.
    pub token: String,
    /// The token.
    #[serde(flatten)]
    pub details: Token,
}

/// The secret stays out of debug output.
impl std::fmt::Debug for CreatedToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CreatedToken").field("details", &self.details).finish_non_exhaustive()
    }
}

/// What the caller may do: `GET /v1/tokens/self`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct CallerPermissions {
    /// Id of the token; `null` on a server without tokens, where everything is allowed.
    pub id: Option<String>,
    /// Name of the token.
    pub name: Option<String>,
    /// What the caller may do.
    pub actions: Vec<TokenAction>,
    /// Queues of the caller. `*` is every queue.
    pub queues: Vec<String>,
    /// When the token ends; `null`: never.
    pub expires_at: Option<Time>,
}

/// All tokens: `GET /v1/tokens`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Tokens {
    /// Oldest first.
    pub tokens: Vec<Token>,
}

/// A call in the audit log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct AuditEntry {
    /// When the call ended.
    pub at: Time,
    /// Id of the token; `null` for a call without a token.
    pub token: Option<String>,
    /// Name of the token at that time.
    pub name: Option<String>,
    /// The action that the call needed: `operate` or `admin`.
    pub action: TokenAction,
    /// Method and path of the call.
    pub target: String,
    /// How the call ended.
    pub outcome: AuditOutcome,
    /// Address of the client; `null` inside of the process.
    pub address: Option<String>,
}

/// A page of the audit log: `GET /v1/audit`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct AuditPage {
    /// Newest first.
    pub entries: Vec<AuditEntry>,
    /// The `cursor` of the next page; `null`: this is the last page.
    pub next: Option<String>,
}
