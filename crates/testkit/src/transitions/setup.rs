//! How each state of the transition table is reached, and how each command is run.

use super::Triple;
use crate::target::{
    Answer, Claimed, Command, Dependency, Edit, Handle, JobSnapshot, Millis, NewJob, Outcome, Settings, TestTarget,
    Token,
};
use std::collections::BTreeMap;

/// The queue under test, and the queue of dependencies (`gopherqueue`, so that they can end in
/// every way).
const QUEUE: &str = "q";
const UPSTREAM: &str = "upstream";

// Durations with a fixed order, so that the awaited deadline always comes first. Two cannot be set:
// one second of a document retry and five seconds of a weave lease.
const SHORT_LEASE: Millis = 300;
const LEASE: Millis = 600;
const DEADLINE: Millis = 600;
const RETENTION: Millis = 700;
const LIFETIME: Millis = 900;
const DOCUMENT_RETRY: Millis = 1_000;
/// A document job on its last attempt has waited for three retries.
const LIFETIME_OF_LAST: Millis = 4_000;
const DELAY: Millis = 10_000;
/// The result of every completed job.
pub(super) const RESULT: &str = "\"done\"";
/// Advances that reach no deadline.
const SHORT_ADVANCE: Millis = 400;

/// One job in one state, on its own target.
pub(super) struct TransitionSetup {
    pub(super) subject: Box<dyn TestTarget>,
    pub(super) triple: Triple,
    pub(super) job: Handle,
    dependency: Option<Handle>,
    /// The lease version of the last claim, 0 before any.
    version: u64,
}

impl TransitionSetup {
    pub(super) fn reach(factory: impl Fn() -> Box<dyn TestTarget>, triple: Triple) -> Result<TransitionSetup, String> {
        let mut stage = TransitionSetup { subject: factory(), triple, job: 0, dependency: None, version: 0 };
        let queue = QUEUE.to_owned();
        let settings = Some(queue_settings(triple.profile));
        stage.must(&Command::PutQueue { queue, profile: Some(triple.profile.to_owned()), settings })?;
        let queue = UPSTREAM.to_owned();
        stage.must(&Command::PutQueue { queue, profile: Some("gopherqueue".to_owned()), settings: None })?;
        let dead_by_dependency = triple.state == "dead_letter" && triple.profile == "document";
        if triple.state == "pending-waiting" || triple.command.starts_with("dependency-") || dead_by_dependency {
            stage.dependency =
                Some(stage.submit(UPSTREAM, NewJob { job_type: "dependency".to_owned(), ..NewJob::default() })?);
        }
        if dead_by_dependency {
            stage.end_dependency("dead-lettered")?;
        }
        let job = stage.new_job();
        stage.job = stage.submit(QUEUE, job)?;
        stage.drive()?;
        let expected = triple.state.split('-').next().unwrap_or_default();
        match stage.snapshot() {
            Some(job) if job.state == expected => Ok(stage),
            other => Err(format!("{expected} not reached: {:?}", other.map(|job| job.state))),
        }
    }

    fn new_job(&mut self) -> NewJob {
        let Triple { state, command, profile } = self.triple;
        let held = state == "pending-held";
        let run_at = self.subject.now() + DELAY;
        // A held or waiting job stores its start time without using it.
        let later = state == "delayed" || (command == "due" && state.starts_with("pending") && profile != "document");
        NewJob {
            job_type: "test".to_owned(),
            payload_bytes: 8,
            run_at: later.then_some(run_at),
            after: self.dependency.into_iter().map(Dependency::Job).collect(),
            // `document` submits in a separate step; other profiles submit by default.
            hold: (held || profile == "document").then_some(held),
            settings: job_settings(self.triple),
            ..NewJob::default()
        }
    }

