//! Ends the waiting requests of a client without losing responses that are on their way.
//!
//! A dropped request closes its connection: a response that the server has already sent is lost,
//! and with a claim, so are the leases in it. [`Hangup::fire`] ends only the sending half of each
//! connection. The server takes that as the end of the request, and the client reads on until the
//! server closes, too.

use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use hyper::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tower_service::Service;

use crate::connect::{Connector, ServerStream};
use crate::error::BoxedError;

/// Shared by the connections of a client.
#[derive(Debug, Default)]
pub(crate) struct Hangup {
    is_fired: AtomicBool,
    fired: Notify,
    readers: Mutex<HashMap<u64, Waker>>,
    next_key: AtomicU64,
}

impl Hangup {
    pub(crate) fn fire(&self) {
        self.is_fired.store(true, Ordering::Release);
        for (_, reader) in self.readers.lock().drain() {
            reader.wake();
        }
        self.fired.notify_waiters();
    }

    pub(crate) fn is_fired(&self) -> bool {
        self.is_fired.load(Ordering::Acquire)
    }

    /// Waits until it is fired. Cancel safe.
    pub(crate) async fn fired(&self) {
        let mut fired = std::pin::pin!(self.fired.notified());
        fired.as_mut().enable();
        if !self.is_fired() {
            fired.await;
        }
    }
}

/// Makes the connections of a client, and attaches its hangup to them.
#[derive(Clone)]
pub(crate) struct HangupConnector {
    pub(crate) inner: Connector,
    pub(crate) hangup: Option<Arc<Hangup>>,
}

impl Service<Uri> for HangupConnector {
    type Response = HangupStream;
    type Error = BoxedError;
    type Future = Pin<Box<dyn Future<Output = Result<HangupStream, BoxedError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxedError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connecting = self.inner.call(uri);
        let watch = self.hangup.clone().map(|hangup| {
            let key = hangup.next_key.fetch_add(1, Ordering::Relaxed);
            HangupWatch { hangup, key, is_closed: false }
        });
        Box::pin(async move { Ok(HangupStream { inner: connecting.await?, watch }) })
    }
}

/// The place of one connection in its hangup.
struct HangupWatch {
    hangup: Arc<Hangup>,
    key: u64,
    /// The sending half has ended.
    is_closed: bool,
}

impl Drop for HangupWatch {
    fn drop(&mut self) {
        self.hangup.readers.lock().remove(&self.key);
    }
}

pub(crate) struct HangupStream {
    inner: ServerStream,
    watch: Option<HangupWatch>,
}

impl HangupStream {
    /// Ends the sending half once the hangup is fired.
    fn poll_hangup(&mut self, context: &mut Context<'_>) {
        let Some(watch) = self.watch.as_mut().filter(|watch| !watch.is_closed) else { return };
        // The waker comes first: a hangup after the check wakes this task again.
        watch.hangup.readers.lock().insert(watch.key, context.waker().clone());
        if watch.hangup.is_fired() {
            watch.is_closed = Pin::new(&mut self.inner).poll_shutdown(context).is_ready();
        }
    }
}

impl Connection for HangupStream {
    fn connected(&self) -> Connected {
        self.inner.connected()
    }
}

impl Read for HangupStream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let stream = self.get_mut();
        stream.poll_hangup(context);
        Pin::new(&mut stream.inner).poll_read(context, buffer)
    }
}

impl Write for HangupStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write_vectored(context, bytes)
    }
}
