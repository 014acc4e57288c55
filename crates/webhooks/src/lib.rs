//! Webhooks: how a message is signed, when it is sent again, and which addresses may get it.
//!
//! - [`sign`]: signatures by Standard Webhooks; [`plan`]: the delays between attempts
//! - [`outcome`]: what the response of a receiver means
//! - [`network`]: networks that are not globally routable; [`guard`]: which addresses are allowed
//! - [`client`]: one attempt: resolve, check, dial the checked address, send, read a bounded
//!   response
//!
//! The crate knows neither jobs nor stores.

pub mod client;
mod connect;
pub mod guard;
pub mod network;
pub mod outcome;
pub mod plan;
pub mod sign;
pub mod target;
