//! A server in virtual time as a subject: every command is a request, every response is JSON.

use std::collections::{BTreeMap, HashMap};

use longshore_core::id::{JobId, LeaseToken};
use longshore_core::rng::SeededRng;
use longshore_testkit::engine_subject::START;
use longshore_testkit::target::*;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::common::client::Reply;
use crate::common::{Client, Setup, TestServer};
use crate::{requests, snapshots};

pub(crate) struct HttpSubject {
    runtime: Runtime,
    server: Option<TestServer>,
    client: Client,
    ids: Vec<String>,
    pub(crate) workflows: Vec<String>,
    pub(crate) handles: HashMap<String, Handle>,
    pub(crate) seqs: HashMap<u64, Handle>,
    tokens: HashMap<(Handle, u64), String>,
    pub(crate) payloads: HashMap<Handle, Value>,
    /// An id or token that was never issued.
    pub(crate) rng: SeededRng,
    reason: Option<String>,
}

/// Returns the code of an error.
pub(crate) struct Refused(String);

impl Drop for HttpSubject {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            self.runtime.block_on(server.stop());
        }
    }
}

impl HttpSubject {
    pub(crate) fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (server, client) = runtime.block_on(async {
            let server = Setup::memory().starting_at(START).start().await;
            let client = server.client().await;
            (server, client)
        });
        Self {
            runtime,
            server: Some(server),
            client,
            ids: Vec::new(),
            workflows: Vec::new(),
            handles: HashMap::new(),
            seqs: HashMap::new(),
            tokens: HashMap::new(),
            payloads: HashMap::new(),
            rng: SeededRng::new(0x7e57),
            reason: None,
        }
    }

    pub(crate) fn get(&mut self, path: &str) -> Option<Value> {
        self.get_reply(path).map(|reply| reply.json())
    }

    pub(crate) fn get_reply(&mut self, path: &str) -> Option<Reply> {
        let reply = self.runtime.block_on(self.client.get(path));
        // An invalid name cannot exist.
        if matches!(reply.status, 400 | 404) {
            return None;
        }
        assert_eq!(reply.status, 200, "{path}: {}", reply.text());
        Some(reply)
    }

    pub(crate) fn call(&mut self, method: &str, path: &str, body: Option<&Value>) -> Result<Reply, Refused> {
        let body = body.map(requests::body_text);
        let reply = self.runtime.block_on(self.client.call(method, path, body.as_deref()));
        if reply.header("connection") == Some("close") {
            self.client = self.runtime.block_on(self.client.another());
        }
        if reply.status < 400 {
            return Ok(reply);
        }
        assert!(reply.status < 500, "{method} {path}: {}", reply.text());
        self.reason = Some(reply.text().to_owned());
        if reply.header("content-type") != Some("application/problem+json") {
            // Errors of Ocypod have no code.
            let code = match reply.status {
                404 => "job_not_found",
                409 => "illegal_transition",
                _ => "validation",
            };
            return Err(Refused(code.to_owned()));
        }
        Err(Refused(reply.json()["code"].as_str().unwrap().to_owned()))
    }

    pub(crate) fn post(&mut self, path: &str, body: &Value) -> Result<Value, Refused> {
        let reply = self.call("POST", path, Some(body))?;
        Ok(if reply.body.is_empty() { Value::Null } else { reply.json() })
    }

    fn id(&mut self, job: Handle) -> String {
        let known = self.ids.get(job).cloned();
        known.unwrap_or_else(|| JobId::random(&mut self.rng).to_string())
    }

    pub(crate) fn id_of(&self, job: Handle) -> Option<String> {
        self.ids.get(job).cloned()
    }

    pub(crate) fn adopt(&mut self, id: &Value) -> Handle {
        let id = id.as_str().unwrap();
        if let Some(handle) = self.handles.get(id) {
            return *handle;
        }
        let seq = self.get(&format!("/v1/jobs/{id}")).expect("it was just made")["seq"].as_u64().unwrap();
        let handle = self.ids.len();
        self.ids.push(id.to_owned());
        self.handles.insert(id.to_owned(), handle);
        self.seqs.insert(seq, handle);
        handle
    }

    fn token(&mut self, job: Handle, token: &Token) -> Option<String> {
        let bogus = |rng: &mut SeededRng| LeaseToken::random(rng).to_string();
        match token {
            Token::Missing => None,
            Token::Bogus => Some(bogus(&mut self.rng)),
            Token::Version(version) => {
                let known = self.tokens.get(&(job, *version)).cloned();
                Some(known.unwrap_or_else(|| bogus(&mut self.rng)))
            }
        }
    }

    pub(crate) fn new_job(&mut self, new: &NewJob) -> Value {
        let after: Vec<String> = new.after.iter().map(|dependency| self.dependency(dependency)).collect();
        let after_any: Vec<String> = new.after_any.iter().map(|dependency| self.dependency(dependency)).collect();
        requests::new_job(new, self.made_up(new.payload_bytes), &after, &after_any)
    }

    /// Returns JSON of this length; unique if the length permits.
    fn made_up(&mut self, bytes: usize) -> Option<Value> {
        use longshore_core::rng::Rng;
        let salt = self.rng.next_u64().to_string();
        match bytes {
            0 => None,
            1 => Some(json!(7)),
            _ => Some(Value::from(salt.chars().cycle().take(bytes - 2).collect::<String>())),
        }
    }

    fn dependency(&mut self, dependency: &Dependency) -> String {
        match dependency {
            Dependency::Job(job) => self.id(*job),
            Dependency::Ref(name) => format!("#{name}"),
            Dependency::Unknown => JobId::random(&mut self.rng).to_string(),
        }
    }

    fn submit(&mut self, queue: &str, jobs: &[NewJob]) -> Result<Answer, Refused> {
        let bodies: Vec<Value> = jobs.iter().map(|new| self.new_job(new)).collect();
        // A single job is sent without an array, so that both forms are covered.
        let body = if let [one] = bodies.as_slice() { one.clone() } else { json!(bodies) };
        let answer = self.post(&format!("/v1/queues/{}/jobs", requests::segment(queue)), &body)?;
        let answers = if bodies.len() == 1 { vec![answer] } else { answer["jobs"].as_array().unwrap().clone() };
        let submitted = answers.iter().zip(bodies).map(|(answer, body)| {
            let state = answer["state"].as_str().map(str::to_owned);
            let job = state.as_ref().map(|_| self.adopt(&answer["id"]));
            let duplicate = answer["duplicate"].as_bool().unwrap();
            if let Some(job) = job.filter(|_| !duplicate) {
                self.payloads.insert(job, body["payload"].clone());
            }
            Submitted { job, state, duplicate }
        });
        Ok(Answer::Submitted(submitted.collect()))
    }

    fn claimed(&mut self, answer: &Value) -> Vec<Claimed> {
        let claimed = answer["jobs"].as_array().unwrap().iter().map(|claimed| {
            let job = self.adopt(&claimed["id"]);
            let version = claimed["lease"]["version"].as_u64().unwrap();
            self.tokens.insert((job, version), claimed["lease"]["token"].as_str().unwrap().to_owned());
            assert_eq!(Some(&claimed["payload"]), self.payloads.get(&job), "the payload of {claimed}");
            Claimed {
                job,
                version,
                attempt: claimed["attempt"].as_u64().unwrap() as u32,
                expires_at: snapshots::millis(&claimed["lease"]["expires_at"]),
                deadline_at: snapshots::millis(&claimed["deadline_at"]),
                lease_duration: claimed["lease"]["duration"].as_str().map(|text| {
                    let length: longshore_api::Duration = text.parse().unwrap();
                    i64::try_from(length.0).unwrap()
                }),
                last_attempt: claimed["last_attempt"].as_bool().unwrap(),
            }
        });
        claimed.collect()
    }

    fn fan_out(&mut self, job: Handle, body: &Value) -> Result<Answer, Refused> {
        let path = format!("/v1/jobs/{}/children", self.id(job));
        let answer = self.post(&path, body)?;
        let mut payloads = body["jobs"].as_array().unwrap().clone();
        payloads.push(body["finally"].clone());
        let jobs: Vec<Handle> = answer["jobs"].as_array().unwrap().iter().map(|id| self.adopt(id)).collect();
        let finally = (!answer["finally"].is_null()).then(|| self.adopt(&answer["finally"]));
        for (job, body) in jobs.iter().zip(&payloads).chain(finally.iter().zip(payloads.last())) {
            self.payloads.entry(*job).or_insert_with(|| body["payload"].clone());
        }
        Ok(Answer::FannedOut { jobs, finally })
    }

    /// Runs a command on a job. Returns its effect.
    fn operate(&mut self, job: Handle, verb: &str, body: &Value) -> Result<Answer, Refused> {
        let path = format!("/v1/jobs/{}/{verb}", self.id(job));
        let reply = self.call("POST", &path, Some(body))?;
        if reply.status == 202 {
            return Ok(Answer::CancelRequested);
        }
        let answer = reply.json();
        let runs = self.adopt(&answer["id"]);
        if let Some(payload) = self.payloads.get(&job).cloned() {
            self.payloads.entry(runs).or_insert(payload);
        }
        Ok(Answer::State { job: runs, state: answer["state"].as_str().unwrap().to_owned() })
    }

    fn change_status(&mut self, job: Handle, status: Option<&str>, output: Option<&str>) -> Result<Answer, Refused> {
        let seq = self.seqs.iter().find(|(_, known)| **known == job).map_or(u64::from(u32::MAX), |(seq, _)| *seq);
        let mut body = json!({});
        put(&mut body, "status", status.map(Value::from));
        put(&mut body, "output", output.map(requests::any_json));
        self.call("PATCH", &format!("/job/{seq}"), Some(&body))?;
        // Ocypod does not return the state. If the change deleted the record, its last state is the
        // requested status.
        let path = format!("/v1/jobs/{}", self.id(job));
        let shown = self.get(&path).map(|record| record["state"].as_str().unwrap().to_owned());
        // An empty change succeeds for any id.
        let seen = body != json!({}) || self.get_reply(&format!("/job/{seq}")).is_some();
        match shown.or_else(|| status.map(str::to_owned)).filter(|_| seen) {
            Some(state) => Ok(Answer::State { job, state }),
            None => Err(Refused("job_not_found".to_owned())),
        }
    }

    fn obey(&mut self, command: &Command) -> Result<Answer, Refused> {
        match command {
            Command::PutQueue { queue, profile, settings } => {
                let mut body = json!({});
                put(&mut body, "profile", profile.as_deref().map(Value::from));
                put(&mut body, "settings", settings.as_ref().map(|all| Value::Object(requests::settings(all))));
                self.arrange("PUT", queue, "", Some(&body))
            }
            Command::Pause { queue } => self.arrange("POST", queue, "/pause", None),
            Command::Resume { queue } => self.arrange("POST", queue, "/resume", None),
            Command::DeleteQueue { queue, force: true } => self.arrange("DELETE", queue, "?force=true", None),
            Command::DeleteQueue { queue, force: false } => self.arrange("DELETE", queue, "", None),
            Command::Submit { queue, jobs } => self.submit(queue, jobs),
            Command::Claim { .. } => {
                let answer = self.post("/v1/claims", &requests::claim(command))?;
                Ok(Answer::Claimed(self.claimed(&answer)))
            }
            Command::SettleAndClaim { settle, claim } => self.settle_and_claim(settle, claim),
            Command::Direct { worker, directive } => self.direct(worker, directive),
            Command::Settle { job, token, outcome } => self.settle(*job, token, outcome),
            Command::Heartbeat { job, token, progress, checkpoint } => {
                let mut body = json!({});
                put(&mut body, "lease", self.token(*job, token).map(Value::from));
                put(&mut body, "progress", progress.as_deref().map(requests::any_json));
                put(&mut body, "checkpoint", checkpoint.as_deref().map(requests::any_json));
                let path = format!("/v1/jobs/{}/heartbeat", self.id(*job));
                let answer = self.post(&path, &body)?;
                Ok(Answer::Extended {
                    expires_at: snapshots::millis(&answer["expires_at"]),
                    cancel_requested: answer["cancel_requested"].as_bool().unwrap(),
                })
            }
            Command::SubmitHeld { job } => self.operate(*job, "submit", &json!({})),
            Command::Cancel { job, reason, force } => {
                self.operate(*job, "cancel", &json!({ "reason": reason, "force": force }))
            }
            Command::Requeue { job, reset, run_at } => {
                let run_at = run_at.map_or(Value::Null, requests::instant);
                self.operate(*job, "requeue", &json!({ "reset": reset, "run_at": run_at }))
            }
            Command::DeadLetter { job, reason } => self.operate(*job, "dead-letter", &json!({ "reason": reason })),
            Command::RunNow { job } => self.operate(*job, "run-now", &json!({})),
            Command::Edit { job, edit } => {
                let path = format!("/v1/jobs/{}", self.id(*job));
                let record = self.call("PATCH", &path, Some(&requests::edit(edit)))?.json();
                Ok(Answer::State { job: *job, state: record["state"].as_str().unwrap().to_owned() })
            }
            Command::Delete { job } => {
                let path = format!("/v1/jobs/{}", self.id(*job));
                self.call("DELETE", &path, None).map(|_| Answer::Done)
            }
            Command::ChangeStatus { job, status, output } => {
                self.change_status(*job, status.as_deref(), output.as_deref())
            }
            Command::Children { job, token, jobs, finally } => {
                let bodies: Vec<Value> = jobs.iter().map(|new| self.new_job(new)).collect();
                let mut body = json!({ "jobs": bodies });
                let finally = finally.as_ref().map(|finally| self.new_job(finally));
                put(&mut body, "finally", finally);
                put(&mut body, "lease", self.token(*job, token).map(Value::from));
                self.fan_out(*job, &body)
            }
            Command::StartWorkflow { queue, jobs, open } => self.start_workflow(queue, jobs, *open),
            Command::GrowWorkflow { workflow, queue, jobs } => self.grow_workflow(*workflow, queue, jobs),
            Command::CloseWorkflow { workflow } => self.command_workflow(*workflow, "close", &json!({})),
            Command::CancelWorkflow { workflow, reason, force } => {
                self.command_workflow(*workflow, "cancel", &json!({ "reason": reason, "force": force }))
            }
            Command::RetryWorkflow { workflow } => self.command_workflow(*workflow, "retry", &json!({})),
        }
    }

    /// Sets the directive of a worker.
    fn direct(&mut self, worker: &str, directive: &str) -> Result<Answer, Refused> {
        let verb = if directive == "run" { "resume" } else { directive };
        let path = format!("/v1/workers/{}/{verb}", requests::segment(worker));
        self.post(&path, &json!({})).map(|_| Answer::Done)
    }

    /// Commands on queues.
    fn arrange(&mut self, method: &str, queue: &str, rest: &str, body: Option<&Value>) -> Result<Answer, Refused> {
        let path = format!("/v1/queues/{}{rest}", requests::segment(queue));
        self.call(method, &path, body).map(|_| Answer::Done)
    }

    fn settle_and_claim(&mut self, settle: &[(Handle, Token, Outcome)], claim: &Command) -> Result<Answer, Refused> {
        let items = settle.iter().map(|(job, token, outcome)| {
            let (verb, mut body) = requests::settlement(outcome);
            put(&mut body, "lease", self.token(*job, token).map(Value::from));
            body["id"] = json!(self.id(*job));
            body["outcome"] = json!(verb);
            body
        });
        let items: Vec<Value> = items.collect();
        let mut body = requests::claim(claim);
        body["settle"] = json!(items);
        let answer = self.post("/v1/claims", &body)?;
        let word = |result: &Value| result.get("state").or(result.get("code")).unwrap().as_str().unwrap().to_owned();
        let verdicts = answer["results"].as_array().unwrap().iter().map(word).collect();
        Ok(Answer::SettledAndClaimed { verdicts, claimed: self.claimed(&answer) })
    }

    fn settle(&mut self, job: Handle, token: &Token, outcome: &Outcome) -> Result<Answer, Refused> {
        let (verb, mut body) = requests::settlement(outcome);
        put(&mut body, "lease", self.token(job, token).map(Value::from));
        let path = format!("/v1/jobs/{}/{verb}", self.id(job));
        let answer = self.post(&path, &body)?;
        Ok(Answer::State { job, state: answer["state"].as_str().unwrap().to_owned() })
    }
}

