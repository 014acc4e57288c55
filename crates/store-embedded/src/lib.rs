//! The embedded store: a directory on disk, no server to install.
//!
//! The engine of `longshore-core` holds the order of jobs in memory, SQLite (write-ahead log, `synchronous=FULL`) holds records and payloads. One thread
//! writes: it takes whatever waits, applies it, commits once, and answers only then. An answer means durable.
//!
//! In reading order:
//! - `open.rs`: opening a directory (or memory), recovery by scan, and the [`EmbeddedStore`] itself
//! - `writer.rs`: the writer's loop, group commit, what happens when a commit fails
//! - `granting.rs`: claims that wait, and the commits that grant them jobs; `request.rs`: what callers ask and are answered
//! - `records.rs`: the engine's records during a batch; `records/flush.rs`: their way to the tables, gathered by `records/pen.rs` and many rows to a statement by `records/many.rs`; `records/payloads.rs`, `records/keys.rs` (idempotency), `records/workflows.rs`,
//!   `records/ahead.rs` (reading ahead of the claims)
//! - `reader.rs`: threads that only look; `listing.rs`: which live jobs match what; `ended.rs`: where to look among the ended ones
//! - the format of records is that of `longshore-codec`; `names.rs`: its numbers for names, kept in a table; `sealed_id.rs`: ids that lead to their record
//! - `home.rs`: the directory and its lock; `schema.rs`: tables, versions, connections; `log.rs`: whether the log can be believed; `order.rs`: whether rows come in theirs; `noted.rs`: how far the store has come, beside the database; `seen.rs`: its time over restarts; `checkpoint.rs`: the log moved into the database beside the writer; `reserve.rs`: space for a full disk; `give_back.rs`: space that is not needed any more
//! - `backup.rs`: copies and stores made from copies; `doctor.rs`: a look at every byte; `export.rs`: everything, for a move into another store; `moved.rs`: a directory that was moved

mod backup;
mod data_dir;
mod dictionary;
mod error;
mod export;
mod finished_index;
#[cfg(test)]
mod fixture;
mod granting;
mod id_cipher;
mod key_order;
mod live_index;
mod moved;
mod reader;
mod records;
mod request;
mod reserve;
mod schema;
mod seen;
mod store;
mod vacuum;
mod verify;
mod wal;
mod wal_checkpoint;
mod watermark;
mod writer;

pub use backup::{SourceState, backup_directory, in_use, restore};
pub use export::{Export, ExportedWorkflow, KeyCursor, StoreMeta};
pub use moved::moved_file;
pub use schema::ClockMode;
pub use store::{EmbeddedStore, Options, StoreLocation};
pub use verify::{VerifyReport, examine};
