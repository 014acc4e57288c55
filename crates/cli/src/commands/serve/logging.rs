//! Filter and format of the log on standard error.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;

use crate::commands::parse;
use crate::terminal::error::CliError;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum LogFormat {
    /// Text if standard error is a terminal, else JSON.
    #[default]
    Auto,
    Text,
    Json,
}

impl LogFormat {
    pub(super) fn parse(text: &str) -> Result<Self, CliError> {
        match text {
            "auto" => Ok(Self::Auto),
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err(CliError::refused(format!("invalid log format \"{text}\"")).hint("use auto, text or json")),
        }
    }

    fn is_json(self, is_terminal: bool) -> bool {
        match self {
            Self::Auto => !is_terminal,
            Self::Text => false,
            Self::Json => true,
        }
    }
}

/// Starts to log to standard error. JSON has one object per line, with the fields at its top level.
pub(super) fn start(filter: &str, format: LogFormat) -> Result<(), CliError> {
    let builder = tracing_subscriber::fmt().with_env_filter(parse_filter(filter)?).with_writer(io::stderr);
    if format.is_json(io::stderr().is_terminal()) {
        builder.json().flatten_event(true).with_current_span(false).init();
    } else {
        builder.init();
    }
    Ok(())
}

/// Refuses a single word that is no level: as a filter it would select an unknown module, and
/// silence all others.
fn parse_filter(text: &str) -> Result<EnvFilter, CliError> {
    const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];
    let is_valid = |part: &str| LEVELS.contains(&part.to_lowercase().as_str()) || part.contains(['=', '[', ':']);
    if let Some(part) = text.split(',').find(|part| !is_valid(part)) {
        let hint = parse::nearest(part, LEVELS.into_iter())
            .map_or_else(|| format!("use one of {}", LEVELS.join(", ")), |level| format!("did you mean \"{level}\"?"));
        return Err(CliError::refused(format!("invalid log level \"{part}\"")).hint(hint));
    }
    EnvFilter::try_new(text)
        .map_err(|error| CliError::refused(format!("invalid log filter: {error}")).hint("use a level, such as info"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_have_levels_or_directives() {
        for text in ["info", "WARN", "off", "longshore_server=debug,info", "warn,longshore_cli::commands=trace"] {
            assert!(parse_filter(text).is_ok(), "{text}");
        }
        let failure = parse_filter("inof").unwrap_err();
        assert_eq!(failure.hint.as_deref(), Some("did you mean \"info\"?"));
        assert!(parse_filter("loud").unwrap_err().message.contains("\"loud\""));
        assert!(parse_filter("").is_err());
    }

    #[test]
    fn auto_is_json_unless_standard_error_is_a_terminal() {
        let auto = LogFormat::parse("auto").unwrap();
        assert!(auto.is_json(false) && !auto.is_json(true));
        assert!(LogFormat::parse("json").unwrap().is_json(true));
        assert!(!LogFormat::parse("text").unwrap().is_json(false));
        assert!(LogFormat::parse("xml").is_err());
    }
}
