//! Wake-ups of tasks from another thread, many with one system call.
//!
//! To wake a task from outside of its runtime, tokio writes to an event descriptor, once per task.
//! A commit answers many requests at once. Their tasks are queued here instead, and one task of the
//! runtime wakes them on its own thread.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

static LAST_ID: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Id of the queue whose runtime runs on this thread; 0 if there is none.
    static LOCAL_QUEUE: Cell<u64> = const { Cell::new(0) };
    /// Wake-ups of queues that wait for the end of [`batch_wakeups`]; `None` outside of it.
    static BATCH: RefCell<Option<Vec<Waker>>> = const { RefCell::new(None) };
}

/// The tasks of one runtime thread that other threads have woken.
#[derive(Debug)]
pub struct WakeQueue {
    id: u64,
    pending: Mutex<PendingWakes>,
}

#[derive(Debug, Default)]
struct PendingWakes {
    tasks: Vec<Waker>,
    /// Waker of [`WakeQueue::run`] while it waits.
    runner: Option<Waker>,
}

impl WakeQueue {
    #[expect(clippy::new_without_default, reason = "a queue without its runner wakes no task")]
    pub fn new() -> Self {
        Self { id: LAST_ID.fetch_add(1, Ordering::Relaxed) + 1, pending: Mutex::default() }
    }

    fn pending(&self) -> MutexGuard<'_, PendingWakes> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the queued tasks. Never returns. Spawn it once, on the runtime of the wrapped tasks.
    ///
    /// A runtime with several threads gains nothing: its tasks change threads.
    pub async fn run(self: Arc<Self>) {
        let mut woken = Vec::new();
        std::future::poll_fn(|context| {
            LOCAL_QUEUE.set(self.id);
            let mut pending = self.pending();
            std::mem::swap(&mut woken, &mut pending.tasks);
            if !pending.runner.as_ref().is_some_and(|runner| runner.will_wake(context.waker())) {
                pending.runner = Some(context.waker().clone());
            }
            drop(pending);
            woken.drain(..).for_each(Waker::wake);
            Poll::<()>::Pending
        })
        .await;
    }

    /// Wraps a future so that wake-ups from other threads go through the queue.
    pub fn wrap<F: Future>(self: &Arc<Self>, future: F) -> QueuedWakeups<F> {
        QueuedWakeups { queue: Arc::clone(self), waker: None, future: Box::pin(future) }
    }

    fn push(&self, task: Waker) {
        let mut pending = self.pending();
        pending.tasks.push(task);
        // A queue that is not empty has woken its runner already.
        let runner = if pending.tasks.len() == 1 { pending.runner.clone() } else { None };
        drop(pending);
        if let Some(runner) = runner {
            let unbatched = BATCH.with_borrow_mut(|batch| match batch {
                Some(batch) => {
                    batch.push(runner);
                    None
                }
                None => Some(runner),
            });
            unbatched.into_iter().for_each(Waker::wake);
        }
    }
}

/// Runs `send`, which sends several responses, and wakes each runtime once at its end.
pub fn batch_wakeups<T>(send: impl FnOnce() -> T) -> T {
    let _flush = BatchFlush(BATCH.replace(Some(Vec::new())));
    send()
}

/// Wakes the runners of a batch when it is dropped, also after a panic.
struct BatchFlush(Option<Vec<Waker>>);

impl Drop for BatchFlush {
    fn drop(&mut self) {
        BATCH.replace(self.0.take()).into_iter().flatten().for_each(Waker::wake);
    }
}

/// A future whose wake-ups from other threads go through a [`WakeQueue`].
#[derive(Debug)]
pub struct QueuedWakeups<F> {
    queue: Arc<WakeQueue>,
    /// Waker of the task at the last poll, and the waker that the future got.
    waker: Option<(Arc<QueuedWaker>, Waker)>,
    future: Pin<Box<F>>,
}

impl<F: Future> Future for QueuedWakeups<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        let current = this.waker.take().filter(|(queued, _)| queued.task.will_wake(context.waker()));
        let (_, waker) = this.waker.insert(current.unwrap_or_else(|| {
            let queued = Arc::new(QueuedWaker { queue: Arc::clone(&this.queue), task: context.waker().clone() });
            (Arc::clone(&queued), Waker::from(queued))
        }));
        this.future.as_mut().poll(&mut Context::from_waker(waker))
    }
}

#[derive(Debug)]
struct QueuedWaker {
    queue: Arc<WakeQueue>,
    task: Waker,
}

