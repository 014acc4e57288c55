//! A client that does little more than write and read bytes, so that it costs less than the server.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub struct RawClient {
    stream: TcpStream,
    buffer: Vec<u8>,
}

/// A response: its status, and its body if the client keeps it.
pub struct RawResponse {
    pub status: u16,
    pub body: Vec<u8>,
}

impl RawClient {
    pub async fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: Vec::with_capacity(4 << 10) })
    }

    /// Sends the bytes of a whole request, and reads the response.
    pub async fn call(&mut self, request: &[u8]) -> io::Result<RawResponse> {
        self.stream.write_all(request).await?;
        self.buffer.clear();
        loop {
            if let Some((head, length, status)) = parse_head(&self.buffer)
                && self.buffer.len() >= head + length
            {
                return Ok(RawResponse { status, body: self.buffer[head..head + length].to_vec() });
            }
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Sends bytes that are no whole request.
    pub async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await
    }
}

/// Returns the length of the head, the length of the body and the status.
fn parse_head(bytes: &[u8]) -> Option<(usize, usize, u16)> {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = std::str::from_utf8(bytes.get(..end)?).ok()?;
    let status = head.get(9..12)?.parse().ok()?;
    let length = head
        .split("\r\n")
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .and_then(|(_, value)| value.trim().parse().ok())
        .unwrap_or(0);
    Some((end + 4, length, status))
}

pub fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").into_bytes()
}

pub fn post(path: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

/// Reads one number of `/metrics`; the sum of all series with this start.
pub async fn metric(client: &mut RawClient, name: &str) -> io::Result<f64> {
    let response = client.call(&get("/metrics")).await?;
    let text = String::from_utf8_lossy(&response.body).into_owned();
    let values = text.lines().filter(|line| line.starts_with(name));
    Ok(values.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum())
}
