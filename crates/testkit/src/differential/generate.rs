//! Random histories.
//!
//! A [`Draft`] is a list of numbers. Their meaning is decided when the step is taken, with the
//! state of the model: handles are mostly those of jobs for which the command makes sense, and
//! tokens are mostly current. A history with steps removed therefore stays sensible. 0 always means
//! the simplest choice, so smaller numbers make simpler steps.

mod tables;
mod workflows;

use std::collections::BTreeMap;

use proptest::collection::{SizeRange, vec};
use proptest::prelude::*;

use super::Step;
use crate::model::{Model, Profile, Scope, State};
use crate::target::{Command, Dependency, Edit, Handle, Millis, NewJob, Outcome, Settings, Token};
use tables::{JOB_SETTINGS, QUEUE_SETTINGS, UNLOCKED_JOB_SETTINGS, WRONG_SETTINGS};

/// Enough for a batch of four, or a workflow of five, with every field. Further picks are zero.
const PICKS: usize = 64;

const QUEUES: [&str; 5] = ["q1", "q2", "q3", "default", "elsewhere"];
const WORKERS: [&str; 3] = ["w1", "w2", "w3"];
const TYPES: [&str; 3] = ["mail", "scan", "bill"];
const REFERENCES: [&str; 4] = ["a", "b", "c", "d"];

/// One step before its target is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft(Vec<u16>);

/// Returns a strategy for histories that shrinks.
pub fn commands(length: impl Into<SizeRange>) -> impl Strategy<Value = Vec<Draft>> {
    vec(vec(any::<u16>(), PICKS).prop_map(Draft), length)
}

/// Returns the history of a seed. It never changes.
pub fn drafts(seed: u64, length: usize) -> Vec<Draft> {
    let mut state = seed;
    let mut next = || {
        // splitmix64
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    // Four picks from each random number.
    let mut row =
        || (0..PICKS / 4).flat_map(|_| next().to_le_bytes().chunks(2).map(pair).collect::<Vec<_>>()).collect();
    (0..length).map(|_| Draft(row())).collect()
}

fn pair(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |number, byte| number << 8 | u16::from(*byte))
}

impl Draft {
    pub(super) fn picks(&self) -> &[u16] {
        &self.0
    }

    /// Makes one choice the simplest. Returns false if it already is.
    pub(super) fn simplify(&mut self, pick: usize) -> bool {
        std::mem::take(&mut self.0[pick]) != 0
    }

    /// Returns the step of this draft in the current state of `model`.
    pub fn step(&self, model: &Model) -> Step {
        let mut draw = Draw { picks: &self.0, at: 0, model };
        // Queues with different profiles come first, because few commands work without them.
        if model.number_of_queues() < 4 && draw.below(3) > 0 {
            return Step::Command(draw.put_queue());
        }
        draw.any_step()
    }
}

struct Draw<'a> {
    picks: &'a [u16],
    at: usize,
    model: &'a Model,
}

