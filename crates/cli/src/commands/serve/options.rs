//! Merges flags, environment, file and defaults into the configuration of the server.
//!
//! Each source is a [`Layer`] with optional values. The first layer that has a value decides.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Args;
use longshore_api::Duration;
use longshore_api::queue::PutQueue;
use longshore_api::schedule::PutSchedule;
use longshore_api::webhook::PutWebhook;
use longshore_core::profile::Profile;
use longshore_server::Limits;
use longshore_store_embedded::DEFAULT_CACHE_BYTES;
use longshore_tls::{CertificateFiles, ServerTlsFiles};
use longshore_webhooks::network::Cidr;
use serde::Deserialize;

use super::file::{self, ConfigFile};
use super::logging::LogFormat;
use crate::arguments::DEFAULT_ADDRESS;
use crate::commands::parse;
use crate::terminal::error::CliError;

#[derive(Debug, Default, Args)]
pub(crate) struct Flags {
    /// Configuration file with these options, and queues [env: LONGSHORE_CONFIG]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    layer: Layer,
}

/// Values of one source.
#[derive(Clone, Debug, Default, Args, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Layer {
    /// Address to listen on; port 0 selects a free port [env: LONGSHORE_LISTEN]
    /// [default: 127.0.0.1:7070]
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<String>,
    /// Data directory of the embedded store [env: LONGSHORE_DATA] [default: longshore-data]
    #[arg(long, value_name = "DIR", conflicts_with = "store")]
    data: Option<PathBuf>,
    /// Store instead of --data: DIR, memory: or postgres://… [env: LONGSHORE_STORE]
    #[arg(long, value_name = "STORE")]
    store: Option<String>,
    /// Profile of queues that are created without one [env: LONGSHORE_DEFAULT_PROFILE]
    /// [default: standard]
    #[arg(long, value_name = "PROFILE")]
    default_profile: Option<String>,
    /// The positive form, for the file and the environment.
    #[arg(skip)]
    auto_queues: Option<bool>,
    #[arg(
        long = "no-auto-queues",
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        help = "Refuse submissions to queues that do not exist, instead of creating them \
                [env: LONGSHORE_NO_AUTO_QUEUES] [default: false]"
    )]
    #[serde(skip)]
    no_auto_queues: Option<bool>,
    /// Use a clock that only `clock advance` moves, for tests [env: LONGSHORE_VIRTUAL_CLOCK]
    /// [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    virtual_clock: Option<bool>,
    /// Sync claims and heartbeats of the embedded store before they are answered, too
    /// [env: LONGSHORE_SYNC_CLAIMS] [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    sync_claims: Option<bool>,
    /// Memory for the caches of the embedded store, such as 64MiB [env: LONGSHORE_CACHE]
    /// [default: 8MiB]
    #[arg(long, value_name = "SIZE")]
    cache: Option<String>,
    /// Time to finish requests in flight on shutdown [env: LONGSHORE_DRAIN_TIMEOUT] [default: 30s]
    #[arg(long, value_name = "DURATION")]
    drain_timeout: Option<Duration>,
    /// Serve /metrics on this address without a token, beside the port of the API
    /// [env: LONGSHORE_METRICS_LISTEN]
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics_listen: Option<String>,
    /// Calls that may wait for the store; with more, the server refuses submissions, and reads from
    /// half of them [env: LONGSHORE_MAX_IN_FLIGHT] [default: 2048]
    #[arg(long, value_name = "NUMBER")]
    max_in_flight: Option<NonZeroUsize>,
    /// Open connections; further ones wait to be accepted [env: LONGSHORE_MAX_CONNECTIONS]
    /// [default: 16384]
    #[arg(long, value_name = "NUMBER")]
    max_connections: Option<NonZeroUsize>,
    /// Open connections of one client address; further ones are closed
    /// [env: LONGSHORE_MAX_CONNECTIONS_PER_ADDRESS] [default: 16384]
    #[arg(long, value_name = "NUMBER")]
    max_connections_per_address: Option<NonZeroUsize>,
    /// Host names under which a server without tokens answers, beside localhost and IP addresses;
    /// separated by commas [env: LONGSHORE_ALLOW_HOST]
    #[arg(long, value_name = "NAMES")]
    allow_host: Option<String>,
    /// Origins whose pages may call the API from a browser, such as https://jobs.example; separated
    /// by commas [env: LONGSHORE_CORS_ORIGIN]
    #[arg(long, value_name = "ORIGINS")]
    cors_origin: Option<String>,
    /// File with the certificate of the server and those that signed it, in PEM form: the port
    /// speaks TLS [env: LONGSHORE_TLS_CERT]
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// File with the private key of the certificate, in PEM form [env: LONGSHORE_TLS_KEY]
    #[arg(long, value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// File with authorities, in PEM form: only clients with a certificate of one of them are
    /// served [env: LONGSHORE_TLS_CLIENT_CA]
    #[arg(long, value_name = "FILE")]
    tls_client_ca: Option<PathBuf>,
    /// Level or filter of the log on standard error, such as warn or info,longshore_server=debug
    /// [env: LONGSHORE_LOG] [default: info]
    #[arg(long, value_name = "FILTER")]
    log: Option<String>,
    /// Format of the log: text, json, or auto, which is text on a terminal and json elsewhere
    /// [env: LONGSHORE_LOG_FORMAT] [default: auto]
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<String>,
    /// Network that webhooks may reach although it is private, such as 10.0.0.0/8; repeatable
    /// [env: LONGSHORE_WEBHOOK_ALLOW, separated by commas]
    #[arg(long, value_name = "CIDR")]
    webhook_allow: Option<Vec<String>>,
    /// Refuse webhooks to URLs without TLS [env: LONGSHORE_WEBHOOK_HTTPS_ONLY] [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    webhook_https_only: Option<bool>,
    /// Ports that webhooks may reach, such as 443,8443, instead of all; separated by commas
    /// [env: LONGSHORE_WEBHOOK_PORTS]
    #[arg(long, value_name = "PORTS")]
    webhook_ports: Option<String>,
}

