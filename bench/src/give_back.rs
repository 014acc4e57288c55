//! What whoever submits feels of the slices in which space goes back to the disk.

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use longshore_core::submit::Payload;
use longshore_store::{Clock, Store, SystemClock, VirtualClock};
use longshore_store_embedded::{ClockMode, EmbeddedStore, Options, StoreLocation};

use crate::machine::{Host, Latencies};
use crate::{batch, block_on, claim, completions, open};

/// A store that was emptied is made of so many batches of jobs with large payloads.
const BATCHES: usize = 100;
const BATCH: usize = 200;
const PAYLOAD_BYTES: usize = 16 << 10;
const SUBMITTERS: usize = 4;
/// How often each of the two stores is measured.
const TURNS: usize = 2;
const BUDGET: NonZeroUsize = NonZeroUsize::new(500).expect("above 0");

/// Single submissions beside a store that gives back, and beside one that has nothing to give, in turn.
pub fn give_back(dir: &Path, seconds: u64) {
    for turn in 0..2 * TURNS {
        let (emptied, dir) = (turn % 2 == 1, dir.join(turn.to_string()));
        if emptied {
            fill_and_empty(&dir);
        }
        let before = file_bytes(&dir);
        let (store, host) = (open(&dir), Host::now());
        let mut latencies = submissions(&store, Duration::from_secs(seconds));
        drop(store);
        let (submitted, kind) = (latencies.0.len(), if emptied { "emptied" } else { "new" });
        println!(
            "{kind} store, {submitted} submissions: {}; {before} bytes, then {}; the host took {:.1} %",
            latencies.show(),
            file_bytes(&dir),
            host.steal_percent_since()
        );
    }
}

fn file_bytes(dir: &Path) -> u64 {
    dir.join("longshore.db").metadata().map_or(0, |found| found.len())
}

/// On a clock that is turned by hand, so that nobody has to wait for retention.
fn fill_and_empty(dir: &Path) {
    let clock = Arc::new(VirtualClock::new(SystemClock::new().now()));
    let place = StoreLocation::Directory(dir.to_owned());
    let turned: Arc<dyn Clock> = Arc::<VirtualClock>::clone(&clock);
    let store = EmbeddedStore::open(Options::new(place, turned, ClockMode::Real)).expect("the store opens");
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

/// Does what a server does meanwhile: ticks when something is due.
fn submissions(store: &EmbeddedStore, time: Duration) -> Latencies {
    let (start, stop) = (Instant::now(), AtomicBool::new(false));
    let submitter = || {
        let mut times = Vec::new();
        while !stop.load(Ordering::SeqCst) {
            let asked = Instant::now();
            block_on(store.submit(batch(1))).expect("stored").expect("accepted");
            times.push(asked.elapsed());
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
        submitters.into_iter().flat_map(|thread| thread.join().expect("a client that ends well")).collect()
    });
    Latencies(times)
}
