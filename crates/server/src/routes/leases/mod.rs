//! Leases: claim, settle, renew, and submit children of a running job.

pub(crate) mod children;
pub(crate) mod claim;
pub(crate) mod heartbeat;
pub(crate) mod settle;
