//! `longshore completions`

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::arguments::Arguments;
use crate::context::Context;
use crate::terminal::error::CliError;

/// Print the completion script of a shell.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  longshore completions bash > ~/.local/share/bash-completion/completions/longshore
  longshore completions zsh > ~/.zfunc/_longshore
  longshore completions fish > ~/.config/fish/completions/longshore.fish")]
pub(crate) struct Completions {
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Arguments::command(), "longshore", &mut script);
        context.output.bytes(&script)
    }
}
