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
If settings are given, they replace all settings of the queue; the profile's defaults apply to the
rest. Without settings the queue keeps its own. Existing jobs keep their policy.

Examples:
  longshore queues set reports
  longshore queues set reports --profile gopherqueue
  longshore queues set reports --set lease=1m --set retry.limit=5
  longshore queues set reports --settings '{\"retry\":{\"backoff\":{\"kind\":\"constant\"}}}'

`longshore queues get default` lists all settings.")]
pub(crate) struct SetQueue {
    /// The queue's name
    name: String,
    /// standard, gopherqueue, taskharbor, ocypod, weave or document
    #[arg(long, value_parser = parse::profile)]
    profile: Option<Profile>,
    /// One setting, such as lease=1m or retry.limit=5; may be repeated
    #[arg(long = "set", value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// Settings as a JSON object; '{}' removes all
    #[arg(long, value_name = "JSON")]
    settings: Option<String>,
    /// Check the settings and print the request, and send nothing
    #[arg(long)]
    dry_run: bool,
}

impl SetQueue {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let put = PutQueue { profile: self.profile, settings: settings(self.settings.as_deref(), &self.set)? };
        if self.dry_run {
            context.output.info(&format!("queue \"{}\" would be set; nothing was changed", self.name));
            return context.output.json(&put);
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
            CliError::refused(format!("--set {part}: the value is missing")).hint("write NAME=VALUE, as in lease=1m")
        })?;
        // A value that is not JSON is a string.
        let value = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
        insert(&mut members, path, value)?;
    }
    let settings = serde_json::from_value(Value::Object(members)).map_err(|error| {
        let message = error.to_string();
        let failure = CliError::refused(format!("settings: {message}"));
        match parse::suggest(&message) {
            Some(suggestion) => failure.hint(suggestion),
            None => failure,
        }
    });
    settings.map(Some)
}

/// Inserts the value at a dotted path.
fn insert(members: &mut Map<String, Value>, path: &str, value: Value) -> Result<(), CliError> {
    match path.split_once('.') {
        None => {
            members.insert(path.to_owned(), value);
            Ok(())
        }
        Some((first, rest)) => {
            let inner = members.entry(first).or_insert_with(|| Value::Object(Map::new()));
            match inner.as_object_mut() {
                Some(inner) => insert(inner, rest, value),
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
    fn settings_are_merged() {
        let merged = set(&["lease=1m", "retry.limit=5", "retry.backoff.base=10s", "max_queued=null"]);
        let json = serde_json::to_string(&merged.unwrap().unwrap()).unwrap();
        assert_eq!(json, r#"{"retry":{"limit":5,"backoff":{"base":"10s"}},"lease":"1m","max_queued":null}"#);
        assert!(set(&[]).unwrap().is_none());
    }

    #[test]
    fn a_typo_is_refused_with_a_suggestion() {
        let failure = set(&["leese=1m"]).unwrap_err();
        assert_eq!(failure.hint.as_deref(), Some("did you mean \"lease\"?"));
        assert!(set(&["lease"]).is_err());
        assert!(set(&["retry=1", "retry.limit=5"]).is_err());
    }
}