/// Sets an optional field.
fn put(body: &mut Value, field: &str, value: Option<Value>) {
    if let Some(value) = value {
        body[field] = value;
    }
}

impl TestTarget for HttpSubject {
    fn name(&self) -> &'static str {
        "http"
    }

    fn now(&mut self) -> Millis {
        let clock = self.get("/v1/clock").expect("virtual time has a clock");
        snapshots::millis(&clock["now"]).unwrap()
    }

    fn apply(&mut self, command: &Command) -> Answer {
        self.reason = None;
        self.obey(command).unwrap_or_else(|Refused(code)| Answer::Refused { code })
    }

    fn advance(&mut self, by: Millis) {
        let body = json!({ "by": requests::duration(by) });
        let Ok(_) = self.post("/v1/clock/advance", &body) else { panic!("the clock stands: {:?}", self.reason) };
    }

    fn job(&mut self, job: Handle) -> Option<JobSnapshot> {
        snapshots::job(self, job)
    }

    fn queue(&mut self, queue: &str) -> Option<QueueSnapshot> {
        self.get(&format!("/v1/queues/{}", requests::segment(queue))).map(|queue| snapshots::queue(&queue))
    }

    fn workflow(&mut self, workflow: Handle) -> Option<WorkflowSnapshot> {
        self.workflow_snapshot(workflow)
    }

    fn view(&mut self, job: Handle, view: &str) -> Option<BTreeMap<String, String>> {
        snapshots::view(self, job, view)
    }

    fn reason(&self) -> Option<String> {
        self.reason.clone()
    }
}
