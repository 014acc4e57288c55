//! The program that runs a job: input, output, environment, exit.

use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use longshore_api::work::ClaimedJob;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, Command};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::WorkOptions;
use crate::terminal::output::Output;

/// Limit of standard output, above the largest result. Longer output is no result.
const STDOUT_MAX: usize = 16 << 20;
/// Bytes at the end of standard error that become the error message.
const STDERR_KEPT: usize = 4 << 10;
/// A longer line of standard error is printed in parts.
const LINE_MAX: usize = 8 << 10;
/// Limit of a variable; Linux allows 128 KiB with the name.
const VARIABLE_MAX: usize = 100 << 10;
/// Time to read the remaining output after the program has exited.
const OUTPUT_DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

pub(super) struct Program {
    child: Child,
    group: Option<Pid>,
    stdout: ProgramOutput,
    stderr: ProgramOutput,
    /// Set when the program has exited: `wait` may be called again while it reads the output.
    status: Option<ExitStatus>,
}

/// Output that is being read, or that is complete.
enum ProgramOutput {
    Reading(JoinHandle<Vec<u8>>),
    Read(Vec<u8>),
}

impl ProgramOutput {
    /// Waits for the end of the output. Cancel safe.
    async fn finish(&mut self) {
        if let Self::Reading(reading) = self {
            let bytes = reading.await.unwrap_or_default();
            *self = Self::Read(bytes);
        }
    }

    fn take(&mut self) -> Vec<u8> {
        match self {
            Self::Reading(_) => Vec::new(),
            Self::Read(bytes) => std::mem::take(bytes),
        }
    }
}