/// Location of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StoreUrl {
    Memory,
    Directory(PathBuf),
    Postgres(SecretUrl),
}

/// A URL that may have a password: it is never printed.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct SecretUrl(pub(crate) String);

impl fmt::Debug for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretUrl(…)")
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory"),
            Self::Directory(directory) => {
                let absolute = std::path::absolute(directory).unwrap_or_else(|_| directory.clone());
                write!(f, "{}", absolute.display())
            }
            Self::Postgres(_) => f.write_str("PostgreSQL"),
        }
    }
}

/// The merged configuration.
#[derive(Debug)]
pub(super) struct ServeConfig {
    pub(super) listen: SocketAddr,
    pub(super) store: StoreUrl,
    pub(super) default_profile: Profile,
    pub(super) auto_queues: bool,
    pub(super) virtual_clock: bool,
    pub(super) sync_claims: bool,
    /// Memory for the caches of the embedded store, in bytes.
    pub(super) cache_bytes: u64,
    pub(super) drain_timeout: Duration,
    pub(super) limits: Limits,
    pub(super) metrics_listen: Option<SocketAddr>,
    pub(super) allowed_hosts: Vec<String>,
    pub(super) tls: Option<ServerTlsFiles>,
    pub(super) cors_origins: Vec<String>,
    pub(super) log: String,
    pub(super) log_format: LogFormat,
    /// Queues that are declared at the start, by name.
    pub(super) queues: BTreeMap<String, PutQueue>,
    pub(super) webhooks: BTreeMap<String, PutWebhook>,
    /// Networks that webhooks may reach although they are not globally routable.
    pub(super) webhook_allow: Vec<Cidr>,
    pub(super) webhook_https_only: bool,
    /// Ports that webhooks may reach; empty: all.
    pub(super) webhook_ports: Vec<u16>,
    pub(super) schedules: BTreeMap<String, PutSchedule>,
}

/// A layer, and the function that names its options in messages.
struct NamedLayer<'a> {
    layer: Layer,
    name: &'a dyn Fn(&str) -> String,
}

