//! `longshore queues set`

use clap::Args;
use longshore_api::enums::Profile;
use longshore_api::queue::PutQueue;
use longshore_api::settings::Settings;
use serde_json::{Map, Value};

use super::get;
use crate::commands::parse;
use crate::context::Context;
use crate::terminal::error::CliError;

/// Create a queue, or change its profile and settings.
#[derive(Debug, Args)]
#[command(after_help = "\
Settings replace all that were set on this queue before; those of the profile hold for the rest.
Without any, earlier ones stay. Jobs that exist keep what they were created with.

Examples:
  longshore queues set reports
  longshore queues set reports --profile gopherqueue
  longshore queues set reports --set lease=1m --set retry.limit=5
  longshore queues set reports --settings '{\"retry\":{\"backoff\":{\"kind\":\"constant\"}}}'

`longshore queues get default` lists all settings.")]
pub(crate) struct Set {
    /// The queue's name
    name: String,
    /// standard, gopherqueue, taskharbor, ocypod, weave or document
    #[arg(long, value_parser = parse::profile)]
    profile: Option<Profile>,
    /// One setting: NAME=VALUE, with dots as in retry.limit=5; may be repeated
    #[arg(long = "set", value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// Settings as a JSON object; '{}' takes all earlier ones away
    #[arg(long, value_name = "JSON")]
    settings: Option<String>,
    /// Only check and show what would be sent
    #[arg(long)]
    dry_run: bool,
}

impl Set {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let put = PutQueue { profile: self.profile, settings: settings(self.settings.as_deref(), &self.set)? };
        if self.dry_run {
            context.screen.info(&format!("queue \"{}\" would be put; nothing was changed", self.name));
            return context.screen.json(&put);
        }
        let client = context.client()?;
        let queue = context.call(async { Ok(client.put_queue(&self.name, &put).await?) })?;
        get::show(context, &queue)
    }
}

fn settings(whole: Option<&str>, parts: &[String]) -> Result<Option<Settings>, CliError> {
    if whole.is_none() && parts.is_empty() {
        return Ok(None);
    }
    let mut members = match whole {
        Some(text) => serde_json::from_str::<Map<String, Value>>(text)
            .map_err(|error| CliError::refused(format!("--settings is not a JSON object: {error}")))?,
        None => Map::new(),
    };
    for part in parts {
        let (path, value) = part.split_once('=').ok_or_else(|| {
            CliError::refused(format!("--set {part}: a value is missing")).hint("write NAME=VALUE, as in lease=1m")
        })?;
        // What is no number, word of JSON or object is text.
        let value = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
        place(&mut members, path, value)?;
    }
    let settings = serde_json::from_value(Value::Object(members)).map_err(|error| {
        let complaint = error.to_string();
        let failure = CliError::refused(format!("settings: {complaint}"));
        match parse::guess(&complaint) {
            Some(guess) => failure.hint(guess),
            None => failure,
        }
    });
    settings.map(Some)
}

fn place(members: &mut Map<String, Value>, path: &str, value: Value) -> Result<(), CliError> {
    match path.split_once('.') {
        None => {
            members.insert(path.to_owned(), value);
            Ok(())
        }
        Some((first, rest)) => {
            let inner = members.entry(first).or_insert_with(|| Value::Object(Map::new()));
            match inner.as_object_mut() {
                Some(inner) => place(inner, rest, value),
                None => Err(CliError::refused(format!("\"{first}\" is given both as a value and in parts"))),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(parts: &[&str]) -> Result<Option<Settings>, CliError> {
        settings(None, &parts.iter().map(|part| (*part).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn parts_make_a_whole() {
        let made = set(&["lease=1m", "retry.limit=5", "retry.backoff.base=10s", "max_queued=null"]).unwrap().unwrap();
        let json = serde_json::to_string(&made).unwrap();
        assert_eq!(json, r#"{"retry":{"limit":5,"backoff":{"base":"10s"}},"lease":"1m","max_queued":null}"#);
        assert!(set(&[]).unwrap().is_none());
    }

    #[test]
    fn a_typo_is_refused_with_a_guess() {
        let failure = set(&["leese=1m"]).unwrap_err();
        assert_eq!(failure.hint.as_deref(), Some("did you mean \"lease\"?"));
        assert!(set(&["lease"]).is_err());
        assert!(set(&["retry=1", "retry.limit=5"]).is_err());
    }
}
