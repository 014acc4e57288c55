//! One file or folder per command.
//!
//! - `age.rs`: ages in at most six characters
//! - `bulk.rs`: changes of many jobs, by id or by filter
//! - `parse.rs`: values of flags, counts with nouns, suggestions for typos

pub(crate) mod attention;
pub(crate) mod audit;
pub(crate) mod backup;
pub(crate) mod bench;
pub(crate) mod clock;
pub(crate) mod completions;
pub(crate) mod contexts;
pub(crate) mod dead_letters;
pub(crate) mod doctor;
pub(crate) mod events;
pub(crate) mod health;
pub(crate) mod jobs;
pub(crate) mod man;
pub(crate) mod migrate;
pub(crate) mod migrate_store;
pub(crate) mod operations;
pub(crate) mod queues;
pub(crate) mod restore;
pub(crate) mod schedules;
pub(crate) mod serve;
pub(crate) mod submit;
pub(crate) mod tokens;
pub(crate) mod top;
pub(crate) mod types;
pub(crate) mod webhooks;
pub(crate) mod work;
pub(crate) mod workers;
pub(crate) mod workflows;

mod age;
mod bulk;
mod parse;
