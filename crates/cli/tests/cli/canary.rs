//! Secrets and payloads with known texts through all kinds of calls, at trace level: none of them
//! appears in logs, errors, metrics, events, the audit log, or the files of the store (S09).

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use longshore_testkit::postgres::{new_schema, shared_url};
use serde_json::{Value, json};

use crate::support::{Server, alone, eventually, longshore, run};

const PAYLOAD: &str = "canary-payload-5d1c";
const RESULT: &str = "canary-result-77aa";
const PASSWORD: &str = "canary-password-93e0";
const BASIC: &str = "canary-basic-1b2f";

/// Where a text was looked for, and what was found there.
#[derive(Default)]
struct Evidence(BTreeMap<String, Vec<u8>>);

impl Evidence {
    fn add(&mut self, place: &str, bytes: &[u8]) {
        self.0.entry(place.to_owned()).or_default().extend_from_slice(bytes);
    }

    fn add_files(&mut self, folder: &Path) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                self.add_files(&path);
            } else {
                self.add("files", &std::fs::read(&path).unwrap());
            }
        }
    }

    /// Returns the places, except for these, that have the text.
    fn with(&self, secret: &str, except: &[&str]) -> Vec<&str> {
        assert!(secret.len() >= 12, "{secret} is too short to be a canary");
        let contains = |bytes: &Vec<u8>| bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
        let found = self.0.iter().filter(|(place, bytes)| !except.contains(&place.as_str()) && contains(bytes));
        found.map(|(place, _)| place.as_str()).collect()
    }
}

struct Session {
    server: Server,
    token: String,
    evidence: Evidence,
    log: PathBuf,
    /// Writes the event stream to a file.
    events: (Child, PathBuf),
}

impl Session {
    /// Starts a server with one token, and with everything in its log.
    fn start(folder: &Path, store: &[&str]) -> Self {
        let create =
            ["tokens", "create", "--name", "root", "--actions", "submit,work,read,operate,admin", "--queues", "*"];
        let token = alone(&[&create[..], store].concat()).expect(0).line();
        let log = folder.join("log");
        let mut command = longshore();
        command.args(["--json", "serve", "--listen", "127.0.0.1:0", "--log", "trace"]).args(store);
        command.args(["--webhook-allow", "127.0.0.0/8"]).stderr(Stdio::from(File::create(&log).unwrap()));
        let server = Server::spawn(command);
        let mut evidence = Evidence::default();
        evidence.add("banner", server.banner.to_string().as_bytes());
        let events = folder.join("events");
        let mut listener = Command::new("curl");
        listener.args(["-s", "-N", "-o"]).arg(&events).arg("-H").arg(format!("authorization: Bearer {token}"));
        let listener = listener.arg(format!("{}/v1/events", server.url)).spawn().unwrap();
        let session = Self { server, token, evidence, log, events: (listener, events) };
        eventually("the stream is open", || {
            let (_, metrics) = session.curl(&session.token, "GET", "/metrics", "");
            String::from_utf8_lossy(&metrics).contains("longshore_event_listeners 1\n")
        });
        session
    }

    fn curl(&self, token: &str, method: &str, path: &str, body: &str) -> (u16, Vec<u8>) {
        let mut curl = Command::new("curl");
        curl.args(["-s", "-X", method, "-H", "content-type: application/json", "-w", "\n%{http_code}"]);
        curl.arg("-H").arg(format!("authorization: Bearer {token}"));
        if !body.is_empty() {
            curl.args(["--data-binary", body]);
        }
        curl.arg(format!("{}{path}", self.server.url));
        let answer = run(curl, b"").stdout;
        let (body, status) = answer.rsplit_once('\n').unwrap();
        (status.parse().unwrap(), body.as_bytes().to_vec())
    }

    /// Sends a request, and keeps its answer if it is an error.
    #[track_caller]
    fn call(&mut self, method: &str, path: &str, body: &Value) -> Value {
        let (status, answer) = self.curl(&self.token, method, path, &body.to_string());
        assert!(status < 400, "{method} {path}: {status} {}", String::from_utf8_lossy(&answer));
        serde_json::from_slice(&answer).unwrap_or(Value::Null)
    }

    /// Sends a request that is refused. Its error is evidence.
    #[track_caller]
    fn refuse(&mut self, token: &str, method: &str, path: &str, body: &str) {
        let (status, answer) = self.curl(token, method, path, body);
        assert!((400..500).contains(&status), "{method} {path}: {status} {}", String::from_utf8_lossy(&answer));
        self.evidence.add("errors", &answer);
    }

