//! A thin blocking HTTP client: one kept-alive connection, so that the load generator costs little.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use serde::Deserialize;
use serde_json::value::RawValue;

/// One kept-alive connection. Requests are answered in order.
pub struct BenchConnection {
    reader: BufReader<TcpStream>,
    request: Vec<u8>,
    line: Vec<u8>,
    body: Vec<u8>,
}

/// A claimed job, as far as a worker of a benchmark needs it.
#[derive(Deserialize)]
pub struct ClaimedEntry<'a> {
    pub id: &'a str,
    #[serde(borrow)]
    lease: LeaseEntry<'a>,
    #[serde(borrow)]
    pub payload: &'a RawValue,
}

#[derive(Deserialize)]
struct LeaseEntry<'a> {
    token: &'a str,
}

#[derive(Deserialize)]
struct SettledEntry<'a> {
    code: Option<&'a str>,
}

#[derive(Deserialize)]
struct ClaimEntries<'a> {
    #[serde(borrow, default)]
    results: Vec<SettledEntry<'a>>,
    #[serde(borrow)]
    jobs: Vec<ClaimedEntry<'a>>,
}

impl BenchConnection {
    pub fn open(server: SocketAddr) -> Self {
        let stream = TcpStream::connect(server).unwrap_or_else(|error| panic!("cannot connect to {server}: {error}"));
        stream.set_nodelay(true).expect("a socket option");
        let (request, line, body) = (Vec::new(), Vec::new(), Vec::new());
        // Small: a sweep keeps ten thousand of these.
        Self { reader: BufReader::with_capacity(4 << 10, stream), request, line, body }
    }

    pub fn send(&mut self, path: &str, body: &[u8]) {
        self.request.clear();
        let length = body.len();
        write!(
            self.request,
            "POST {path} HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
        )
        .expect("memory");
        self.request.extend_from_slice(body);
        self.reader.get_mut().write_all(&self.request).expect("the server reads");
    }

    /// Reads one response. Any status but 2xx ends the benchmark.
    pub fn receive(&mut self) -> &[u8] {
        self.read_line();
        let status = String::from_utf8_lossy(&self.line).trim().to_owned();
        let mut length = 0;
        loop {
            self.read_line();
            if self.line.len() <= 2 {
                break;
            }
            if let Some((name, value)) = std::str::from_utf8(&self.line).expect("ASCII").split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().expect("a length");
            }
        }
        self.body.resize(length, 0);
        self.reader.read_exact(&mut self.body).expect("the server responds");
        assert!(status.contains(" 20"), "{status}: {}", String::from_utf8_lossy(&self.body));
        &self.body
    }

    fn read_line(&mut self) {
        self.line.clear();
        let length = self.reader.read_until(b'\n', &mut self.line).expect("the server responds");
        assert!(length > 0, "the server closed the connection");
    }

    pub fn post(&mut self, path: &str, body: &[u8]) -> &[u8] {
        self.send(path, body);
        self.receive()
    }
}

/// Parses the response of a claim. A refused settlement ends the benchmark: its cost is not that of
/// a completed job.
pub fn parse_claim(body: &[u8]) -> Vec<ClaimedEntry<'_>> {
    let entries: ClaimEntries<'_> = serde_json::from_slice(body).expect("the response of a claim");
    for SettledEntry { code } in entries.results {
        assert_eq!(code, None, "a settlement was refused");
    }
    entries.jobs
}

/// The body of a submission of `count` jobs.
pub fn submission(payload: &str, count: usize) -> Vec<u8> {
    let job = format!(r#"{{"type":"bench","payload":{payload}}}"#);
    if count == 1 {
        return job.into_bytes();
    }
    format!("[{}]", vec![job; count].join(",")).into_bytes()
}

/// A payload of exactly `size` bytes: JSON text.
pub fn payload_of(size: usize) -> String {
    let letters = (b'a'..=b'z').cycle().take(size.saturating_sub(2)).map(char::from);
    format!("\"{}\"", letters.collect::<String>())
}

/// The settlements of a worker, to be sent with its next claim.
pub fn settlements_of(jobs: &[ClaimedEntry<'_>]) -> String {
    let complete =
        |job: &ClaimedEntry<'_>| format!(r#"{{"id":"{}","lease":"{}","outcome":"complete"}}"#, job.id, job.lease.token);
    jobs.iter().map(complete).collect::<Vec<_>>().join(",")
}

/// The body of a claim from one queue. With settlements the claim does not wait.
pub fn claim_body(queue: &str, limit: usize, settlements: &str, wait: &str) -> String {
    let last =
        if settlements.is_empty() { format!(r#""wait":"{wait}""#) } else { format!(r#""settle":[{settlements}]"#) };
    format!(r#"{{"queues":["{queue}"],"worker":"bench","limit":{limit},"lease":"5m",{last}}}"#)
}

#[cfg(test)]
mod tests {
    use super::{claim_body, parse_claim, payload_of, settlements_of, submission};

    #[test]
    fn payload_has_the_exact_size() {
        assert_eq!(payload_of(64).len(), 64);
        assert_eq!(payload_of(1 << 20).len(), 1 << 20);
        assert_eq!(String::from_utf8(submission("1", 1)).as_deref(), Ok(r#"{"type":"bench","payload":1}"#));
        assert!(submission("1", 2).starts_with(b"[{"));
    }

    #[test]
    fn claimed_jobs_become_settlements_of_the_next_claim() {
        let body = br#"{"results":[{"id":"a","state":"completed"}],"jobs":[{"id":"b","payload":{"id":"c"},"lease":{"token":"t","version":1}}],"now":"x"}"#;
        let jobs = parse_claim(body);
        let settlements = settlements_of(&jobs);
        assert_eq!(settlements, r#"{"id":"b","lease":"t","outcome":"complete"}"#);
        assert!(claim_body("q", 1, &settlements, "1s").contains(r#""settle":[{"id":"b""#));
        assert!(claim_body("q", 1, "", "1s").ends_with(r#""wait":"1s"}"#));
    }

    #[test]
    #[should_panic(expected = "a settlement was refused")]
    fn refused_settlement_ends_the_benchmark() {
        parse_claim(br#"{"results":[{"id":"a","code":"stale_lease","detail":"x"}],"jobs":[]}"#);
    }
}
