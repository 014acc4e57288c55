//! Handlers: plain async functions.

use std::any::{Any, TypeId, type_name};
use std::collections::HashMap;
use std::fmt;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;

use longshore_api::enums::ReportedCategory;
use longshore_api::work::ClaimedJob;
use serde::de::DeserializeOwned;

use super::context::JobContext;
use super::outcome::{Classifier, ClassifyFunction, IntoOutcome, JobOutcome, reported, system_failure};
use crate::job::Job;

/// A boxed future that is `Send`.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Shared state of a worker, as an argument of a handler. See
/// [`Worker::state`](super::Worker::state).
#[derive(Debug)]
pub struct State<T: ?Sized>(Arc<T>);

impl<T: ?Sized> Clone for State<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: ?Sized> Deref for State<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> State<T> {
    /// Wraps a value, for calling a handler in a test.
    pub fn new(value: T) -> Self {
        Self(Arc::new(value))
    }
}

/// The states of a worker by type.
#[derive(Clone, Default)]
pub(crate) struct StateMap(HashMap<TypeId, Arc<dyn Any + Send + Sync>>);

impl fmt::Debug for StateMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StateMap({})", self.0.len())
    }
}

impl StateMap {
    pub(crate) fn insert<T: Send + Sync + 'static>(&mut self, state: T) {
        self.0.insert(TypeId::of::<T>(), Arc::new(state));
    }

    pub(crate) fn get<T: Send + Sync + 'static>(&self) -> Option<State<T>> {
        let state = Arc::clone(self.0.get(&TypeId::of::<T>())?);
        state.downcast().ok().map(State)
    }

    pub(crate) fn has(&self, key: NeededState) -> bool {
        self.0.contains_key(&key.id)
    }
}

/// A type of state that a handler needs.
#[derive(Clone, Copy, Debug)]
pub struct NeededState {
    id: TypeId,
    pub(crate) name: &'static str,
}

impl NeededState {
    fn of<T: 'static>() -> Self {
        Self { id: TypeId::of::<T>(), name: type_name::<T>() }
    }
}

/// An async function that runs jobs of one type.
///
/// `async fn(JobContext, P) -> Result<T, E>`, where `P` is a [`Job`], `T` is serializable and `E`
/// converts into [`HandlerError`](super::HandlerError). Up to four more arguments are [`State`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a job handler",
    label = "expected `async fn(JobContext, P) -> Result<T, HandlerError>`",
    note = "`P` is an owned type that implements `Job` and `serde::Deserialize`; `T` implements `serde::Serialize`",
    note = "up to four more arguments are `State<S>`; the future must be `Send`"
)]
pub trait Handler<Arguments>: Send + Sync + 'static {
    type Payload: Job + DeserializeOwned + Send + 'static;

    fn states() -> Vec<NeededState>;

    fn call(&self, context: JobContext, payload: Self::Payload) -> BoxFuture<'static, JobOutcome>;
}

/// An async function that runs several jobs of one type at once. See
/// [`Worker::on_batch`](super::Worker::on_batch).
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a batch handler",
    label = "expected `async fn(Vec<JobItem<P>>) -> Vec<Result<T, HandlerError>>`",
    note = "`P` is an owned type that implements `Job` and `serde::Deserialize`; `T` implements `serde::Serialize`",
    note = "up to four more arguments are `State<S>`; the future must be `Send`"
)]
pub trait BatchHandler<Arguments>: Send + Sync + 'static {
    type Payload: Job + DeserializeOwned + Send + 'static;

    fn states() -> Vec<NeededState>;

    fn call(&self, states: &StateSource, items: Vec<JobItem<Self::Payload>>) -> BoxFuture<'static, Vec<JobOutcome>>;
}

/// One job of a batch.
#[derive(Debug)]
pub struct JobItem<P> {
    pub context: JobContext,
    pub payload: P,
}

/// What a batch handler gets from its worker: the states.
#[derive(Clone)]
pub struct StateSource {
    pub(crate) states: Arc<StateMap>,
    pub(crate) classify: Option<ClassifyFunction>,
}

impl fmt::Debug for StateSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StateSource({:?})", self.states)
    }
}