    fn keep(&mut self, place: &str, path: &str) {
        let (status, answer) = self.curl(&self.token, "GET", path, "");
        assert_eq!(status, 200, "{path}");
        self.evidence.add(place, &answer);
    }

    /// Calls of every kind, with canaries wherever a secret or a payload may be. Returns the
    /// secrets that the server has made.
    fn use_everything(&mut self) -> Secrets {
        let root = self.token.clone();
        let worker = self.call("POST", "/v1/tokens", &json!({"name": "w", "actions": ["work"], "queues": ["mail"]}));
        let worker = worker["token"].as_str().unwrap().to_owned();
        let endpoint = json!({"url": "http://127.0.0.1:9/hook", "queues": ["*"]});
        let hook = self.call("PUT", "/v1/webhooks/hook", &endpoint)["secret"].as_str().unwrap().to_owned();
        self.call("POST", "/v1/webhooks/hook/rotate", &json!({}));
        let schedule = json!({"cron": "0 0 * * *", "queue": "mail", "job": {"type": "t", "payload": PAYLOAD}});
        self.call("PUT", "/v1/schedules/nightly", &schedule);
        let job = json!({"type": "t", "payload": {"text": PAYLOAD}});
        for _ in 0..3 {
            self.call("POST", "/v1/queues/mail/jobs", &job);
        }
        self.call("POST", "/v1/workflows", &json!({"jobs": [{"type": "t", "queue": "mail", "payload": PAYLOAD}]}));
        let claimed = self.call("POST", "/v1/claims", &json!({"queues": ["mail"], "limit": 3, "worker": "w"}));
        let leases: Vec<(String, String)> = claimed["jobs"].as_array().unwrap().iter().map(lease_of).collect();
        let (id, lease) = &leases[0];
        self.call("POST", &format!("/v1/jobs/{id}/heartbeat"), &json!({"lease": lease, "progress": 5}));
        let done = json!({"lease": lease, "result": RESULT});
        self.call("POST", &format!("/v1/jobs/{id}/complete"), &done);
        self.refuse(&root, "POST", &format!("/v1/jobs/{id}/release"), &json!({"lease": lease}).to_string());
        let (id, lease) = &leases[1];
        let failed = json!({"lease": lease, "error": {"category": "permanent", "code": "e", "message": "no"}});
        self.call("POST", &format!("/v1/jobs/{id}/fail"), &failed);
        self.call("POST", &format!("/v1/jobs/{id}/requeue"), &json!({}));
        // Refused requests with canaries in every part.
        let wrong = format!("{}x", root.strip_suffix(|_: char| true).unwrap());
        for (token, path, body) in [
            (
                &root,
                "/v1/queues/mail/jobs".to_owned(),
                format!(r#"{{"type":"t","payload":"{PAYLOAD}","delay":"{PAYLOAD}"}}"#),
            ),
            (&root, "/v1/queues/mail/jobs".to_owned(), format!(r#"{{"type":"t","payload":"{PAYLOAD}"#)),
            (&root, "/v1/queues/mail/jobs".to_owned(), format!(r#"{{"type":"t","payload":{PAYLOAD}}}"#)),
            (
                &root,
                "/v1/settlements".to_owned(),
                format!(r#"{{"settlements":[{{"lease":"{lease}"}}],"x":"{PAYLOAD}"}}"#),
            ),
            (&root, format!("/v1/jobs/{id}/complete"), format!(r#"{{"lease":"{lease}","result":"{RESULT}","x":1}}"#)),
            (&root, format!("/v1/nothing/{worker}"), "{}".to_owned()),
            (&wrong, "/v1/claims".to_owned(), format!(r#"{{"queues":["{PAYLOAD}"]}}"#)),
            (&worker, "/v1/queues/mail/jobs".to_owned(), job.to_string()),
            (&worker, "/v1/tokens".to_owned(), "{}".to_owned()),
        ] {
            self.refuse(token, "POST", &path, &body);
        }
        self.refuse(&root, "DELETE", &format!("/v1/tokens/{worker}"), "");
        let mut basic = Command::new("curl");
        basic.args(["-s", "-u", &format!("user:{BASIC}")]).arg(format!("{}/info", self.server.url));
        self.evidence.add("errors", run(basic, b"").stdout.as_bytes());
        self.read_everything(&wrong);
        Secrets {
            tokens: vec![root, worker, wrong],
            leases: leases.into_iter().map(|(_, lease)| lease).collect(),
            hook,
        }
    }

    /// Reads every list, and calls commands with a wrong token.
    fn read_everything(&mut self, wrong: &str) {
        for (place, path) in [
            ("metrics", "/metrics"),
            ("audit", "/v1/audit"),
            ("lists", "/v1/tokens"),
            ("lists", "/v1/webhooks"),
            ("lists", "/v1/info"),
            ("lists", "/v1/queues"),
            ("lists", "/v1/stats"),
            ("lists", "/v1/workers"),
            ("lists", "/v1/webhooks/hook/deliveries"),
            ("lists", "/v1/attention"),
            ("lists", "/v1/dead-letters/groups"),
            ("lists", "/v1/operations"),
            ("lists", "/v1/tokens/self"),
        ] {
            self.keep(place, path);
        }
        for arguments in [&["jobs", "list"][..], &["top", "--once"], &["doctor"]] {
            let mut command = self.server.command(arguments);
            command.env("LONGSHORE_TOKEN", wrong);
            let result = run(command, b"");
            self.evidence.add("command line", result.stderr.as_bytes());
            self.evidence.add("command line", result.stdout.as_bytes());
        }
    }

    /// Stops the server, and searches.
    fn search(mut self, secrets: &Secrets, files: Option<&Path>) {
        assert_eq!(self.server.stop().code(), Some(0));
        // The stream ends with the server.
        let (mut listener, events) = self.events;
        drop(listener.wait());
        self.evidence.add("events", &std::fs::read(events).unwrap());
        assert!(String::from_utf8_lossy(&self.evidence.0["events"]).contains("completed"), "the stream had events");
        self.evidence.add("log", &std::fs::read(&self.log).unwrap());
        if let Some(files) = files {
            self.evidence.add_files(files);
        }
        let log = String::from_utf8_lossy(&self.evidence.0["log"]).into_owned();
        assert!(log.contains("request finished"), "the log has lines that only the levels below info have");
        let secret_part = |token: &String| token.rsplit('_').next().unwrap().to_owned();
        for secret in secrets.tokens.iter().map(secret_part) {
            assert_eq!(self.evidence.with(&secret, &[]), [""; 0], "a secret of a token");
        }
        for lease in &secrets.leases {
            assert_eq!(self.evidence.with(lease, &["files"]), [""; 0], "a lease token");
        }
        // A secret that signs is stored, and shown only by the calls that create it.
        let hook = secrets.hook.trim_start_matches("whsec_");
        assert_eq!(self.evidence.with(hook, &["files"]), [""; 0], "the secret of a webhook");
        for text in [PAYLOAD, RESULT] {
            assert_eq!(self.evidence.with(text, &["files"]), [""; 0], "a payload");
        }
        assert_eq!(self.evidence.with(PASSWORD, &[]), [""; 0], "the password of the database");
        assert_eq!(self.evidence.with(BASIC, &[]), [""; 0], "a password of HTTP Basic");
    }
}

struct Secrets {
    tokens: Vec<String>,
    leases: Vec<String>,
    hook: String,
}

fn lease_of(job: &Value) -> (String, String) {
    (job["id"].as_str().unwrap().to_owned(), job["lease"]["token"].as_str().unwrap().to_owned())
}

#[test]
fn canaries_of_the_embedded_store_are_found_nowhere() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let mut session = Session::start(folder.path(), &["--data", data.to_str().unwrap()]);
    let secrets = session.use_everything();
    session.search(&secrets, Some(&data));
    // The search finds what is there: payloads are stored.
    let mut files = Evidence::default();
    files.add_files(&data);
    assert_eq!(files.with(PAYLOAD, &[]), ["files"]);
}

#[test]
fn canaries_of_a_server_on_postgresql_are_found_nowhere() {
    let folder = tempfile::tempdir().unwrap();
    let given = shared_url();
    let (before, host) = given.rsplit_once('@').unwrap();
    let user = before.trim_start_matches("postgres://").split(':').next().unwrap();
    let url = format!("postgres://{user}:{PASSWORD}@{host}?schema={}", new_schema());
    let mut session = Session::start(folder.path(), &["--store", &url]);
    let secrets = session.use_everything();
    // A database that does not exist, and one that cannot be reached.
    for wrong in
        [url.replacen(host, &format!("{host}-missing"), 1), format!("postgres://{user}:{PASSWORD}@127.0.0.1:9/x")]
    {
        let failed = alone(&["serve", "--listen", "127.0.0.1:0", "--log", "trace", "--store", &wrong]);
        assert_ne!(failed.code, Some(0));
        session.evidence.add("command line", failed.stderr.as_bytes());
        session.evidence.add("command line", failed.stdout.as_bytes());
    }
    session.search(&secrets, None);
}
