//! The certificate of a server. It is read again when its files change, or on request.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::{Mutex, RwLock};
use rustls::ServerConfig;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;

use crate::client::roots;
use crate::pem::{CertificateFiles, TlsError};
use crate::provider;

/// The only protocol of the server above TLS.
const HTTP_1_1: &[u8] = b"http/1.1";

/// The files of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerTlsFiles {
    pub own: CertificateFiles,
    /// Authorities of clients: a connection without a certificate of one of them is refused.
    pub client_ca: Option<PathBuf>,
}

/// TLS of a server.
pub struct ServerTls {
    files: ServerTlsFiles,
    current: RwLock<Arc<ServerConfig>>,
    /// The state of the files when they were read last, also without success.
    seen: Mutex<Vec<Option<FileStamp>>>,
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerTls").field("files", &self.files).finish_non_exhaustive()
    }
}

/// What changes when a file is written or replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileStamp {
    modified: Option<SystemTime>,
    bytes: u64,
    #[cfg(unix)]
    number: u64,
}

impl FileStamp {
    /// Returns `None` if there is no such file.
    fn of(path: &Path) -> Option<Self> {
        let found = std::fs::metadata(path).ok()?;
        Some(Self {
            modified: found.modified().ok(),
            bytes: found.len(),
            #[cfg(unix)]
            number: std::os::unix::fs::MetadataExt::ino(&found),
        })
    }
}

impl ServerTls {
    /// Reads the files.
    pub fn load(files: ServerTlsFiles) -> Result<Self, TlsError> {
        let seen = Mutex::new(files.states());
        let current = RwLock::new(Arc::new(files.config()?));
        Ok(Self { files, current, seen })
    }

    /// Returns the settings of the next connection.
    pub fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.current.read())
    }

    /// Whether clients need a certificate.
    pub fn requires_client_certificate(&self) -> bool {
        self.files.client_ca.is_some()
    }

    /// Reads the files again, for connections from now on. An error changes nothing.
    pub fn reload(&self) -> Result<(), TlsError> {
        *self.seen.lock() = self.files.states();
        let config = Arc::new(self.files.config()?);
        *self.current.write() = config;
        Ok(())
    }

    /// Reads the files again if one of them has changed. Returns whether one has.
    ///
    /// A change that is invalid is reported once: the files are often written one after the other.
    pub fn reload_if_changed(&self) -> Result<bool, TlsError> {
        if *self.seen.lock() == self.files.states() {
            return Ok(false);
        }
        self.reload().map(|()| true)
    }
}

impl ServerTlsFiles {
    fn states(&self) -> Vec<Option<FileStamp>> {
        let paths = [Some(&self.own.certificate), Some(&self.own.key), self.client_ca.as_ref()];
        paths.into_iter().flatten().map(|path| FileStamp::of(path)).collect()
    }

    fn config(&self) -> Result<ServerConfig, TlsError> {
        let (chain, key) = self.own.read()?;
        let builder = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Settings)?;
        let builder = match &self.client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => builder.with_client_cert_verifier(client_verifier(path)?),
        };
        let mut config = builder.with_single_cert(chain, key).map_err(|error| self.own.invalid_contents(&error))?;
        config.alpn_protocols = vec![HTTP_1_1.to_vec()];
        Ok(config)
    }
}

fn client_verifier(path: &Path) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let roots = Arc::new(roots(Some(path))?);
    let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider()).build();
    verifier.map_err(|error| TlsError::invalid(path, error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write_certificate(files: &ServerTlsFiles, name: &str) {
        let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
        std::fs::write(&files.own.certificate, made.cert.pem()).unwrap();
        std::fs::write(&files.own.key, made.signing_key.serialize_pem()).unwrap();
    }

    fn certificate_in(directory: &Path) -> ServerTlsFiles {
        let own = CertificateFiles { certificate: directory.join("server.crt"), key: directory.join("server.key") };
        let files = ServerTlsFiles { own, client_ca: None };
        write_certificate(&files, "first.example");
        files
    }

    #[test]
    fn a_changed_certificate_is_read_again_and_an_invalid_one_is_not_used() {
        let directory = tempfile::tempdir().unwrap();
        let files = certificate_in(directory.path());
        let tls = ServerTls::load(files.clone()).unwrap();
        let first = tls.config();
        assert!(!tls.reload_if_changed().unwrap());
        assert!(Arc::ptr_eq(&first, &tls.config()));
        write_certificate(&files, "second.example");
        assert!(tls.reload_if_changed().unwrap());
        let second = tls.config();
        assert!(!Arc::ptr_eq(&first, &second));
        // The key of another certificate: refused once, and the server keeps what it has.
        let other = rcgen::generate_simple_self_signed(["x".to_owned()]).unwrap();
        std::fs::write(&files.own.key, other.signing_key.serialize_pem()).unwrap();
        let refusal = tls.reload_if_changed().unwrap_err().to_string();
        assert!(refusal.contains("server.key") && refusal.contains("not the key"), "{refusal}");
        assert!(!tls.reload_if_changed().unwrap());
        assert!(Arc::ptr_eq(&second, &tls.config()));
        assert!(tls.reload().is_err());
        write_certificate(&files, "third.example");
        assert!(tls.reload_if_changed().unwrap());
    }

    #[test]
    fn errors_name_the_file_and_what_it_lacks() {
        let directory = tempfile::tempdir().unwrap();
        let files = certificate_in(directory.path());
        let refusal = |files: &ServerTlsFiles| ServerTls::load(files.clone()).unwrap_err().to_string();
        let missing = ServerTlsFiles { client_ca: Some(directory.path().join("none.pem")), ..files.clone() };
        assert!(refusal(&missing).contains("none.pem"), "{}", refusal(&missing));
        std::fs::write(&files.own.key, "secret text").unwrap();
        let text = refusal(&files);
        assert!(text.contains("there is no private key in PEM form") && !text.contains("secret"), "{text}");
        std::fs::write(&files.own.certificate, "-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n").unwrap();
        assert!(refusal(&files).contains("server.crt: this is not PEM"), "{}", refusal(&files));
    }
}
