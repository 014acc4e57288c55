//! Measures Longshore: the embedded store in this process, and servers beside their peers.
//!
//! `longshore-bench --help` lists the commands.

mod backlog;
mod compare;
mod host;
mod overload;
mod plot;
mod raw_http;
mod samples;
mod sweep;
mod vacuum;

use std::fs::File;
use std::io::Write;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use longshore_core::claim::ClaimOptions;
use longshore_core::id::{JobType, QueueName, WorkflowId};
use longshore_core::patch::SettingsPatch;
use longshore_core::settle::Outcome;
use longshore_core::submit::{DependencyRef, NewJob, Payload};
use longshore_core::workflow::WorkflowState;
use longshore_engine::{AdminCommand, ClaimRequest, Settlement, Submission, SubmitRequest, WorkflowTarget};
use longshore_store::{ClaimedJob, Store, StoreReader, SystemClock};
use longshore_store_embedded::{ClockMode, EmbeddedOptions, EmbeddedStore, StoreLocation};

use crate::host::{Host, Latencies, writer_seconds};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(clap::Parser)]
#[command(name = "longshore-bench", about = "Measures Longshore")]
struct BenchArguments {
    #[command(subcommand)]
    command: BenchCommand,
}

#[derive(clap::Subcommand)]
enum BenchCommand {
    /// Measure our servers and peers in turn with the peer harness; print ratios and goals
    Compare(compare::CompareOptions),
    /// Measure how throughput, latency and cost change with one size; write CSV files
    Sweep(sweep::SweepOptions),
    /// Draw the CSV files of sweeps as SVG
    Plot(plot::PlotOptions),
    /// Measure a running server at its peak, under overload, and afterwards
    Overload(overload::OverloadOptions),
    /// Measure a running server beside slow and idle connections
    SlowClients(overload::SlowClientOptions),
    #[command(flatten)]
    InProcess(InProcessCommand),
}

/// Measurements of the embedded store in this process.
#[derive(clap::Subcommand)]
enum InProcessCommand {
    /// Submit, claim and complete in process, BATCH commands per commit
    Lifecycle { dir: PathBuf, batch: Count, seconds: Count },
    /// The same with one client, one commit per response, while finished jobs are pruned
    Sustained { dir: PathBuf, batch: Count, seconds: Count },
    /// Single submissions in process, alternating with `fdatasync` calls
    Single { dir: PathBuf, times: Count },
    /// A group of JOBS, submitted in batches and drained, and as many standalone jobs; a fan-in
    Workflows { dir: PathBuf, jobs: Count, rounds: Count },
    /// Fill and reopen in process, then claim and complete from a long and a short queue in turn
    Backlog {
        dir: PathBuf,
        jobs: Count,
        #[arg(default_value = "512")]
        batch: Count,
        /// Run without the prefetch thread
        #[arg(long)]
        no_prefetch: bool,
    },
    /// Single submissions in process on a store that vacuums, and on a new one
    Vacuum { dir: PathBuf, seconds: Count },
}

/// A number that may be written as `10_000`.
#[derive(Clone, Copy)]
struct Count(usize);

impl std::str::FromStr for Count {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.replace('_', "").parse().map(Self)
    }
}

fn main() -> ExitCode {
    let outcome = match <BenchArguments as clap::Parser>::parse().command {
        BenchCommand::Compare(options) => compare::run(options),
        BenchCommand::Sweep(options) => sweep::run(options).map(|()| true),
        BenchCommand::Plot(options) => plot::run(&options).map(|()| true),
        BenchCommand::Overload(options) => overload::run(&options).map(|()| true),
        BenchCommand::SlowClients(options) => overload::run_slow_clients(&options).map(|()| true),
        BenchCommand::InProcess(command) => {
            measure_in_process(command);
            Ok(true)
        }
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("longshore-bench: {error}");
            ExitCode::from(2)
        }
    }
}

