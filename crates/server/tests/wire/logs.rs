//! Logs: a line per request with its id, and never payloads or secrets (S09).

use std::io::Write;
use std::sync::{Arc, Mutex};

use tracing_subscriber::fmt::MakeWriter;

use crate::common::Setup;
use crate::common::client::lease;

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// Proves G-9.6.
#[tokio::test]
async fn payloads_results_and_tokens_stay_out_of_logs() {
    let lines = Lines::default();
    tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_writer(lines.clone()).init();
    let server = Setup::memory().start().await;
    let mut c = server.client().await;
    c.submit("q", r#"{"type":"t","payload":{"canary":"tweet-payload"}}"#).await;
    let (id, token) = lease(&c.claim("q").await);
    c.post("/v1/queues/q/jobs", r#"{"type":"t","payload":"tweet-payload","delay":"tweet-value"}"#)
        .await
        .problem(400, "validation");
    c.post("/v1/queues/q/jobs", r#"{"type":"t","payload":"tweet-payload"#).await.problem(400, "bad_request");
    let heartbeat = format!(r#"{{"lease":"{token}","progress":"tweet-progress","checkpoint":"tweet-checkpoint"}}"#);
    c.post(&format!("/v1/jobs/{id}/heartbeat"), &heartbeat).await.ok(200);
    let done = format!(r#"{{"lease":"{token}","result":"tweet-result"}}"#);
    c.post(&format!("/v1/jobs/{id}/complete"), &done).await.ok(200);
    c.post(&format!("/v1/jobs/{id}/release"), &format!(r#"{{"lease":"{token}"}}"#)).await.problem(409, "stale_lease");
    // A line that must be there, so that the log is not just empty.
    let mut early = server.client().await;
    early.raw(b"nonsense\r\n\r\n").await;
    drop(early.reply().await);
    server.stop().await;
    let logged = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    assert!(logged.contains("connection ended with an error"), "{logged}");
    let claims: Vec<&str> = logged.lines().filter(|line| line.contains("route=\"/v1/claims\"")).collect();
    assert!(claims.iter().any(|line| line.contains("request_id=") && line.contains("status=200")), "{logged}");
    assert!(!logged.contains("tweet-"), "{logged}");
    assert!(!logged.contains(&token), "{logged}");
}
