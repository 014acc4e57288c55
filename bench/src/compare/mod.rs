//! Measures our systems and peers in turn with the peer harness, and reports ratios.

mod figure;
mod goal;
mod harness;
mod record;
mod report;

use std::path::PathBuf;

use self::harness::{Harness, System};
use self::record::{Repetition, Repetitions};

/// Short phases: a round of all default systems takes about two and a half minutes.
const SHORT_PHASES: &str = "--secs 1 --cap 4 --settle 700 --nd 100000 --nb 60000 --max-enq 60000";

#[derive(Debug, clap::Args)]
pub struct CompareOptions {
    /// Directory of the peer harness, with run.sh and its built client
    #[arg(long, env = "PEER_HARNESS", default_value = "../shared/bench/peers")]
    harness: PathBuf,
    /// Our systems: longshore, longshore-pg; `:joined` settles in claims, `@before` uses --before
    #[arg(long, value_delimiter = ',', default_value = "longshore:joined,longshore-pg:joined")]
    ours: Vec<String>,
    /// Peers of the harness
    #[arg(long, value_delimiter = ',', default_value = "nats-file,beanstalkd-f50,beanstalkd-f0,pg-skiplocked,floor")]
    peers: Vec<String>,
    /// Binary of ours
    #[arg(long, env = "LONGSHORE", default_value = "target/release/longshore")]
    longshore: PathBuf,
    /// Older binary of ours, for systems with `@before`
    #[arg(long)]
    before: Option<PathBuf>,
    /// Rounds to measure; 0 reports what --record holds
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// File of JSON lines to which repetitions are added; the report covers all of it
    #[arg(long)]
    record: Option<PathBuf>,
    /// Phases of the harness: c latency, d memory, b drain, e backlog, a submit
    #[arg(long, default_value = "cdba")]
    phases: String,
    /// Arguments of the harness's client
    #[arg(long, default_value = SHORT_PHASES, allow_hyphen_values = true)]
    client_arguments: String,
    /// Print JSON instead of tables
    #[arg(long)]
    json: bool,
    /// Check the goals; exit code 1 if one is missed
    #[arg(long)]
    goals: bool,
}

/// Returns whether all checked goals are met.
pub fn run(options: CompareOptions) -> Result<bool, String> {
    let names = options.ours.iter().chain(&options.peers).filter(|name| !name.is_empty());
    let systems: Vec<System> = names.map(|name| System::parse(name)).collect();
    let harness = Harness {
        directory: options.harness,
        longshore: options.longshore,
        before: options.before,
        phases: options.phases,
        client_arguments: options.client_arguments,
    };
    let mut all = options.record.as_deref().map_or_else(|| Ok(Repetitions::default()), Repetitions::read)?;
    if options.rounds > 0 {
        harness.check(&systems)?;
    }
    for _ in 0..options.rounds {
        let round = all.next_round();
        for system in &systems {
            eprintln!("round {round}: {}", system.name);
            let figures = harness.measure(system)?;
            all.0.push(Repetition { system: system.name.clone(), round, figures });
            if let Some(path) = &options.record {
                all.write(path)?;
            }
        }
    }
    let report = report::to_json(&all);
    if options.json {
        println!("{report:#}");
    } else {
        print!("{}", report::to_markdown(&all, options.goals));
    }
    let is_missed = |goal: &serde_json::Value| goal["met"] == false;
    let missed = report["goals"].as_array().is_some_and(|goals| goals.iter().any(is_missed));
    Ok(!(options.goals && missed))
}
