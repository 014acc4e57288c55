//! `longshore man`

use std::path::PathBuf;

use clap::{Args, CommandFactory};

use crate::arguments::Arguments;
use crate::context::Context;
use crate::terminal::error::CliError;

/// Write the manual pages, one file per command.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  longshore man ~/.local/share/man/man1
  longshore man man1 && man ./man1/longshore-serve.1")]
pub(crate) struct Man {
    /// Directory for the pages; it is created
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

impl Man {
    pub(crate) fn run(self, _: &Context) -> Result<(), CliError> {
        std::fs::create_dir_all(&self.directory)
            .and_then(|()| clap_mangen::generate_to(Arguments::command(), &self.directory))
            .map_err(|error| CliError::failed(format!("cannot write to {}: {error}", self.directory.display())))
    }
}
