//! Flags over environment over file over defaults: each says only what it says, and the first that speaks is heard.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

use clap::Args;
use longshore_api::Duration;
use longshore_api::queue::PutQueue;
use longshore_core::profile::Profile;
use serde::Deserialize;

use super::file;
use crate::arguments::DEFAULT_ADDRESS;
use crate::commands::parse;
use crate::terminal::error::CliError;

#[derive(Debug, Default, Args)]
pub(crate) struct Flags {
    /// A file with any of these options, and queues [env: LONGSHORE_CONFIG]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    layer: Layer,
}

/// What one of them says.
#[derive(Clone, Debug, Default, Args, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Layer {
    /// Address to listen on; port 0 is any free one [env: LONGSHORE_LISTEN] [default: 127.0.0.1:7070]
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<String>,
    /// Directory to keep jobs in [env: LONGSHORE_DATA] [default: longshore-data]
    #[arg(long, value_name = "DIR", conflicts_with = "store")]
    data: Option<PathBuf>,
    /// Where jobs are kept: a directory, memory: for nowhere, or postgres://… [env: LONGSHORE_STORE]
    #[arg(long, value_name = "STORE")]
    store: Option<String>,
    /// Profile of queues that are created without one [env: LONGSHORE_DEFAULT_PROFILE] [default: standard]
    #[arg(long, value_name = "PROFILE")]
    default_profile: Option<String>,
    /// Refuse a submission to a queue that does not exist [env: LONGSHORE_NO_AUTO_QUEUES]
    #[arg(skip)]
    auto_queues: Option<bool>,
    #[arg(
        long = "no-auto-queues",
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        help = "Refuse a submission to a queue that does not exist [env: LONGSHORE_NO_AUTO_QUEUES]"
    )]
    #[serde(skip)]
    no_auto_queues: Option<bool>,
    /// A clock that stands still until it is advanced over the wire [env: LONGSHORE_VIRTUAL_CLOCK]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    virtual_clock: Option<bool>,
    /// For requests under way, once told to stop [env: LONGSHORE_DRAIN_TIMEOUT] [default: 30s]
    #[arg(long, value_name = "DURATION")]
    drain_timeout: Option<Duration>,
    /// What is logged to standard error, as error, warn, info or debug [env: LONGSHORE_LOG] [default: info]
    #[arg(long, value_name = "FILTER")]
    log: Option<String>,
}

/// Where jobs are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StoreUrl {
    Memory,
    Directory(PathBuf),
    Postgres(Address),
}

/// An address that may hold a password: it is never shown.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Address(pub(crate) String);

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Address(…)")
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory"),
            Self::Directory(directory) => {
                // Wherever it was started: this is the place to back up.
                let whole = std::path::absolute(directory).unwrap_or_else(|_| directory.clone());
                write!(f, "{}", whole.display())
            }
            Self::Postgres(_) => f.write_str("PostgreSQL"),
        }
    }
}

/// What the server is started with.
#[derive(Debug)]
pub(super) struct ServeConfig {
    pub(super) listen: SocketAddr,
    pub(super) store: StoreUrl,
    pub(super) default_profile: Profile,
    pub(super) auto_queues: bool,
    pub(super) virtual_clock: bool,
    pub(super) drain_timeout: Duration,
    pub(super) log: String,
    /// Put at start, in order of their names.
    pub(super) queues: BTreeMap<String, PutQueue>,
}

/// A layer, and how its options are called there.
struct Named<'a> {
    layer: Layer,
    name: &'a dyn Fn(&str) -> String,
}

