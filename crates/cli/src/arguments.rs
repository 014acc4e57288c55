//! What can be typed, and which file does it.

use clap::{Parser, Subcommand};

use crate::commands::{
    backup, bench, clock, completions, dead_letters, doctor, health, jobs, migrate, migrate_store, queues, restore,
    serve, submit, top, work, workers, workflows,
};
use crate::context::Context;
use crate::terminal::error::CliError;

/// Where the server listens unless told otherwise, and where everybody else looks for it.
pub(crate) const DEFAULT_ADDRESS: &str = "127.0.0.1:7070";

/// A durable job queue: the server, and everything one does with it.
#[derive(Debug, Parser)]
#[command(
    name = "longshore",
    version,
    after_help = "\
Examples:
  longshore serve                                      start a server, data in ./longshore-data
  longshore submit -t email.send -p '{\"to\":\"ann\"}'     hand in a job
  longshore work --exec ./send.sh                      run a program for each job
  longshore jobs list --state dead_letter              look at what went wrong
  longshore top                                        watch it live

Exit codes: 0 done, 1 refused, 2 failed."
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
    // `Context` reads the variable and the default: clap would show the flag as required in the usage line of errors.
    /// Address of the server [env: LONGSHORE_SERVER] [default: http://127.0.0.1:7070]
    #[arg(long, global = true, value_name = "URL", help_heading = "Everywhere")]
    pub(crate) server: Option<String>,
    /// JSON on standard output, errors as JSON on standard error
    #[arg(long, global = true, help_heading = "Everywhere")]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Serve(Box<serve::Serve>),
    Submit(Box<submit::Submit>),
    /// Look at jobs, and operate on them
    #[command(subcommand)]
    Jobs(jobs::Jobs),
    /// Look at queues, create and change them
    #[command(subcommand)]
    Queues(queues::Queues),
    /// Jobs that ended and want a person's look
    #[command(subcommand)]
    DeadLetters(dead_letters::DeadLetters),
    /// Jobs that belong together: hand them in, look at them, run again what failed
    #[command(subcommand)]
    Workflows(workflows::Workflows),
    Work(Box<work::Work>),
    /// Look at workers
    #[command(subcommand)]
    Workers(workers::Workers),
    Top(top::Top),
    Health(health::Health),
    /// The time of a server: read it, or advance it where it is virtual
    #[command(subcommand)]
    Clock(clock::Clock),
    Bench(Box<bench::Bench>),
    Backup(backup::Backup),
    Restore(restore::Restore),
    Doctor(doctor::Doctor),
    Migrate(migrate::Migrate),
    MigrateStore(migrate_store::MigrateStore),
    Completions(completions::Completions),
}

impl Command {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        match self {
            Self::Serve(serve) => serve.run(context),
            Self::Submit(submit) => submit.run(context),
            Self::Jobs(jobs) => jobs.run(context),
            Self::Queues(queues) => queues.run(context),
            Self::DeadLetters(dead_letters) => dead_letters.run(context),
            Self::Workflows(workflows) => workflows.run(context),
            Self::Work(work) => work.run(context),
            Self::Workers(workers) => workers.run(context),
            Self::Top(top) => top.run(context),
            Self::Health(health) => health.run(context),
            Self::Clock(clock) => clock.run(context),
            Self::Bench(bench) => bench.run(context),
            Self::Backup(backup) => backup.run(context),
            Self::Restore(restore) => restore.run(context),
            Self::Doctor(doctor) => doctor.run(context),
            Self::Migrate(migrate) => migrate.run(context),
            Self::MigrateStore(moving) => moving.run(context),
            Self::Completions(completions) => completions.run(context),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_are_sound() {
        use clap::CommandFactory;
        Arguments::command().debug_assert();
    }
}
