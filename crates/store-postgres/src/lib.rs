//! The PostgreSQL store: any number of stateless nodes on one database.
//!
//! A transaction locks rows, runs the rules of `longshore-core` on them, and writes the changes
//! with its commit. Concurrent requests of a node share transactions. The database clock decides.
//!
//! In reading order:
//! - `store.rs`: [`PostgresStore`], its options, and which queue each request goes to
//! - `batcher.rs`: request queues and the workers that serve batches of them
//! - `retry.rs`: executes a transaction; what is retried, and when to reconnect
//! - `transaction.rs`: the slow path: read, run the rules, write with the commit
//! - `transaction/claim_scan.rs`: which jobs claims lock; `transaction/fetch.rs`: other reads
//! - `transaction/classify.rs`, `transaction/write.rs`: changed rows and their statements
//! - `transaction/fast_path.rs`: the fast path: one optimistic round trip over cached rows
//! - `node_cache.rs`: what a node caches: running jobs, queue heads, scan starts, numbers
//! - `read_set.rs`, `working_set.rs`: records as the rules see them; `row.rs`: a job as a row
//! - `dispatch.rs`: long-poll claims of this node; `dispatch/work.rs`: which jobs they expect
//! - `tick.rs`: timers and retention; `archive.rs`: finished jobs
//! - `events/`: events of all nodes for listeners
//! - `notify.rs`: hints between nodes; `clock.rs`: the database clock; `stats.rs`: counters
//! - `inspect.rs`: reads and listings; `import.rs`: import of another store
//! - `submit_in_transaction.rs`: submits inside a transaction of the application
//! - `node.rs`: state that all tasks share; `catalog.rs`: queues and names; `id_cipher.rs`: job ids
//! - `connection.rs`, `pool.rs`, `tls.rs`: connections, pipelined statements; `error.rs`: what
//!   errors mean
//! - `statements.rs` and `sql/`: every statement; `migrate.rs` and `migrations/`: the schema

mod archive;
mod batcher;
mod catalog;
mod clock;
mod connection;
mod dispatch;
mod error;
mod events;
mod id_cipher;
mod import;
mod inspect;
pub mod migrate;
mod node;
mod node_cache;
mod notify;
mod pool;
mod read_set;
mod request;
mod retry;
mod row;
mod statements;
mod stats;
mod store;
mod submit_in_transaction;
mod system;
mod tick;
mod tls;
mod transaction;
mod workers;
mod working_set;

pub use connection::StatementMode;
pub use import::{Import, ImportMeta, Imported};
pub use store::{Connections, PostgresOptions, PostgresStore};
pub use submit_in_transaction::{SqlSubmission, SqlSubmitError, submit_in_transaction};
