//! Settings of a client: the authorities that it trusts, and its own certificate.

use std::path::{Path, PathBuf};

use rustls::{ClientConfig, RootCertStore};

use crate::pem::{CertificateFiles, TlsError, read_certificates};
use crate::provider;

/// The authorities that a client trusts, and its own certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientTls {
    /// Authorities in PEM form, instead of those of the system.
    pub ca_file: Option<PathBuf>,
    /// For servers that ask for the certificate of a client.
    pub certificate: Option<CertificateFiles>,
}

impl ClientTls {
    /// Returns settings that check the chain and the name of a server's certificate.
    pub fn config(&self) -> Result<ClientConfig, TlsError> {
        let builder = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Settings)?
            .with_root_certificates(roots(self.ca_file.as_deref())?);
        match &self.certificate {
            None => Ok(builder.with_no_client_auth()),
            Some(files) => {
                let (chain, key) = files.read()?;
                builder.with_client_auth_cert(chain, key).map_err(|error| files.invalid_contents(&error))
            }
        }
    }
}

/// Returns the authorities of a file; else those of the system, or Mozilla's if it has none.
pub fn roots(ca_file: Option<&Path>) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    let Some(path) = ca_file else {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        }
        return Ok(roots);
    };
    for certificate in read_certificates(path)? {
        roots
            .add(certificate)
            .map_err(|error| TlsError::invalid(path, format!("a certificate is invalid: {error}")))?;
    }
    Ok(roots)
}
