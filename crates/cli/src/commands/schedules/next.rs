//! `longshore schedules next`: works without a server.

use clap::Args;
use longshore_api::Time;
use longshore_core::schedule::{DueTimes, find_time_zone, format_local};
use longshore_store::{Clock, SystemClock};

use crate::context::Context;
use crate::terminal::error::CliError;
use crate::terminal::table::TextTable;

/// Print the next due times of a cron expression, without a server
#[derive(Debug, Args)]
pub(crate) struct NextTimes {
    /// Cron expression: five fields, six with seconds first, or @hourly to @yearly
    cron: String,
    /// Time zone, such as Europe/Berlin
    #[arg(long, default_value = "UTC")]
    timezone: String,
    /// How many
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    count: u16,
}

#[derive(serde::Serialize)]
struct DueTime {
    utc: Time,
    local: String,
}

impl NextTimes {
    pub(super) fn run(self, context: &Context) -> Result<(), CliError> {
        let refused = |error: longshore_core::Invalid| CliError::refused(error.to_string());
        let zone = find_time_zone(&self.timezone).map_err(refused)?;
        let now = SystemClock::new().now();
        let times = DueTimes::cron(&self.cron, zone.clone(), now).map_err(refused)?;
        let due = times.next(now, usize::from(self.count)).into_iter();
        let due: Vec<DueTime> =
            due.map(|at| DueTime { utc: Time(at.as_millis()), local: format_local(&zone, at) }).collect();
        if context.output.json {
            return context.output.json(&due);
        }
        let mut table = TextTable::new(&["LOCAL", "UTC"]);
        for DueTime { utc, local } in &due {
            table.row(vec![local.as_str().into(), utc.to_string().as_str().into()]);
        }
        context.output.table(&table)
    }
}
