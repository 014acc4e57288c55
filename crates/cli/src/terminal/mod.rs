//! What people see: text without control characters, tables, JSON, failures with hints.

pub(crate) mod confirm;
pub(crate) mod error;
pub(crate) mod escape;
pub(crate) mod output;
pub(crate) mod progress;
pub(crate) mod table;