impl Draw<'_> {
    fn below(&mut self, bound: usize) -> usize {
        let pick = self.picks.get(self.at).copied().unwrap_or(0);
        self.at += 1;
        usize::from(pick) % bound
    }

    /// Returns true once in `times`, never for 0.
    fn rarely(&mut self, times: usize) -> bool {
        self.below(times) == times - 1
    }

    fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    fn now(&self) -> Millis {
        self.model.present()
    }

    fn any_step(&mut self) -> Step {
        const WAITING: [State; 2] = [State::Delayed, State::Retrying];
        const ENDED: [State; 4] = [State::Completed, State::Failed, State::DeadLetter, State::Cancelled];
        let at_work = self.model.handles_at_work();
        let command = match self.below(114) {
            0..18 => self.submit(),
            18..33 => self.claim(),
            33..36 => return Step::Advance(self.long_wait()),
            36..48 => return Step::Advance(self.time_step()),
            // A settlement needs a running job, or it is only refused.
            48..71 if at_work.is_empty() && self.below(5) > 0 => self.claim(),
            48..69 => self.settle(&at_work),
            69..74 => self.heartbeat(&at_work),
            74..76 => self.children(&at_work),
            76..79 => self.cancel(),
            79..83 => self.requeue(),
            83..86 => self.edit(),
            86..88 => Command::RunNow { job: self.handle_in(&WAITING) },
            88..91 => {
                let on_hold = self.model.handles_on_hold();
                Command::SubmitHeld { job: self.handle_among(&on_hold) }
            }
            91..93 => self.put_queue(),
            93 => Command::Delete { job: self.handle_in(&ENDED) },
            94 => self.change_status(),
            95 => {
                let job = self.living_handle();
                Command::DeadLetter { job, reason: self.reason("given up") }
            }
            96 => Command::Pause { queue: self.queue() },
            97 | 98 => Command::Resume { queue: self.queue() },
            99 => {
                let queue = self.queue();
                Command::DeleteQueue { queue, force: self.below(2) == 1 }
            }
            _ => self.workflow_step(),
        };
        Step::Command(command)
    }

    /// Returns a short time, so that a lease of seconds does not always expire.
    fn time_step(&mut self) -> Millis {
        match self.below(10) {
            0 | 1 => 1,
            2 => 100,
            3 => 500,
            4..6 => 1_000,
            6 => 2_000,
            7 => 5_000,
            8 => 10_000,
            _ => self.long_wait(),
        }
    }

    /// Returns a time that often ends exactly at, or next to, the next deadline.
    fn long_wait(&mut self) -> Millis {
        let to_next = self.model.next_due().map_or(1_000, |instant| instant - self.now());
        match self.below(16) {
            0..6 => to_next,
            6..8 => (to_next - 1).max(0),
            8 => to_next + 1,
            9..11 => 30_000,
            11..13 => 60_000,
            13 | 14 => self.one_of(&[300_000, 3_600_000]),
            _ => self.one_of(&[10_000, 90_000_000, 700_000_000]),
        }
    }

    fn queue(&mut self) -> String {
        let choice = self.below(13);
        QUEUES[if choice < 12 { choice % 4 } else { 4 }].to_owned()
    }

    fn maybe_text(&mut self, times: usize, text: &str) -> Option<String> {
        self.rarely(times).then(|| text.to_owned())
    }

    /// Returns a text of the maximal length, or one character longer.
    fn long_text(&mut self, character: &str, most: usize) -> String {
        character.repeat(most + self.below(2))
    }

    fn reason(&mut self, words: &str) -> Option<String> {
        if self.rarely(30) { Some(self.long_text("r", 1_024)) } else { self.maybe_text(3, words) }
    }

    /// Prefers recent handles, so that histories make progress.
    fn recent(&mut self, handles: &[Handle]) -> Handle {
        let back = self.below(handles.len()).min(self.below(handles.len()));
        handles[handles.len() - 1 - back]
    }

    fn handle_in(&mut self, states: &[State]) -> Handle {
        let fitting = self.model.handles_in(states);
        self.handle_among(&fitting)
    }

    /// Returns mostly one of these; sometimes any job, sometimes an unknown one.
    fn handle_among(&mut self, fitting: &[Handle]) -> Handle {
        let all = self.model.handles();
        if self.rarely(40) || all == 0 {
            return all + 3;
        }
        if self.rarely(10) || fitting.is_empty() {
            return all - 1 - self.below(all);
        }
        self.recent(fitting)
    }

    fn living_handle(&mut self) -> Handle {
        self.handle_in(&[State::Pending, State::Scheduled, State::Delayed, State::Running, State::Retrying])
    }

    fn token(&mut self, job: Handle) -> Token {
        let version = self.model.lease_version(job);
        match self.below(20) {
            0..15 => Token::Version(version),
            15 | 16 => Token::Version(version.saturating_sub(1)),
            17 => Token::Bogus,
            18 => Token::Missing,
            _ => Token::Version(version + 1),
        }
    }

    fn put_queue(&mut self) -> Command {
        let queue = self.queue();
        let profile = self.one_of(&Profile::ALL).name().to_owned();
        let profile = if self.rarely(6) { None } else { Some(profile) };
        let named = profile.as_deref() == Some("document");
        let settings = if self.rarely(5) {
            None
        } else {
            let mut settings = Settings::new();
            for _ in 0..self.below(6) {
                self.queue_setting(&mut settings, named);
            }
            if named && self.rarely(3) {
                // Only this profile fails a job in a full queue.
                settings.insert("max_queued".to_owned(), "2".to_owned());
            }
            Some(settings)
        };
        let profile = if self.rarely(60) { Some("tannery".to_owned()) } else { profile };
        let queue = if self.rarely(80) { "no such name".to_owned() } else { queue };
        Command::PutQueue { queue, profile, settings }
    }

    fn queue_setting(&mut self, settings: &mut Settings, mostly_unlocked: bool) {
        if self.rarely(30) {
            let (path, value) = self.one_of(&WRONG_SETTINGS);
            settings.insert(path.to_owned(), value.to_owned());
            return;
        }
        let (path, values) = self.one_of(&QUEUE_SETTINGS);
        let locked = path.starts_with("retry.")
            || ["delayed_start", "submit", "on_lease_expiry", "manual_requeue", "fencing"].contains(&path);
        if locked && mostly_unlocked && !self.rarely(8) {
            settings.insert("lease".to_owned(), self.one_of(&["1s", "5s", "30s"]).to_owned());
            return;
        }
        settings.insert(path.to_owned(), self.one_of(values).to_owned());
    }

    fn submit(&mut self) -> Command {
        let queue = self.queue();
        let queue = if self.rarely(100) { String::new() } else { queue };
        let size = if self.rarely(4) { 2 + self.below(3) } else { 1 };
        let size = if self.rarely(200) { 0 } else { size };
        let jobs = (0..size).map(|index| self.new_job(&queue, index, size)).collect();
        Command::Submit { queue, jobs }
    }

    fn new_job(&mut self, queue: &str, index: usize, size: usize) -> NewJob {
        let rules = self.model.rules_of_queue(queue).map(|(profile, rules)| (profile, rules.clone()));
        let has_keys = rules.as_ref().is_none_or(|(_, rules)| rules.scope != Scope::Off);
        let has_ids = rules.as_ref().is_some_and(|(_, rules)| rules.external_ids);
        let may_wait = rules.as_ref().is_none_or(|(_, rules)| rules.delayed_start);
        let locked = rules.as_ref().is_some_and(|(profile, _)| *profile == Profile::Document);
        let mut job = NewJob { job_type: self.one_of(&TYPES).to_owned(), payload_bytes: 10, ..NewJob::default() };
        if size > 1 {
            job.reference = Some(REFERENCES[index % REFERENCES.len()].to_owned());
        }
        job.priority = self.one_of(&[None, None, None, Some(0), Some(1), Some(2), Some(3), Some(4)]);
        if self.rarely(if may_wait { 5 } else { 60 }) {
            let wait = self.one_of(&[1_000, 0, 1, 500, 5_000, 60_000]);
            if self.below(2) == 0 {
                job.delay = Some(wait);
            } else {
                job.run_at = Some(self.now() + if self.rarely(4) { -wait } else { wait });
            }
        }
        if self.rarely(if has_keys { 3 } else { 60 }) {
            job.idempotency_key = Some(self.one_of(&["k1", "k2", "k3", "k4", ""]).to_owned());
        }
        if self.rarely(if has_ids { 2 } else { 80 }) {
            let name = self.below(40);
            job.external_id = Some(format!("x{name}"));
        }
        if self.rarely(3) {
            self.dependencies(&mut job, index, size);
        }
        job.hold = self.one_of(&[None, None, None, None, None, Some(false), Some(true)]);
        if locked && job.hold.is_none() && self.below(2) == 0 {
            job.hold = Some(false);
        }
        if self.rarely(4) {
            for _ in 0..1 + self.below(3) {
                self.job_setting(&mut job.settings, locked);
            }
        }
        if self.rarely(6) {
            job.tags = self.tags();
            job.correlation_id = self.maybe_text(2, "order-7");
            job.callback_url = self.maybe_text(2, "https://example.com/done");
            job.traceparent = self.maybe_text(2, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
        }
        if self.rarely(25) {
            self.invalidate(&mut job);
        }
        job
    }

    fn tags(&mut self) -> BTreeMap<String, Option<String>> {
        let mut tags = BTreeMap::new();
        for _ in 0..self.below(3) {
            let key = self.one_of(&["tenant", "batch-7", "alice"]).to_owned();
            tags.insert(key, self.maybe_text(2, "acme"));
        }
        tags
    }

    fn dependencies(&mut self, job: &mut NewJob, index: usize, size: usize) {
        for _ in 0..1 + self.below(3) {
            let all = self.model.handles();
            let living = self.model.handles_in(&[State::Pending, State::Scheduled, State::Delayed, State::Running]);
            let dependency = match self.below(24) {
                0..8 if size > 1 && index > 0 => {
                    Dependency::Ref(REFERENCES[self.below(index) % REFERENCES.len()].to_owned())
                }
                8 | 9 if size > 1 => Dependency::Ref(REFERENCES[self.below(size) % REFERENCES.len()].to_owned()),
                22 if self.rarely(3) => Dependency::Unknown,
                23 if self.rarely(3) => Dependency::Ref("unknown".to_owned()),
                16..22 if all > 0 => Dependency::Job(all - 1 - self.below(all)),
                _ if !living.is_empty() => Dependency::Job(self.recent(&living)),
                _ => continue,
            };
            let list = if self.rarely(4) { &mut job.after_any } else { &mut job.after };
            list.push(dependency);
        }
    }

    fn job_setting(&mut self, settings: &mut Settings, locked: bool) {
        let any = if locked && !self.rarely(8) { &UNLOCKED_JOB_SETTINGS[..] } else { &JOB_SETTINGS[..] };
        let (path, values) = if self.rarely(40) { self.one_of(&QUEUE_SETTINGS) } else { self.one_of(any) };
        settings.insert(path.to_owned(), self.one_of(values).to_owned());
    }

    /// Makes one field invalid, or puts it at its limit.
    fn invalidate(&mut self, job: &mut NewJob) {
        match self.below(16) {
            0 => job.payload_bytes = 101,
            1 => job.payload_bytes = 100,
            2 => job.priority = Some(self.one_of(&[5, -1])),
            3 => job.delay = Some(-1),
            4 => (job.delay, job.run_at) = (Some(1_000), Some(self.now() + 1_000)),
            5 => job.job_type = String::new(),
            6 => job.job_type = "two\nlines".to_owned(),
            7 => job.job_type = "x".repeat(256 + self.below(2)),
            8 => job.idempotency_key = Some("\u{e9}".repeat(256 + self.below(2))),
            9 => job.external_id = Some(String::new()),
            10 => job.external_id = Some("\u{e9}".repeat(256 + self.below(2))),
            11 => drop(job.tags.insert("no name".to_owned(), None)),
            12 => drop(job.tags.insert("long".to_owned(), Some("v".repeat(256 + self.below(2))))),
            13 => job.correlation_id = Some("c".repeat(256 + self.below(2))),
            14 => {
                let form = self.one_of(&["http://", "https://h/", "http://u@", "https://h#"]);
                job.callback_url = Some(format!("{form}{}", "u".repeat(2_048 - form.len() + self.below(2))));
            }
            _ => {
                let (path, value) = self.one_of(&WRONG_SETTINGS);
                job.settings.insert(path.to_owned(), value.to_owned());
            }
        }
    }

    fn claim(&mut self) -> Command {
        let mut queues: Vec<String> = QUEUES[..4].iter().map(|queue| (*queue).to_owned()).collect();
        let turn = self.below(4);
        queues.rotate_left(turn);
        queues.truncate(4 - self.below(4));
        if self.rarely(12) {
            queues.push("nowhere".to_owned());
        }
        let limit = if self.rarely(60) { self.one_of(&[0, 1_001]) } else { self.one_of(&[1, 2, 3, 5]) };
        let types = if self.rarely(10) { vec![self.one_of(&TYPES).to_owned()] } else { Vec::new() };
        let lease = self.rarely(10).then(|| self.one_of(&[1_000, 2_500, 60_000, 0, -1]));
        let execution_timeout = self.rarely(12).then(|| self.one_of(&[2_000, 700, 3_600_000, 0, -1]));
        let worker = self.one_of(&WORKERS).to_owned();
        let worker = if self.rarely(60) { self.long_text("w", 256) } else { worker };
        let types = if self.rarely(60) { vec!["mail".to_owned(); 100 + self.below(2)] } else { types };
        Command::Claim { queues, worker, limit, types, lease, execution_timeout }
    }

    fn settle(&mut self, at_work: &[Handle]) -> Command {
        let job = self.handle_among(at_work);
        // Sometimes repeats a settlement of the same run.
        let job = if self.rarely(12) {
            self.handle_in(&[State::Completed, State::Failed, State::Retrying, State::Delayed, State::Scheduled])
        } else {
            job
        };
        let token = self.token(job);
        let outcome = match self.below(20) {
            0..7 => Outcome::Complete { result: self.bytes(), progress: self.bytes() },
            7..16 => self.failure(),
            16..18 => Outcome::Snooze { delay: self.one_of(&[1_000, 0, 30_000, 500, -1]) },
            _ => Outcome::Release,
        };
        Command::Settle { job, token, outcome }
    }

    fn failure(&mut self) -> Outcome {
        let words = ["temporary", "temporary", "temporary", "temporary", "temporary", "permanent", "timeout", "system"];
        let category = if self.rarely(40) { self.one_of(&["cancelled", "bad"]) } else { self.one_of(&words) };
        let code = self.maybe_text(4, "E42");
        let message = self.one_of(&["it broke", "still broken"]).to_owned();
        Outcome::Fail {
            category: category.to_owned(),
            retry_after: self.rarely(6).then(|| self.one_of(&[2_000, 0, 60_000, 7_200_000, -1])),
            unrecoverable: self.rarely(12),
            code: if self.rarely(40) { Some(self.long_text("e", 256)) } else { code },
            message: if self.rarely(60) { self.long_text("m", 8_192) } else { message },
        }
    }

    /// Returns a small payload, or one next to the smallest payload limit.
    fn bytes(&mut self) -> Option<String> {
        match self.below(12) {
            0..5 => None,
            5..10 => Some("7".to_owned()),
            10 => Some("1".repeat(100)),
            _ => Some("1".repeat(101)),
        }
    }

    fn heartbeat(&mut self, at_work: &[Handle]) -> Command {
        let job = self.handle_among(at_work);
        Command::Heartbeat { job, token: self.token(job), progress: self.bytes(), checkpoint: self.bytes() }
    }

    fn cancel(&mut self) -> Command {
        let job = self.living_handle();
        let reason = self.reason("not wanted");
        Command::Cancel { job, reason, force: self.rarely(4) }
    }

    fn requeue(&mut self) -> Command {
        let job = self.handle_in(&[State::Failed, State::DeadLetter, State::Cancelled]);
        let run_at = self.rarely(6).then(|| self.now() + self.one_of(&[1_000, 0, -5, 20_000]));
        Command::Requeue { job, reset: !self.rarely(3), run_at }
    }

    fn change_status(&mut self) -> Command {
        let fitting = self.model.handles_of(Profile::Ocypod);
        let job = self.handle_among(&fitting);
        let words = ["queued", "failed", "cancelled", "completed", "timed_out", "running"];
        let status = (!self.rarely(5)).then(|| self.one_of(&words).to_owned());
        Command::ChangeStatus { job, status, output: self.maybe_text(3, "half") }
    }

    fn edit(&mut self) -> Command {
        let job = if self.below(3) < 2 { self.handle_in(&[State::Retrying]) } else { self.living_handle() };
        let mut edit = Edit::default();
        match self.below(8) {
            0..3 => edit.retry_limit = Some(self.one_of(&[1, 0, 2, 3, 5])),
            3 => edit.priority = Some(self.one_of(&[0, 1, 2, 3, 4, 5, -1])),
            4 => edit.job_type = Some(self.one_of(&["bill", "mail", ""]).to_owned()),
            5 => edit.tags = Some(self.tags()),
            6 => edit.correlation_id = Some("order-8".to_owned()),
            _ => edit.callback_url = Some("https://example.com/other".to_owned()),
        }
        if self.rarely(5) {
            edit.correlation_id = Some("order-9".to_owned());
        }
        Command::Edit { job, edit }
    }

    fn children(&mut self, at_work: &[Handle]) -> Command {
        let job = self.handle_among(at_work);
        let token = self.token(job);
        let queue = self.queue_of(job);
        let size = 1 + self.below(3);
        let jobs = (0..size).map(|index| self.new_job(&queue, index, size)).collect();
        let finally = (self.below(3) > 0).then(|| self.new_job(&queue, 0, 1));
        Command::Children { job, token, jobs, finally }
    }

    fn queue_of(&self, job: Handle) -> String {
        self.model.queue_of(job).unwrap_or("default").to_owned()
    }
}
