//! The plots: which metrics of which samples are drawn, and how.

use super::chart::{Chart, ChartLine, ChartPanel};
use super::scale::{Notation, Spacing};
use crate::samples::SampleFile;

/// One metric of the samples as a panel.
#[derive(Clone, Copy, Debug)]
pub struct PanelPlan {
    metric: &'static str,
    heading: &'static str,
    notation: Notation,
    spacing: Spacing,
}

/// A plot and its samples, which are in `NAME.csv`.
#[derive(Clone, Debug)]
pub struct PlotPlan {
    pub name: &'static str,
    title: &'static str,
    subtitle: &'static str,
    position_label: &'static str,
    position_notation: Notation,
    panels: Vec<PanelPlan>,
}

const fn panel(metric: &'static str, heading: &'static str, notation: Notation, spacing: Spacing) -> PanelPlan {
    PanelPlan { metric, heading, notation, spacing }
}

use Notation::{Bytes, Count, Time};
use Spacing::{Linear, Logarithmic};

/// All plots, in the order of docs/performance.md.
pub fn all() -> Vec<PlotPlan> {
    let mut plots = over_load();
    plots.extend(over_size());
    plots
}

/// Plots of what a client chooses: batch, rate, payload.
fn over_load() -> Vec<PlotPlan> {
    vec![
        PlotPlan {
            name: "batch-size",
            title: "Throughput by batch size",
            subtitle: "HTTP, 8 connections, 256-byte payloads; every submission and settlement is synced before its response",
            position_label: "jobs per request",
            position_notation: Count,
            panels: vec![
                panel("submit_jobs_per_s", "submit, jobs/s", Count, Logarithmic),
                panel("drain_jobs_per_s", "claim and complete, jobs/s", Count, Logarithmic),
            ],
        },
        PlotPlan {
            name: "latency-by-load",
            title: "Latency by load",
            subtitle: "HTTP, open loop: 16 producers submit one job per request at a fixed rate, 16 workers claim and complete",
            position_label: "offered jobs/s",
            position_notation: Count,
            panels: vec![
                panel("submit_us", "submit, due time to durable response", Time, Logarithmic),
                panel("handler_us", "submit, due time to handler", Time, Logarithmic),
            ],
        },
        PlotPlan {
            name: "payload",
            title: "Throughput by payload size",
            subtitle: "HTTP, 8 connections, one job per request",
            position_label: "payload size",
            position_notation: Bytes,
            panels: vec![
                panel("jobs_per_s", "jobs/s", Count, Logarithmic),
                panel("mib_per_s", "payload, MiB/s", Count, Logarithmic),
            ],
        },
    ]
}

/// Plots of what a store holds: jobs, queues, claims.
fn over_size() -> Vec<PlotPlan> {
    vec![
        PlotPlan {
            name: "backlog",
            title: "Cost by backlog",
            subtitle: "Embedded store in process, batches of 512, 256-byte payloads; the reference queue of 10,000 jobs is measured in turn",
            position_label: "waiting jobs",
            position_notation: Count,
            panels: vec![
                panel("us_per_job", "time per job, µs", Count, Linear),
                panel("relative_cost", "time ÷ time with 10,000 jobs", Count, Linear),
                panel("resident_mib", "resident memory, MiB", Count, Linear),
            ],
        },
        PlotPlan {
            name: "queues",
            title: "Cost by number of queues",
            subtitle: "HTTP, 8 connections, one job per request, requests rotate over all queues",
            position_label: "queues",
            position_notation: Count,
            panels: vec![
                panel("jobs_per_s", "jobs/s", Count, Linear),
                panel("cpu_us", "server CPU per job, µs", Count, Linear),
                panel("resident_mib", "server memory, MiB", Count, Linear),
            ],
        },
        PlotPlan {
            name: "parked-claims",
            title: "Cost by number of parked claims",
            subtitle: "HTTP, each parked claim has its own connection; one producer submits one job at a time",
            position_label: "parked claims",
            position_notation: Count,
            panels: vec![
                panel("handler_us", "submit to handler", Time, Linear),
                panel("resident_mib", "server memory, MiB", Count, Linear),
            ],
        },
        PlotPlan {
            name: "archived",
            title: "Cost by number of finished jobs",
            subtitle: "Embedded store in process, batches of 512; the reference store without finished jobs is measured in turn",
            position_label: "finished jobs that are kept",
            position_notation: Count,
            panels: vec![
                panel("us_per_job", "time per job, µs", Count, Linear),
                panel("relative_cost", "time ÷ time without finished jobs", Count, Linear),
                panel("resident_mib", "resident memory, MiB", Count, Linear),
            ],
        },
    ]
}

impl PlotPlan {
    pub fn draw(&self, samples: &SampleFile) -> Chart {
        let line = |metric: &str, name: String| ChartLine { points: samples.spreads(metric, &name), name };
        let panel = |plan: &PanelPlan| ChartPanel {
            heading: plan.heading.to_owned(),
            position_label: self.position_label.to_owned(),
            position_notation: self.position_notation,
            value_notation: plan.notation,
            value_spacing: plan.spacing,
            lines: samples.series_of(plan.metric).into_iter().map(|name| line(plan.metric, name)).collect(),
        };
        Chart {
            title: self.title.to_owned(),
            subtitle: self.subtitle.to_owned(),
            panels: self.panels.iter().map(panel).collect(),
        }
    }
}
