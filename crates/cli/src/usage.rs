//! Usage lines of invalid command lines.
//!
//! clap's own line repeats the flags that were given as if they were required, also `--server`.

use std::ffi::{OsStr, OsString};

use clap::error::{ContextKind, ContextValue};
use clap::{Command, CommandFactory, Error, FromArgMatches};

use crate::arguments::Arguments;

/// Parses the arguments of the process.
pub(crate) fn parse() -> Result<Arguments, Error> {
    parse_from(&std::env::args_os().collect::<Vec<_>>())
}

fn parse_from(words: &[OsString]) -> Result<Arguments, Error> {
    let matches = Arguments::command().try_get_matches_from(words).map_err(|error| with_full_usage(error, words))?;
    Arguments::from_arg_matches(&matches)
}

/// Replaces the usage line by the one of `--help`.
fn with_full_usage(mut error: Error, words: &[OsString]) -> Error {
    if error.get(ContextKind::Usage).is_some() {
        let mut root = Arguments::command();
        root.build();
        let usage = subcommand(&root, words).clone().render_usage();
        error.insert(ContextKind::Usage, ContextValue::StyledStr(usage));
    }
    error
}

/// Returns the innermost subcommand that the words name.
fn subcommand<'a>(root: &'a Command, words: &[OsString]) -> &'a Command {
    let mut command = root;
    let mut is_server = false;
    for word in words.iter().skip(1) {
        if !std::mem::replace(&mut is_server, word == OsStr::new("--server")) {
            command = command.find_subcommand(word).unwrap_or(command);
        }
    }
    command
}
