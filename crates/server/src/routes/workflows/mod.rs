//! Workflows: create, add jobs, read, list, and administer.

pub(crate) mod admin;
pub(crate) mod create;
pub(crate) mod get;
mod parse;
