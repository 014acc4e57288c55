//! The command line of Longshore.
//!
//! One file a command, named as it is typed:
//! - `arguments.rs`: what can be typed, and which file does it
//! - `commands/serve/`: the server on a store; its flags, environment and file
//! - `commands/submit.rs`, `commands/jobs/`, `commands/queues/`, `commands/dead_letters/`: jobs and queues of a server
//! - `commands/work/`: a worker that runs a program for each job
//! - `commands/workers.rs`, `commands/health.rs`, `commands/clock.rs`: workers, health and time of a server
//! - `commands/bench/`, `commands/top/`: load for a server, and a look at it
//! - `commands/backup.rs`, `restore.rs`, `doctor.rs`: directories of data
//! - `commands/completions.rs`: for shells
//! - `signals.rs`: SIGTERM and SIGINT
//! - `terminal/`: what people see: safe text, tables, JSON, failures with hints and exit codes
//!
//! Data goes to standard output, everything else to standard error. Exit codes: 0 done, 1 refused, 2 failed.

mod arguments;
mod commands;
mod context;
mod signals;
mod terminal;

use std::process::ExitCode;

use clap::Parser;

use crate::arguments::Arguments;
use crate::context::Context;

/// Jobs come and go by the thousand.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let Arguments { command, server, json } = Arguments::parse();
    let context = Context::new(server, json);
    match command.run(&context) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.print(json),
    }
}
