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
        if let PemError::Io(error) = error {
            return Self::Read { path: path.to_owned(), error };
        }
        let is_empty = matches!(error, PemError::NoItemsFound);
        let reason =
            if is_empty { format!("there is no {what} in PEM form") } else { format!("this is not PEM: {error}") };
        Self::invalid(path, reason)
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
    pub fn invalid_contents(&self, error: &rustls::Error) -> TlsError {
        if let rustls::Error::InconsistentKeys(_) = error {
            let certificate = self.certificate.display();
            return TlsError::invalid(&self.key, format!("this is not the key of the certificate in {certificate}"));
        }
        TlsError::invalid(&self.certificate, format!("this certificate cannot be used: {error}"))
    }
}