fn missing_state(key: NeededState) -> JobOutcome {
    system_failure("missing_state", format!("the worker has no state of type {}", key.name))
}

macro_rules! implement_handlers {
    ($($state:ident),*) => {
        impl<F, Run, P, R, $($state),*> Handler<(P, $($state,)*)> for F
        where
            F: Fn(JobContext, P, $(State<$state>),*) -> Run + Send + Sync + 'static,
            Run: Future<Output = R> + Send + 'static,
            R: IntoOutcome,
            P: Job + DeserializeOwned + Send + 'static,
            $($state: Send + Sync + 'static,)*
        {
            type Payload = P;

            fn states() -> Vec<NeededState> {
                vec![$(NeededState::of::<$state>()),*]
            }

            fn call(&self, context: JobContext, payload: P) -> BoxFuture<'static, JobOutcome> {
                let run = self(context.clone(), payload, $(
                    match context.state::<$state>() {
                        Some(state) => state,
                        None => return Box::pin(std::future::ready(missing_state(NeededState::of::<$state>()))),
                    }
                ),*);
                Box::pin(async move { run.await.classified_outcome(context.classifier()) })
            }
        }

        impl<F, Run, P, R, $($state),*> BatchHandler<(P, $($state,)*)> for F
        where
            F: Fn(Vec<JobItem<P>>, $(State<$state>),*) -> Run + Send + Sync + 'static,
            Run: Future<Output = Vec<R>> + Send + 'static,
            R: IntoOutcome,
            P: Job + DeserializeOwned + Send + 'static,
            $($state: Send + Sync + 'static,)*
        {
            type Payload = P;

            fn states() -> Vec<NeededState> {
                vec![$(NeededState::of::<$state>()),*]
            }

            fn call(&self, states: &StateSource, items: Vec<JobItem<P>>) -> BoxFuture<'static, Vec<JobOutcome>> {
                let count = items.len();
                // Without states the variable is not used.
                let _ = count;
                let run = self(items, $(
                    match states.states.get::<$state>() {
                        Some(state) => state,
                        None => {
                            let failed = vec![missing_state(NeededState::of::<$state>()); count];
                            return Box::pin(std::future::ready(failed));
                        }
                    }
                ),*);
                let classify = states.classify.clone();
                Box::pin(async move {
                    let classifier = Classifier(classify.as_ref());
                    run.await.into_iter().map(|result| result.classified_outcome(classifier)).collect()
                })
            }
        }
    };
}

implement_handlers!();
implement_handlers!(A);
implement_handlers!(A, B);
implement_handlers!(A, B, C);
implement_handlers!(A, B, C, D);

/// Reads the payload. The error does not contain parts of it: errors are stored and shown.
pub(super) fn decode<P: Job + DeserializeOwned>(job: &ClaimedJob) -> Result<P, JobOutcome> {
    let bad = |detail: String| {
        let message = format!("the payload is not a {}: {detail}", P::TYPE);
        JobOutcome::Fail(reported(ReportedCategory::Permanent, Some("bad_payload".to_owned()), message))
    };
    if job.payload.is_none() && job.payload_base64.is_some() {
        return Err(bad("it is binary".to_owned()));
    }
    let text = job.payload.as_ref().map_or("null", |json| json.get());
    serde_json::from_str(text).map_err(|error| bad(format!("line {}, column {}", error.line(), error.column())))
}

/// A handler of any job, with its payload undecoded.
pub(crate) trait AnyHandler: Send + Sync {
    fn run(&self, context: JobContext) -> BoxFuture<'static, JobOutcome>;
}

impl<F: Fn(JobContext) -> BoxFuture<'static, JobOutcome> + Send + Sync> AnyHandler for F {
    fn run(&self, context: JobContext) -> BoxFuture<'static, JobOutcome> {
        self(context)
    }
}

/// Wraps a typed handler.
pub(crate) fn erase<M: 'static, H: Handler<M>>(handler: H) -> Arc<dyn AnyHandler> {
    Arc::new(move |context: JobContext| match decode::<H::Payload>(context.job()) {
        Ok(payload) => handler.call(context, payload),
        Err(bad) => Box::pin(std::future::ready(bad)) as BoxFuture<'static, JobOutcome>,
    })
}