fn measure_in_process(command: InProcessCommand) {
    match command {
        InProcessCommand::Lifecycle { dir, batch, seconds } => lifecycle(&dir, batch.0, seconds.0),
        InProcessCommand::Sustained { dir, batch, seconds } => sustained(&dir, batch.0, seconds.0),
        InProcessCommand::Single { dir, times } => single(&dir, times.0),
        InProcessCommand::Workflows { dir, jobs, rounds } => workflows(&dir, jobs.0, rounds.0),
        InProcessCommand::Backlog { dir, jobs, batch, no_prefetch } => {
            backlog::run(&dir, jobs.0, batch.0, !no_prefetch);
        }
        InProcessCommand::Vacuum { dir, seconds } => vacuum::run(&dir, seconds.0 as u64),
    }
}

fn open(dir: &Path) -> EmbeddedStore {
    open_with(dir, true)
}

fn open_with(dir: &Path, prefetch_thread: bool) -> EmbeddedStore {
    let location = StoreLocation::Directory(PathBuf::from(dir));
    let options = EmbeddedOptions::new(location, Arc::new(SystemClock::new()), ClockMode::Real);
    EmbeddedStore::open(EmbeddedOptions { prefetch_thread, ..options }).expect("the store opens")
}

fn queue() -> QueueName {
    QueueName::new("bench").expect("a good name")
}

fn batch(jobs: usize) -> SubmitRequest {
    let (queue, job_type) = (queue(), JobType::new("bench").expect("a good name"));
    // Different for each job, and not compressible.
    let payload = |n: usize| {
        let mut state = (n as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let bytes: Vec<u8> = (0..32)
            .flat_map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state.to_le_bytes()
            })
            .collect();
        Payload::Binary(Bytes::from(bytes))
    };
    let job = |n| Submission { queue: queue.clone(), job: NewJob::new(job_type.clone(), payload(n)) };
    SubmitRequest::new((0..jobs).map(job).collect())
}

fn claim(limit: usize) -> ClaimRequest {
    ClaimRequest { queues: vec![queue()], limit, types: Vec::new(), terms: ClaimOptions::default() }
}

fn completions(jobs: Vec<ClaimedJob>) -> Vec<Settlement> {
    let complete = |job: ClaimedJob| Settlement {
        id: job.claimed.id,
        token: Some(job.claimed.token),
        outcome: Outcome::Complete { result: None, progress: None },
    };
    jobs.into_iter().map(complete).collect()
}

/// Waits for a future on this thread.
fn block_on<F: Future>(future: F) -> F::Output {
    thread_local!(static RUNTIME: tokio::runtime::Runtime =
        tokio::runtime::Builder::new_current_thread().build().expect("a runtime"));
    RUNTIME.with(|runtime| runtime.block_on(future))
}

/// Clients that keep the writer busy: while one reads its answers, the next commit runs.
const CLIENTS: usize = 2;

/// Each client submits, claims and completes a third of `size` at once; the three requests mostly
/// share a commit.
fn lifecycle(dir: &Path, size: usize, seconds: usize) {
    let store = open(dir);
    let third = (size / 3).max(1);
    for _ in 0..4 * CLIENTS {
        block_on(store.submit(batch(third))).expect("stored").expect("accepted");
    }
    let (commits_before, start, host) = (store.commits(), Instant::now(), Host::now());
    let until = start + Duration::from_secs(seconds as u64);
    let clients: Vec<(usize, Latencies)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(|| rounds(&store, third, until))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a client that succeeds")).collect()
    });
    let elapsed = start.elapsed().as_secs_f64();
    let commits = store.commits() - commits_before;
    let busy = writer_seconds();
    let transitions: usize = clients.iter().map(|(transitions, _)| transitions).sum();
    let mut latencies = Latencies(clients.into_iter().flat_map(|(_, latencies)| latencies.0).collect());
    println!(
        "lifecycle longshore batch={size} transitions_s={:.0} commits_s={:.0} commands_per_commit={:.0} writer_cpu_us={:.2} steal={:.1}% answer: {}",
        transitions as f64 / elapsed,
        commits as f64 / elapsed,
        transitions as f64 / commits as f64,
        busy * 1e6 / transitions as f64,
        host.steal_percent_since(),
        latencies.show()
    );
}

