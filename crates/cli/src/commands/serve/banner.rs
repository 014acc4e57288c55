//! What is said when the server has started: where it listens, what it stores, what it promises.

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

/// A server whose output nobody reads serves all the same: failures to write are of no interest.
pub(super) fn announce(context: &Context, plan: &ServeConfig, address: SocketAddr, about: &StoreInfo) {
    let started = Banner {
        url: format!("http://{address}"),
        store: plan.store.to_string(),
        store_kind: &about.kind,
        durability: &about.durability,
        default_profile: plan.default_profile.as_str(),
        auto_queues: plan.auto_queues,
        declared_queues: plan.queues.keys().collect(),
        virtual_clock: plan.virtual_clock,
        version: env!("CARGO_PKG_VERSION"),
    };
    if context.screen.json {
        drop(context.screen.json_line(&started));
    } else {
        for line in lines(&started) {
            drop(context.screen.line(&line));
        }
    }
    if !address.ip().is_loopback() {
        tracing::warn!(%address, "there are no passwords: whoever can reach this address can do everything");
    }
    tracing::info!(address = %address, store = %plan.store, "listening");
}

fn lines(started: &Banner<'_>) -> Vec<String> {
    let others = if started.auto_queues {
        format!("created at their first submission, as {}", started.default_profile)
    } else {
        "refused".to_owned()
    };
    let declared = match started.declared_queues.as_slice() {
        [] => "none".to_owned(),
        names => names.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", "),
    };
    let mut lines = vec![
        format!("Longshore {}", started.version),
        format!("  listens on  {}", started.url),
        format!("  stores in   {} ({})", started.store, started.store_kind),
        format!("  promises    {}", started.durability),
        format!("  queues      declared: {declared}; unknown ones are {others}"),
    ];
    if started.virtual_clock {
        lines.push("  time        stands still; POST /v1/clock/advance moves it".to_owned());
    }
    lines.push(format!("Try: longshore --server {} submit -t hello", started.url));
    lines
}