impl ServeConfig {
    /// Merges the layers. Messages name the flag, variable or key of a wrong value.
    pub(super) fn make(flags: Flags, environment: impl Fn(&str) -> Option<String>) -> Result<Self, CliError> {
        let config = flags.config.or_else(|| non_empty(&environment, "config").map(PathBuf::from));
        let ConfigFile { layer: file, queues, schedules, webhooks } = match &config {
            Some(path) => file::read(path)?,
            None => ConfigFile::default(),
        };
        let shown = config.map(|path| path.display().to_string()).unwrap_or_default();
        let layers = [
            NamedLayer { layer: flags.layer, name: &|option| format!("--{}", option.replace('_', "-")) },
            NamedLayer { layer: from_environment(&environment)?, name: &variable },
            NamedLayer { layer: file, name: &|option| format!("{shown}: {option}") },
        ];
        let first = |pick: fn(&Layer) -> Option<String>, option: &str| {
            layers.iter().find_map(|named| pick(&named.layer).map(|value| (value, (named.name)(option))))
        };
        let listen = match first(|layer| layer.listen.clone(), "listen") {
            Some((text, name)) => parse_address(&text).map_err(|failure| failure.context(name))?,
            None => parse_address(DEFAULT_ADDRESS)?,
        };
        let default_profile = match first(|layer| layer.default_profile.clone(), "default_profile") {
            Some((word, name)) => parse_profile(&word).map_err(|failure| failure.context(name))?,
            None => Profile::Standard,
        };
        let log_format = match first(|layer| layer.log_format.clone(), "log_format") {
            Some((text, name)) => LogFormat::parse(&text).map_err(|failure| failure.context(name))?,
            None => LogFormat::Auto,
        };
        let cache_bytes = match first(|layer| layer.cache.clone(), "cache") {
            Some((text, name)) => parse_size(&text).map_err(|failure| failure.context(name))?,
            None => DEFAULT_CACHE_BYTES,
        };
        let metrics_listen = match first(|layer| layer.metrics_listen.clone(), "metrics_listen") {
            Some((text, name)) => Some(parse_address(&text).map_err(|failure| failure.context(name))?),
            None => None,
        };
        let hosts = first(|layer| layer.allow_host.clone(), "allow_host").map(|(names, _)| names).unwrap_or_default();
        let hosts = hosts.split(',').map(str::trim).filter(|name| !name.is_empty());
        Ok(Self {
            listen,
            limits: choose_limits(&layers),
            metrics_listen,
            allowed_hosts: hosts.map(str::to_owned).collect(),
            tls: choose_tls(&layers)?,
            cors_origins: parse_origins(first(|layer| layer.cors_origin.clone(), "cors_origin"))?,
            store: choose_store(&layers)?,
            default_profile,
            auto_queues: layers.iter().find_map(|named| named.layer.auto_queues()).unwrap_or(true),
            virtual_clock: layers.iter().find_map(|named| named.layer.virtual_clock).unwrap_or(false),
            sync_claims: layers.iter().find_map(|named| named.layer.sync_claims).unwrap_or(false),
            cache_bytes,
            drain_timeout: layers.iter().find_map(|named| named.layer.drain_timeout).unwrap_or(Duration::from_secs(30)),
            log: layers.iter().find_map(|named| named.layer.log.clone()).unwrap_or_else(|| "info".to_owned()),
            log_format,
            queues,
            webhooks,
            webhook_allow: parse_networks(&layers)?,
            webhook_https_only: layers.iter().find_map(|named| named.layer.webhook_https_only).unwrap_or(false),
            webhook_ports: parse_ports(first(|layer| layer.webhook_ports.clone(), "webhook_ports"))?,
            schedules,
        })
    }
}

impl ServeConfig {
    /// Returns the configuration of a store alone.
    pub(super) fn of_store(data: Option<PathBuf>, store: Option<String>) -> Result<Self, CliError> {
        Self::make(Flags { config: None, layer: Layer { data, store, ..Layer::default() } }, |_| None)
    }
}

