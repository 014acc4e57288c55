//! Between bytes and wire types: bodies, JSON, query strings, paths; responses and problems.

pub(crate) mod body;
pub(crate) mod json;
pub(crate) mod json_writer;
pub(crate) mod nearest;
pub(crate) mod path;
pub(crate) mod problem;
pub(crate) mod query;
pub(crate) mod request_id;
pub(crate) mod response;
