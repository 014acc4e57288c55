//! Queues, and the jobs in them.

pub(super) mod claim;
pub(super) mod create;
pub(super) mod delete;
pub(super) mod get;
pub(super) mod job_ids;
pub(super) mod list;
pub(super) mod put;
pub(super) mod size;
