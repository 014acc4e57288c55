//! Queues: created, changed, shown, paused, deleted.

pub(crate) mod delete;
pub(crate) mod get;
pub(crate) mod list;
pub(crate) mod pause;
pub(crate) mod put;
