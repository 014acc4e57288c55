//! Work: claimed, settled, kept alive, fanned out.

pub(crate) mod children;
pub(crate) mod claim;
pub(crate) mod complete;
pub(crate) mod delivery;
pub(crate) mod fail;
pub(crate) mod heartbeat;
pub(crate) mod heartbeats;
pub(crate) mod release;
mod settle;
pub(crate) mod settlements;
pub(crate) mod snooze;
