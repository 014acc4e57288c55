//! TLS to PostgreSQL, by the parameters `sslmode`, `sslrootcert`, `sslcert` and `sslkey` of libpq.

use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use longshore_store::StoreError;
use longshore_tls::{CertificateFiles, TlsError, provider, roots};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Socket;
use tokio_postgres::config::SslMode;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream as RustlsStream;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::{CertificateDer, InvalidDnsNameError, ServerName, UnixTime};
use tokio_rustls::rustls::{self, CertificateError, ClientConfig, DigitallySignedStruct, SignatureScheme};

use crate::error::ErrorMessage;

/// What is checked of the server's certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum CertificateCheck {
    /// The connection is encrypted, to any server.
    #[default]
    None,
    /// An authority has signed it.
    Chain,
    /// An authority has signed it, for the name of the host.
    ChainAndName,
}

/// The parameters of TLS in a URL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TlsParameters {
    pub(crate) mode: Option<SslMode>,
    check: CertificateCheck,
    ca_file: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
}

fn refused(what: impl Into<String>) -> StoreError {
    StoreError::not_applied(ErrorMessage(what.into()))
}

impl TlsParameters {
    /// Takes the parameters of TLS out of a URL. Returns the URL without them.
    pub(crate) fn take_from(url: &str) -> Result<(String, Self), StoreError> {
        let is_url = url.starts_with("postgres://") || url.starts_with("postgresql://");
        let (true, Some((address, list))) = (is_url, url.split_once('?')) else {
            return Ok((url.to_owned(), Self::default()));
        };
        let (mut parameters, mut others, mut is_system) = (Self::default(), Vec::new(), false);
        for parameter in list.split('&') {
            match parameter.split_once('=') {
                Some(("sslmode", mode)) => parameters.set_mode(mode)?,
                Some(("sslrootcert", "system")) => is_system = true,
                Some(("sslrootcert", path)) => parameters.ca_file = path_of(path),
                Some(("sslcert", path)) => parameters.certificate = path_of(path),
                Some(("sslkey", path)) => parameters.key = path_of(path),
                Some(_) | None => others.push(parameter),
            }
        }
        // As in libpq: a file with authorities is not given to be ignored.
        if parameters.mode == Some(SslMode::Require)
            && parameters.check == CertificateCheck::None
            && (is_system || parameters.ca_file.is_some())
        {
            parameters.check = CertificateCheck::Chain;
        }
        if others.is_empty() {
            Ok((address.to_owned(), parameters))
        } else {
            Ok((format!("{address}?{}", others.join("&")), parameters))
        }
    }

    fn set_mode(&mut self, text: &str) -> Result<(), StoreError> {
        let (mode, check) = match text {
            "disable" => (SslMode::Disable, CertificateCheck::None),
            "prefer" => (SslMode::Prefer, CertificateCheck::None),
            "require" => (SslMode::Require, CertificateCheck::None),
            "verify-ca" => (SslMode::Require, CertificateCheck::Chain),
            "verify-full" => (SslMode::Require, CertificateCheck::ChainAndName),
            other => {
                let modes = "disable, prefer, require, verify-ca or verify-full";
                return Err(refused(format!("invalid parameter sslmode={other} (use {modes})")));
            }
        };
        (self.mode, self.check) = (Some(mode), check);
        Ok(())
    }

    /// Reads the files.
    pub(crate) fn connector(&self) -> Result<PostgresTls, StoreError> {
        let config = self.config().map_err(|error| refused(error.to_string()))?;
        Ok(PostgresTls(Arc::new(config)))
    }

    fn config(&self) -> Result<ClientConfig, TlsError> {
        let builder = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Settings)?;
        let algorithms = provider().signature_verification_algorithms;
        let builder = match self.check {
            CertificateCheck::ChainAndName => builder.with_root_certificates(roots(self.ca_file.as_deref())?),
            CertificateCheck::Chain => {
                let roots = Arc::new(roots(self.ca_file.as_deref())?);
                let chain = WebPkiServerVerifier::builder_with_provider(roots, provider()).build();
                let chain = chain.map_err(|error| TlsError::Settings(rustls::Error::General(error.to_string())))?;
                let verifier = NamelessVerifier { chain: Some(chain), algorithms };
                builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
            }
            CertificateCheck::None => {
                let verifier = NamelessVerifier { chain: None, algorithms };
                builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
            }
        };
        let mut config = match (&self.certificate, &self.key) {
            (Some(certificate), Some(key)) => {
                let files = CertificateFiles { certificate: certificate.clone(), key: key.clone() };
                let (chain, key) = files.read()?;
                builder.with_client_auth_cert(chain, key).map_err(|error| files.invalid_contents(&error))?
            }
            (None, None) => builder.with_no_client_auth(),
            (Some(path), None) | (None, Some(path)) => {
                let reason = "sslcert and sslkey need each other".to_owned();
                return Err(TlsError::Invalid { path: path.clone(), reason });
            }
        };
        // PostgreSQL 17 and later check the protocol of direct connections.
        config.alpn_protocols = vec![b"postgresql".to_vec()];
        Ok(config)
    }
}

