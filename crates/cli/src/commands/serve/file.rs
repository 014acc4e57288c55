//! The configuration file: TOML with the options of `serve`, and queues.

use std::collections::BTreeMap;
use std::path::Path;

use longshore_api::queue::PutQueue;
use longshore_api::schedule::PutSchedule;
use longshore_api::webhook::PutWebhook;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::options::Layer;
use crate::commands::parse;
use crate::terminal::error::CliError;

/// The contents of a configuration file.
#[derive(Debug, Default)]
pub(super) struct ConfigFile {
    pub(super) layer: Layer,
    pub(super) queues: BTreeMap<String, PutQueue>,
    pub(super) schedules: BTreeMap<String, PutSchedule>,
    pub(super) webhooks: BTreeMap<String, PutWebhook>,
}

pub(super) fn read(path: &Path) -> Result<ConfigFile, CliError> {
    let shown = path.display();
    let text = std::fs::read_to_string(path)
        .map_err(|error| CliError::failed(format!("cannot read {shown}: {error}")).hint("--config names the file"))?;
    parse_file(&text).map_err(|failure| failure.context(shown))
}

fn parse_file(text: &str) -> Result<ConfigFile, CliError> {
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        CliError::refused(error.to_string().trim_end().to_owned()).hint("this is not TOML")
    })?;
    // Queues have the form of the API, whose types are read from JSON.
    let value = serde_json::to_value(table).map_err(|error| CliError::refused(error.to_string()))?;
    let Value::Object(mut options) = value else { return Err(CliError::refused("expected a table")) };
    let queues = take_tables(&mut options, "queues")?;
    let webhooks = take_tables(&mut options, "webhooks")?;
    let schedules = take_table(&mut options, "schedules")?.into_iter();
    let schedules = schedules.map(|(name, schedule)| Ok((name.clone(), read_schedule(&name, &schedule)?)));
    let schedules = schedules.collect::<Result<_, CliError>>()?;
    Ok(ConfigFile { layer: deserialize_at("", Value::Object(options))?, queues, schedules, webhooks })
}

/// Takes the tables below a key, which have the form of the API.
fn take_tables<T: DeserializeOwned>(
    options: &mut Map<String, Value>,
    key: &str,
) -> Result<BTreeMap<String, T>, CliError> {
    let tables = take_table(options, key)?;
    let read = |(name, value): (String, Value)| Ok((name.clone(), deserialize_at(&format!("{key}.{name}"), value)?));
    tables.into_iter().map(read).collect()
}

fn take_table(options: &mut Map<String, Value>, key: &str) -> Result<Map<String, Value>, CliError> {
    match options.remove(key) {
        None => Ok(Map::new()),
        Some(Value::Object(table)) => Ok(table),
        Some(_) => Err(CliError::refused(format!("{key}: expected a table")).hint(format!("write [{key}.NAME]"))),
    }
}

/// Reads a schedule from text: its payload is kept as JSON.
fn read_schedule(name: &str, value: &Value) -> Result<PutSchedule, CliError> {
    let text = value.to_string();
    serde_path_to_error::deserialize(&mut serde_json::Deserializer::from_str(&text)).map_err(|error| {
        let path = error.path().to_string();
        let message = error.into_inner().to_string();
        let message = message.rsplit_once(" at line ").map_or(message.as_str(), |(message, _)| message);
        let path = if path == "." { String::new() } else { format!(".{path}") };
        CliError::refused(format!("schedules.{name}{path}: {message}"))
    })
}

/// Deserializes the value below `key`. Errors have the path of the wrong value.
fn deserialize_at<T: DeserializeOwned>(key: &str, value: Value) -> Result<T, CliError> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().to_string();
        let message = error.into_inner().to_string();
        let dot = if key.is_empty() || path == "." { "" } else { "." };
        let path = if path == "." { String::new() } else { path };
        let colon = if key.is_empty() && path.is_empty() { "" } else { ": " };
        let failure = CliError::refused(format!("{key}{dot}{path}{colon}{message}"));
        // serde does not know the tables, which were removed before.
        let table = || {
            let (_, rest) = message.split_once("unknown field `")?;
            let (field, _) = rest.split_once('`')?;
            parse::nearest(field, ["queues", "schedules", "webhooks"].into_iter())
        };
        match parse::suggest(&message) {
            Some(suggestion) => failure.hint(suggestion),
            None => match table().filter(|_| key.is_empty()) {
                Some(table) => failure.hint(format!("did you mean \"{table}\"?")),
                None => failure,
            },
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_have_the_form_of_the_api() {
        let text = r#"
            listen = "127.0.0.1:0"
            [queues.reports]
            profile = "gopherqueue"
            settings = { lease = 60, retry = { limit = 5, backoff = { base = "10s", multiplier = 1.5 } } }
            [queues."a.b:c"]
            [webhooks.billing]
            url = "https://example.com/hooks"
            events = ["job.failed"]
        "#;
        let ConfigFile { queues, webhooks, .. } = parse_file(text).unwrap();
        assert_eq!(webhooks["billing"].url, "https://example.com/hooks");
        let reports = serde_json::to_string(&queues["reports"]).unwrap();
        assert_eq!(
            reports,
            r#"{"profile":"gopherqueue","settings":{"retry":{"limit":5,"backoff":{"base":"10s","multiplier":1.5}},"lease":"1m"}}"#
        );
        assert_eq!(queues["a.b:c"], PutQueue::default());
    }

    #[test]
    fn schedules_have_the_form_of_the_api() {
        let text = "[schedules.nightly]\ncron = \"@daily\"\nqueue = \"q\"\njob = { type = \"t\", payload = { a = 1 } }";
        let ConfigFile { schedules, .. } = parse_file(text).unwrap();
        let nightly = serde_json::to_string(&schedules["nightly"]).unwrap();
        assert_eq!(nightly, r#"{"cron":"@daily","queue":"q","job":{"type":"t","payload":{"a":1}}}"#);
        let refusal = parse_file("[schedules.a]\nqueue = \"q\"\njob = {}").unwrap_err();
        assert!(refusal.message.starts_with("schedules.a.job: missing field `type`"), "{}", refusal.message);
    }

    #[test]
    fn unknown_keys_are_refused_with_a_suggestion() {
        let refusal = |text: &str| {
            let failure = parse_file(text).unwrap_err();
            (failure.message, failure.hint.unwrap_or_default())
        };
        let (message, hint) = refusal("lisen = \"x\"");
        assert!(message.contains("unknown field `lisen`") && hint == "did you mean \"listen\"?", "{message} {hint}");
        let (message, hint) = refusal("[queues.a]\nsettings = { leese = \"1m\" }");
        assert!(message.starts_with("queues.a.settings") && hint == "did you mean \"lease\"?", "{message} {hint}");
        let (message, hint) = refusal("[queue.a]");
        assert!(message.contains("unknown field `queue`") && hint == "did you mean \"queues\"?", "{message} {hint}");
        let (message, _) = refusal("[queues.a]\nsettings = { lease = -1 }");
        assert!(message.starts_with("queues.a.settings.lease: "), "{message}");
        assert!(refusal("listen = ").0.contains("line 1"));
        assert!(refusal("queues = 3").0.contains("table"));
    }
}
