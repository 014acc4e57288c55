//! The arguments of a statement: positional words, `name=value` options, flags, and new jobs.

use super::values::{SETTINGS, boolean, duration, name_range, offset, payload_bytes, priority, tags};
use crate::target::{Dependency, NewJob, Settings};

/// The words of one statement, consumed one by one. Words that remain are an error.
#[derive(Debug)]
pub(super) struct Arguments {
    words: Vec<String>,
    options: Vec<(String, String)>,
}

impl Arguments {
    pub(super) fn new(words: &[String]) -> Self {
        let mut arguments = Arguments { words: Vec::new(), options: Vec::new() };
        for word in words {
            match word.split_once('=') {
                Some((name, value)) => arguments.options.push((name.to_owned(), value.to_owned())),
                None => arguments.words.push(word.clone()),
            }
        }
        arguments
    }

    /// Returns the next positional word.
    pub(super) fn next(&mut self, what: &str) -> Result<String, String> {
        if self.words.is_empty() { Err(format!("the {what} is missing")) } else { Ok(self.words.remove(0)) }
    }

    pub(super) fn next_if(&mut self, accept: impl Fn(&str) -> bool) -> Option<String> {
        if self.words.first().is_some_and(|word| accept(word)) { Some(self.words.remove(0)) } else { None }
    }

    pub(super) fn flag(&mut self, name: &str) -> bool {
        let at = self.words.iter().position(|word| word == name);
        at.map(|at| self.words.remove(at)).is_some()
    }

    pub(super) fn option(&mut self, name: &str) -> Option<String> {
        let at = self.options.iter().position(|(known, _)| known == name);
        at.map(|at| self.options.remove(at).1)
    }

    pub(super) fn parsed<T>(
        &mut self,
        name: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<T>, String> {
        self.option(name).map(|text| parse(&text)).transpose()
    }

    pub(super) fn list(&mut self, name: &str) -> Vec<String> {
        self.option(name).map(|text| text.split(',').map(str::to_owned).collect()).unwrap_or_default()
    }

    /// Returns all options that are settings paths.
    pub(super) fn settings(&mut self) -> Settings {
        let mut settings = Settings::new();
        self.options.retain(|(name, value)| {
            let known = SETTINGS.contains(&name.as_str());
            if known {
                settings.insert(name.clone(), value.clone());
            }
            !known
        });
        settings
    }

    pub(super) fn remaining_options(&mut self) -> Vec<(String, String)> {
        std::mem::take(&mut self.options)
    }

    pub(super) fn finish(self) -> Result<(), String> {
        match (self.words.first(), self.options.first()) {
            (Some(word), _) => Err(format!("`{word}` is not understood here")),
            (None, Some((name, _))) => Err(format!("there is no option `{name}=` here")),
            (None, None) => Ok(()),
        }
    }
}

/// Parses the options of a new job and leaves the rest. Start times are offsets from the start of
/// the scenario.
pub(super) fn new_job(
    arguments: &mut Arguments,
    reference: Option<String>,
    intern: &mut dyn FnMut(&str) -> usize,
) -> Result<NewJob, String> {
    let mut dependencies = |names: Vec<String>| {
        let mut found = Vec::new();
        for names in names.iter().map(|name| name_range(name)) {
            for name in names? {
                found.push(match (name.as_str(), name.strip_prefix('#')) {
                    ("unknown", _) => Dependency::Unknown,
                    (_, Some(reference)) => Dependency::Ref(reference.to_owned()),
                    _ => Dependency::Job(intern(&name)),
                });
            }
        }
        Ok::<_, String>(found)
    };
    let after = dependencies(arguments.list("after"))?;
    let after_any = dependencies(arguments.list("after_any"))?;
    let hold = match (arguments.flag("hold"), arguments.parsed("hold", boolean)?) {
        (true, _) => Some(true),
        (false, given) => given,
    };
    Ok(NewJob {
        job_type: arguments.option("type").unwrap_or_else(|| "work".to_owned()),
        payload_bytes: arguments.parsed("payload", payload_bytes)?.unwrap_or(0),
        priority: arguments.parsed("priority", priority)?,
        run_at: arguments.parsed("run_at", offset)?,
        delay: arguments.parsed("delay", duration)?,
        idempotency_key: arguments.option("key"),
        external_id: arguments.option("external"),
        tags: arguments.option("tags").map(|text| tags(&text)).unwrap_or_default(),
        correlation_id: arguments.option("correlation_id"),
        callback_url: arguments.option("callback_url"),
        traceparent: arguments.option("traceparent"),
        after,
        after_any,
        reference,
        hold,
        settings: arguments.settings(),
    })
}
