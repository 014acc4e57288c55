//! Random workflows: small graphs of jobs that end soon, so that retries have work.

use super::Draw;
use crate::model::Profile;
use crate::target::{Command, Dependency, Handle, NewJob};

impl Draw<'_> {
    pub(super) fn workflow_step(&mut self) -> Command {
        let any = self.model.workflow_handles();
        match self.below(16) {
            0..5 => self.start_workflow(),
            _ if any == 0 => self.start_workflow(),
            5..9 => self.grow_workflow(),
            9 => {
                let open = self.model.open_workflows();
                Command::CloseWorkflow { workflow: self.workflow_among(&open) }
            }
            10 | 11 => {
                let running = self.model.running_workflows();
                let workflow = self.workflow_among(&running);
                let reason = self.reason("not wanted");
                Command::CancelWorkflow { workflow, reason, force: self.rarely(3) }
            }
            _ => {
                let retryable = self.model.retryable_workflows();
                Command::RetryWorkflow { workflow: self.workflow_among(&retryable) }
            }
        }
    }

    /// Returns mostly one of these; sometimes any workflow, sometimes an unknown one.
    fn workflow_among(&mut self, fitting: &[Handle]) -> Handle {
        let all = self.model.workflow_handles();
        if self.rarely(40) || all == 0 {
            return all + 2;
        }
        if self.rarely(8) || fitting.is_empty() {
            return all - 1 - self.below(all);
        }
        self.recent(fitting)
    }

    fn start_workflow(&mut self) -> Command {
        let queue = self.queue();
        let open = self.below(3) == 2;
        let size = if self.rarely(12) { 0 } else { 2 + self.below(4) };
        Command::StartWorkflow { jobs: self.members(&queue, size, 0, &[]), queue, open }
    }

    fn grow_workflow(&mut self) -> Command {
        let open = self.model.open_workflows();
        let workflow = self.workflow_among(&open);
        let queue = self.queue();
        let size = if self.rarely(60) { 0 } else { 1 + self.below(3) };
        let earlier = self.model.names_in_workflow(workflow);
        Command::GrowWorkflow { workflow, jobs: self.members(&queue, size, earlier.len(), &earlier), queue }
    }

    /// Makes members that may depend on others of their call, on earlier members, and on outside
    /// jobs.
    fn members(&mut self, queue: &str, size: usize, first: usize, earlier: &[String]) -> Vec<NewJob> {
        let mut jobs: Vec<NewJob> = Vec::new();
        for index in 0..size {
            let mut job = if self.rarely(4) { self.new_job(queue, index, 1) } else { self.short_lived(queue) };
            job.reference = match self.below(16) {
                0..13 => Some(format!("m{}", first + index)),
                13 => Some(index.to_string()),
                14 => earlier.last().cloned(),
                _ => None,
            };
            // Over HTTP, a duplicate is recognised by its name or by its key.
            if job.reference.is_none() {
                job.idempotency_key = None;
            }
            let mut names: Vec<String> = jobs.iter().filter_map(|job| job.reference.clone()).collect();
            names.extend(earlier.iter().rev().take(3).cloned());
            for _ in 0..self.below(3) {
                if names.is_empty() {
                    break;
                }
                let name = names[self.below(names.len())].clone();
                let list = if self.rarely(4) { &mut job.after_any } else { &mut job.after };
                list.push(Dependency::Ref(name));
            }
            jobs.push(job);
        }
        jobs
    }

    fn short_lived(&mut self, queue: &str) -> NewJob {
        let (locked, may_have_key) = self.model.rules_of_queue(queue).map_or((false, true), |(profile, rules)| {
            (profile == Profile::Document, rules.scope != crate::model::Scope::Off)
        });
        let mut job = NewJob { job_type: "mail".to_owned(), payload_bytes: 10, ..NewJob::default() };
        if !locked && self.below(3) > 0 {
            job.settings.insert("retry.limit".to_owned(), "1".to_owned());
        }
        if locked {
            job.hold = Some(false);
        }
        if may_have_key && self.rarely(4) {
            job.idempotency_key = Some(self.one_of(&["w1", "w2", "w3", "w4"]).to_owned());
        }
        if self.rarely(8) {
            self.dependencies(&mut job, 0, 1);
        }
        job.priority = self.one_of(&[None, None, None, None, Some(0), Some(4)]);
        job
    }
}
