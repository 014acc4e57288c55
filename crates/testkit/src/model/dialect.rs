//! Changes of status as the Ocypod dialect defines them.

use super::job::{Error, State};
use super::lease::Failure;
use super::operate::{ILLEGAL, NO_QUEUE};
use super::rules::{Profile, Refusal};
use super::{ANY_TEXT, Model, server_error};
use crate::target::{Answer, Handle};

impl Model {
    pub(crate) fn change_status(
        &mut self,
        handle: Handle,
        status: Option<&String>,
        output: Option<&String>,
    ) -> Result<Answer, Refusal> {
        let job = self.find(handle)?;
        if job.profile != Profile::Ocypod {
            return Err("job_not_found");
        }
        let timed_out = job.error.as_ref().is_some_and(|error| error.category == "timeout");
        let from = match job.state {
            State::Pending | State::Scheduled | State::Delayed => "queued",
            State::Running if job.is_held_by_worker(self.now) => "running",
            State::Running => "timed_out",
            State::Retrying | State::Failed | State::DeadLetter if timed_out => "timed_out",
            State::Retrying | State::Failed | State::DeadLetter => "failed",
            State::Completed => "completed",
            State::Cancelled => "cancelled",
        };
        if output.is_some() && from != "running" {
            return Err(ILLEGAL);
        }
        // The transitions that each status allows.
        let allowed: &[&str] = match from {
            "queued" => &["cancelled"],
            "running" => &["failed", "completed", "cancelled", "timed_out"],
            "failed" => &["queued", "cancelled"],
            "cancelled" | "timed_out" => &["queued"],
            _ => &[],
        };
        if status.is_some_and(|to| !allowed.contains(&to.as_str())) {
            return Err(ILLEGAL);
        }
        if status.is_some_and(|to| to == "queued") {
            return self.back_to_queue(handle);
        }
        self.check_size(handle, output)?;
        let version = self.jobs[handle].lease_version;
        if let Some(output) = output {
            self.job_mut(handle).progress = Some(output.clone());
        }
        match status.map(String::as_str) {
            Some("completed") => {
                self.complete(handle, output.cloned());
                self.job_mut(handle).settled = Some((version, "complete"));
            }
            Some("failed") => {
                self.fail(handle, reported("temporary", None, "failed", "fail"));
                self.job_mut(handle).settled = Some((version, "fail"));
            }
            Some("timed_out") => self.fail(handle, reported("timeout", Some("timed_out"), "timed_out", "timeout")),
            Some(_) => {
                let error = Error { message: ANY_TEXT.to_owned(), ..server_error("cancelled", "cancelled") };
                self.end_by_force(handle, State::Cancelled, "cancel", error);
            }
            None => {}
        }
        self.propagate();
        Ok(self.state_of(handle))
    }

    /// Requeues in place without a reset. A planned retry is not counted.
    fn back_to_queue(&mut self, handle: Handle) -> Result<Answer, Refusal> {
        if self.jobs[handle].state != State::Retrying {
            return self.requeue_in_place(handle, false, None);
        }
        if !self.queues.contains_key(&self.jobs[handle].queue) {
            return Err(NO_QUEUE);
        }
        let requeues = self.jobs[handle].counters.requeues;
        self.enter_scheduled(handle, "requeue");
        let job = self.job_mut(handle);
        job.counters.requeues = requeues;
        job.counters.retries_scheduled -= 1;
        job.error = None;
        job.settled = None;
        Ok(self.state_of(handle))
    }
}

fn reported(category: &'static str, code: Option<&str>, outcome: &'static str, cause: &'static str) -> Failure {
    Failure {
        category,
        code: code.map(str::to_owned),
        message: ANY_TEXT.to_owned(),
        retry_after: None,
        unrecoverable: false,
        always_ordinary: false,
        outcome,
        cause,
    }
}