/// Decodes a path of a URL.
fn path_of(text: &str) -> Option<PathBuf> {
    let escaped = text.replace('+', "%2B");
    let (path, _) = form_urlencoded::parse(escaped.as_bytes()).next()?;
    Some(PathBuf::from(path.into_owned()))
}

/// Checks the chain, or nothing, but never the name.
#[derive(Debug)]
struct NamelessVerifier {
    chain: Option<Arc<WebPkiServerVerifier>>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for NamelessVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(chain) = &self.chain else { return Ok(ServerCertVerified::assertion()) };
        let verified = chain.verify_server_cert(certificate, intermediates, name, ocsp, now);
        // The name is checked last: the chain is valid.
        let is_other_name = matches!(
            verified,
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }
            ))
        );
        if is_other_name { Ok(ServerCertVerified::assertion()) } else { verified }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// Makes the TLS sessions of connections.
#[derive(Clone)]
pub(crate) struct PostgresTls(Arc<ClientConfig>);

impl std::fmt::Debug for PostgresTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PostgresTls")
    }
}

/// Makes the TLS session of one connection.
pub(crate) struct TlsSession {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl MakeTlsConnect<Socket> for PostgresTls {
    type Stream = EncryptedSocket;
    type TlsConnect = TlsSession;
    type Error = InvalidDnsNameError;

    fn make_tls_connect(&mut self, host: &str) -> Result<TlsSession, InvalidDnsNameError> {
        let name = ServerName::try_from(host.to_owned())?;
        Ok(TlsSession { connector: TlsConnector::from(Arc::clone(&self.0)), name })
    }
}

impl TlsConnect<Socket> for TlsSession {
    type Stream = EncryptedSocket;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<EncryptedSocket>> + Send>>;

    fn connect(self, socket: Socket) -> Self::Future {
        let connecting = self.connector.connect(self.name, socket);
        Box::pin(async move { connecting.await.map(|stream| EncryptedSocket(Box::new(stream))) })
    }
}

/// The stream of a session.
pub(crate) struct EncryptedSocket(Box<RustlsStream<Socket>>);

impl TlsStream for EncryptedSocket {
    /// The certificate is checked instead, as `sslmode` says.
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for EncryptedSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(self.0.as_mut()).poll_read(context, buffer)
    }
}

impl AsyncWrite for EncryptedSocket {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(self.0.as_mut()).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.0.as_mut()).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.0.as_mut()).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_of_tls_are_taken_out_of_the_url() {
        let take = |url: &str| TlsParameters::take_from(url).unwrap();
        let (url, parameters) = take("postgres://u@h/d?sslmode=verify-full&a=1&sslrootcert=/etc/my%20ca+1.pem");
        assert_eq!(url, "postgres://u@h/d?a=1");
        assert_eq!((parameters.mode, parameters.check), (Some(SslMode::Require), CertificateCheck::ChainAndName));
        assert_eq!(parameters.ca_file, Some(PathBuf::from("/etc/my ca+1.pem")));
        assert_eq!(take("postgres://h/d?sslmode=require").1.check, CertificateCheck::None);
        assert_eq!(take("postgres://h/d?sslrootcert=/a&sslmode=require").1.check, CertificateCheck::Chain);
        assert_eq!(take("postgres://h/d?sslmode=require&sslrootcert=system").1.check, CertificateCheck::Chain);
        assert_eq!(take("postgres://h/d").1, TlsParameters::default());
        let refusal = TlsParameters::take_from("postgres://u:secret@h/d?sslmode=full").unwrap_err();
        let text = refusal.cause();
        assert!(text.contains("sslmode=full") && text.contains("verify-full") && !text.contains("secret"), "{text}");
    }
}