    /// Drives the job from submission to its state.
    fn drive(&mut self) -> Result<(), String> {
        match self.triple.state {
            "running" => self.claim()?,
            "running-last" => {
                if self.triple.profile == "document" {
                    for _ in 0..3 {
                        self.claim()?;
                        self.settle(fail("temporary", false))?;
                        self.subject.advance(DOCUMENT_RETRY);
                    }
                }
                self.claim()?;
            }
            "running-cancelling" => {
                self.claim()?;
                self.must(&Command::Cancel { job: self.job, reason: None, force: false })?;
            }
            "running-expired" => {
                self.claim()?;
                self.subject.advance(SHORT_LEASE);
            }
            "retrying" => {
                self.claim()?;
                self.settle(fail("temporary", false))?;
            }
            "completed" => {
                self.claim()?;
                self.settle(complete())?;
            }
            "failed" => {
                self.claim()?;
                // `ocypod` has no permanent failures, so the job has no retries.
                let category = if self.triple.profile == "ocypod" { "temporary" } else { "permanent" };
                self.settle(fail(category, false))?;
            }
            "dead_letter" if self.triple.profile != "document" => {
                self.must(&Command::DeadLetter { job: self.job, reason: None })?;
            }
            "cancelled" => {
                self.must(&Command::Cancel { job: self.job, reason: None, force: false })?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Prepares what the command needs besides the job: a full queue.
    pub(super) fn prepare(&mut self) -> Result<(), String> {
        if self.triple.command != "submit-held-full" {
            return Ok(());
        }
        let waiting = NewJob { job_type: "other".to_owned(), hold: Some(false), ..NewJob::default() };
        self.submit(QUEUE, waiting)?;
        let mut settings = queue_settings(self.triple.profile);
        settings.insert("max_queued".to_owned(), "1".to_owned());
        self.must(&Command::PutQueue { queue: QUEUE.to_owned(), profile: None, settings: Some(settings) })?;
        Ok(())
    }

    /// Runs the command. An advance of the clock has no answer.
    pub(super) fn act(&mut self) -> Result<Option<Answer>, String> {
        let span = match self.triple.command {
            "due" => {
                let run_at = self.snapshot().and_then(|job| job.run_at);
                run_at.map_or(SHORT_ADVANCE, |instant| instant - self.subject.now())
            }
            "lease-expiry" => LEASE,
            "deadline" => DEADLINE,
            "retention" => RETENTION,
            "lifetime" => {
                let created_at = self.snapshot().map_or(0, |job| job.created_at);
                created_at + lifetime(self.triple) - self.subject.now()
            }
            other => {
                if let Some(end) = other.strip_prefix("dependency-") {
                    self.end_dependency(end)?;
                    return Ok(None);
                }
                let command = self.command();
                return Ok(Some(self.subject.apply(&command)));
            }
        };
        self.subject.advance(span);
        Ok(None)
    }

    fn command(&self) -> Command {
        let job = self.job;
        let settle = |outcome| Command::Settle { job, token: self.token(), outcome };
        let completed = |token| Command::Settle { job, token, outcome: complete() };
        let edit = |edit| Command::Edit { job, edit };
        match self.triple.command {
            "claim" => claim(QUEUE),
            "complete" => completed(self.token()),
            "complete-bogus" => completed(Token::Bogus),
            "complete-tokenless" => completed(Token::Missing),
            "fail-temporary" => settle(fail("temporary", false)),
            "fail-permanent" => settle(fail("permanent", false)),
            "fail-final" => settle(fail("temporary", true)),
            "fail-timeout" => settle(fail("timeout", false)),
            "fail-system" => settle(fail("system", false)),
            "fail-unclassified" => settle(fail("weather", false)),
            "snooze" => settle(Outcome::Snooze { delay: DELAY }),
            "release" => settle(Outcome::Release),
            "heartbeat" => Command::Heartbeat { job, token: self.token(), progress: None, checkpoint: None },
            "children" => {
                let child = NewJob { job_type: "child".to_owned(), ..NewJob::default() };
                Command::Children { job, token: self.token(), jobs: vec![child], finally: None }
            }
            "submit-held" | "submit-held-full" => Command::SubmitHeld { job },
            "cancel" => Command::Cancel { job, reason: None, force: false },
            "cancel-force" => Command::Cancel { job, reason: None, force: true },
            "requeue" => Command::Requeue { job, reset: true, run_at: None },
            "dead-letter" => Command::DeadLetter { job, reason: None },
            "run-now" => Command::RunNow { job },
            "edit-priority" => edit(Edit { priority: Some(0), ..Edit::default() }),
            "edit-type" => edit(Edit { job_type: Some("other".to_owned()), ..Edit::default() }),
            "edit-tags" => {
                let tags = BTreeMap::from([("tenant".to_owned(), Some("acme".to_owned()))]);
                edit(Edit { tags: Some(tags), ..Edit::default() })
            }
            "edit-limit" => edit(Edit { retry_limit: Some(spent_by_one(self.triple.profile)), ..Edit::default() }),
            "delete" => Command::Delete { job },
            other => panic!("no such command: {other}"),
        }
    }

    fn token(&self) -> Token {
        if self.version == 0 { Token::Bogus } else { Token::Version(self.version) }
    }

    fn end_dependency(&mut self, end: &str) -> Result<(), String> {
        let job = self.dependency.ok_or("no dependency")?;
        let outcome = match end {
            "dead-lettered" => return self.must(&Command::DeadLetter { job, reason: None }).map(drop),
            "cancelled" => return self.must(&Command::Cancel { job, reason: None, force: false }).map(drop),
            "completed" => complete(),
            "failed" => fail("permanent", false),
            other => panic!("no such end: {other}"),
        };
        let version = self.claim_from(UPSTREAM, job)?;
        self.must(&Command::Settle { job, token: Token::Version(version), outcome }).map(drop)
    }

    fn claim(&mut self) -> Result<(), String> {
        self.version = self.claim_from(QUEUE, self.job)?;
        Ok(())
    }

    fn claim_from(&mut self, queue: &str, job: Handle) -> Result<u64, String> {
        match self.must(&claim(queue))? {
            Answer::Claimed(claimed) if matches!(claimed.as_slice(), [Claimed { job: taken, .. }] if *taken == job) => {
                Ok(claimed[0].version)
            }
            other => Err(format!("claimed something else: {other:?}")),
        }
    }

    fn settle(&mut self, outcome: Outcome) -> Result<(), String> {
        self.must(&Command::Settle { job: self.job, token: self.token(), outcome }).map(drop)
    }

    fn submit(&mut self, queue: &str, job: NewJob) -> Result<Handle, String> {
        match self.must(&Command::Submit { queue: queue.to_owned(), jobs: vec![job] })? {
            Answer::Submitted(jobs) => jobs.first().and_then(|job| job.job).ok_or_else(|| "no handle".to_owned()),
            other => Err(format!("submitted something else: {other:?}")),
        }
    }

    /// Runs a step of the setup, which must not be refused.
    fn must(&mut self, command: &Command) -> Result<Answer, String> {
        match self.subject.apply(command) {
            Answer::Refused { code } => Err(format!("{code} for {command:?}")),
            answer => Ok(answer),
        }
    }

    pub(super) fn id(&mut self) -> Option<String> {
        self.subject.view(self.job, "gopherqueue").and_then(|fields| fields.get("id").cloned())
    }

    pub(super) fn snapshot(&mut self) -> Option<JobSnapshot> {
        self.subject.job(self.job)
    }
}

fn claim(queue: &str) -> Command {
    let queues = vec![queue.to_owned()];
    Command::Claim { queues, worker: "w1".to_owned(), limit: 10, types: vec![], lease: None, execution_timeout: None }
}

fn complete() -> Outcome {
    Outcome::Complete { result: Some(RESULT.to_owned()), progress: None }
}

fn fail(category: &str, unrecoverable: bool) -> Outcome {
    let message = "no luck".to_owned();
    Outcome::Fail { category: category.to_owned(), code: None, message, retry_after: None, unrecoverable }
}

/// Returns the default settings of the profile, without random or very short delays, and with some
/// retries for `ocypod`.
fn queue_settings(profile: &str) -> Settings {
    let settings: &[(&str, &str)] = match profile {
        "document" => &[],
        "ocypod" => &[("retry.limit", "3"), ("retry.backoff.delays", "10s")],
        _ => &[
            ("retry.jitter.kind", "none"),
            ("retry.backoff.kind", "constant"),
            ("retry.backoff.base", "10s"),
            ("retry.backoff.cap", "1h"),
        ],
    };
    settings.iter().map(|(path, value)| ((*path).to_owned(), (*value).to_owned())).collect()
}

fn job_settings(triple: Triple) -> Settings {
    let mut settings = Settings::new();
    let mut set = |path: &str, value: String| {
        settings.insert(path.to_owned(), value);
    };
    match triple.state {
        "running-last" if triple.profile != "document" => set("retry.limit", spent_by_one(triple.profile).to_string()),
        "running-expired" => set("lease", format!("{SHORT_LEASE}ms")),
        // Both reach `failed` only by these settings: one has only dead letters, the other no
        // permanent failures.
        "failed" if triple.profile == "taskharbor" => set("retry.on_permanent", "failed".to_owned()),
        "failed" if triple.profile == "ocypod" => set("retry.limit", "0".to_owned()),
        _ => {}
    }
    match triple.command {
        "lease-expiry" if triple.state != "running-expired" => set("lease", format!("{LEASE}ms")),
        "deadline" => set("execution_timeout", format!("{DEADLINE}ms")),
        "lifetime" => set("lifetime", format!("{}ms", lifetime(triple))),
        "retention" => {
            for state in ["completed", "failed", "dead_letter", "cancelled"] {
                set(&format!("retention.{state}"), format!("{RETENTION}ms"));
            }
        }
        _ => {}
    }
    settings
}

/// Returns the retry limit that one failed run uses up.
fn spent_by_one(profile: &str) -> u32 {
    u32::from(!matches!(profile, "ocypod" | "weave" | "document"))
}

fn lifetime(triple: Triple) -> Millis {
    let waited = triple.state == "running-last" && triple.profile == "document";
    if waited { LIFETIME_OF_LAST } else { LIFETIME }
}
