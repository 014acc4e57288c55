//! Jobs as bytes: what the stores of Longshore share.
//!
//! - [`codec`]: the record format (version, body, checksum); [`codec::job`], [`codec::policy`], [`codec::totals`]
//! - [`Names`] (`names.rs`): numbers for queues, types and policies that many records mention; the store keeps them
//! - [`sealed_id`]: ids that lead to their number
//! - [`SystemDice`] (`rng.rs`): unguessable randomness for tokens and ids

pub mod codec;
mod dictionary;
pub mod id_cipher;
mod os_rng;

pub use codec::{DecodeError, Reader, Writer};
pub use dictionary::Dictionary;
pub use os_rng::OsRng;
