//! The smallest executor: one future, on this thread.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Blocks until the future completes.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            // If the wake-up came first, `park` returns at once.
            Poll::Pending => thread::park(),
        }
    }
}

/// Blocks until the future completes or the timeout ends. Returns `None` after the timeout.
pub fn block_on_for<F: Future>(timeout: Duration, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    // No clock is read: a round ends with a wake-up, or after its share of the timeout.
    for _ in 0..=ROUNDS {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Some(output);
        }
        thread::park_timeout(timeout / ROUNDS);
    }
    None
}

/// A future that wakes itself without completing is polled at most this often.
const ROUNDS: u32 = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_on_waits_for_another_thread() {
        let (ask, answer) = tokio::sync::oneshot::channel();
        thread::scope(|scope| {
            scope.spawn(|| ask.send(7));
            assert_eq!(block_on(answer), Ok(7));
        });
    }

    #[test]
    fn block_on_for_times_out() {
        assert_eq!(block_on_for(Duration::from_millis(1), std::future::pending::<()>()), None);
        assert_eq!(block_on_for(Duration::ZERO, std::future::ready(7)), Some(7));
    }
}
