//! Looking on: stats, workers, metrics, health, the server itself, its clock.

pub(crate) mod clock;
pub(crate) mod health;
pub(crate) mod info;
pub(crate) mod metrics;
pub(crate) mod openapi;
pub(crate) mod root;
pub(crate) mod stats;
pub(crate) mod workers;
