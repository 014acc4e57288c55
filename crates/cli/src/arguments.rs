//! The arguments of `longshore`, and the dispatch to the commands.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::commands::{
    attention, audit, backup, bench, clock, completions, contexts, dead_letters, doctor, events, health, jobs, man,
    migrate, migrate_store, operations, queues, restore, schedules, serve, submit, tokens, top, types, webhooks, work,
    workers, workflows,
};
use crate::context::Context;
use crate::terminal::error::CliError;

/// Default address of the server, for `serve` and for clients.
pub(crate) const DEFAULT_ADDRESS: &str = "127.0.0.1:7070";

/// A durable job queue: the server and its tools.
#[derive(Debug, Parser)]
#[command(
    name = "longshore",
    version,
    after_help = "\
Examples:
  longshore serve                                      start a server, data in ./longshore-data
  longshore submit -t email.send -p '{\"to\":\"ann\"}'     submit a job
  longshore work --exec ./send.sh                      run a program for each job
  longshore jobs list --state dead_letter              list dead letters
  longshore top                                        show live figures

Exit codes: 0 done, 1 refused, 2 failed."
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: CliCommand,
    // `Context` reads the variable and the default: clap would list the flag in usage lines.
    /// Address of the server [env: LONGSHORE_SERVER] [default: http://127.0.0.1:7070]
    #[arg(long, global = true, value_name = "URL", help_heading = "Global options")]
    pub(crate) server: Option<String>,
    /// File with the token to send; the variable LONGSHORE_TOKEN has the token itself
    #[arg(long, global = true, value_name = "FILE", help_heading = "Global options")]
    pub(crate) token_file: Option<PathBuf>,
    /// File with the authorities, in PEM form, that may sign the certificate of the server, instead
    /// of those of the system [env: LONGSHORE_CA_FILE]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Global options")]
    pub(crate) ca_file: Option<PathBuf>,
    /// File with the certificate of this client, for servers that ask for one
    /// [env: LONGSHORE_CLIENT_CERT]
    #[arg(long, global = true, value_name = "FILE", requires = "client_key", help_heading = "Global options")]
    pub(crate) client_cert: Option<PathBuf>,
    /// File with the key of --client-cert [env: LONGSHORE_CLIENT_KEY]
    #[arg(long, global = true, value_name = "FILE", requires = "client_cert", help_heading = "Global options")]
    pub(crate) client_key: Option<PathBuf>,
    /// Context to use instead of the current one, see `longshore context`
    #[arg(long, global = true, value_name = "NAME", help_heading = "Global options")]
    pub(crate) context: Option<String>,
    /// Print JSON to standard output and errors as JSON to standard error
    #[arg(long, global = true, help_heading = "Global options")]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    Serve(Box<serve::Serve>),
    Submit(Box<submit::SubmitJobs>),
    /// Inspect and change jobs
    #[command(subcommand)]
    Jobs(jobs::JobsCommand),
    /// Inspect, create and change queues
    #[command(subcommand)]
    Queues(queues::QueuesCommand),
    /// Inspect, create and change schedules
    #[command(subcommand)]
    Schedules(schedules::SchedulesCommand),
    /// List, requeue and delete dead letters
    #[command(subcommand)]
    DeadLetters(dead_letters::DeadLettersCommand),
    /// Change all jobs that match a filter, in the background of the server
    #[command(subcommand)]
    Operations(operations::OperationsCommand),
    /// Submit, inspect, cancel and retry workflows
    #[command(subcommand)]
    Workflows(workflows::WorkflowsCommand),
    Work(Box<work::WorkOptions>),
    /// Manage webhook endpoints and their deliveries
    #[command(subcommand)]
    Webhooks(webhooks::WebhooksCommand),
    /// List workers
    #[command(subcommand)]
    Workers(workers::WorkersCommand),
    /// Create, list and revoke tokens, with or without a server
    #[command(subcommand)]
    Tokens(tokens::TokensCommand),
    Audit(audit::Audit),
    /// Name servers and their tokens
    #[command(subcommand)]
    Context(contexts::ContextCommand),
    Top(top::Top),
    Attention(attention::ListAttention),
    Types(types::ShowTypes),
    Events(events::WatchEvents),
    Health(health::CheckHealth),
    /// Print the time of a server, or advance a virtual clock
    #[command(subcommand)]
    Clock(clock::ClockCommand),
    Bench(Box<bench::Bench>),
    Backup(backup::Backup),
    Restore(restore::Restore),
    Doctor(doctor::Doctor),
    Migrate(migrate::Migrate),
    MigrateStore(migrate_store::MigrateStore),
    Completions(completions::Completions),
    Man(man::Man),
}

impl CliCommand {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        match self {
            Self::Serve(serve) => serve.run(context),
            Self::Submit(submit) => submit.run(context),
            Self::Jobs(jobs) => jobs.run(context),
            Self::Queues(queues) => queues.run(context),
            Self::Schedules(schedules) => schedules.run(context),
            Self::DeadLetters(dead_letters) => dead_letters.run(context),
            Self::Operations(operations) => operations.run(context),
            Self::Workflows(workflows) => workflows.run(context),
            Self::Work(work) => work.run(context),
            Self::Webhooks(webhooks) => webhooks.run(context),
            Self::Workers(workers) => workers.run(context),
            Self::Tokens(tokens) => tokens.run(context),
            Self::Audit(audit) => audit.run(context),
            Self::Context(contexts) => contexts.run(context),
            Self::Top(top) => top.run(context),
            Self::Attention(attention) => attention.run(context),
            Self::Types(types) => types.run(context),
            Self::Events(events) => events.run(context),
            Self::Health(health) => health.run(context),
            Self::Clock(clock) => clock.run(context),
            Self::Bench(bench) => bench.run(context),
            Self::Backup(backup) => backup.run(context),
            Self::Restore(restore) => restore.run(context),
            Self::Doctor(doctor) => doctor.run(context),
            Self::Migrate(migrate) => migrate.run(context),
            Self::MigrateStore(migrate_store) => migrate_store.run(context),
            Self::Completions(completions) => completions.run(context),
            Self::Man(man) => man.run(context),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clap_accepts_the_definitions() {
        use clap::CommandFactory;
        Arguments::command().debug_assert();
    }
}