impl ServeConfig {
    pub(super) fn make(flags: Flags, environment: impl Fn(&str) -> Option<String>) -> Result<Self, CliError> {
        let config = flags.config.or_else(|| set(&environment, "config").map(PathBuf::from));
        let (file, queues) = match &config {
            Some(path) => file::read(path)?,
            None => (Layer::default(), BTreeMap::new()),
        };
        let shown = config.map(|path| path.display().to_string()).unwrap_or_default();
        let layers = [
            Named { layer: flags.layer, name: &|option| format!("--{}", option.replace('_', "-")) },
            Named { layer: from_environment(&environment)?, name: &variable },
            Named { layer: file, name: &|option| format!("{shown}: {option}") },
        ];
        let first = |pick: fn(&Layer) -> Option<String>, option: &str| {
            layers.iter().find_map(|named| pick(&named.layer).map(|value| (value, (named.name)(option))))
        };
        let listen = match first(|layer| layer.listen.clone(), "listen") {
            Some((text, name)) => address(&text).map_err(|failure| failure.context(name))?,
            None => address(DEFAULT_ADDRESS)?,
        };
        let default_profile = match first(|layer| layer.default_profile.clone(), "default_profile") {
            Some((word, name)) => profile(&word).map_err(|failure| failure.context(name))?,
            None => Profile::Standard,
        };
        Ok(Self {
            listen,
            store: store(&layers)?,
            default_profile,
            auto_queues: layers.iter().find_map(|named| named.layer.auto_queues()).unwrap_or(true),
            virtual_clock: layers.iter().find_map(|named| named.layer.virtual_clock).unwrap_or(false),
            drain_timeout: layers.iter().find_map(|named| named.layer.drain_timeout).unwrap_or(Duration::from_secs(30)),
            log: layers.iter().find_map(|named| named.layer.log.clone()).unwrap_or_else(|| "info".to_owned()),
            queues,
        })
    }
}

impl Layer {
    fn auto_queues(&self) -> Option<bool> {
        self.no_auto_queues.map(|no| !no).or(self.auto_queues)
    }
}

fn variable(option: &str) -> String {
    format!("LONGSHORE_{}", option.to_uppercase())
}

/// An empty variable says nothing.
fn set(environment: &impl Fn(&str) -> Option<String>, option: &str) -> Option<String> {
    environment(&variable(option)).filter(|value| !value.is_empty())
}

fn from_environment(environment: &impl Fn(&str) -> Option<String>) -> Result<Layer, CliError> {
    let text = |option: &str| set(environment, option);
    let choice = |option: &str| {
        let Some(word) = text(option) else { return Ok(None) };
        match word.to_lowercase().as_str() {
            "1" | "true" | "yes" | "on" => Ok(Some(true)),
            "0" | "false" | "no" | "off" => Ok(Some(false)),
            _ => Err(CliError::refused(format!("{}: expected true or false", variable(option)))),
        }
    };
    let drain_timeout = match text("drain_timeout") {
        Some(word) => Some(
            word.parse()
                .map_err(|wanted| CliError::refused(format!("{}: expected {wanted}", variable("drain_timeout"))))?,
        ),
        None => None,
    };
    Ok(Layer {
        listen: text("listen"),
        data: text("data").map(PathBuf::from),
        store: text("store"),
        default_profile: text("default_profile"),
        auto_queues: choice("auto_queues")?,
        no_auto_queues: choice("no_auto_queues")?,
        virtual_clock: choice("virtual_clock")?,
        drain_timeout,
        log: text("log"),
    })
}

fn address(text: &str) -> Result<SocketAddr, CliError> {
    let wrong = || CliError::refused(format!("\"{text}\" is no address")).hint("write ADDRESS:PORT, as 127.0.0.1:7070");
    let mut found = text.to_socket_addrs().map_err(|_| wrong())?;
    found.next().ok_or_else(wrong)
}

fn profile(word: &str) -> Result<Profile, CliError> {
    let known = parse::profile(word).map_err(|expected| CliError::refused(format!("\"{word}\": {expected}")))?;
    Profile::parse(known.as_str()).ok_or_else(|| CliError::failed(format!("this build has no profile {known}")))
}

