//! Certificates and keys in PEM files.

use std::fmt;
use std::path::{Path, PathBuf};

use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// A certificate chain and its private key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate itself first, then those that signed it.
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// Why TLS cannot be set up. Never shows contents of a file.
#[derive(Debug)]
pub enum TlsError {
    Read { path: PathBuf, error: std::io::Error },
    Invalid { path: PathBuf, reason: String },
    Settings(rustls::Error),
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read { path, error } => write!(f, "cannot read {}: {error}", path.display()),
            Self::Invalid { path, reason } => write!(f, "{}: {reason}", path.display()),
            Self::Settings(error) => write!(f, "cannot set up TLS: {error}"),
        }
    }
}

impl std::error::Error for TlsError {}

impl TlsError {
    pub(crate) fn invalid(path: &Path, reason: impl Into<String>) -> Self {
        Self::Invalid { path: path.to_owned(), reason: reason.into() }
    }

    fn of_pem(path: &Path, error: PemError, what: &str) -> Self {
        match error {
            PemError::Io(error) => Self::Read { path: path.to_owned(), error },
            PemError::NoItemsFound => Self::invalid(path, format!("there is no {what} in PEM form")),
            other => Self::invalid(path, format!("this is not PEM: {other}")),
        }
    }
}

/// Reads all certificates of a file. There is at least one.
pub(crate) fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let failed = |error| TlsError::of_pem(path, error, "certificate");
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path).map_err(failed)?.collect();
    let certificates = certificates.map_err(failed)?;
    if certificates.is_empty() { Err(failed(PemError::NoItemsFound)) } else { Ok(certificates) }
}

impl CertificateFiles {
    /// Reads the chain and the key.
    pub fn read(&self) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
        let chain = read_certificates(&self.certificate)?;
        let key = PrivateKeyDer::from_pem_file(&self.key);
        Ok((chain, key.map_err(|error| TlsError::of_pem(&self.key, error, "private key"))?))
    }

    /// Names the files in an error of rustls about their contents.
    pub fn refused(&self, error: &rustls::Error) -> TlsError {
        let reason = match error {
            rustls::Error::InconsistentKeys(_) => {
                return TlsError::invalid(
                    &self.key,
                    format!("this is not the key of the certificate in {}", self.certificate.display()),
                );
            }
            other => other.to_string(),
        };
        TlsError::invalid(&self.certificate, format!("this certificate cannot be used: {reason}"))
    }
}
