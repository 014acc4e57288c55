//! The PostgreSQL store: any number of stateless nodes on one database.
//!
//! PostgreSQL locks rows, the rules of `longshore-core` decide over them, and what they changed is written with the commit. Concurrent requests of a node
//! share transactions. Nothing is kept in a node that another could miss; the clock is the database's.
//!
//! In reading order:
//! - `store.rs`: opening it, the [`PostgresStore`] itself; `connect.rs`, `link.rs`: connections, and many statements on their way at once
//! - `lanes.rs`: lanes that take whatever waits; what is tried again, and what must not be
//! - `dispatch.rs`: claims that wait on this node; `dispatch/work.rs`: how much work it knows of for them
//! - `turn.rs`: one transaction; `turn/claims.rs`: which jobs a claim locks; `turn/fetch.rs`: what else is read; `turn/write.rs`: what is written
//! - `turn/quick.rs`: one transaction in one trip, over what a node believes (`believed.rs`) and the database checks
//! - `fetched.rs`, `draft.rs`: the records of one transaction as the engine sees them; `row.rs`: a job as a row; `known.rs`: queues and names
//! - `tick.rs`: timers, retention, the archive; `wake.rs`: hints between nodes; `clock.rs`; `seal.rs`: ids that lead to their record
//! - `inspect.rs`: reads and listings; `enqueue.rs`: submitting inside of an application's own transaction
//! - `import.rs`: the jobs of another store, taken in whole
//! - `migrate.rs` and `migrations/`: the tables; `statements.rs` and `sql/`: every statement; `error.rs`: what PostgreSQL's errors mean

mod batcher;
mod catalog;
mod clock;
mod connection;
mod dispatch;
mod error;
mod id_cipher;
mod import;
mod inspect;
pub mod migrate;
mod node;
mod node_cache;
mod notify;
mod pool;
mod read_set;
mod row;
mod statements;
mod store;
mod submit_in_transaction;
mod tick;
mod transaction;
mod working_set;

pub use connection::StatementMode;
pub use import::{Import, ImportMeta, Imported};
pub use store::{Connections, Options, PostgresStore};
pub use submit_in_transaction::{EnqueueError, SqlSubmission, enqueue};
