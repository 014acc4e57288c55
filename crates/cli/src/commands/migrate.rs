//! `longshore migrate`

use clap::{Args, Subcommand};
use longshore_store::StoreError;
use longshore_store_postgres::{PostgresOptions, migrate};

use super::parse::counted;
use crate::context::Context;
use crate::terminal::error::CliError;

/// Inspect and migrate the schema on PostgreSQL.
#[derive(Debug, Args)]
#[command(after_help = "\
A server migrates its schema at its start if its role is allowed to. If it is not, run this command
with the role that owns the schema.

Examples:
  longshore migrate status --store postgres://owner@db.example/jobs
  longshore migrate up --store postgres://owner@db.example/jobs
  longshore migrate sql > schema.sql
  longshore migrate grants longshore_app | psql …")]
pub(crate) struct Migrate {
    #[command(subcommand)]
    command: MigrateCommand,
    /// URL of the database
    #[arg(long, global = true, value_name = "URL", env = "LONGSHORE_STORE", hide_env_values = true)]
    store: Option<String>,
}

#[derive(Debug, Subcommand)]
enum MigrateCommand {
    /// List the migrations and whether they are applied; exit code 1 if some are missing
    Status,
    /// Apply the missing migrations
    Up,
    /// Print the statements of all migrations
    Sql,
    /// Print the grants for a role that runs servers and does not own the schema
    Grants {
        #[arg(value_name = "ROLE")]
        role: String,
    },
}

#[derive(serde::Serialize)]
struct MigrationJson<'a> {
    number: i32,
    name: &'a str,
    applied: bool,
}

impl Migrate {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let options =
            self.store.as_deref().map(PostgresOptions::from_url).transpose().map_err(|error| failed(&error))?;
        let schema = options.as_ref().map_or("longshore", |options| options.schema.as_str());
        let text = match &self.command {
            MigrateCommand::Sql => Some(migrate::sql(schema)),
            MigrateCommand::Grants { role } => Some(migrate::grants(schema, role)),
            MigrateCommand::Status | MigrateCommand::Up => None,
        };
        if let Some(text) = text {
            return context.output.line(text.map_err(|error| failed(&error))?.trim_end());
        }
        let options = options
            .ok_or_else(|| CliError::refused("--store is missing").hint("postgres://USER@HOST/DATABASE?schema=NAME"))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (url, schema) = (options.url.as_str(), options.schema.as_str());
        let steps = runtime.block_on(async {
            match self.command {
                MigrateCommand::Up => migrate::up(url, schema).await,
                MigrateCommand::Status | MigrateCommand::Sql | MigrateCommand::Grants { .. } => {
                    migrate::status(url, schema).await
                }
            }
        });
        let steps = steps.map_err(|error| failed(&error))?;
        show(context, &steps)?;
        match steps.iter().filter(|step| !step.applied).count() {
            0 => Ok(()),
            missing => Err(CliError::refused(format!("schema \"{schema}\" lacks {}", counted(missing, "migration")))
                .hint("`longshore migrate up --store URL` applies them, with the role that owns the schema")),
        }
    }
}

fn show(context: &Context, steps: &[migrate::MigrationStatus]) -> Result<(), CliError> {
    if context.output.json {
        let shown = |step: &migrate::MigrationStatus| MigrationJson {
            number: step.number,
            name: step.name,
            applied: step.applied,
        };
        return context.output.json(&steps.iter().map(shown).collect::<Vec<_>>());
    }
    if steps.is_empty() {
        context.output.info("the schema is up to date");
    }
    for step in steps {
        let status = if step.applied { "applied" } else { "missing" };
        context.output.line(&format!("{:04} {}  {status}", step.number, step.name))?;
    }
    Ok(())
}

fn failed(error: &StoreError) -> CliError {
    CliError::failed(error.to_string())
}
