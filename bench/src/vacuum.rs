//! Effect of incremental vacuum on the latency of submissions.

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use longshore_core::submit::Payload;
use longshore_store::{Clock, Store, SystemClock, VirtualClock};
use longshore_store_embedded::{ClockMode, EmbeddedOptions, EmbeddedStore, StoreLocation};

use crate::host::{Host, Latencies};
use crate::{batch, block_on, claim, completions, open};

/// Batches of jobs with large payloads that are deleted before the measurement.
const BATCHES: usize = 100;
const BATCH: usize = 200;
const PAYLOAD_BYTES: usize = 16 << 10;
const SUBMITTERS: usize = 4;
/// Measurements of each of the two stores.
const ROUNDS: usize = 2;
const BUDGET: NonZeroUsize = NonZeroUsize::new(500).expect("above 0");

/// Measures single submissions on a store that vacuums and on a new one, in turn.
pub fn run(dir: &Path, seconds: u64) {
    for round in 0..2 * ROUNDS {
        let (is_emptied, dir) = (round % 2 == 1, dir.join(round.to_string()));
        if is_emptied {
            fill_and_empty(&dir);
        }
        let before = file_bytes(&dir);
        let (store, host) = (open(&dir), Host::now());
        let mut latencies = submissions(&store, Duration::from_secs(seconds));
        drop(store);
        let (submitted, kind) = (latencies.0.len(), if is_emptied { "emptied" } else { "new" });
        println!(
            "{kind} store, {submitted} submissions: {}; {before} bytes, then {}; steal {:.1} %",
            latencies.show(),
            file_bytes(&dir),
            host.steal_percent_since()
        );
    }
}

fn file_bytes(dir: &Path) -> u64 {
    dir.join("longshore.db").metadata().map_or(0, |metadata| metadata.len())
}

/// Fills and empties a store, on a virtual clock that skips the retention.
fn fill_and_empty(dir: &Path) {
    let clock = Arc::new(VirtualClock::new(SystemClock::new().now()));
    let location = StoreLocation::Directory(dir.to_owned());
    let store_clock: Arc<dyn Clock> = Arc::<VirtualClock>::clone(&clock);
    let store =
        EmbeddedStore::open(EmbeddedOptions::new(location, store_clock, ClockMode::Real)).expect("the store opens");
    for _ in 0..BATCHES {
        let mut request = batch(BATCH);
        for submission in request.batch.iter_mut().flatten() {
            submission.job.payload = Payload::Binary(Bytes::from(vec![7; PAYLOAD_BYTES]));
        }
        block_on(store.submit(request)).expect("stored").expect("accepted");
    }
    loop {
        let claimed = block_on(store.claim(claim(BATCH))).expect("stored").expect("accepted");
        if claimed.is_empty() {
            break;
        }
        block_on(store.settle(completions(claimed))).expect("stored");
    }
    let mut pruned = 0;
    while pruned < BATCHES * BATCH {
        let ticked = block_on(store.tick(BUDGET)).expect("stored");
        pruned += ticked.done;
        if ticked.done == 0 {
            clock.advance_to(ticked.next.expect("something to prune"));
        }
    }
}

/// Submits from several threads and ticks like a server, whenever a deadline is due.
fn submissions(store: &EmbeddedStore, time: Duration) -> Latencies {
    let (start, stop) = (Instant::now(), AtomicBool::new(false));
    let submitter = || {
        let mut times = Vec::new();
        while !stop.load(Ordering::SeqCst) {
            let start = Instant::now();
            block_on(store.submit(batch(1))).expect("stored").expect("accepted");
            times.push(start.elapsed());
        }
        times
    };
    let times = std::thread::scope(|scope| {
        let submitters: Vec<_> = (0..SUBMITTERS).map(|_| scope.spawn(submitter)).collect();
        let (clock, wakeups) = (SystemClock::new(), store.wakeups());
        while start.elapsed() < time {
            if wakeups.deadline().is_some_and(|deadline| deadline <= clock.now()) {
                block_on(store.tick(BUDGET)).expect("stored");
            }
            std::thread::park_timeout(Duration::from_millis(1));
        }
        stop.store(true, Ordering::SeqCst);
        submitters.into_iter().flat_map(|thread| thread.join().expect("a client that succeeds")).collect()
    });
    Latencies(times)
}
