//! Stores that wrap another store.

use std::fmt::Debug;
use std::num::NonZeroUsize;
use std::sync::Arc;

use longshore_core::heartbeat::LeaseRenewal;
use longshore_core::id::{QueueName, Seq, WorkerName, WorkflowId};
use longshore_core::job::Job;
use longshore_core::ocypod::totals::Totals;
use longshore_core::refusal::Refusal;
use longshore_core::state::StateKind;
use longshore_core::submit::Payload;
use longshore_core::time::Timestamp;
use longshore_core::workflow::Workflow;
use longshore_engine::{
    AdminCommand, AdminResponse, BatchRefusal, ClaimRequest, Heartbeat, Settlement, SubmitRequest, Submitted,
    SystemKind, Ticked,
};

use crate::change_feed::ChangeFeed;
use crate::grant::{Grant, Park, SettledGrant};
use crate::health::StoreHealth;
use crate::metrics::StoreMetrics;
use crate::query::{JobQuery, MemberQuery, Page, QueuePosition, WorkflowPage, WorkflowQuery};
use crate::store::{ClaimedJob, JobRef, QueueStats, Store, StoreFuture, StoreReader};
use crate::system::{SystemQuery, SystemRecord, SystemRefusal, SystemWrite, SystemWritten};
use crate::workers::{ReportedWorker, SeenWorker};
use longshore_core::ScheduleChange;
use longshore_core::directive::WorkerDirective;

/// Declares [`StoreLayer`] and implements the two store traits for every layer, from one list of
/// methods.
macro_rules! store_layer {
    (
        write { $(fn $write:ident($($write_arg:ident: $write_type:ty),*) -> $written:ty;)* }
        read { $(fn $read:ident($($read_arg:ident: $read_type:ty),*) -> $found:ty;)* }
    ) => {
        /// A store that wraps another one and overrides some of its methods.
        ///
        /// Every layer is a [`Store`]. Each method calls [`StoreLayer::write`] or
        /// [`StoreLayer::read`], and these call the inner store. A layer therefore overrides a hook
        /// to intercept all calls of a kind, and a method to intercept one call.
        ///
        /// ```
        /// use std::sync::Arc;
        /// use std::sync::atomic::{AtomicUsize, Ordering};
        ///
        /// use longshore_store::{Store, StoreFuture, StoreLayer};
        ///
        /// /// Counts the calls that may change jobs.
        /// #[derive(Debug)]
        /// struct WriteCounter {
        ///     store: Arc<dyn Store>,
        ///     writes: AtomicUsize,
        /// }
        ///
        /// impl StoreLayer for WriteCounter {
        ///     fn inner(&self) -> &dyn Store {
        ///         &*self.store
        ///     }
        ///
        ///     fn write<'a, T: Send + 'a>(
        ///         &'a self,
        ///         call: impl FnOnce(&'a dyn Store) -> StoreFuture<'a, T> + Send + 'a,
        ///     ) -> StoreFuture<'a, T> {
        ///         self.writes.fetch_add(1, Ordering::Relaxed);
        ///         call(&*self.store)
        ///     }
        /// }
        /// ```
        pub trait StoreLayer: Debug + Send + Sync + 'static {
            /// Returns the wrapped store.
            fn inner(&self) -> &dyn Store;

            /// Runs a call that may change jobs.
            fn write<'a, T: Send + 'a>(
                &'a self,
                call: impl FnOnce(&'a dyn Store) -> StoreFuture<'a, T> + Send + 'a,
            ) -> StoreFuture<'a, T> {
                call(self.inner())
            }

            /// Runs a call that only reads.
            fn read<'a, T: Send + 'a>(
                &'a self,
                call: impl FnOnce(&'a dyn Store) -> StoreFuture<'a, T> + Send + 'a,
            ) -> StoreFuture<'a, T> {
                call(self.inner())
            }

            /// Claims without waiting, by default through the layer's own `claim_or_park`.
            fn claim(&self, request: ClaimRequest) -> StoreFuture<'_, Result<Vec<ClaimedJob>, Refusal>> {
                Box::pin(async move {
                    Ok(StoreLayer::claim_or_park(self, request, Park::No).await?.map(Grant::deliver))
                })
            }

            /// Passes to the inner store without the write hook: a hold is no change of a job.
            fn hold_grants(&self, hold: bool) -> StoreFuture<'_, ()> {
                self.inner().hold_grants(hold)
            }

            /// Passes to the inner store without the write hook: a report is no change of a job.
            fn report_workers(&self, seen: Vec<SeenWorker>) -> StoreFuture<'_, ()> {
                self.inner().report_workers(seen)
            }

            /// Passes to the inner store without the write hook: a watch is no change of a job.
            fn watch_events(&self) -> StoreFuture<'_, u64> {
                self.inner().watch_events()
            }

            /// Passes to the inner store without the write hook: an event is no change of a job.
            fn announce_schedule(&self, name: Arc<str>, queue: QueueName, change: ScheduleChange, at: Timestamp) -> StoreFuture<'_, ()> {
                self.inner().announce_schedule(name, queue, change, at)
            }

            /// Returns the number of claims parked in the inner store.
            fn parked_claims(&self) -> usize {
                self.inner().parked_claims()
            }

            $(fn $write(&self, $($write_arg: $write_type),*) -> StoreFuture<'_, $written> {
                self.write(move |store| store.$write($($write_arg),*))
            })*

            $(fn $read(&self, $($read_arg: $read_type),*) -> StoreFuture<'_, $found> {
                self.read(move |store| store.$read($($read_arg),*))
            })*
        }

        impl<L: StoreLayer> Store for L {
            fn claim(&self, request: ClaimRequest) -> StoreFuture<'_, Result<Vec<ClaimedJob>, Refusal>> {
                StoreLayer::claim(self, request)
            }

            fn hold_grants(&self, hold: bool) -> StoreFuture<'_, ()> {
                StoreLayer::hold_grants(self, hold)
            }

            fn parked_claims(&self) -> usize {
                StoreLayer::parked_claims(self)
            }

            fn report_workers(&self, seen: Vec<SeenWorker>) -> StoreFuture<'_, ()> {
                StoreLayer::report_workers(self, seen)
            }

            fn watch_events(&self) -> StoreFuture<'_, u64> {
                StoreLayer::watch_events(self)
            }

            fn announce_schedule(&self, name: Arc<str>, queue: QueueName, change: ScheduleChange, at: Timestamp) -> StoreFuture<'_, ()> {
                StoreLayer::announce_schedule(self, name, queue, change, at)
            }

            fn wakeups(&self) -> ChangeFeed {
                self.inner().wakeups()
            }

            $(fn $write(&self, $($write_arg: $write_type),*) -> StoreFuture<'_, $written> {
                StoreLayer::$write(self, $($write_arg),*)
            })*
        }

        impl<L: StoreLayer> StoreReader for L {
            fn now(&self) -> Timestamp {
                self.inner().now()
            }

            fn directive(&self, worker: Option<&WorkerName>) -> WorkerDirective {
                self.inner().directive(worker)
            }

            $(fn $read(&self, $($read_arg: $read_type),*) -> StoreFuture<'_, $found> {
                StoreLayer::$read(self, $($read_arg),*)
            })*
        }
    };
}

