//! A stream that does not wait for ever.
//!
//! hyper knows one time-out, for the head of a request; idle connections and clients that do not read need their own. Here each phase of a
//! connection has its patience; while a request is being worked on there is none, the routes have their own.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};

/// How many requests of a connection began and ended; shared with the service that knows.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestCounter(Arc<(AtomicU64, AtomicU64)>);

impl RequestCounter {
    pub(crate) fn begin(&self) {
        self.0.0.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn end(&self) {
        self.0.1.fetch_add(1, Ordering::AcqRel);
    }

    fn ended(&self) -> u64 {
        self.0.1.load(Ordering::Acquire)
    }

    fn busy(&self) -> bool {
        self.0.0.load(Ordering::Acquire) != self.ended()
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    pub head: Duration,
    pub write: Duration,
    pub idle: Duration,
}

/// What is being waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Between requests.
    Idle,
    /// Some of a head has come.
    Head,
    /// The routes have it.
    Busy,
}

#[derive(Debug)]
pub(crate) struct TimeoutStream {
    stream: TcpStream,
    requests: RequestCounter,
    /// Requests that had ended when somebody last looked.
    ended: u64,
    patience: Timeouts,
    phase: Phase,
    /// Of the phase; made anew when the phase changes.
    read: Option<Pin<Box<Sleep>>>,
    /// While the other side does not take what is written.
    write: Option<Pin<Box<Sleep>>>,
}

impl TimeoutStream {
    pub(crate) fn new(stream: TcpStream, requests: RequestCounter, patience: Timeouts) -> Self {
        Self { stream, requests, ended: 0, patience, phase: Phase::Idle, read: None, write: None }
    }

    /// Begins a phase, with its own patience.
    fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        let wait = match phase {
            Phase::Idle => self.patience.idle,
            Phase::Head => self.patience.head,
            Phase::Busy => {
                // Thousands of waiting claims need no timer.
                self.read = None;
                return;
            }
        };
        match &mut self.read {
            Some(timer) => timer.as_mut().reset(Instant::now() + wait),
            None => self.read = Some(Box::pin(sleep(wait))),
        }
    }

    /// Begins to count idle time once a request has ended. hyper need not read again after an answer, so this is looked at when it writes.
    fn on_response_end(&mut self, context: &mut Context<'_>) {
        let ended = self.requests.ended();
        if self.requests.busy() || self.ended == ended {
            return;
        }
        self.ended = ended;
        self.enter(Phase::Idle);
        if let Some(timer) = &mut self.read
            && timer.as_mut().poll(context).is_ready()
        {
            context.waker().wake_by_ref();
        }
    }

    /// Ready when the client has used up its patience.
    fn poll_write_timeout(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let wait = self.patience.write;
        self.write.get_or_insert_with(|| Box::pin(sleep(wait))).as_mut().poll(context)
    }

    fn timed_write<T>(&mut self, context: &mut Context<'_>, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if result.is_pending() {
            ready!(self.poll_write_timeout(context));
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        self.write = None;
        result
    }
}

impl AsyncRead for TimeoutStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let result = Pin::new(&mut self.stream).poll_read(context, buffer);
        if self.requests.busy() {
            if self.phase != Phase::Busy {
                self.enter(Phase::Busy);
            }
            return result;
        }
        self.on_response_end(context);
        if self.read.is_none() {
            self.enter(Phase::Idle);
        }
        match result {
            Poll::Ready(Ok(())) if buffer.filled().len() > before && self.phase == Phase::Idle => {
                self.enter(Phase::Head);
                result
            }
            Poll::Ready(_) => result,
            Poll::Pending => {
                let Some(timer) = &mut self.read else { return Poll::Pending };
                ready!(timer.as_mut().poll(context));
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
        }
    }
}

impl AsyncWrite for TimeoutStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.on_response_end(context);
        let result = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.timed_write(context, result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.on_response_end(context);
        let result = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.timed_write(context, result)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.on_response_end(context);
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
