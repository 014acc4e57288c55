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

/// Waits for the future's end.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            // A wake-up that came first is not lost: then this returns at once.
            Poll::Pending => thread::park(),
        }
    }
}

/// The same, with an end to patience: `None` when the future has not ended by then. For what might never come.
pub fn block_on_for<F: Future>(patience: Duration, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    // No clock is read: a round ends with a wake-up or after its share of the patience.
    for _ in 0..=ROUNDS {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Some(output);
        }
        thread::park_timeout(patience / ROUNDS);
    }
    None
}

/// Wake-ups without an end that patience survives are bounded, too.
const ROUNDS: u32 = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_from_another_thread_is_waited_for() {
        let (ask, answer) = tokio::sync::oneshot::channel();
        thread::scope(|scope| {
            scope.spawn(|| ask.send(7));
            assert_eq!(block_on(answer), Ok(7));
        });
    }

    #[test]
    fn patience_has_an_end() {
        assert_eq!(block_on_for(Duration::from_millis(1), std::future::pending::<()>()), None);
        assert_eq!(block_on_for(Duration::ZERO, std::future::ready(7)), Some(7));
    }
}
