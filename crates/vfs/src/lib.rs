//! The file layer of the embedded store: a VFS of SQLite that forwards to the system's own one.
//!
//! It changes three things about the write-ahead log (WAL) of a database with [`StoreFiles`]:
//! - The frames of a commit reach the system in one write.
//! - The file grows in chunks of written zeroes, so a sync rarely has to store a new file size.
//! - [`StoreFiles::defer_sync`] lets the writer commit without a sync.
//!
//! A [`DiskObserver`] sees every write and every sync. Tests simulate power cuts with it.
//!
//! - `files.rs`: what the store and the shim share; `wal.rs`: the file object of a WAL
//! - `observed.rs`: the file object of other files that an observer watches
//! - `forward.rs`: calls to the system's file; `shim.rs`: registration

mod files;
mod forward;
mod observed;
mod shim;
mod wal;

pub use files::{DiskObserver, StoreFiles};
pub use shim::{VFS_NAME, register};
