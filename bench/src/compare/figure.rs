//! The figures that the harness reports for every system.

/// Which direction of a figure is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    More,
    Less,
}

/// One figure: its key in the harness, its meaning.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    pub key: &'static str,
    pub title: &'static str,
    pub unit: &'static str,
    pub better: Better,
}

const fn figure(key: &'static str, title: &'static str, unit: &'static str, better: Better) -> Figure {
    Figure { key, title, unit, better }
}

pub const BULK_SUBMIT: Figure = figure("a_bulk1000_ops", "bulk submit, 1,000 per call", "jobs/s", Better::More);
pub const SUBMIT_8: Figure = figure("a8_ops", "submit, 8 connections", "jobs/s", Better::More);
pub const SUBMIT_1_P50: Figure = figure("a1_p50_us", "submit, 1 connection, p50", "µs", Better::Less);
pub const DRAIN_SINGLE: Figure = figure("b1_ops", "drain one by one, 8 workers", "jobs/s", Better::More);
pub const DRAIN_BATCH: Figure = figure("bb_ops", "drain in batches of 100, 8 workers", "jobs/s", Better::More);
pub const SUBMIT_TO_HANDLER: Figure = figure("c_p50_us", "submit to handler, p50", "µs", Better::Less);
pub const CPU_SINGLE: Figure = figure("b1_srv_cpu_us", "server CPU per job, one by one", "µs", Better::Less);
pub const CPU_BATCH: Figure = figure("bb_srv_cpu_us", "server CPU per job, batches", "µs", Better::Less);
pub const CPU_LOAD: Figure = figure("load_srv_cpu_us", "server CPU per job, bulk load", "µs", Better::Less);
pub const MEMORY: Figure = figure("d_mem_mib_100k", "memory for 100,000 waiting jobs", "MiB", Better::Less);

/// All figures of a report, in its order.
pub const FIGURES: [Figure; 17] = [
    BULK_SUBMIT,
    figure("a_bulk100_ops", "bulk submit, 100 per call", "jobs/s", Better::More),
    SUBMIT_8,
    figure("a8_p99_us", "submit, 8 connections, p99", "µs", Better::Less),
    SUBMIT_1_P50,
    figure("a1_p99_us", "submit, 1 connection, p99", "µs", Better::Less),
    DRAIN_SINGLE,
    DRAIN_BATCH,
    SUBMIT_TO_HANDLER,
    figure("c_p99_us", "submit to handler, p99", "µs", Better::Less),
    CPU_SINGLE,
    CPU_BATCH,
    CPU_LOAD,
    MEMORY,
    figure("d_disk_mib_100k", "disk for 100,000 waiting jobs", "MiB", Better::Less),
    figure("e10k_ops", "drain of 10,000 waiting jobs", "jobs/s", Better::More),
    figure("ebig_ops", "drain of the first 10,000 of a big backlog", "jobs/s", Better::More),
];
