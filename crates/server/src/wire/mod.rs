//! Between bytes and wire types: bodies, JSON, query strings, paths, and the way back as answers and problems.

pub(crate) mod answer;
pub(crate) mod body;
pub(crate) mod json;
pub(crate) mod nearest;
pub(crate) mod path;
pub(crate) mod problem;
pub(crate) mod query;
pub(crate) mod request_id;