/// Returns the limits of the server with those that a source sets.
fn choose_limits(layers: &[NamedLayer<'_>]) -> Limits {
    let mut limits = Limits::default();
    let chosen = |pick: fn(&Layer) -> Option<NonZeroUsize>| layers.iter().find_map(|named| pick(&named.layer));
    let set = |limit: &mut usize, value: Option<NonZeroUsize>| *limit = value.map_or(*limit, NonZeroUsize::get);
    set(&mut limits.in_flight_max, chosen(|layer| layer.max_in_flight));
    set(&mut limits.connections_max, chosen(|layer| layer.max_connections));
    set(&mut limits.connections_per_address_max, chosen(|layer| layer.max_connections_per_address));
    limits
}

impl Layer {
    fn auto_queues(&self) -> Option<bool> {
        self.no_auto_queues.map(|no| !no).or(self.auto_queues)
    }
}

/// Returns the networks of the first source that names any.
fn parse_networks(layers: &[NamedLayer<'_>]) -> Result<Vec<Cidr>, CliError> {
    let named = |named: &NamedLayer<'_>| Some((named.layer.webhook_allow.clone()?, (named.name)("webhook_allow")));
    let Some((networks, name)) = layers.iter().find_map(named) else { return Ok(Vec::new()) };
    let parse = |text: &String| text.parse::<Cidr>().map_err(|error| CliError::refused(format!("{name}: {error}")));
    networks.iter().map(parse).collect()
}

/// Returns the ports of a list. `named` has the list and the name of its option.
fn parse_ports(named: Option<(String, String)>) -> Result<Vec<u16>, CliError> {
    let Some((list, name)) = named else { return Ok(Vec::new()) };
    let invalid = || CliError::refused(format!("{name}: expected ports from 1 to 65535, such as 443,8443"));
    let parse = |text: &str| text.trim().parse::<u16>().ok().filter(|port| *port > 0).ok_or_else(invalid);
    list.split(',').map(parse).collect()
}

fn variable(option: &str) -> String {
    format!("LONGSHORE_{}", option.to_uppercase())
}

/// Returns the value of a variable. An empty one counts as not set.
fn non_empty(environment: &impl Fn(&str) -> Option<String>, option: &str) -> Option<String> {
    environment(&variable(option)).filter(|value| !value.is_empty())
}

fn from_environment(environment: &impl Fn(&str) -> Option<String>) -> Result<Layer, CliError> {
    let text = |option: &str| non_empty(environment, option);
    let choice = |option: &str| {
        let Some(word) = text(option) else { return Ok(None) };
        match word.to_lowercase().as_str() {
            "1" | "true" | "yes" | "on" => Ok(Some(true)),
            "0" | "false" | "no" | "off" => Ok(Some(false)),
            _ => Err(CliError::refused(format!("{}: expected true or false", variable(option)))),
        }
    };
    let number = |option: &str| match text(option) {
        Some(word) => word
            .parse::<NonZeroUsize>()
            .map(Some)
            .map_err(|_| CliError::refused(format!("{}: expected a positive number", variable(option)))),
        None => Ok(None),
    };
    let drain_timeout = match text("drain_timeout") {
        Some(word) => Some(
            word.parse()
                .map_err(|expected| CliError::refused(format!("{}: expected {expected}", variable("drain_timeout"))))?,
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
        sync_claims: choice("sync_claims")?,
        cache: text("cache"),
        drain_timeout,
        metrics_listen: text("metrics_listen"),
        max_in_flight: number("max_in_flight")?,
        max_connections: number("max_connections")?,
        max_connections_per_address: number("max_connections_per_address")?,
        allow_host: text("allow_host"),
        cors_origin: text("cors_origin"),
        tls_cert: text("tls_cert").map(PathBuf::from),
        tls_key: text("tls_key").map(PathBuf::from),
        tls_client_ca: text("tls_client_ca").map(PathBuf::from),
        log: text("log"),
        log_format: text("log_format"),
        webhook_https_only: choice("webhook_https_only")?,
        webhook_ports: text("webhook_ports"),
        webhook_allow: text("webhook_allow").map(|list| list.split(',').map(|one| one.trim().to_owned()).collect()),
    })
}

/// Keys of the configuration file, as serde knows them.
#[cfg(test)]
pub(crate) fn file_keys() -> Vec<String> {
    let message = serde_json::from_str::<Layer>(r#"{"-": 0}"#).unwrap_err().to_string();
    message.split('`').skip(3).step_by(2).map(str::to_owned).collect()
}

fn parse_address(text: &str) -> Result<SocketAddr, CliError> {
    let wrong =
        || CliError::refused(format!("invalid address \"{text}\"")).hint("write ADDRESS:PORT, such as 127.0.0.1:7070");
    let mut found = text.to_socket_addrs().map_err(|_| wrong())?;
    found.next().ok_or_else(wrong)
}

/// Parses a size: a number and KiB, MiB or GiB.
fn parse_size(text: &str) -> Result<u64, CliError> {
    let wrong = || {
        CliError::refused(format!("invalid size \"{text}\""))
            .hint("write a number with KiB, MiB or GiB, such as 64MiB; at least 1MiB")
    };
    let units = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1_u64 << 30)];
    let (number, unit) =
        units.iter().find_map(|(unit, bytes)| Some((text.strip_suffix(unit)?, *bytes))).ok_or_else(wrong)?;
    let bytes = number.trim().parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    bytes.filter(|bytes| (1 << 20..=1 << 40).contains(bytes)).ok_or_else(wrong)
}

fn parse_profile(word: &str) -> Result<Profile, CliError> {
    let known = parse::profile(word).map_err(|expected| CliError::refused(format!("\"{word}\": {expected}")))?;
    Profile::parse(known.as_str()).ok_or_else(|| CliError::failed(format!("this build has no profile {known}")))
}

/// `data` and `store` exclude each other: the first layer that has one of them decides.
fn choose_store(layers: &[NamedLayer<'_>]) -> Result<StoreUrl, CliError> {
    for NamedLayer { layer, name } in layers {
        return match (&layer.store, &layer.data) {
            (None, None) => continue,
            (Some(_), Some(_)) => {
                Err(CliError::refused(format!("{} and {} are both given", name("store"), name("data")))
                    .hint("both name the store: give one of them"))
            }
            (None, Some(directory)) => Ok(StoreUrl::Directory(directory.clone())),
            (Some(text), None) => parse_store(text).map_err(|failure| failure.context(name("store"))),
        };
    }
    Ok(StoreUrl::Directory(PathBuf::from("longshore-data")))
}

/// Parses origins: scheme, host and port, as browsers send them.
fn parse_origins(origins: Option<(String, String)>) -> Result<Vec<String>, CliError> {
    let Some((list, name)) = origins else { return Ok(Vec::new()) };
    let parse = |text: &str| {
        let origin = text.trim();
        let host = origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://")).unwrap_or_default();
        let is_plain = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'-' | b':' | b'[' | b']');
        if !host.is_empty() && host.bytes().all(is_plain) {
            return Ok(origin.to_owned());
        }
        let refusal = CliError::refused(format!("{name}: invalid origin \"{origin}\""));
        Err(refusal.hint("write scheme, host and port in lower case, without a path: https://jobs.example:8443"))
    };
    list.split(',').map(parse).collect()
}

/// Returns the files of the server's certificate. The certificate and its key need each other.
fn choose_tls(layers: &[NamedLayer<'_>]) -> Result<Option<ServerTlsFiles>, CliError> {
    let file = |pick: fn(&Layer) -> Option<&PathBuf>, option: &str| {
        layers.iter().find_map(|named| Some((pick(&named.layer)?.clone(), (named.name)(option))))
    };
    let client_ca = file(|layer| layer.tls_client_ca.as_ref(), "tls_client_ca");
    let certificate = file(|layer| layer.tls_cert.as_ref(), "tls_cert");
    let needs = |name: &str, other| Err(CliError::refused(format!("{name} needs {other}")));
    match (certificate, file(|layer| layer.tls_key.as_ref(), "tls_key")) {
        (Some((certificate, _)), Some((key, _))) => Ok(Some(ServerTlsFiles {
            own: CertificateFiles { certificate, key },
            client_ca: client_ca.map(|(path, _)| path),
        })),
        (Some((_, name)), None) => needs(&name, "--tls-key"),
        (None, Some((_, name))) => needs(&name, "--tls-cert"),
        (None, None) => match client_ca {
            Some((_, name)) => needs(&name, "--tls-cert and --tls-key"),
            None => Ok(None),
        },
    }
}

fn parse_store(text: &str) -> Result<StoreUrl, CliError> {
    if text == "memory:" || text == "memory" {
        return Ok(StoreUrl::Memory);
    }
    if text.starts_with("postgres://") || text.starts_with("postgresql://") {
        return Ok(StoreUrl::Postgres(SecretUrl(text.to_owned())));
    }
    let directory = text.strip_prefix("file://").unwrap_or(text);
    if directory.is_empty() || directory.contains("://") {
        return Err(CliError::refused("invalid store").hint("use a directory, memory: or postgres://…"));
    }
    Ok(StoreUrl::Directory(PathBuf::from(directory)))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn config(flags: Layer, environment: &[(&str, &str)], file: Option<&str>) -> Result<ServeConfig, CliError> {
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
    fn flags_override_environment_file_and_defaults() {
        let file = Some("listen = \"127.0.0.1:3\"");
        let environment = [("LONGSHORE_LISTEN", "127.0.0.1:2")];
        let port = |made: Result<ServeConfig, CliError>| made.unwrap().listen.port();
        assert_eq!(port(config(listen("127.0.0.1:1"), &environment, file)), 1);
        assert_eq!(port(config(Layer::default(), &environment, file)), 2);
        assert_eq!(port(config(Layer::default(), &[], file)), 3);
        assert_eq!(port(config(Layer::default(), &[("LONGSHORE_LISTEN", "")], None)), 7070);
    }

    #[test]
    fn a_store_in_one_layer_overrides_the_data_of_another() {
        let file = Some("data = \"/from/file\"");
        let memory = Layer { store: Some("memory:".to_owned()), ..Layer::default() };
        assert_eq!(config(memory, &[("LONGSHORE_DATA", "/from/env")], file).unwrap().store, StoreUrl::Memory);
        let made = config(Layer::default(), &[("LONGSHORE_DATA", "/from/env")], file).unwrap();
        assert_eq!(made.store, StoreUrl::Directory(PathBuf::from("/from/env")));
        let both = [("LONGSHORE_DATA", "/a"), ("LONGSHORE_STORE", "/b")];
        assert!(
            config(Layer::default(), &both, None).unwrap_err().message.contains("LONGSHORE_STORE and LONGSHORE_DATA")
        );
    }

    #[test]
    fn claims_are_not_synced_and_caches_are_modest_by_default() {
        let made = config(Layer::default(), &[], None).unwrap();
        assert_eq!((made.sync_claims, made.cache_bytes), (false, 8 << 20));
        let made = config(Layer::default(), &[("LONGSHORE_CACHE", "2GiB")], Some("sync_claims = true")).unwrap();
        assert_eq!((made.sync_claims, made.cache_bytes), (true, 2 << 30));
    }

    #[test]
    fn limits_are_chosen_one_by_one() {
        let file = Some("max_in_flight = 7");
        let limits = config(Layer::default(), &[("LONGSHORE_MAX_CONNECTIONS", "9")], file).unwrap().limits;
        assert_eq!((limits.in_flight_max, limits.connections_max), (7, 9));
        assert_eq!(limits.connections_per_address_max, Limits::default().connections_per_address_max);
        for (variable, value) in [("LONGSHORE_MAX_IN_FLIGHT", "0"), ("LONGSHORE_MAX_CONNECTIONS", "many")] {
            let refusal = config(Layer::default(), &[(variable, value)], None).unwrap_err().message;
            assert_eq!(refusal, format!("{variable}: expected a positive number"));
        }
        assert!(config(Layer::default(), &[], Some("max_connections = 0")).is_err());
    }

    #[test]
    fn origins_are_exact() {
        let made = |list: &str| config(Layer::default(), &[("LONGSHORE_CORS_ORIGIN", list)], None);
        let origins = made("https://jobs.example, http://[::1]:8080").unwrap().cors_origins;
        assert_eq!(origins, ["https://jobs.example", "http://[::1]:8080"]);
        for invalid in
            ["*", "null", "jobs.example", "https://", "https://jobs.example/", "https://Jobs.example", "https://*"]
        {
            assert!(made(invalid).is_err(), "{invalid}");
        }
    }

    #[test]
    fn webhooks_reach_all_ports_by_default() {
        let made = config(Layer::default(), &[], None).unwrap();
        assert_eq!((made.webhook_https_only, made.webhook_ports.len()), (false, 0));
        let ports = [("LONGSHORE_WEBHOOK_PORTS", "443, 8443")];
        let made = config(Layer::default(), &ports, Some("webhook_https_only = true")).unwrap();
        assert_eq!((made.webhook_https_only, made.webhook_ports), (true, vec![443, 8_443]));
        for invalid in ["0", "65536", "https", "443,"] {
            let refused = config(Layer::default(), &[("LONGSHORE_WEBHOOK_PORTS", invalid)], None).unwrap_err();
            assert!(refused.message.starts_with("LONGSHORE_WEBHOOK_PORTS: "), "{invalid}");
        }
    }

    #[test]
    fn a_certificate_needs_its_key() {
        let made = |environment: &[(&str, &str)], file| config(Layer::default(), environment, file);
        let both = made(&[("LONGSHORE_TLS_CERT", "a.crt")], Some("tls_key = \"a.key\"")).unwrap().tls.unwrap();
        assert_eq!((both.own.key, both.client_ca), (PathBuf::from("a.key"), None));
        let refusal = made(&[("LONGSHORE_TLS_CERT", "a.crt")], None).unwrap_err().message;
        assert_eq!(refusal, "LONGSHORE_TLS_CERT needs --tls-key");
        assert!(made(&[("LONGSHORE_TLS_CLIENT_CA", "ca.crt")], None).is_err());
        assert!(made(&[], None).unwrap().tls.is_none());
    }

    #[test]
    fn a_flag_can_revert_an_option() {
        let file = Some("auto_queues = false\nvirtual_clock = true");
        let made = config(Layer::default(), &[], file).unwrap();
        assert_eq!((made.auto_queues, made.virtual_clock), (false, true));
        let flags = Layer { no_auto_queues: Some(false), virtual_clock: Some(false), ..Layer::default() };
        let made = config(flags, &[("LONGSHORE_NO_AUTO_QUEUES", "yes")], file).unwrap();
        assert_eq!((made.auto_queues, made.virtual_clock), (true, false));
    }

    #[test]
    fn an_invalid_value_is_refused_with_the_name_of_its_option() {
        let message = |environment: &[(&str, &str)]| config(Layer::default(), environment, None).unwrap_err().message;
        assert!(message(&[("LONGSHORE_LISTEN", "nowhere")]).starts_with("LONGSHORE_LISTEN: "));
        assert!(message(&[("LONGSHORE_DEFAULT_PROFILE", "best")]).contains("standard, gopherqueue"));
        assert!(message(&[("LONGSHORE_VIRTUAL_CLOCK", "maybe")]).contains("true or false"));
        for size in ["64", "64MB", "-1MiB", "512KiB", "99999999GiB"] {
            assert!(message(&[("LONGSHORE_CACHE", size)]).starts_with("LONGSHORE_CACHE: "), "{size}");
        }
        assert!(message(&[("LONGSHORE_DRAIN_TIMEOUT", "soon")]).contains("duration"));
        assert!(message(&[("LONGSHORE_STORE", "s3://bucket")]).starts_with("LONGSHORE_STORE: "));
        let secret = config(Layer::default(), &[("LONGSHORE_STORE", "postgres://u:secret@h/d")], None).unwrap();
        assert!(!format!("{secret:?}").contains("secret"));
    }
}
