//! The byte format of records that the stores share.
//!
//! - [`record`]: version, body, checksum; [`Encoder`] and [`Decoder`] of the primitive values
//! - [`job`], [`workflow`], [`policy`], [`key`], [`totals`]: the encoding of each kind of record
//! - [`snapshot`]: a job that is read without its store
//! - [`Dictionary`] (`dictionary.rs`): numbers for queues, types and policies that many records
//!   share
//! - [`id_cipher`]: job ids that contain the encrypted sequence number
//! - [`type_hash`]: the hash of a job type in indexes

mod dictionary;
pub mod id_cipher;
pub mod job;
pub mod key;
pub mod policy;
pub mod record;
pub mod snapshot;
pub mod totals;
mod type_hash;
pub mod workflow;

pub use dictionary::Dictionary;
pub use record::{DecodeError, Decoder, Encoder, FORMAT, append_checksum, checksum, trim_padding, verify_checksum};
pub use type_hash::type_hash;
