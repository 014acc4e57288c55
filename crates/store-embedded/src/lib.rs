//! The embedded store: a directory on disk, no server to install.
//!
//! The engine of `longshore-core` orders the jobs in memory. SQLite (WAL, `synchronous=FULL`) holds
//! records and payloads. One writer thread commits batches. A reply means that the change is
//! durable.
//!
//! In reading order:
//! - `store.rs`: options and [`EmbeddedStore`]; `recovery.rs`: checks and scan at open
//! - `request.rs`, `writer.rs`: requests, group commit, failed commits; `shared.rs`: shared state
//! - `grants.rs`: parked claims and their grants
//! - `records.rs`, `records/seq_map.rs`, `records/error.rs`: record cache of a batch
//! - `records/flush.rs`: changes of a batch to the tables
//! - `records/batch_writer.rs`, `records/multi_row.rs`: multi-row statements
//! - `records/payloads.rs`, `records/keys.rs`, `records/workflows.rs`: other tables
//! - `records/prefetch.rs`: prefetch of the jobs that claims need next
//! - `reader.rs`: reader threads; `indexes.rs`: indexes shared with the writer
//! - `live_index.rs`: index of live jobs; `finished_index.rs`: chunk index of finished jobs
//! - `data_dir.rs`: directory and lock; `sqlite.rs`: connections; `schema.rs`: tables
//! - `meta.rs`: meta table; `dictionary.rs`: names in records; `id_cipher.rs`: ids of jobs
//! - `cache_budget.rs`: division of the memory for caches
//! - `sync_policy.rs`: which commits are synced before their replies
//! - `wal.rs`: WAL verification; `wal_checkpoint.rs`: checkpoints; `watermark.rs`: last commit
//! - `clock_floor.rs`: time over restarts; `key_order.rs`: order of rows; `error.rs`: error mapping
//! - `disk_reserve.rs`: reserve for a full disk; `vacuum.rs`: incremental vacuum
//! - `backup.rs`: backup, restore; `verify.rs`: full check; `export.rs`: export to another store
//! - `directives.rs`, `system.rs`: directives of workers, records beside the jobs
//! - `moved_marker.rs`: marker of a directory whose jobs were moved

mod backup;
mod cache_budget;
mod clock_floor;
mod data_dir;
mod dictionary;
mod directives;
mod disk_reserve;
mod error;
mod export;
mod finished_index;
#[cfg(test)]
mod fixture;
mod grants;
mod id_cipher;
mod indexes;
mod key_order;
mod live_index;
mod meta;
mod moved_marker;
mod reader;
mod records;
mod recovery;
mod request;
mod schema;
mod shared;
mod sqlite;
mod store;
mod sync_policy;
mod system;
mod vacuum;
mod verify;
mod wal;
mod wal_checkpoint;
mod watermark;
mod writer;

pub use backup::{SourceState, backup_directory, in_use, restore};
pub use cache_budget::DEFAULT_CACHE_BYTES;
pub use export::{Export, ExportedWorkflow, KeyCursor, StoreMeta};
pub use longshore_vfs::DiskObserver;
pub use moved_marker::moved_file;
pub use schema::ClockMode;
pub use store::{EmbeddedOptions, EmbeddedStore, StoreLocation};
pub use verify::{VerifyReport, examine};
