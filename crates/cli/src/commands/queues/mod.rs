//! `longshore queues`

mod delete;
mod get;
mod list;
mod pause;
mod set;

use clap::Subcommand;

use crate::context::Context;
use crate::terminal::error::CliError;

#[derive(Debug, Subcommand)]
pub(crate) enum Queues {
    /// List queues with what is in them
    List,
    Get(get::Get),
    Set(set::Set),
    /// Let nobody claim from a queue; submissions go on
    Pause(pause::Name),
    /// Let claims go on
    Resume(pause::Name),
    Delete(delete::Delete),
}

impl Queues {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        match self {
            Self::List => list::run(context),
            Self::Get(get) => get.run(context),
            Self::Set(set) => set.run(context),
            Self::Pause(name) => name.pause(context),
            Self::Resume(name) => name.resume(context),
            Self::Delete(delete) => delete.run(context),
        }
    }
}
