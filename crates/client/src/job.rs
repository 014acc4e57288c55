//! Job types: what producer and worker share.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// A payload type with its job type and its default queue. `#[derive(Job)]` implements it.
///
/// The type belongs in a crate that producers and workers share. Handlers stay in the worker.
///
/// ```
/// use longshore::Job;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize, Job)]
/// #[job(type = "email.send", queue = "mail", output = Sent)]
/// struct SendEmail {
///     to: String,
/// }
///
/// #[derive(Serialize, Deserialize)]
/// struct Sent {
///     message_id: String,
/// }
///
/// assert_eq!((SendEmail::TYPE, SendEmail::QUEUE), ("email.send", "mail"));
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a job",
    label = "this type does not implement `Job`",
    note = "add `#[derive(serde::Serialize, serde::Deserialize, longshore::Job)]` and `#[job(type = \"…\")]` to it"
)]
pub trait Job: Serialize {
    /// Job type: workers claim by it.
    const TYPE: &'static str;
    /// Queue of submissions that name none.
    const QUEUE: &'static str = "default";
    /// Result of the work, as [`JobHandle::wait`](crate::JobHandle::wait) returns it.
    /// `serde_json::Value` accepts every result.
    type Output: DeserializeOwned;
}
