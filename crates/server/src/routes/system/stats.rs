//! `GET /v1/stats`

use std::collections::HashSet;

use axum::extract::State;
use longshore_api::system::{QueueStats, Stats};
use longshore_core::id::QueueName;

use crate::app::AppState;
use crate::convert::{queue::counts, time};
use crate::wire::answer::{Answer, ok};
use crate::wire::query::NoQuery;

pub(crate) async fn stats(State(app): State<AppState>, _: NoQuery) -> Answer {
    let reports = app.call_store(app.store.queues()).await?;
    let known: HashSet<&QueueName> = reports.iter().map(|report| &report.queue.name).collect();
    app.tally.forget(|name| known.contains(name));
    let figures = app.tally.figures();
    let mut totals =
        QueueStats { rates: figures.all.rates, since_start: figures.all.since_start, ..Default::default() };
    let mut stats = Stats { now: time(app.now()), totals: QueueStats::default(), queues: [].into() };
    for report in &reports {
        let counts = counts(&report.counts);
        for (state, jobs) in &counts {
            *totals.counts.entry(*state).or_default() += jobs;
        }
        let name = &report.queue.name;
        let figures = figures.queues.get(name).copied().unwrap_or_default();
        let of_queue = QueueStats { counts, rates: figures.rates, since_start: figures.since_start };
        stats.queues.insert(name.to_string(), of_queue);
    }
    stats.totals = totals;
    ok(&stats)
}
