//! The command line of Longshore.
//!
//! - `serve.rs`: `longshore serve`, the server on a store
//! - `virtual_time.rs`: where the clock of `--virtual-clock` stands, also after a restart

mod serve;
mod virtual_time;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(name = "longshore", version, about = "A durable job queue")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs the server
    Serve(serve::Serve),
}

fn main() -> ExitCode {
    let Arguments { command } = Arguments::parse();
    let done = match command {
        Command::Serve(serve) => serve.run(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("longshore: {error}");
            ExitCode::FAILURE
        }
    }
}
