//! Jobs: submit, read, list, wait for, explain, and administer.

pub(crate) mod admin;
pub(crate) mod bulk;
pub(crate) mod get;
pub(crate) mod list;
pub(crate) mod record;
pub(crate) mod submit;
pub(crate) mod wait;
pub(crate) mod why;
