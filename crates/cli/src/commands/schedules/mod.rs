//! `longshore schedules`

mod next;
mod put;
mod show;

use clap::{Args, Subcommand};

use crate::context::Context;
use crate::terminal::error::CliError;

#[derive(Debug, Subcommand)]
pub(crate) enum SchedulesCommand {
    /// List schedules by name
    List,
    /// Print a schedule with its next due times
    Get(ScheduleArg),
    Put(Box<put::PutOptions>),
    Pause(PauseOptions),
    /// Resume a paused schedule
    Resume(ScheduleArg),
    /// Submit the job of a schedule now
    Trigger(ScheduleArg),
    /// Print the last 100 ticks, newest first
    Ticks(ScheduleArg),
    /// Delete a schedule; its jobs stay
    Delete(ScheduleArg),
    Next(next::NextTimes),
}

#[derive(Debug, Args)]
pub(crate) struct ScheduleArg {
    /// The schedule's name
    name: String,
}

/// Pause a schedule: its ticks are dropped
#[derive(Debug, Args)]
pub(crate) struct PauseOptions {
    /// The schedule's name
    name: String,
    /// Why, for people
    #[arg(long)]
    note: Option<String>,
}

impl SchedulesCommand {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        match self {
            Self::List => show::list(context),
            Self::Get(arg) => show::get(context, &arg.name),
            Self::Put(put) => put.run(context),
            Self::Pause(pause) => {
                let client = context.client()?;
                let note = pause.note.as_deref();
                let schedule = context.call(async { Ok(client.pause_schedule(&pause.name, note).await?) })?;
                done(context, &schedule, &format!("schedule \"{}\" is paused: its ticks are dropped", pause.name))
            }
            Self::Resume(ScheduleArg { name }) => {
                let client = context.client()?;
                let schedule = context.call(async { Ok(client.resume_schedule(&name).await?) })?;
                done(context, &schedule, &format!("schedule \"{name}\" is resumed"))
            }
            Self::Trigger(ScheduleArg { name }) => {
                let client = context.client()?;
                let submitted = context.call(async { Ok(client.trigger_schedule(&name).await?) })?;
                done(context, &submitted, &submitted.id)
            }
            Self::Ticks(arg) => show::ticks(context, &arg.name),
            Self::Delete(ScheduleArg { name }) => {
                let client = context.client()?;
                context.call(async { Ok(client.delete_schedule(&name).await?) })?;
                done(
                    context,
                    &DeletedSchedule { schedule: &name, deleted: true },
                    &format!("schedule \"{name}\" deleted"),
                )
            }
            Self::Next(next) => next.run(context),
        }
    }
}

#[derive(serde::Serialize)]
struct DeletedSchedule<'a> {
    schedule: &'a str,
    deleted: bool,
}

fn done(context: &Context, json: &impl serde::Serialize, line: &str) -> Result<(), CliError> {
    if context.output.json { context.output.json(json) } else { context.output.line(line) }
}
