//! Background tasks, and the state that they keep for requests.

pub(crate) mod change_listener;
pub(crate) mod completion_waiters;
pub(crate) mod dead_letters;
pub(crate) mod deploys;
pub(crate) mod fleet;
pub(crate) mod metrics;
pub(crate) mod series;
pub(crate) mod throughput;
pub(crate) mod ticker;
pub(crate) mod virtual_time;
pub(crate) mod worker_check;
pub(crate) mod worker_registry;
