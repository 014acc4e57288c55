//! `longshore migrate`

use clap::{Args, Subcommand};
use longshore_store::StoreError;
use longshore_store_postgres::{PostgresOptions, migrate};

use crate::context::Context;
use crate::terminal::error::CliError;

/// The schema on PostgreSQL.
#[derive(Debug, Args)]
#[command(after_help = "\
A server brings its schema up to date by itself where its role may; where it may not, whoever owns
the schema does it with this command.

Examples:
  longshore migrate status --store postgres://owner@db.example/jobs
  longshore migrate up --store postgres://owner@db.example/jobs
  longshore migrate sql > schema.sql
  longshore migrate grants longshore_app | psql …")]
pub(crate) struct Migrate {
    #[command(subcommand)]
    what: What,
    /// Where the schema is
    #[arg(long, global = true, value_name = "URL", env = "LONGSHORE_STORE", hide_env_values = true)]
    store: Option<String>,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Which migrations the database has; exit code 1 if some are missing
    Status,
    /// Bring the database up to date
    Up,
    /// Print all statements
    Sql,
    /// Print what a role needs that runs servers and owns nothing
    Grants {
        #[arg(value_name = "ROLE")]
        role: String,
    },
}

#[derive(serde::Serialize)]
struct Shown<'a> {
    number: i32,
    name: &'a str,
    applied: bool,
}

impl Migrate {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let options =
            self.store.as_deref().map(PostgresOptions::from_url).transpose().map_err(|error| failed(&error))?;
        let schema = options.as_ref().map_or("longshore", |options| options.schema.as_str());
        let text = match &self.what {
            What::Sql => Some(migrate::sql(schema)),
            What::Grants { role } => Some(migrate::grants(schema, role)),
            What::Status | What::Up => None,
        };
        if let Some(text) = text {
            return context.screen.line(text.map_err(|error| failed(&error))?.trim_end());
        }
        let options = options
            .ok_or_else(|| CliError::refused("--store is missing").hint("postgres://USER@HOST/DATABASE?schema=NAME"))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (url, schema) = (options.url.as_str(), options.schema.as_str());
        let steps = runtime.block_on(async {
            match self.what {
                What::Up => migrate::up(url, schema).await,
                What::Status | What::Sql | What::Grants { .. } => migrate::status(url, schema).await,
            }
        });
        let steps = steps.map_err(|error| failed(&error))?;
        show(context, &steps)?;
        match steps.iter().filter(|step| !step.applied).count() {
            0 => Ok(()),
            missing => Err(CliError::refused(format!("the schema \"{schema}\" lacks {missing} migrations"))
                .hint("`longshore migrate up --store URL` applies them; the URL's role must own the schema")),
        }
    }
}

fn show(context: &Context, steps: &[migrate::MigrationStatus]) -> Result<(), CliError> {
    if context.screen.json {
        let shown =
            |step: &migrate::MigrationStatus| Shown { number: step.number, name: step.name, applied: step.applied };
        return context.screen.json(&steps.iter().map(shown).collect::<Vec<_>>());
    }
    if steps.is_empty() {
        context.screen.info("nothing to do: the schema is up to date");
    }
    for step in steps {
        let word = if step.applied { "applied" } else { "missing" };
        context.screen.line(&format!("{:04} {}  {word}", step.number, step.name))?;
    }
    Ok(())
}

fn failed(error: &StoreError) -> CliError {
    CliError::failed(error.to_string())
}
