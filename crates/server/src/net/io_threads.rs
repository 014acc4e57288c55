//! The threads that serve connections.
//!
//! Each thread has a runtime of its own, so that threads do not wake each other. A connection stays
//! on its thread. Responses of the store wake each thread once per commit.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{Builder as ThreadBuilder, JoinHandle};

use longshore_store::WakeQueue;
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Handle, RuntimeFlavor};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Dropping it ends the threads, with the connections that are still open there.
#[derive(Debug)]
pub(crate) struct IoThreads {
    /// The thread of the caller first. Empty if the caller's runtime has several threads: its
    /// scheduler distributes the connections.
    threads: Vec<IoThread>,
    /// Number of connections so far.
    connections: AtomicUsize,
    stop: CancellationToken,
}

#[derive(Debug)]
struct IoThread {
    handle: Handle,
    wakeups: Arc<WakeQueue>,
    /// `None` for the thread of the caller.
    thread: Option<JoinHandle<()>>,
}

impl IoThreads {
    /// Starts `count - 1` threads beside the current one.
    pub(crate) fn start(count: usize) -> io::Result<Self> {
        let stop = CancellationToken::new();
        let here = Handle::current();
        let mut threads = Vec::new();
        if here.runtime_flavor() == RuntimeFlavor::CurrentThread {
            threads.push(IoThread::on(here, &stop));
            for _ in 1..count {
                threads.push(IoThread::start(&stop)?);
            }
        }
        Ok(Self { threads, connections: AtomicUsize::new(0), stop })
    }

    /// Spawns a task on the current thread.
    pub(crate) fn spawn_here(&self, tasks: &TaskTracker, task: impl Future<Output = ()> + Send + 'static) {
        match self.threads.first() {
            Some(thread) => tasks.spawn(thread.wakeups.wrap(task)),
            None => tasks.spawn(task),
        };
    }

    /// Spawns the task of a connection. The threads take turns.
    pub(crate) fn spawn_connection<F>(
        &self,
        tasks: &TaskTracker,
        stream: TcpStream,
        serve: impl FnOnce(TcpStream) -> F + Send + 'static,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let turn = self.connections.fetch_add(1, Ordering::Relaxed).checked_rem(self.threads.len());
        let Some((turn, thread)) = turn.and_then(|turn| Some((turn, self.threads.get(turn)?))) else {
            tasks.spawn(serve(stream));
            return;
        };
        if turn == 0 {
            tasks.spawn(thread.wakeups.wrap(serve(stream)));
            return;
        }
        let moved = async move {
            // A socket belongs to the runtime that created it.
            match stream.into_std().and_then(TcpStream::from_std) {
                Ok(stream) => serve(stream).await,
                Err(error) => tracing::warn!(%error, "cannot move a connection to its thread"),
            }
        };
        tasks.spawn_on(thread.wakeups.wrap(moved), &thread.handle);
    }
}

impl IoThread {
    fn on(handle: Handle, stop: &CancellationToken) -> Self {
        let wakeups = Arc::new(WakeQueue::new());
        let (run, stop) = (Arc::clone(&wakeups).run(), stop.clone());
        handle.spawn(async move {
            tokio::select! {
                () = run => {}
                () = stop.cancelled() => {}
            }
        });
        Self { handle, wakeups, thread: None }
    }

    fn start(stop: &CancellationToken) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (io, stop) = (Self::on(runtime.handle().clone(), stop), stop.clone());
        let run = move || runtime.block_on(stop.cancelled());
        let thread = ThreadBuilder::new().name("longshore-io".to_owned()).spawn(run)?;
        Ok(Self { thread: Some(thread), ..io })
    }
}

impl Drop for IoThreads {
    fn drop(&mut self) {
        self.stop.cancel();
        for thread in self.threads.iter_mut().filter_map(|io| io.thread.take()) {
            // The panic of a connection is caught; one of the runtime ends only its thread.
            drop(thread.join());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::sync::mpsc;

    use super::*;

    /// Returns the threads that serve six connections, in order.
    async fn serving_threads(io_threads: &IoThreads) -> Vec<std::thread::ThreadId> {
        let (tasks, listener) = (TaskTracker::new(), TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap());
        let (sender, mut receiver) = mpsc::unbounded_channel();
        let mut threads = Vec::new();
        for _ in 0..6 {
            let client = TcpStream::connect(listener.local_addr().unwrap());
            let (client, accepted) = tokio::join!(client, listener.accept());
            let sender = sender.clone();
            io_threads.spawn_connection(&tasks, accepted.unwrap().0, move |mut stream| async move {
                stream.write_all(b"x").await.unwrap();
                sender.send(std::thread::current().id()).unwrap();
            });
            client.unwrap().read_exact(&mut [0]).await.unwrap();
            threads.push(receiver.recv().await.unwrap());
        }
        tasks.close();
        tasks.wait().await;
        threads
    }

    #[tokio::test]
    async fn connections_take_turns_on_the_threads() {
        let threads = serving_threads(&IoThreads::start(3).unwrap()).await;
        assert_eq!(threads[..3], threads[3..]);
        assert_eq!(threads[0], std::thread::current().id());
        assert_eq!(threads[..3].iter().collect::<std::collections::HashSet<_>>().len(), 3);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_runtime_with_several_threads_serves_all_connections_itself() {
        let io_threads = IoThreads::start(3).unwrap();
        assert!(io_threads.threads.is_empty());
        assert_eq!(serving_threads(&io_threads).await.len(), 6);
    }
}
