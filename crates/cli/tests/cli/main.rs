//! The built binary as people and scripts use it: exit codes, standard output, standard error, against a server that is a process of its own.

#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test says no by panicking")]

mod backup;
mod bench;
mod clock;
mod dead_letters;
mod documented_commands;
mod health;
mod jobs;
mod outages;
mod output;
mod postgres;
mod queues;
mod serve;
mod submit;
mod support;
mod top;
mod work;
mod workers;
mod workflows;
