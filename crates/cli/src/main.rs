//! The command line of Longshore: the binary `longshore`.
//!
//! - `arguments.rs`: all arguments, and the dispatch to the commands
//! - `usage.rs`: usage lines of invalid command lines
//! - `context.rs`: what every command gets: output, address of the server
//! - `signals.rs`: SIGTERM and SIGINT
//! - `terminal/`: output: escaped text, tables, JSON, questions, errors with hints and exit codes
//! - `commands/serve/`: the server on a store; flags, environment, configuration file
//! - `commands/submit/`, `jobs/`, `queues/`, `dead_letters/`, `workflows/`: clients of a server
//! - `commands/work/`: a worker that runs a program for each job
//! - `commands/events.rs`: the event stream
//! - `commands/workers.rs`, `health.rs`, `clock.rs`, `top/`: state of a server
//! - `commands/tokens.rs`, `audit.rs`, `contexts.rs`: access to servers
//! - `commands/bench/`: load generator
//! - `commands/backup.rs`, `restore.rs`, `doctor.rs`: data directories
//! - `commands/migrate.rs`, `migrate_store.rs`: the schema on PostgreSQL, moving a store there
//! - `commands/completions.rs`: completion scripts of shells
//! - `commands/man.rs`: manual pages
//!
//! Data goes to standard output, everything else to standard error.
//! Exit codes: 0 done, 1 refused, 2 failed.

mod arguments;
mod commands;
#[cfg(test)]
mod configuration_docs;
mod context;
mod signals;
mod terminal;
mod usage;

use std::process::ExitCode;

use crate::arguments::Arguments;
use crate::context::{Context, ContextFlags, TlsFiles};

/// The server allocates and frees many small records.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let Arguments { command, server, token_file, ca_file, client_cert, client_key, context, json } =
        usage::parse().unwrap_or_else(|error| error.exit());
    let files = TlsFiles { ca_file, client_cert, client_key };
    let context = Context::new(ContextFlags { server, token_file, files, name: context }, json);
    match context.and_then(|context| command.run(&context)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.print(json),
    }
}
