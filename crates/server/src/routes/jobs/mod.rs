//! Jobs: handed in, looked at, and what people do to them.

pub(crate) mod get;
pub(crate) mod submit;
