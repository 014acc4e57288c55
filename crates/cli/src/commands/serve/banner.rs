//! Prints the banner after the start: address, store, durability, queues.

use std::net::SocketAddr;

use longshore_server::StoreInfo;

use super::options::ServeConfig;
use crate::context::Context;

#[derive(serde::Serialize)]
struct Banner<'a> {
    url: String,
    store: String,
    store_kind: &'a str,
    durability: &'a str,
    default_profile: &'a str,
    auto_queues: bool,
    declared_queues: Vec<&'a String>,
    virtual_clock: bool,
    version: &'a str,
}

/// Prints the banner, and warns about an address that other machines can reach. A closed standard
/// output does not stop the server.
pub(super) fn print(context: &Context, config: &ServeConfig, address: SocketAddr, about: &StoreInfo) {
    let banner = Banner {
        url: format!("{}://{address}", if config.tls.is_some() { "https" } else { "http" }),
        store: config.store.to_string(),
        store_kind: &about.kind,
        durability: &about.durability,
        default_profile: config.default_profile.as_str(),
        auto_queues: config.auto_queues,
        declared_queues: config.queues.keys().collect(),
        virtual_clock: config.virtual_clock,
        version: env!("CARGO_PKG_VERSION"),
    };
    if context.output.json {
        drop(context.output.json_line(&banner));
    } else {
        for line in lines(&banner) {
            drop(context.output.line(&line));
        }
    }
    if !address.ip().to_canonical().is_loopback() && config.tls.is_none() {
        tracing::warn!(
            %address,
            "without TLS, tokens and jobs cross the network unencrypted: use --tls-cert and --tls-key, or a proxy with TLS"
        );
    }
    tracing::info!(address = %address, store = %config.store, "listening");
}

fn lines(banner: &Banner<'_>) -> Vec<String> {
    let others = if banner.auto_queues {
        format!("other queues are created by their first submission, profile {}", banner.default_profile)
    } else {
        "submissions to other queues are refused".to_owned()
    };
    let declared = match banner.declared_queues.as_slice() {
        [] => "none".to_owned(),
        names => names.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", "),
    };
    let mut lines = vec![
        format!("Longshore {}", banner.version),
        format!("  listens on  {}", banner.url),
        format!("  stores in   {} ({})", banner.store, banner.store_kind),
        format!("  durability  {}", banner.durability),
        format!("  queues      declared: {declared}; {others}"),
    ];
    if banner.virtual_clock {
        lines.push("  clock       virtual; POST /v1/clock/advance advances it".to_owned());
    }
    lines.push(format!("Try: longshore --server {} submit -t hello", banner.url));
    lines
}
