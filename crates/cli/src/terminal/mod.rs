//! What people see: text without control characters, tables, JSON, failures with hints.

pub(crate) mod confirm;
pub(crate) mod failure;
pub(crate) mod progress;
pub(crate) mod safe;
pub(crate) mod screen;
pub(crate) mod table;
