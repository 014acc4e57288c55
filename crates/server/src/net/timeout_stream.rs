//! A socket with a timeout for each phase of a connection, which also confirms delivered grants.
//!
//! hyper has one timeout, for the head of a request. Idle connections and clients that do not read
//! need their own. While a request is processed there is none here: the routes have timeouts.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use super::delivery::UndeliveredGrants;

/// Counts the started and finished requests of a connection; shared by its service and its stream.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestCounter(Arc<(AtomicU64, AtomicU64)>);

impl RequestCounter {
    pub(crate) fn begin(&self) {
        self.0.0.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn end(&self) {
        self.0.1.fetch_add(1, Ordering::AcqRel);
    }

    fn finished(&self) -> u64 {
        self.0.1.load(Ordering::Acquire)
    }

    fn is_busy(&self) -> bool {
        self.0.0.load(Ordering::Acquire) != self.finished()
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    pub head: Duration,
    pub write: Duration,
    pub idle: Duration,
}

/// What the connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnectionPhase {
    /// The next request.
    Idle,
    /// The rest of a request's head.
    Head,
    /// The routes.
    Busy,
}

#[derive(Debug)]
pub(crate) struct TimeoutStream<S> {
    stream: S,
    requests: RequestCounter,
    undelivered: UndeliveredGrants,
    /// Number of finished requests at the last check.
    finished: u64,
    timeouts: Timeouts,
    phase: ConnectionPhase,
    /// Timer of the phase; reset when the phase changes. It keeps running while the connection is
    /// busy, because a later deadline costs less than a new timer. Its end is then ignored.
    read_timer: Option<Pin<Box<Sleep>>>,
    /// Whether the timer of the head runs. It starts when a head does not arrive at once.
    times_head: bool,
    /// Runs while the client does not accept bytes.
    write_timer: Option<Pin<Box<Sleep>>>,
}

impl<S> TimeoutStream<S> {
    pub(super) fn new(stream: S, requests: RequestCounter, undelivered: UndeliveredGrants, timeouts: Timeouts) -> Self {
        let (read_timer, write_timer) = (None, None);
        Self {
            stream,
            requests,
            undelivered,
            finished: 0,
            timeouts,
            phase: ConnectionPhase::Idle,
            read_timer,
            times_head: false,
            write_timer,
        }
    }

    /// Starts or restarts the timer of the phase.
    fn start_timer(&mut self, timeout: Duration) {
        match &mut self.read_timer {
            Some(timer) => timer.as_mut().reset(Instant::now() + timeout),
            None => self.read_timer = Some(Box::pin(sleep(timeout))),
        }
    }

    fn enter_idle(&mut self) {
        self.phase = ConnectionPhase::Idle;
        // A client that has sent nothing yet is not one that keeps a connection for later.
        let is_new = self.finished == 0;
        self.start_timer(if is_new { self.timeouts.head.min(self.timeouts.idle) } else { self.timeouts.idle });
    }

    /// Starts the idle timer once a request has finished.
    ///
    /// hyper may not read again after a response, so this also runs on every write.
    fn on_response_end(&mut self, context: &mut Context<'_>) {
        let finished = self.requests.finished();
        if self.requests.is_busy() || self.finished == finished {
            return;
        }
        self.finished = finished;
        self.enter_idle();
        if let Some(timer) = &mut self.read_timer
            && timer.as_mut().poll(context).is_ready()
        {
            context.waker().wake_by_ref();
        }
    }

    /// Ready when the client has not accepted bytes for the write timeout.
    fn poll_write_timeout(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let timeout = self.timeouts.write;
        self.write_timer.get_or_insert_with(|| Box::pin(sleep(timeout))).as_mut().poll(context)
    }

    fn timed_write<T>(&mut self, context: &mut Context<'_>, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if result.is_pending() {
            ready!(self.poll_write_timeout(context));
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        self.write_timer = None;
        result
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TimeoutStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let result = Pin::new(&mut self.stream).poll_read(context, buffer);
        if self.requests.is_busy() {
            self.phase = ConnectionPhase::Busy;
            return result;
        }
        self.on_response_end(context);
        if self.read_timer.is_none() {
            self.enter_idle();
        }
        match result {
            Poll::Ready(Ok(())) if buffer.filled().len() > before && self.phase == ConnectionPhase::Idle => {
                (self.phase, self.times_head) = (ConnectionPhase::Head, false);
                result
            }
            Poll::Ready(_) => result,
            Poll::Pending => {
                if self.phase == ConnectionPhase::Head && !self.times_head {
                    let timeout = self.timeouts.head;
                    self.times_head = true;
                    self.start_timer(timeout);
                }
                let Some(timer) = &mut self.read_timer else { return Poll::Pending };
                ready!(timer.as_mut().poll(context));
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TimeoutStream<S> {
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

    /// hyper calls this only when its buffer is empty: the socket has every encoded byte.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.on_response_end(context);
        let result = Pin::new(&mut self.stream).poll_flush(context);
        // TLS keeps encrypted bytes that the socket did not accept, and writes them here.
        let result = self.timed_write(context, result);
        if matches!(result, Poll::Ready(Ok(()))) {
            self.undelivered.confirm();
        }
        result
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
