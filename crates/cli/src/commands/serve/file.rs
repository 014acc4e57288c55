//! The configuration file: TOML, the same options as flags, and queues.

use std::collections::BTreeMap;
use std::path::Path;

use longshore_api::queue::PutQueue;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::options::Layer;
use crate::commands::parse;
use crate::terminal::error::CliError;

pub(super) fn read(path: &Path) -> Result<(Layer, BTreeMap<String, PutQueue>), CliError> {
    let shown = path.display();
    let text = std::fs::read_to_string(path)
        .map_err(|error| CliError::failed(format!("cannot read {shown}: {error}")).hint("--config names the file"))?;
    understand(&text).map_err(|failure| failure.context(shown))
}

fn understand(text: &str) -> Result<(Layer, BTreeMap<String, PutQueue>), CliError> {
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        CliError::refused(error.to_string().trim_end().to_owned()).hint("this is not TOML")
    })?;
    // As JSON it is read by the same types as requests are.
    let value = serde_json::to_value(table).map_err(|error| CliError::refused(error.to_string()))?;
    let Value::Object(mut options) = value else { return Err(CliError::refused("a table is expected")) };
    let queues = match options.remove("queues") {
        None => Map::new(),
        Some(Value::Object(queues)) => queues,
        Some(_) => return Err(CliError::refused("queues: a table is expected").hint("write [queues.NAME]")),
    };
    let layer = typed("", Value::Object(options))?;
    let queues = queues.into_iter().map(|(name, queue)| {
        let queue = typed(&format!("queues.{name}"), queue)?;
        Ok((name, queue))
    });
    Ok((layer, queues.collect::<Result<_, CliError>>()?))
}

fn typed<T: DeserializeOwned>(place: &str, value: Value) -> Result<T, CliError> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().to_string();
        let complaint = error.into_inner().to_string();
        let dot = if place.is_empty() || path == "." { "" } else { "." };
        let path = if path == "." { String::new() } else { path };
        let colon = if place.is_empty() && path.is_empty() { "" } else { ": " };
        let failure = CliError::refused(format!("{place}{dot}{path}{colon}{complaint}"));
        let known_above = || {
            let (_, rest) = complaint.split_once("unknown field `")?;
            let (word, _) = rest.split_once('`')?;
            parse::nearest(word, ["queues"].into_iter())
        };
        match parse::guess(&complaint) {
            Some(guess) => failure.hint(guess),
            None if place.is_empty() && known_above().is_some() => failure.hint("did you mean \"queues\"?"),
            None => failure,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_declared_as_the_wire_has_them() {
        let text = r#"
            listen = "127.0.0.1:0"
            [queues.reports]
            profile = "gopherqueue"
            settings = { lease = 60, retry = { limit = 5, backoff = { base = "10s", multiplier = 1.5 } } }
            [queues."a.b:c"]
        "#;
        let (_, queues) = understand(text).unwrap();
        let reports = serde_json::to_string(&queues["reports"]).unwrap();
        assert_eq!(
            reports,
            r#"{"profile":"gopherqueue","settings":{"retry":{"limit":5,"backoff":{"base":"10s","multiplier":1.5}},"lease":"1m"}}"#
        );
        assert_eq!(queues["a.b:c"], PutQueue::default());
    }

    #[test]
    fn unknown_keys_are_refused_with_a_guess() {
        let told = |text: &str| {
            let failure = understand(text).unwrap_err();
            (failure.message, failure.hint.unwrap_or_default())
        };
        let (message, hint) = told("lisen = \"x\"");
        assert!(message.contains("unknown field `lisen`") && hint == "did you mean \"listen\"?", "{message} {hint}");
        let (message, hint) = told("[queues.a]\nsettings = { leese = \"1m\" }");
        assert!(message.starts_with("queues.a.settings") && hint == "did you mean \"lease\"?", "{message} {hint}");
        let (message, hint) = told("[queue.a]");
        assert!(message.contains("unknown field `queue`") && hint == "did you mean \"queues\"?", "{message} {hint}");
        let (message, _) = told("[queues.a]\nsettings = { lease = -1 }");
        assert!(message.starts_with("queues.a.settings.lease: "), "{message}");
        assert!(told("listen = ").0.contains("line 1"));
        assert!(told("queues = 3").0.contains("table"));
    }
}
