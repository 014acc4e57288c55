//! Costs of one job for capacity planning: CPU of server and database, bytes on disk and written.

use std::path::Path;
use std::time::Duration;

use tokio_postgres::NoTls;

use super::SweepContext;
use super::clients::{Tally, drain_for, fill, submit_for};
use super::http::payload_of;
use super::server::{BenchServer, StoreChoice};
use crate::host::process_cpu_seconds;
use crate::samples::SampleFile;

/// Jobs of the bulk load.
const JOBS: usize = 100_000;
const PAYLOAD: usize = 256;
const SINGLES: Duration = Duration::from_millis(1_500);
/// Longer than the drain of all jobs takes.
const WHOLE_DRAIN: Duration = Duration::from_secs(60);

pub fn sweep_costs(context: &SweepContext, samples: &mut SampleFile) {
    for round in 1..=context.rounds {
        let server = context.start(StoreChoice::Embedded);
        let meter = CostMeter { server: &server, database: None };
        measure_costs(&meter, "embedded store", round, samples);
        drop(server);
        if let Some(url) = &context.postgres {
            let server = context.start(StoreChoice::Postgres(url));
            let meter = CostMeter { server: &server, database: Some(Database::connect(url)) };
            measure_costs(&meter, "PostgreSQL store", round, samples);
        }
    }
}

/// Reads the counters of a server and of its database.
struct CostMeter<'a> {
    server: &'a BenchServer,
    database: Option<Database>,
}

/// Counters at one instant.
#[derive(Clone, Copy)]
struct Reading {
    server_cpu: f64,
    database_cpu: f64,
    disk: f64,
    written: f64,
}

impl CostMeter<'_> {
    fn read(&self) -> Reading {
        let server_cpu = self.server.cpu_seconds();
        match &self.database {
            None => {
                let (disk, written) = (directory_bytes(&self.server.data()), self.server.written_bytes());
                Reading { server_cpu, database_cpu: 0.0, disk, written }
            }
            Some(database) => database.read(server_cpu),
        }
    }
}

fn directory_bytes(directory: &Path) -> f64 {
    let entries = std::fs::read_dir(directory).expect("the data directory");
    // The disk reserve is allocated once, and does not grow with jobs.
    let files = entries.filter_map(Result::ok).filter(|entry| entry.file_name() != "disk-reserve");
    files.filter_map(|entry| entry.metadata().ok()).map(|file| file.len() as f64).sum()
}

/// A connection for queries about the database itself.
struct Database {
    runtime: tokio::runtime::Runtime,
    client: tokio_postgres::Client,
}

impl Database {
    fn connect(url: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let (client, connection) = runtime.block_on(tokio_postgres::connect(url, NoTls)).expect("a connection");
        runtime.spawn(connection);
        Self { runtime, client }
    }

    fn read(&self, server_cpu: f64) -> Reading {
        let query = "SELECT pg_database_size(current_database())::float8, \
            pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8, \
            array(SELECT pid FROM pg_stat_activity)::int4[]";
        let row = self.runtime.block_on(self.client.query_one(query, &[])).expect("a row");
        let pids: Vec<i32> = row.get(2);
        let of_process = |pid: &i32| process_cpu_seconds(pid.unsigned_abs());
        Reading { server_cpu, database_cpu: pids.iter().map(of_process).sum(), disk: row.get(0), written: row.get(1) }
    }
}

fn measure_costs(meter: &CostMeter<'_>, series: &str, round: usize, samples: &mut SampleFile) {
    let (address, payload) = (meter.server.address, payload_of(PAYLOAD));
    let queue = format!("costs{round}");
    let mut push = |metric: &str, value: f64| samples.push(metric, series, 0.0, round, value);
    let before = meter.read();
    fill(address, &queue, &payload, JOBS);
    let loaded = meter.read();
    let per_job = |from: f64, to: f64, jobs: usize| (to - from) / jobs as f64;
    push("bulk_submit_server_cpu_us", per_job(before.server_cpu, loaded.server_cpu, JOBS) * 1e6);
    push("bulk_submit_database_cpu_us", per_job(before.database_cpu, loaded.database_cpu, JOBS) * 1e6);
    push("bulk_submit_written_bytes", per_job(before.written, loaded.written, JOBS));
    push("waiting_disk_bytes", per_job(before.disk, loaded.disk, JOBS));
    let singles = submit_for(address, &format!("{queue}-single"), &payload, 1, SINGLES);
    let submitted = meter.read();
    push_phase(&mut push, "single_submit", (loaded, submitted), singles);
    let drained = drain_for(address, std::slice::from_ref(&queue), 1, SINGLES);
    let one_by_one = meter.read();
    push_phase(&mut push, "single_drain", (submitted, one_by_one), drained);
    let rest = drain_for(address, std::slice::from_ref(&queue), 100, WHOLE_DRAIN);
    let finished = meter.read();
    push_phase(&mut push, "batch_drain", (one_by_one, finished), rest);
    push("resident_mib", meter.server.resident_mib());
}

/// Pushes rate, CPU and written bytes per job of a phase.
fn push_phase(push: &mut impl FnMut(&str, f64), name: &str, (from, to): (Reading, Reading), tally: Tally) {
    let per_job = |from: f64, to: f64| (to - from) / tally.jobs.max(1) as f64;
    push(&format!("{name}_jobs_per_s"), tally.per_second());
    push(&format!("{name}_server_cpu_us"), per_job(from.server_cpu, to.server_cpu) * 1e6);
    push(&format!("{name}_database_cpu_us"), per_job(from.database_cpu, to.database_cpu) * 1e6);
    push(&format!("{name}_written_bytes"), per_job(from.written, to.written));
}