/// `data` and `store` are two ways to say one thing: the layer that says either is heard.
fn store(layers: &[Named<'_>]) -> Result<StoreUrl, CliError> {
    for Named { layer, name } in layers {
        return match (&layer.store, &layer.data) {
            (None, None) => continue,
            (Some(_), Some(_)) => {
                Err(CliError::refused(format!("{} and {} are both given", name("store"), name("data")))
                    .hint("they say the same thing: give one of them"))
            }
            (None, Some(directory)) => Ok(StoreUrl::Directory(directory.clone())),
            (Some(text), None) => place(text).map_err(|failure| failure.context(name("store"))),
        };
    }
    Ok(StoreUrl::Directory(PathBuf::from("longshore-data")))
}

fn place(text: &str) -> Result<StoreUrl, CliError> {
    if text == "memory:" || text == "memory" {
        return Ok(StoreUrl::Memory);
    }
    if text.starts_with("postgres://") || text.starts_with("postgresql://") {
        return Ok(StoreUrl::Postgres(Address(text.to_owned())));
    }
    let directory = text.strip_prefix("file://").unwrap_or(text);
    if directory.is_empty() || directory.contains("://") {
        return Err(CliError::refused("this is no store").hint("a directory, memory:, or postgres://…"));
    }
    Ok(StoreUrl::Directory(PathBuf::from(directory)))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn plan(flags: Layer, environment: &[(&str, &str)], file: Option<&str>) -> Result<ServeConfig, CliError> {
        let mut kept = tempfile::NamedTempFile::new().unwrap();
        let config = file.map(|text| {
            kept.write_all(text.as_bytes()).unwrap();
            kept.path().to_owned()
        });
        ServeConfig::make(Flags { config, layer: flags }, |name| {
            environment.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        })
    }

    fn listen(text: &str) -> Layer {
        Layer { listen: Some(text.to_owned()), ..Layer::default() }
    }

    #[test]
    fn flags_win_over_environment_over_file_over_defaults() {
        let file = Some("listen = \"127.0.0.1:3\"");
        let environment = [("LONGSHORE_LISTEN", "127.0.0.1:2")];
        let port = |made: Result<ServeConfig, CliError>| made.unwrap().listen.port();
        assert_eq!(port(plan(listen("127.0.0.1:1"), &environment, file)), 1);
        assert_eq!(port(plan(Layer::default(), &environment, file)), 2);
        assert_eq!(port(plan(Layer::default(), &[], file)), 3);
        assert_eq!(port(plan(Layer::default(), &[("LONGSHORE_LISTEN", "")], None)), 7070);
    }

    #[test]
    fn a_store_in_one_layer_hides_the_data_of_another() {
        let file = Some("data = \"/from/file\"");
        let memory = Layer { store: Some("memory:".to_owned()), ..Layer::default() };
        assert_eq!(plan(memory, &[("LONGSHORE_DATA", "/from/env")], file).unwrap().store, StoreUrl::Memory);
        let made = plan(Layer::default(), &[("LONGSHORE_DATA", "/from/env")], file).unwrap();
        assert_eq!(made.store, StoreUrl::Directory(PathBuf::from("/from/env")));
        let both = [("LONGSHORE_DATA", "/a"), ("LONGSHORE_STORE", "/b")];
        assert!(
            plan(Layer::default(), &both, None).unwrap_err().message.contains("LONGSHORE_STORE and LONGSHORE_DATA")
        );
    }

    #[test]
    fn a_choice_can_be_taken_back() {
        let file = Some("auto_queues = false\nvirtual_clock = true");
        let made = plan(Layer::default(), &[], file).unwrap();
        assert_eq!((made.auto_queues, made.virtual_clock), (false, true));
        let flags = Layer { no_auto_queues: Some(false), virtual_clock: Some(false), ..Layer::default() };
        let made = plan(flags, &[("LONGSHORE_NO_AUTO_QUEUES", "yes")], file).unwrap();
        assert_eq!((made.auto_queues, made.virtual_clock), (true, false));
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_name() {
        let told = |environment: &[(&str, &str)]| plan(Layer::default(), environment, None).unwrap_err().message;
        assert!(told(&[("LONGSHORE_LISTEN", "nowhere")]).starts_with("LONGSHORE_LISTEN: "));
        assert!(told(&[("LONGSHORE_DEFAULT_PROFILE", "best")]).contains("standard, gopherqueue"));
        assert!(told(&[("LONGSHORE_VIRTUAL_CLOCK", "maybe")]).contains("true or false"));
        assert!(told(&[("LONGSHORE_DRAIN_TIMEOUT", "soon")]).contains("duration"));
        assert!(told(&[("LONGSHORE_STORE", "s3://bucket")]).starts_with("LONGSHORE_STORE: "));
        let secret = plan(Layer::default(), &[("LONGSHORE_STORE", "postgres://u:secret@h/d")], None).unwrap();
        assert!(!format!("{secret:?}").contains("secret"));
    }
}
