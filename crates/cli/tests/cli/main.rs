//! Tests of the binary: exit codes, standard output and standard error, against a server process.

#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test says no by panicking")]

mod backup;
mod bench;
mod canary;
mod clock;
mod dead_letters;
mod documented_commands;
mod events;
mod health;
mod jobs;
mod manual;
mod no_calls_home;
mod operations;
mod outages;
mod output;
mod postgres;
mod queues;
mod schedules;
mod sdk;
mod serve;
mod service_manager;
mod submit;
mod support;
mod tls;
mod top;
mod webhook_soak;
mod work;
mod workers;
mod workflows;
