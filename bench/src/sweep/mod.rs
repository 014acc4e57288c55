//! Measures how throughput, latency and cost change with one size, and keeps the values as CSV.

mod clients;
mod costs;
mod growth;
mod http;
mod latency;
mod server;
mod throughput;

use std::path::PathBuf;

use self::server::{BenchServer, StoreChoice};
use crate::host::Host;
use crate::samples::{Provenance, SampleFile};

/// What is swept. The names are those of the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum SweepKind {
    BatchSize,
    LatencyByLoad,
    Payload,
    Backlog,
    Queues,
    ParkedClaims,
    Archived,
    /// Costs of one job; no plot
    Costs,
}

#[derive(Debug, clap::Args)]
pub struct SweepOptions {
    /// What to sweep
    #[arg(required = true)]
    kinds: Vec<SweepKind>,
    /// Directory of the samples
    #[arg(long, default_value = "bench/plots")]
    output: PathBuf,
    /// Binary of the server
    #[arg(long, env = "LONGSHORE", default_value = "target/release/longshore")]
    longshore: PathBuf,
    /// URL of a PostgreSQL database, to measure that store too (batch-size, costs)
    #[arg(long)]
    postgres: Option<String>,
    /// Measurements at each position
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Largest number of jobs of backlog and archived
    #[arg(long, default_value_t = 10_000_000)]
    largest: usize,
    /// Directory for temporary stores
    #[arg(long, default_value_os_t = std::env::temp_dir())]
    temporary: PathBuf,
    /// What the samples describe, such as a commit; added to the file
    #[arg(long)]
    label: Option<String>,
}

/// What every sweep needs.
struct SweepContext {
    longshore: PathBuf,
    postgres: Option<String>,
    rounds: usize,
    largest: usize,
    temporary: PathBuf,
    /// File of the samples.
    output: PathBuf,
}

impl SweepContext {
    fn start(&self, store: StoreChoice<'_>) -> BenchServer {
        BenchServer::start(&self.longshore, store, &self.temporary)
    }

    /// Saves what is measured so far, so that an interrupted sweep is not lost.
    fn save(&self, samples: &SampleFile) {
        samples.write(&self.output);
    }

    /// A directory that is deleted after the sweep.
    fn directory(&self, name: &str) -> tempfile::TempDir {
        let prefix = format!("longshore-{name}-");
        tempfile::Builder::new().prefix(&prefix).tempdir_in(&self.temporary).expect("a directory")
    }
}

pub fn run(options: SweepOptions) -> Result<(), String> {
    let SweepOptions { kinds, output, longshore, postgres, rounds, largest, temporary, label } = options;
    std::fs::create_dir_all(&output).map_err(|error| format!("cannot create {}: {error}", output.display()))?;
    if !longshore.is_file() {
        let binary = longshore.display();
        return Err(format!("cannot find {binary}: no such file (build it, or name it with --longshore)"));
    }
    let mut context = SweepContext { longshore, postgres, rounds, largest, temporary, output: PathBuf::new() };
    for kind in kinds {
        let name =
            clap::ValueEnum::to_possible_value(&kind).map_or_else(String::new, |value| value.get_name().to_owned());
        eprintln!("{name}");
        context.output = output.join(format!("{name}.csv"));
        let (mut samples, host) = (SampleFile::default(), Host::now());
        samples.provenance = describe(rounds, label.as_deref());
        match kind {
            SweepKind::BatchSize => throughput::sweep_batches(&context, &mut samples),
            SweepKind::LatencyByLoad => latency::sweep_load(&context, &mut samples),
            SweepKind::Payload => throughput::sweep_payloads(&context, &mut samples),
            SweepKind::Backlog => growth::sweep_backlog(&context, &mut samples),
            SweepKind::Queues => throughput::sweep_queues(&context, &mut samples),
            SweepKind::ParkedClaims => latency::sweep_parked(&context, &mut samples),
            SweepKind::Archived => growth::sweep_archived(&context, &mut samples),
            SweepKind::Costs => costs::sweep_costs(&context, &mut samples),
        }
        samples.provenance.0.push(format!("steal {:.1} %", host.steal_percent_since()));
        context.save(&samples);
    }
    Ok(())
}

/// Label, machine and rounds, for the head of a file.
fn describe(rounds: usize, label: Option<&str>) -> Provenance {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let machine = format!("{cores} cores shared by server and load generator; {rounds} rounds");
    Provenance(label.map(str::to_owned).into_iter().chain([machine]).collect())
}