store_layer! {
    write {
        fn submit(request: SubmitRequest) -> Result<Vec<Submitted>, BatchRefusal>;
        fn claim_or_park(request: ClaimRequest, park: Park) -> Result<Grant, Refusal>;
        fn settle(settlements: Vec<Settlement>) -> Vec<Result<StateKind, Refusal>>;
        fn settle_and_claim(settlements: Vec<Settlement>, request: ClaimRequest) -> Result<SettledGrant, Refusal>;
        fn heartbeat(heartbeats: Vec<Heartbeat>) -> Vec<Result<LeaseRenewal, Refusal>>;
        fn set_directive(worker: WorkerName, directive: WorkerDirective) -> ();
        fn admin(command: AdminCommand) -> Result<AdminResponse, Refusal>;
        fn tick(budget: NonZeroUsize) -> Ticked;
        fn write_system(write: SystemWrite) -> Result<SystemWritten, SystemRefusal>;
    }
    read {
        fn get(jobs: Vec<JobRef>) -> Vec<Option<Arc<Job>>>;
        fn payloads(jobs: Vec<Seq>) -> Vec<Option<Payload>>;
        fn list(query: JobQuery) -> Page;
        fn count_ahead(position: QueuePosition) -> u64;
        fn queue(name: QueueName) -> Option<QueueStats>;
        fn queues() -> Vec<QueueStats>;
        fn ocypod_totals() -> Totals;
        fn workflow(id: WorkflowId) -> Option<Arc<Workflow>>;
        fn workflows(query: WorkflowQuery) -> WorkflowPage;
        fn members(query: MemberQuery) -> Page;
        fn reported_workers(since: Timestamp) -> Vec<ReportedWorker>;
        fn system_records(query: SystemQuery) -> Vec<SystemRecord>;
        fn system_version(kind: SystemKind) -> u64;
        fn health() -> StoreHealth;
        fn metrics() -> StoreMetrics;
    }
}