impl Wake for QueuedWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if LOCAL_QUEUE.get() == self.queue.id {
            self.task.wake_by_ref();
        } else {
            self.queue.push(self.task.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use tokio::sync::oneshot;

    use super::*;

    /// Counts its wake-ups.
    #[derive(Debug, Default)]
    struct WakeCounter(AtomicUsize);

    impl WakeCounter {
        fn count(&self) -> usize {
            self.0.load(Ordering::SeqCst)
        }
    }

    impl Wake for WakeCounter {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// A future with the task that polls it.
    struct Task<F> {
        future: F,
        wakes: Arc<WakeCounter>,
    }

    impl<F: Future> Task<Pin<Box<F>>> {
        fn new(future: F) -> Self {
            Self { future: Box::pin(future), wakes: Arc::default() }
        }

        fn poll(&mut self) -> Poll<F::Output> {
            let waker = Waker::from(Arc::clone(&self.wakes));
            self.future.as_mut().poll(&mut Context::from_waker(&waker))
        }
    }

    /// Runs on a thread of its own, as the writer does.
    fn elsewhere<T: Send>(work: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| scope.spawn(work).join().unwrap())
    }

    #[test]
    fn many_responses_wake_the_runtime_once() {
        let queue = Arc::new(WakeQueue::new());
        let mut runner = Task::new(Arc::clone(&queue).run());
        assert!(runner.poll().is_pending());
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..3).map(|_| oneshot::channel::<u32>()).unzip();
        let mut tasks: Vec<_> = receivers.into_iter().map(|receiver| Task::new(queue.wrap(receiver))).collect();
        assert!(tasks.iter_mut().all(|task| task.poll().is_pending()));
        let wakes = Arc::clone(&runner.wakes);
        elsewhere(|| {
            batch_wakeups(|| {
                senders.into_iter().zip(0..).for_each(|(sender, value)| sender.send(value).unwrap());
                assert_eq!(wakes.count(), 0, "the batch has not ended");
            });
        });
        assert_eq!(runner.wakes.count(), 1);
        assert!(tasks.iter().all(|task| task.wakes.count() == 0));
        assert!(runner.poll().is_pending());
        assert!(tasks.iter().all(|task| task.wakes.count() == 1));
        let values: Vec<_> = tasks.iter_mut().map(Task::poll).collect();
        assert_eq!(values, [Poll::Ready(Ok(0)), Poll::Ready(Ok(1)), Poll::Ready(Ok(2))]);
    }

    #[test]
    fn a_queue_that_was_drained_wakes_its_runner_again() {
        let queue = Arc::new(WakeQueue::new());
        let mut runner = Task::new(Arc::clone(&queue).run());
        for round in 1..=3 {
            assert!(runner.poll().is_pending());
            let (sender, receiver) = oneshot::channel();
            let mut task = Task::new(queue.wrap(receiver));
            assert!(task.poll().is_pending());
            elsewhere(|| sender.send(round).unwrap());
            assert_eq!(runner.wakes.count(), round);
            assert!(runner.poll().is_pending());
            assert_eq!((task.wakes.count(), task.poll()), (1, Poll::Ready(Ok(round))));
        }
    }

    #[test]
    fn a_wake_up_before_the_first_run_is_kept() {
        let queue = Arc::new(WakeQueue::new());
        let (sender, receiver) = oneshot::channel();
        let mut task = Task::new(queue.wrap(receiver));
        assert!(task.poll().is_pending());
        elsewhere(|| sender.send(()).unwrap());
        assert_eq!(task.wakes.count(), 0);
        assert!(Task::new(Arc::clone(&queue).run()).poll().is_pending());
        assert_eq!(task.wakes.count(), 1);
    }

    #[test]
    fn a_wake_up_on_the_same_thread_is_direct() {
        let queue = Arc::new(WakeQueue::new());
        let mut runner = Task::new(Arc::clone(&queue).run());
        assert!(runner.poll().is_pending());
        let (sender, receiver) = oneshot::channel();
        let mut task = Task::new(queue.wrap(receiver));
        assert!(task.poll().is_pending());
        sender.send(()).unwrap();
        assert_eq!((task.wakes.count(), runner.wakes.count()), (1, 0));
    }

    #[test]
    fn a_panic_ends_the_batch_and_wakes() {
        let queue = Arc::new(WakeQueue::new());
        let mut runner = Task::new(Arc::clone(&queue).run());
        assert!(runner.poll().is_pending());
        let (sender, receiver) = oneshot::channel();
        let mut task = Task::new(queue.wrap(receiver));
        assert!(task.poll().is_pending());
        elsewhere(|| {
            let send = || {
                batch_wakeups(|| {
                    sender.send(()).unwrap();
                    panic!("injected");
                })
            };
            assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(send)).is_err());
        });
        assert_eq!(runner.wakes.count(), 1);
    }
}
