//! What goes on beside requests.

pub(crate) mod endings;
pub(crate) mod feed;
pub(crate) mod maintenance;
pub(crate) mod metrics;
pub(crate) mod tally;
pub(crate) mod virtual_time;
pub(crate) mod worker_check;
pub(crate) mod workers;
