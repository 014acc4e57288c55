//! Output: escaped text, tables, JSON, progress bars, questions, errors with hints.

pub(crate) mod confirm;
pub(crate) mod error;
pub(crate) mod escape;
pub(crate) mod output;
pub(crate) mod progress;
pub(crate) mod table;
