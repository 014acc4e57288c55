//! Secrets of tokens stay out of logs, errors, metrics and files (S02, S09).

use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};

use tracing_subscriber::fmt::MakeWriter;

use crate::common::Setup;
use crate::{call_as, create, first_token, id_of};

#[derive(Clone, Default)]
struct LogLines(Arc<Mutex<Vec<u8>>>);

impl Write for LogLines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LogLines {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

fn contains(bytes: &[u8], secret: &str) -> bool {
    bytes.windows(secret.len()).any(|window| window == secret.as_bytes())
}

fn assert_no_file_contains(folder: &Path, secret: &str) {
    let mut files = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            assert!(!contains(&std::fs::read(&path).unwrap(), secret), "{path:?}");
            files += 1;
        }
    }
    assert!(files > 0);
}

#[tokio::test]
async fn secrets_of_tokens_appear_nowhere() {
    let lines = LogLines::default();
    tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_writer(lines.clone()).init();
    let folder = tempfile::tempdir().unwrap();
    let server = Setup::directory(folder.path()).start().await;
    let mut c = server.client().await;
    let root = first_token(&mut c).await;
    let worker = create(&mut c, &root, "worker", &["work"], &["mail"]).await;
    let secret_of = |token: &str| token.rsplit('_').next().unwrap().to_owned();
    // The canary is in a wrong token, in a body and in a path too.
    let wrong = format!("lsk_{}_{}", id_of(&root), secret_of(&worker));
    let mut answers = Vec::new();
    answers.push(call_as(&mut c, &wrong, "GET", "/v1/info", None).await);
    answers.push(call_as(&mut c, &worker, "GET", "/v1/info", None).await);
    answers.push(call_as(&mut c, &worker, "POST", "/v1/claims", Some(&format!(r#"{{"queues":["{root}"]}}"#))).await);
    answers.push(call_as(&mut c, &root, "DELETE", &format!("/v1/tokens/{worker}"), None).await);
    answers.push(call_as(&mut c, &root, "GET", "/v1/tokens", None).await);
    answers.push(call_as(&mut c, &root, "GET", "/metrics", None).await);
    answers.push(call_as(&mut c, &root, "GET", "/v1/info", None).await);
    server.stop().await;
    let logged = lines.0.lock().unwrap().clone();
    assert!(String::from_utf8_lossy(&logged).contains("request not admitted"));
    for secret in [secret_of(&root), secret_of(&worker)] {
        assert!(!contains(&logged, &secret), "a secret is in the log");
        for answer in &answers {
            assert!(!contains(&answer.body, &secret), "a secret is in an answer: {}", answer.status);
        }
        assert_no_file_contains(folder.path(), &secret);
    }
}
