//! Connections: names are resolved, every address is checked, and a checked address is dialled.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use longshore_tls::{ClientTls, TlsError};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::guard::AddressGuard;
use crate::outcome::DeliveryFailure;
use crate::target::{Target, TargetHost};

/// Looks names up and opens connections. Tests record what is dialled.
pub trait Dialer: fmt::Debug + Send + Sync {
    type Stream: AsyncRead + AsyncWrite + Unpin + Send;

    fn resolve(&self, name: &str) -> impl Future<Output = io::Result<Vec<IpAddr>>> + Send;

    fn dial(&self, address: SocketAddr) -> impl Future<Output = io::Result<Self::Stream>> + Send;
}

/// The system's resolver and TCP.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemDialer;

impl Dialer for SystemDialer {
    type Stream = TcpStream;

    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        Ok(tokio::net::lookup_host((name, 0)).await?.map(|address| address.ip()).collect())
    }

    async fn dial(&self, address: SocketAddr) -> io::Result<TcpStream> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

/// Addresses of one name that are tried.
const ADDRESSES_MAX: usize = 4;
/// Time for one of several addresses.
const DIAL_TIMEOUT: Duration = Duration::from_secs(4);

/// Resolves the host once, checks all its addresses, and dials the checked ones in order.
pub(crate) async fn connect<D: Dialer>(
    dialer: &D,
    guard: &AddressGuard,
    target: &Target,
) -> Result<D::Stream, DeliveryFailure> {
    if !guard.permits_url(target) {
        return Err(DeliveryFailure::UrlNotAllowed);
    }
    let addresses = match &target.host {
        TargetHost::Address(address) => vec![*address],
        TargetHost::Name(name) => dialer.resolve(name).await.map_err(|_| DeliveryFailure::NameNotResolved)?,
    };
    if addresses.is_empty() {
        return Err(DeliveryFailure::NameNotResolved);
    }
    if !guard.permits_all(&addresses) {
        return Err(DeliveryFailure::AddressNotAllowed);
    }
    let mut failure = DeliveryFailure::ConnectionFailed;
    for address in addresses.into_iter().take(ADDRESSES_MAX) {
        failure = match timeout(DIAL_TIMEOUT, dialer.dial(SocketAddr::new(address, target.port))).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => DeliveryFailure::ConnectionRefused,
            Ok(Err(_)) => DeliveryFailure::ConnectionFailed,
            Err(_) => DeliveryFailure::Timeout,
        };
    }
    Err(failure)
}

/// Returns the settings of TLS: certificates of the system, or Mozilla's if the system has none.
pub(crate) fn tls_config() -> Result<Arc<ClientConfig>, TlsError> {
    ClientTls::default().config().map(Arc::new)
}

/// Returns the name that the certificate of the receiver must have.
pub(crate) fn server_name(target: &Target) -> Result<ServerName<'static>, DeliveryFailure> {
    match &target.host {
        TargetHost::Address(address) => Ok(ServerName::from(*address)),
        TargetHost::Name(name) => {
            let name = name.strip_suffix('.').unwrap_or(name).to_owned();
            ServerName::try_from(name).map_err(|_| DeliveryFailure::InvalidUrl)
        }
    }
}
