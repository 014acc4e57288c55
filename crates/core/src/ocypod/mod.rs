//! The rules of the Ocypod dialect: the status of a job as its clients see it, and counters since
//! the store was created.

pub mod status;
pub mod totals;