/// One answer is one commit, while checkpoints and retention run.
fn sustained(dir: &Path, size: usize, seconds: usize) {
    let store = open(dir);
    let mut overrides = SettingsPatch::default();
    overrides.job.retention.completed = Some(longshore_core::Duration::from_millis(1_000));
    let put = AdminCommand::PutQueue { queue: queue(), profile: None, overrides: Some(Box::new(overrides)) };
    block_on(store.admin(put)).expect("stored").expect("accepted");
    let third = (size / 3).max(1);
    for _ in 0..4 {
        block_on(store.submit(batch(third))).expect("stored").expect("accepted");
    }
    let (until, host) = (Instant::now() + Duration::from_secs(seconds as u64), Host::now());
    let budget = NonZeroUsize::new(128).expect("above 0");
    let ((transitions, mut latencies), pruned) = std::thread::scope(|scope| {
        let janitor = scope.spawn(|| {
            let mut done = 0;
            while Instant::now() < until {
                let ticked = block_on(store.tick(budget)).expect("stored");
                done += ticked.done;
                if ticked.done < budget.get() {
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
            done
        });
        (rounds(&store, third, until), janitor.join().expect("a janitor that succeeds"))
    });
    println!(
        "sustained batch={size} transitions_s={:.0} pruned_s={:.0} steal={:.1}% commit: {}",
        transitions as f64 / seconds as f64,
        pruned as f64 / seconds as f64,
        host.steal_percent_since(),
        latencies.show()
    );
}

fn rounds(store: &EmbeddedStore, third: usize, until: Instant) -> (usize, Latencies) {
    let (mut transitions, mut latencies) = (0, Latencies::default());
    let mut claimed_jobs = block_on(store.claim(claim(third))).expect("stored").expect("accepted");
    let mut next = batch(third);
    while Instant::now() < until {
        let completions = completions(std::mem::take(&mut claimed_jobs));
        let again = next.clone();
        let round = Instant::now();
        let (submitted, claimed, settled) =
            block_on(async { tokio::join!(store.submit(next), store.claim(claim(third)), store.settle(completions)) });
        latencies.0.push(round.elapsed());
        claimed_jobs = claimed.expect("stored").expect("accepted");
        transitions += submitted.expect("stored").expect("accepted").len() + claimed_jobs.len();
        transitions += settled.expect("stored").iter().filter(|verdict| verdict.is_ok()).count();
        next = again;
    }
    (transitions, latencies)
}

/// The two alternate, so that both see the same disk.
fn single(dir: &Path, times: usize) {
    use std::os::unix::fs::FileExt;
    std::fs::create_dir_all(dir).expect("a directory");
    let mut file = File::create(dir.join("bare")).expect("a file");
    file.write_all(&vec![0; 64 << 20]).expect("space");
    file.sync_all().expect("a sync");
    let store = open(&dir.join("store"));
    let (mut bare, mut submissions, host) = (Latencies::default(), Latencies::default(), Host::now());
    for n in 0..times {
        let start = Instant::now();
        file.write_all_at(&[1; 4096], (n as u64 % 16_000) * 4096).expect("a write");
        file.sync_data().expect("a sync");
        bare.0.push(start.elapsed());
        let start = Instant::now();
        block_on(store.submit(batch(1))).expect("stored").expect("accepted");
        submissions.0.push(start.elapsed());
    }
    println!("bare 4 KiB write and fdatasync: {}", bare.show());
    println!("one durable submission:         {}", submissions.show());
    println!("steal {:.1} %", host.steal_percent_since());
}

/// Jobs per submission to an open workflow.
const SUBMISSION_JOBS: usize = 1_000;

/// The two kinds alternate, so that both see the same disk.
fn workflows(dir: &Path, jobs: usize, rounds: usize) {
    let store = open(dir);
    let (mut group, mut alone) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        alone.push(submit_and_drain(&store, jobs, None));
        let open = AdminCommand::OpenWorkflow { name: Some("group".into()) };
        let answer = block_on(store.admin(open)).expect("stored").expect("accepted");
        let longshore_engine::AdminResponse::Workflow { id, .. } = answer else { panic!("no workflow") };
        group.push(submit_and_drain(&store, jobs, Some(id)));
        block_on(store.admin(AdminCommand::CloseWorkflow { id })).expect("stored").expect("accepted");
        let start = Instant::now();
        let workflow = block_on(store.workflow(id)).expect("read").expect("it is there");
        let read = start.elapsed();
        assert_eq!(workflow.state(), WorkflowState::Completed);
        println!("progress of {jobs} members read in {} us", read.as_micros());
    }
    let median = |rates: &mut Vec<f64>| {
        rates.sort_unstable_by(f64::total_cmp);
        rates[rates.len() / 2]
    };
    let (alone, group) = (median(&mut alone), median(&mut group));
    println!("jobs alone {alone:.0}/s, in one group {group:.0}/s, ratio {:.2} (medians of {rounds})", group / alone);
    fan_in(&store);
}

/// Submits, claims and completes jobs. Returns jobs per second.
fn submit_and_drain(store: &EmbeddedStore, jobs: usize, workflow: Option<WorkflowId>) -> f64 {
    let (start, mut done) = (Instant::now(), 0);
    for first in (0..jobs).step_by(SUBMISSION_JOBS) {
        let size = SUBMISSION_JOBS.min(jobs - first);
        let request = match workflow {
            None => batch(size),
            Some(id) => SubmitRequest { joining: Some(WorkflowTarget::Open(id)), ..batch(size) },
        };
        block_on(store.submit(request)).expect("stored").expect("accepted");
    }
    let mut claimed_jobs: Vec<ClaimedJob> = Vec::new();
    loop {
        let completions = completions(std::mem::take(&mut claimed_jobs));
        let (claimed, settled) = block_on(async { tokio::join!(store.claim(claim(512)), store.settle(completions)) });
        claimed_jobs = claimed.expect("stored").expect("accepted");
        done += settled.expect("stored").iter().filter(|verdict| verdict.is_ok()).count();
        if claimed_jobs.is_empty() {
            break;
        }
    }
    assert_eq!(done, jobs);
    done as f64 / start.elapsed().as_secs_f64()
}

/// Completes 1,000 jobs in one request and measures when their common dependent is ready.
fn fan_in(store: &EmbeddedStore) {
    let mut request = batch(1_001);
    if let Some(Ok(last)) = request.batch.last_mut() {
        last.job.after = (0..1_000).map(DependencyRef::BatchIndex).collect();
    }
    request.joining = Some(WorkflowTarget::New { name: None, open: false });
    block_on(store.submit(request)).expect("stored").expect("accepted");
    let group = block_on(store.claim(claim(1_000))).expect("stored").expect("accepted");
    assert_eq!(group.len(), 1_000);
    let start = Instant::now();
    block_on(store.settle(completions(group))).expect("stored");
    let settled = start.elapsed();
    let ticked = block_on(store.tick(NonZeroUsize::MIN)).expect("stored");
    let last = block_on(store.claim(claim(10))).expect("stored").expect("accepted");
    println!(
        "fan-in of 1,000: settled in {:.1} ms, one tick touched {}, {} job to claim",
        settled.as_secs_f64() * 1e3,
        ticked.done,
        last.len()
    );
    assert_eq!(last.len(), 1);
    block_on(store.settle(completions(last))).expect("stored");
}
