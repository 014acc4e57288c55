//! Signals of the process: the first drains, the second releases all jobs, the third exits.
//!
//! A process cannot give up a handler of signals once it has one. The thread of this module
//! therefore stays for the rest of the process: without a running worker a signal ends it, as it
//! does without a handler.

use std::io;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::core::WorkerCore;

/// The workers that handle signals; `None` until the thread has started.
static WORKERS: Mutex<Option<Vec<Weak<WorkerCore>>>> = Mutex::new(None);

/// Makes the worker handle signals, on a thread that no handler can block.
pub(super) fn listen(core: &Arc<WorkerCore>) -> io::Result<()> {
    let mut workers = WORKERS.lock();
    if workers.is_none() {
        start_thread()?;
    }
    let workers = workers.get_or_insert_default();
    workers.retain(|worker| worker.strong_count() > 0);
    workers.push(Arc::downgrade(core));
    Ok(())
}

/// Removes a worker that has ended.
pub(super) fn leave(core: &Arc<WorkerCore>) {
    if let Some(workers) = WORKERS.lock().as_mut() {
        workers.retain(|worker| !std::ptr::eq(worker.as_ptr(), Arc::as_ptr(core)));
    }
}

fn start_thread() -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let guard = runtime.enter();
    let (terminate, interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    drop(guard);
    let run = move || runtime.block_on(receive(terminate, interrupt));
    std::thread::Builder::new().name("longshore-signals".to_owned()).spawn(run).map(drop)
}

async fn receive(mut terminate: Signal, mut interrupt: Signal) {
    loop {
        let kind = tokio::select! {
            Some(()) = terminate.recv() => SignalKind::terminate(),
            Some(()) = interrupt.recv() => SignalKind::interrupt(),
            else => return,
        };
        on_signal(kind.as_raw_value());
    }
}

fn on_signal(number: i32) {
    let workers: Vec<_> = WORKERS.lock().iter().flatten().filter_map(Weak::upgrade).collect();
    let counts: Vec<_> = workers.iter().map(|core| core.on_stop()).collect();
    if counts.iter().all(|count| *count >= 3) {
        std::process::exit(128 + number);
    }
}
