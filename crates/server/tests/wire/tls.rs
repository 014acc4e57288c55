//! TLS: handshakes, certificates of clients, the certificate that is replaced.

use std::path::Path;
use std::sync::Arc;

use longshore_tls::{CertificateFiles, ClientTls, ServerTls, ServerTlsFiles};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::common::{Setup, TestServer};

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// Writes a certificate of the authority for `name`, with its key.
fn write(directory: &Path, authority: &Authority, name: &str) -> CertificateFiles {
    let key = KeyPair::generate().unwrap();
    let signed = CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, authority).unwrap();
    let files = CertificateFiles {
        certificate: directory.join(format!("{name}.pem")),
        key: directory.join(format!("{name}.key")),
    };
    std::fs::write(&files.certificate, signed.pem()).unwrap();
    std::fs::write(&files.key, key.serialize_pem()).unwrap();
    files
}

/// A server with the certificate "localhost" of an authority.
struct TlsFixture {
    directory: tempfile::TempDir,
    authority: Authority,
    tls: Arc<ServerTls>,
    server: TestServer,
}

impl TlsFixture {
    async fn start(needs_client_certificate: bool) -> Self {
        let (directory, authority) = (tempfile::tempdir().unwrap(), authority());
        let ca = directory.path().join("ca.pem");
        std::fs::write(&ca, authority.pem()).unwrap();
        let own = write(directory.path(), &authority, "localhost");
        let client_ca = needs_client_certificate.then_some(ca);
        let tls = Arc::new(ServerTls::load(ServerTlsFiles { own, client_ca }).unwrap());
        let mut setup = Setup::memory();
        setup.tls = Some(Arc::clone(&tls));
        let server = setup.start().await;
        Self { directory, authority, tls, server }
    }

    fn client(&self) -> ClientTls {
        ClientTls { ca_file: Some(self.directory.path().join("ca.pem")), certificate: None }
    }

    async fn dial(&self, tls: &ClientTls, protocols: &[&str], name: &str) -> std::io::Result<TlsStream<TcpStream>> {
        let mut config = tls.config().unwrap();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        let stream = TcpStream::connect(self.server.address).await.unwrap();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    }
}

async fn answer_to(stream: &mut TlsStream<TcpStream>, request: &str) -> std::io::Result<String> {
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.map(|_| answer)
}

const LIVEZ: &str = "GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