/// Exit of a program, with its output.
pub(super) struct ProgramExit {
    pub(super) code: Option<i32>,
    pub(super) signal: Option<i32>,
    pub(super) stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl ProgramExit {
    /// Returns the end of standard error, or the exit code if it is empty.
    pub(super) fn message(&self) -> String {
        let stderr = String::from_utf8_lossy(&self.stderr);
        let stderr = stderr.trim();
        match (stderr.is_empty(), self.code, self.signal) {
            (false, _, _) => stderr.to_owned(),
            (true, Some(code), _) => format!("the program exited with code {code}"),
            (true, None, Some(signal)) => format!("the program was killed by signal {signal}"),
            (true, None, None) => "the program exited".to_owned(),
        }
    }
}

impl Program {
    pub(super) fn start(
        options: &WorkOptions,
        job: &ClaimedJob,
        server: &str,
        output: Output,
    ) -> std::io::Result<Self> {
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(&options.exec);
        // A new process group: signals reach its children too, and Ctrl-C reaches only the worker.
        command.process_group(0).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        for (name, value) in environment(job, server) {
            match value.filter(|value| value.len() <= VARIABLE_MAX && !value.contains('\0')) {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let payload = payload(job);
        let mut child = command.spawn()?;
        let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        if let Some(stdin) = child.stdin.take() {
            tokio::spawn(write_stdin(stdin, payload));
        }
        let (out, errors) = (child.stdout.take(), child.stderr.take());
        let stdout = ProgramOutput::Reading(tokio::spawn(read_stdout(out)));
        let label = job.id.chars().take(8).collect();
        let stderr = ProgramOutput::Reading(tokio::spawn(forward_stderr(errors, label, output)));
        Ok(Self { child, group, stdout, stderr, status: None })
    }

    /// Waits for the exit and the output. Cancel safe.
    pub(super) async fn wait(&mut self) -> ProgramExit {
        let status = match self.status {
            Some(status) => Some(status),
            None => {
                self.status = self.child.wait().await.ok();
                self.status
            }
        };
        // A child of the program may hold the pipes open.
        let all = async {
            self.stdout.finish().await;
            self.stderr.finish().await;
        };
        if timeout(OUTPUT_DRAIN_TIMEOUT, all).await.is_err() {
            self.kill();
            self.stdout.finish().await;
            self.stderr.finish().await;
        }
        ProgramExit {
            code: status.and_then(|status| status.code()),
            signal: status.and_then(|status| status.signal()),
            stdout: self.stdout.take(),
            stderr: self.stderr.take(),
        }
    }

    pub(super) fn terminate(&self) {
        self.send(Signal::TERM);
    }

    pub(super) fn kill(&self) {
        self.send(Signal::KILL);
    }

    fn send(&self, signal: Signal) {
        if let Some(group) = self.group {
            // An error means that the group has already exited.
            let _: Result<(), _> = kill_process_group(group, signal);
        }
    }
}

impl Drop for Program {
    /// Ends a program whose run was aborted, with its children.
    fn drop(&mut self) {
        if self.status.is_none() {
            self.kill();
        }
    }
}

fn payload(job: &ClaimedJob) -> Vec<u8> {
    match (&job.payload, &job.payload_base64) {
        (Some(json), _) => json.get().as_bytes().to_vec(),
        (None, Some(text)) => STANDARD.decode(text).unwrap_or_default(),
        (None, None) => Vec::new(),
    }
}

/// Writes the payload. Ignores errors: a program need not read its payload.
async fn write_stdin(mut stdin: ChildStdin, payload: Vec<u8>) {
    drop(stdin.write_all(&payload).await);
}

async fn read_stdout(source: Option<impl AsyncRead + Unpin>) -> Vec<u8> {
    let mut kept = Vec::new();
    let Some(mut source) = source else { return kept };
    let mut piece = vec![0_u8; 16 << 10];
    let mut too_long = false;
    while let Ok(read @ 1..) = source.read(&mut piece).await {
        too_long |= kept.len() + read > STDOUT_MAX;
        if !too_long {
            kept.extend_from_slice(piece.get(..read).unwrap_or_default());
        }
    }
    if too_long { Vec::new() } else { kept }
}

/// Prints standard error line by line, and returns its end.
async fn forward_stderr(source: Option<impl AsyncRead + Unpin>, label: String, output: Output) -> Vec<u8> {
    let mut kept: Vec<u8> = Vec::new();
    let Some(mut source) = source else { return kept };
    let mut line: Vec<u8> = Vec::new();
    let mut piece = vec![0_u8; 4 << 10];
    let show = |line: &[u8]| output.info(&format!("[{label}] {}", String::from_utf8_lossy(line).trim_end()));
    while let Ok(read @ 1..) = source.read(&mut piece).await {
        let bytes = piece.get(..read).unwrap_or_default();
        kept.extend_from_slice(bytes);
        kept.drain(..kept.len().saturating_sub(STDERR_KEPT));
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            line.extend_from_slice(part);
            if part.ends_with(b"\n") || line.len() > LINE_MAX {
                show(&line);
                line.clear();
            }
        }
    }
    if !line.is_empty() {
        show(&line);
    }
    kept
}

/// Variables of the job. `None` removes a variable, which may come from an outer job.
fn environment(job: &ClaimedJob, server: &str) -> Vec<(&'static str, Option<String>)> {
    let kind = match (&job.payload, &job.payload_base64) {
        (Some(_), _) => "json",
        (None, Some(_)) => "binary",
        (None, None) => "none",
    };
    vec![
        ("LONGSHORE_JOB_ID", Some(job.id.clone())),
        ("LONGSHORE_JOB_SEQ", Some(job.seq.to_string())),
        ("LONGSHORE_JOB_QUEUE", Some(job.queue.clone())),
        ("LONGSHORE_JOB_TYPE", Some(job.job_type.clone())),
        ("LONGSHORE_JOB_PRIORITY", Some(job.priority.as_str().to_owned())),
        ("LONGSHORE_JOB_ATTEMPT", Some(job.attempt.to_string())),
        ("LONGSHORE_JOB_ATTEMPT_ID", job.attempt_id.clone()),
        ("LONGSHORE_JOB_PREVIOUS_ATTEMPT_ID", job.previous_attempt_id.clone()),
        ("LONGSHORE_JOB_TAGS", serde_json::to_string(&job.tags).ok()),
        ("LONGSHORE_JOB_CHECKPOINT", job.checkpoint.as_ref().map(|checkpoint| checkpoint.get().to_owned())),
        ("LONGSHORE_JOB_CORRELATION_ID", job.correlation_id.clone()),
        ("LONGSHORE_JOB_IDEMPOTENCY_KEY", job.idempotency_key.clone()),
        ("LONGSHORE_JOB_WORKFLOW", job.workflow.clone()),
        ("LONGSHORE_JOB_CREATED_AT", Some(job.created_at.to_string())),
        ("LONGSHORE_JOB_DEADLINE_AT", job.deadline_at.map(|at| at.to_string())),
        ("LONGSHORE_JOB_PAYLOAD_KIND", Some(kind.to_owned())),
        ("LONGSHORE_LEASE_TOKEN", Some(job.lease.token.clone())),
        ("LONGSHORE_SERVER", Some(server.to_owned())),
    ]
}
