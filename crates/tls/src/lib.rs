//! TLS by rustls: certificates from files, settings of clients and of the server.
//!
//! - `pem.rs`: reads certificates and keys; [`TlsError`]
//! - `client.rs`: [`ClientTls`]: the authorities that a client trusts, and its own certificate
//! - `server.rs`: [`ServerTls`]: the certificate of a server, which can be replaced while it serves

mod client;
mod pem;
mod server;

use std::sync::Arc;

pub use client::{ClientTls, roots};
pub use pem::{CertificateFiles, TlsError};
pub use server::{ServerTls, ServerTlsFiles};

/// Returns the cryptography of all connections.
pub fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
