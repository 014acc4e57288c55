//! Middleware: code around every handler.

use std::sync::Arc;

use super::context::JobContext;
use super::handler::{AnyHandler, BoxFuture};
use super::outcome::JobOutcome;

/// Runs around every handler of a worker: before it, after it, or instead of it.
///
/// ```
/// use longshore::{BoxFuture, JobContext, JobOutcome, Middleware, Next};
///
/// struct Timing;
///
/// impl Middleware for Timing {
///     fn call<'a>(&'a self, context: JobContext, next: Next<'a>) -> BoxFuture<'a, JobOutcome> {
///         Box::pin(async move {
///             let start = longshore::monotonic();
///             let job_type = context.job_type().to_owned();
///             let outcome = next.run(context).await;
///             let elapsed = longshore::monotonic() - start;
///             println!("{job_type}: {} after {elapsed:?}", outcome.kind());
///             outcome
///         })
///     }
/// }
/// ```
pub trait Middleware: Send + Sync + 'static {
    fn call<'a>(&'a self, context: JobContext, next: Next<'a>) -> BoxFuture<'a, JobOutcome>;
}

/// The rest of the chain: more middleware, then the handler.
#[derive(Clone, Copy)]
pub struct Next<'a> {
    pub(crate) rest: &'a [Arc<dyn Middleware>],
    pub(crate) handler: &'a Arc<dyn AnyHandler>,
}

impl std::fmt::Debug for Next<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Next({} middleware)", self.rest.len())
    }
}

impl<'a> Next<'a> {
    pub fn run(self, context: JobContext) -> BoxFuture<'a, JobOutcome> {
        match self.rest.split_first() {
            Some((first, rest)) => first.call(context, Next { rest, handler: self.handler }),
            None => self.handler.run(context),
        }
    }
}