/// S08: the chain and the name of the certificate decide; the protocol is HTTP/1.1.
#[tokio::test]
async fn requests_are_served_over_tls() {
    let fixture = TlsFixture::start(false).await;
    let mut stream = fixture.dial(&fixture.client(), &["h2", "http/1.1"], "localhost").await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    let answer = answer_to(&mut stream, LIVEZ).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    // A large body and a large answer, both of many records.
    let mut stream = fixture.dial(&fixture.client(), &[], "localhost").await.unwrap();
    let body = format!(r#"{{"type":"t","payload":"{}"}}"#, "x".repeat(900_000));
    let submit = format!(
        "POST /v1/queues/q/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    assert!(answer_to(&mut stream, &submit).await.unwrap().starts_with("HTTP/1.1 201"));
    let mut stream = fixture.dial(&fixture.client(), &[], "localhost").await.unwrap();
    let claim = "POST /v1/claims HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Content-Length: 16\r\nConnection: close\r\n\r\n{\"queues\":[\"q\"]}";
    let answer = answer_to(&mut stream, claim).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.len() > 900_000, "{} bytes", answer.len());
    for refused in [
        fixture.dial(&fixture.client(), &[], "other.example").await,
        fixture.dial(&ClientTls::default(), &[], "localhost").await,
        fixture.dial(&fixture.client(), &["h2"], "localhost").await,
    ] {
        assert!(refused.is_err());
    }
    fixture.server.stop().await;
}

#[tokio::test]
async fn a_client_without_a_required_certificate_is_not_served() {
    let fixture = TlsFixture::start(true).await;
    let certificate = write(fixture.directory.path(), &fixture.authority, "worker");
    let known = ClientTls { certificate: Some(certificate), ..fixture.client() };
    let mut stream = fixture.dial(&known, &[], "localhost").await.unwrap();
    assert!(answer_to(&mut stream, LIVEZ).await.unwrap().starts_with("HTTP/1.1 200"));
    let foreign = write(fixture.directory.path(), &authority(), "foreign");
    for client in [fixture.client(), ClientTls { certificate: Some(foreign), ..fixture.client() }] {
        // In TLS 1.3 the client has finished before the server checks its certificate.
        if let Ok(mut stream) = fixture.dial(&client, &[], "localhost").await {
            assert!(answer_to(&mut stream, LIVEZ).await.is_err());
        }
    }
    fixture.server.stop().await;
}

#[tokio::test]
async fn new_connections_use_the_new_certificate_and_open_ones_go_on() {
    let fixture = TlsFixture::start(false).await;
    let mut open = fixture.dial(&fixture.client(), &[], "localhost").await.unwrap();
    let own = CertificateFiles {
        certificate: fixture.directory.path().join("localhost.pem"),
        key: fixture.directory.path().join("localhost.key"),
    };
    std::fs::write(&own.certificate, "broken").unwrap();
    assert!(fixture.tls.reload_if_changed().is_err());
    assert!(fixture.dial(&fixture.client(), &[], "localhost").await.is_ok());
    let replaced = write(fixture.directory.path(), &fixture.authority, "new.example");
    std::fs::copy(replaced.certificate, own.certificate).unwrap();
    std::fs::copy(replaced.key, own.key).unwrap();
    assert!(fixture.tls.reload_if_changed().unwrap());
    assert!(fixture.dial(&fixture.client(), &[], "localhost").await.is_err());
    assert!(fixture.dial(&fixture.client(), &[], "new.example").await.is_ok());
    assert!(answer_to(&mut open, LIVEZ).await.unwrap().starts_with("HTTP/1.1 200"));
    fixture.server.stop().await;
}

/// Plain HTTP gets an answer that says what is wrong; other bytes and silence get an end.
#[tokio::test]
async fn a_client_without_tls_gets_a_clean_end() {
    let fixture = TlsFixture::start(false).await;
    let mut plain = TcpStream::connect(fixture.server.address).await.unwrap();
    plain.write_all(LIVEZ.as_bytes()).await.unwrap();
    let mut answer = String::new();
    plain.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("use https"), "{answer}");
    // A record that announces more than the largest one.
    let mut broken = TcpStream::connect(fixture.server.address).await.unwrap();
    broken.write_all(&[0x16, 3, 1, 0xff, 0xff, 1, 2, 3]).await.unwrap();
    drop(broken.read_to_end(&mut Vec::new()).await);
    // Silence neither holds the shutdown nor the slot of a connection.
    let silent = TcpStream::connect(fixture.server.address).await.unwrap();
    let mut half = TcpStream::connect(fixture.server.address).await.unwrap();
    half.write_all(&[0x16, 3, 1]).await.unwrap();
    fixture.server.stop().await;
    drop((silent, half));
}

#[tokio::test]
async fn a_handshake_that_stalls_is_ended() {
    let (directory, authority) = (tempfile::tempdir().unwrap(), authority());
    let own = write(directory.path(), &authority, "localhost");
    let tls = Arc::new(ServerTls::load(ServerTlsFiles { own, client_ca: None }).unwrap());
    let mut setup = Setup::memory();
    setup.tls = Some(tls);
    setup.limits.head_timeout = std::time::Duration::from_millis(100);
    let server = setup.start().await;
    for sent in [&[][..], &[0x16, 3, 1, 2]] {
        let mut stalled = TcpStream::connect(server.address).await.unwrap();
        stalled.write_all(sent).await.unwrap();
        // The server closes: with an end, or with a reset.
        assert!(stalled.read(&mut [0; 16]).await.is_ok_and(|bytes| bytes == 0) || !sent.is_empty());
    }
    server.stop().await;
}
