//! From plain lines to typed steps.

use super::arguments::{Arguments, new_job};
use super::matching::{COLUMNS, FIELDS, Kind, Matcher};
use super::preprocess::{Line, split, unfold, wrong};
use super::steps::{Action, Entry, Expectation, Expected, Member, Pick, ScenarioCase, Script, Step};
use super::values::{CODES, PROFILES, STATES, boolean, duration, name_range, number, offset, priority, tags};
use super::workflows::with_jobs;
use super::{Failure, Problem};
use crate::target::{Command, Edit, NewJob, Outcome, Token};

pub(super) fn read(text: &str, file: &str) -> Result<Script, Failure> {
    let page = unfold(text, file)?;
    let mut stories = Vec::new();
    for (index, row) in page.rows.iter().enumerate() {
        let mut reader = Reader { row: index, names: Vec::new(), queues: Vec::new(), workflows: Vec::new() };
        let steps = reader.steps(&row.lines, file).map_err(|mut failure| {
            failure.row.clone_from(&row.row);
            failure
        })?;
        let Reader { names, queues, workflows, .. } = reader;
        stories.push(ScenarioCase { row: row.row.clone(), steps, names, queues, workflows });
    }
    Ok(Script { title: page.title, proves: page.proves, settles: page.settles, rulings: page.rulings, stories })
}

pub(super) struct Reader {
    row: usize,
    names: Vec<String>,
    queues: Vec<String>,
    pub(super) workflows: Vec<String>,
}

pub(super) type Read<T> = Result<T, String>;

/// The two halves of a statement, and the job lines below it.
pub(super) struct Statement {
    pub(super) arguments: Arguments,
    pub(super) arrow: Option<Vec<String>>,
    unchanged: bool,
    members: Vec<Vec<String>>,
}

fn is_member(text: &str) -> bool {
    text.starts_with("+ ") || text.starts_with("finally ")
}

impl Reader {
    fn steps(&mut self, lines: &[Line], file: &str) -> Result<Vec<Step>, Failure> {
        let mut steps = Vec::new();
        let mut at = 0;
        while let Some(line) = lines.get(at) {
            at += 1;
            if line.text.starts_with('#') {
                steps.push(Step { line: line.number, text: line.text.clone(), action: Action::Note });
                continue;
            }
            let mut text = line.text.clone();
            let mut members = Vec::new();
            while let Some(member) = lines.get(at).filter(|line| is_member(&line.text)) {
                members.push(split(&member.text).map_err(|problem| wrong(member, file, &problem))?);
                text.push_str("\n      ");
                text.push_str(&member.text);
                at += 1;
            }
            let action = self.statement(&line.text, members).map_err(|problem| Failure {
                file: file.to_owned(),
                line: line.number,
                row: None,
                statement: text.clone(),
                problem: Box::new(Problem::Language(problem)),
            })?;
            steps.push(Step { line: line.number, text, action });
        }
        Ok(steps)
    }

    pub(super) fn name(&mut self, name: &str) -> usize {
        self.names.iter().position(|known| known == name).unwrap_or_else(|| {
            self.names.push(name.to_owned());
            self.names.len() - 1
        })
    }

    /// Each row of a table has its own queues, so rows are independent.
    pub(super) fn queue(&mut self, name: &str) -> String {
        let name =
            if self.row == 0 || name == "default" { name.to_owned() } else { format!("{name}.{}", self.row + 1) };
        if !self.queues.contains(&name) {
            self.queues.push(name.clone());
        }
        name
    }

    fn statement(&mut self, text: &str, members: Vec<Vec<String>>) -> Read<Action> {
        let mut words = split(text)?;
        let mut arrow = words.iter().position(|word| word == "->").map(|at| {
            let mut right = words.split_off(at);
            right.remove(0);
            right.iter().map(|word| word.trim_end_matches(',').to_owned()).collect::<Vec<_>>()
        });
        if words.is_empty() {
            return Err("a statement begins with a word".to_owned());
        }
        let verb = words.remove(0);
        let unchanged = arrow.as_mut().is_some_and(|right| right.pop_if(|word| word == "unchanged").is_some());
        if !members.is_empty() && !matches!(verb.as_str(), "batch" | "children" | "workflow" | "grow" | "claim") {
            return Err("`+` lines belong to `batch`, `children`, `workflow`, `grow` or `claim`".to_owned());
        }
        let arrow = arrow.filter(|right| !(unchanged && right.is_empty()));
        if arrow.as_ref().is_some_and(Vec::is_empty) {
            return Err("nothing stands behind the arrow".to_owned());
        }
        let mut statement = Statement { arguments: Arguments::new(&words), arrow, unchanged, members };
        let action = match self.check(&verb, &mut statement)? {
            Some(action) => action,
            None => self.command(&verb, &mut statement)?,
        };
        statement.arguments.finish()?;
        if let Some(word) = statement.arrow.and_then(|right| right.into_iter().next()) {
            return Err(format!("`{word}` is not understood behind the arrow"));
        }
        Ok(action)
    }

    /// Parses statements that read or advance the clock.
    fn check(&mut self, verb: &str, s: &mut Statement) -> Read<Option<Action>> {
        let action = match verb {
            "advance" => match s.arguments.flag("to") {
                true => Action::AdvanceTo(offset(&s.arguments.next("instant")?)?),
                false => Action::Advance(duration(&s.arguments.next("duration")?)?),
            },
            "expect" => self.expect(s)?,
            "counts" => {
                let queue = s.arguments.next("queue")?;
                let queue = self.queue(&queue);
                if s.arguments.flag("gone") {
                    return Ok(Some(Action::QueueGone(queue)));
                }
                let fields = s.arguments.remaining_options();
                let known = |name: &str| STATES.contains(&name) || name == "profile" || name == "paused";
                match fields.iter().find(|(name, _)| !known(name)) {
                    Some((name, _)) => return Err(format!("a queue shows no `{name}`")),
                    None => Action::Counts { queue, fields },
                }
            }
            "attempts" | "history" => self.list(verb, s)?,
            "view" => self.view(s)?,
            "member" | "expect-workflow" => self.workflow_check(verb, s)?,
            _ => return Ok(None),
        };
        Ok(Some(action))
    }

    fn expect(&mut self, s: &mut Statement) -> Read<Action> {
        let job = self.job(s)?;
        if s.arguments.flag("gone") {
            return Ok(Action::Gone(job));
        }
        let mut fields = Vec::new();
        for (name, value) in s.arguments.remaining_options() {
            let index = FIELDS.iter().position(|(known, _, _)| *known == name);
            let index = index.ok_or_else(|| format!("a job has no field `{name}`"))?;
            let value = if name == "queue" { self.queue(&value) } else { value };
            if name == "state" && !STATES.contains(&value.as_str()) {
                return Err(format!("there is no state `{value}`"));
            }
            let kind = FIELDS.get(index).map_or(Kind::Text, |(_, kind, _)| *kind);
            fields.push((index, Matcher::parse(kind, &value, &mut |name| self.name(name))?));
        }
        if fields.is_empty() { Err("nothing is expected here".to_owned()) } else { Ok(Action::Expect { job, fields }) }
    }

    fn list(&mut self, verb: &str, s: &mut Statement) -> Read<Action> {
        let job = self.job(s)?;
        let history = verb == "history";
        let length = s.arguments.flag("length");
        let pick = match (s.arguments.parsed("first", number)?, s.arguments.parsed("last", number)?) {
            (Some(count), None) => Pick::First(count),
            (None, Some(count)) => Pick::Last(count),
            (None, None) => Pick::All,
            (Some(_), Some(_)) => return Err("either the first or the last ones".to_owned()),
        };
        let column = match history || length {
            true => 0,
            false => {
                let word = s.arguments.next_if(|_| true).unwrap_or_else(|| "outcomes".to_owned());
                let column = COLUMNS.iter().position(|(known, _, _)| *known == word);
                column.ok_or_else(|| format!("attempts have no `{word}`"))?
            }
        };
        let arrow = s.arrow.take().ok_or("an arrow is missing")?;
        if length {
            let [length] = arrow.as_slice() else { return Err("one number is expected".to_owned()) };
            return Ok(Action::Length { job, history, length: number(length)? });
        }
        if history {
            let values = arrow.iter().map(|word| self.entry(word)).collect::<Read<_>>()?;
            return Ok(Action::History { job, pick, values });
        }
        let kind = COLUMNS.get(column).map_or(Kind::Text, |(_, kind, _)| *kind);
        let values = arrow.iter().map(|word| Matcher::parse(kind, word, &mut |n| self.name(n))).collect::<Read<_>>()?;
        Ok(Action::Attempts { job, column, pick, values })
    }

    fn entry(&mut self, word: &str) -> Read<Entry> {
        let (word, at) = match word.split_once('@') {
            Some((word, at)) => (word, Some(Matcher::parse(Kind::Time, at, &mut |n| self.name(n))?)),
            None => (word, None),
        };
        let (state, cause) = match word.split_once(':') {
            Some((state, cause)) => (state, Some(cause.to_owned())),
            None => (word, None),
        };
        if !STATES.contains(&state) {
            return Err(format!("there is no state `{state}`"));
        }
        Ok(Entry { state: state.to_owned(), cause, at })
    }

    fn view(&mut self, s: &mut Statement) -> Read<Action> {
        let job = self.job(s)?;
        let view = s.arguments.next("view")?;
        if !PROFILES.contains(&view.as_str()) {
            return Err(format!("there is no view `{view}`"));
        }
        let names_only = s.arguments.flag("fields");
        let arrow = s.arrow.take().ok_or("an arrow is missing")?;
        if names_only {
            let mut fields = arrow;
            fields.sort();
            return Ok(Action::ViewFields { job, view, fields });
        }
        let mut fields = Vec::new();
        for word in arrow {
            let (name, value) = word.split_once('=').ok_or_else(|| format!("`{word}` is no field=value"))?;
            // Times have the usual syntax; other fields of a view are compared as text.
            let kind = if is_instant(name) { Kind::Time } else { Kind::Text };
            fields.push((name.to_owned(), Matcher::parse(kind, value, &mut |n| self.name(n))?));
        }
        Ok(Action::View { job, view, fields })
    }

    fn job(&mut self, s: &mut Statement) -> Read<usize> {
        let name = s.arguments.next("job")?;
        Ok(self.name(&name))
    }

    /// Parses statements that change something.
    fn command(&mut self, verb: &str, s: &mut Statement) -> Read<Action> {
        let mut binds = Vec::new();
        let mut members = Vec::new();
        let mut workflow = None;
        let command = match verb {
            "queue" | "pause" | "resume" | "delete-queue" => self.queue_command(verb, s)?,
            "submit" => {
                let (queue, name) = (s.arguments.next("queue")?, s.arguments.next("name of the job")?);
                let queue = self.queue(&queue);
                let job = new_job(&mut s.arguments, None, &mut |n| self.name(n))?;
                binds.push(self.name(&name));
                Command::Submit { queue, jobs: vec![job] }
            }
            "batch" => {
                let queue = s.arguments.next("queue")?;
                let queue = self.queue(&queue);
                let (jobs, finally) = self.members(s, &mut binds, &mut members)?;
                if finally.is_some() {
                    return Err("`finally` belongs to `children`".to_owned());
                }
                Command::Submit { queue, jobs }
            }
            "workflow" | "grow" => {
                let command = self.joining(verb, s, &mut workflow)?;
                let (jobs, finally) = self.members(s, &mut binds, &mut members)?;
                if finally.is_some() {
                    return Err("`finally` belongs to `children`".to_owned());
                }
                with_jobs(command, jobs)
            }
            "close" | "cancel-workflow" | "retry-workflow" => self.workflow_command(verb, s)?,
            "children" => {
                let (job, token) = (self.job(s)?, token(s)?);
                let (jobs, finally) = self.members(s, &mut binds, &mut members)?;
                Command::Children { job, token, jobs, finally }
            }
            "claim" if !s.members.is_empty() => return self.settle_and_claim(s),
            "claim" => self.claim(s)?,
            "direct" => {
                let (worker, directive) = (s.arguments.next("worker")?, s.arguments.next("directive")?);
                if !matches!(directive.as_str(), "run" | "quiet" | "stop") {
                    return Err(format!("`{directive}` is no directive (run, quiet, stop)"));
                }
                Command::Direct { worker, directive }
            }
            "complete" | "fail" | "snooze" | "release" => {
                let (job, token) = (self.job(s)?, token(s)?);
                Command::Settle { job, token, outcome: outcome(verb, &mut s.arguments)? }
            }
            "heartbeat" => Command::Heartbeat {
                job: self.job(s)?,
                token: token(s)?,
                progress: s.arguments.option("progress"),
                checkpoint: s.arguments.option("checkpoint"),
            },
            "requeue" => {
                let job = self.job(s)?;
                if s.arguments.flag("as") {
                    let clone = s.arguments.next("name of the clone")?;
                    binds.push(self.name(&clone));
                }
                let reset = !s.arguments.flag("no-reset");
                Command::Requeue { job, reset, run_at: s.arguments.parsed("run_at", offset)? }
            }
            _ => self.operator_command(verb, s)?,
        };
        let expected = self.expected(verb, s.arrow.take(), members)?;
        Ok(Action::Do { command: Box::new(command), binds, workflow, expected, unchanged: s.unchanged })
    }

    fn queue_command(&mut self, verb: &str, s: &mut Statement) -> Read<Command> {
        let queue = s.arguments.next("queue")?;
        let queue = self.queue(&queue);
        Ok(match verb {
            "pause" => Command::Pause { queue },
            "resume" => Command::Resume { queue },
            "delete-queue" => Command::DeleteQueue { queue, force: s.arguments.flag("force") },
            _ => {
                let profile = s.arguments.option("profile");
                let settings = s.arguments.settings();
                let plain = s.arguments.flag("plain");
                let settings = if plain || !settings.is_empty() { Some(settings) } else { None };
                Command::PutQueue { queue, profile, settings }
            }
        })
    }

    fn operator_command(&mut self, verb: &str, s: &mut Statement) -> Read<Command> {
        if !matches!(verb, "submit-held" | "cancel" | "dead-letter" | "run-now" | "edit" | "delete" | "status") {
            return Err(format!("there is no statement `{verb}`"));
        }
        let job = self.job(s)?;
        let a = &mut s.arguments;
        Ok(match verb {
            "submit-held" => Command::SubmitHeld { job },
            "cancel" => Command::Cancel { job, force: a.flag("force"), reason: a.option("reason") },
            "dead-letter" => Command::DeadLetter { job, reason: a.option("reason") },
            "run-now" => Command::RunNow { job },
            "delete" => Command::Delete { job },
            "status" => {
                let word = a.next("status")?;
                Command::ChangeStatus {
                    job,
                    status: Some(word).filter(|word| word != "same"),
                    output: a.option("output"),
                }
            }
            _ => Command::Edit {
                job,
                edit: Edit {
                    priority: a.parsed("priority", priority)?,
                    job_type: a.option("type"),
                    tags: a.option("tags").map(|text| if text == "none" { Default::default() } else { tags(&text) }),
                    correlation_id: a.option("correlation_id"),
                    callback_url: a.option("callback_url"),
                    retry_limit: a.parsed("retry.limit", number)?,
                },
            },
        })
    }

    fn claim(&mut self, s: &mut Statement) -> Read<Command> {
        let queues = s.arguments.next("queue")?;
        let queues = queues.split(',').map(|queue| self.queue(queue)).collect();
        Ok(Command::Claim {
            queues,
            worker: s.arguments.next("worker")?,
            limit: s.arguments.parsed("limit", number)?.unwrap_or(1),
            types: s.arguments.list("types"),
            lease: s.arguments.parsed("lease", duration)?,
            execution_timeout: s.arguments.parsed("timeout", duration)?,
        })
    }

    /// Parses a claim with `+` lines, each of which is a settlement.
    fn settle_and_claim(&mut self, s: &mut Statement) -> Read<Action> {
        let (mut settle, mut verdicts) = (Vec::new(), Vec::new());
        for mut words in std::mem::take(&mut s.members) {
            words.remove(0);
            let arrow = words.iter().position(|word| word == "->").map(|at| words.split_off(at));
            let verdict = match arrow.as_deref() {
                None => None,
                Some([_, word]) if STATES.contains(&word.as_str()) || CODES.contains(&word.as_str()) => {
                    Some(word.clone())
                }
                Some(words) => return Err(format!("`{}` is neither a state nor an error code", words.join(" "))),
            };
            let mut line =
                Statement { arguments: Arguments::new(&words), arrow: None, unchanged: false, members: vec![] };
            let verb = line.arguments.next("outcome")?;
            if !matches!(verb.as_str(), "complete" | "fail" | "snooze" | "release") {
                return Err(format!("`{verb}` settles nothing"));
            }
            let (job, token) = (self.job(&mut line)?, token(&mut line)?);
            settle.push((job, token, outcome(&verb, &mut line.arguments)?));
            verdicts.push(verdict);
            line.arguments.finish()?;
        }
        let command = Command::SettleAndClaim { settle, claim: Box::new(self.claim(s)?) };
        let expected = match self.expected("claim", s.arrow.take(), Vec::new())? {
            Expected::Claimed(claimed) => Expected::SettledAndClaimed(verdicts, Some(claimed)),
            Expected::Accepted => Expected::SettledAndClaimed(verdicts, None),
            other => other,
        };
        let command = Box::new(command);
        Ok(Action::Do { command, binds: Vec::new(), workflow: None, expected, unchanged: s.unchanged })
    }

    /// Parses the `+` and `finally` lines of a batch. A name like j1..j9 makes nine equal jobs.
    pub(super) fn members(
        &mut self,
        s: &mut Statement,
        binds: &mut Vec<usize>,
        expected: &mut Vec<Member>,
    ) -> Read<(Vec<NewJob>, Option<NewJob>)> {
        let mut jobs = Vec::new();
        let mut finally = None;
        for mut words in std::mem::take(&mut s.members) {
            let last = words.remove(0) == "finally";
            let arrow = words.iter().position(|word| word == "->").map(|at| words.split_off(at));
            let mut arguments = Arguments::new(&words);
            let name = arguments.next("name of the job")?;
            let member = match arrow.as_deref() {
                None => Member::Accepted,
                Some(words) => self.member(words.get(1..).unwrap_or_default())?,
            };
            let pattern = new_job(&mut arguments, None, &mut |n| self.name(n))?;
            arguments.finish()?;
            if finally.is_some() {
                return Err("`finally` is the last line".to_owned());
            }
            for name in name_range(&name)? {
                binds.push(self.name(&name));
                expected.push(member.clone());
                let job = NewJob { reference: Some(name), ..pattern.clone() };
                if last { finally = Some(job) } else { jobs.push(job) }
            }
        }
        Ok((jobs, finally))
    }

    fn member(&mut self, words: &[String]) -> Read<Member> {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match words.as_slice() {
            [state] if STATES.contains(state) => Ok(Member::State((*state).to_owned())),
            ["duplicate", "of", "gone"] => Ok(Member::DuplicateGone),
            ["duplicate", "of", name] => Ok(Member::DuplicateOf(self.name(name), None)),
            ["duplicate", "of", name, state] if STATES.contains(state) => {
                Ok(Member::DuplicateOf(self.name(name), Some((*state).to_owned())))
            }
            _ => Err(format!("`{}` is not understood behind the arrow", words.join(" "))),
        }
    }

    fn expected(&mut self, verb: &str, arrow: Option<Vec<String>>, members: Vec<Member>) -> Read<Expected> {
        let with_members = matches!(verb, "batch" | "workflow" | "grow");
        let Some(words) = arrow else {
            return Ok(if with_members { Expected::Members(members) } else { Expected::Accepted });
        };
        if let [word] = words.as_slice() {
            if CODES.contains(&word.as_str()) {
                return Ok(Expected::Refused(word.clone()));
            }
            if word == "ok" {
                return Ok(if with_members { Expected::Members(members) } else { Expected::Done });
            }
        }
        match verb {
            "submit" => Ok(Expected::Members(vec![self.member(&words)?])),
            "claim" => self.claimed(&words),
            "workflow" | "close" | "cancel-workflow" | "retry-workflow" => self.workflow_expected(&words, members),
            "heartbeat" => {
                let mut fields = Vec::new();
                for word in words {
                    let (name, value) = word.split_once('=').unwrap_or((&word, "true"));
                    let kind = match name {
                        "expires" => Kind::Time,
                        "cancel_requested" => Kind::Flag,
                        _ => return Err(format!("a heartbeat does not answer `{name}`")),
                    };
                    fields.push((name.to_owned(), Matcher::parse(kind, value, &mut |n| self.name(n))?));
                }
                Ok(Expected::Extended(fields))
            }
            _ => match words.as_slice() {
                [word] if word == "requested" && verb == "cancel" => Ok(Expected::CancelRequested),
                [state] if STATES.contains(&state.as_str()) => Ok(Expected::State(state.clone())),
                _ => Err(format!("`{}` is neither a state nor an error code", words.join(" "))),
            },
        }
    }

    fn claimed(&mut self, words: &[String]) -> Read<Expected> {
        let mut claimed: Vec<Expectation> = Vec::new();
        if words == ["none"] {
            return Ok(Expected::Claimed(claimed));
        }
        let mut words = words.iter();
        while let Some(word) = words.next() {
            if let (Some((name, value)), Some(last)) = (word.split_once('='), claimed.last_mut()) {
                let kind = match name {
                    "expires" | "deadline" => Kind::Time,
                    "attempt" => Kind::Number,
                    _ => return Err(format!("a claim does not answer `{name}`")),
                };
                last.extra.push((name.to_owned(), Matcher::parse(kind, value, &mut |_| 0)?));
                continue;
            }
            let version = words.next().and_then(|word| word.strip_prefix('v')).and_then(|v| v.parse().ok());
            let version = version.ok_or_else(|| format!("which lease version of `{word}`? Write `{word} v1`"))?;
            for name in name_range(word)? {
                claimed.push(Expectation { job: self.name(&name), version, extra: Vec::new() });
            }
        }
        Ok(Expected::Claimed(claimed))
    }
}

/// Whether a field of a view is a timestamp, by its name in the specifications.
fn is_instant(name: &str) -> bool {
    name.ends_with("_at") || name.ends_with("At") || name == "last_heartbeat"
}

fn token(s: &mut Statement) -> Read<Token> {
    let word = s.arguments.next("lease token (v1, bogus, none)")?;
    match (word.as_str(), word.strip_prefix('v').and_then(|version| version.parse().ok())) {
        ("bogus", _) => Ok(Token::Bogus),
        ("none", _) => Ok(Token::Missing),
        (_, Some(version)) => Ok(Token::Version(version)),
        _ => Err(format!("`{word}` is no lease token (v1, bogus, none)")),
    }
}

fn outcome(verb: &str, a: &mut Arguments) -> Read<Outcome> {
    Ok(match verb {
        "complete" => Outcome::Complete { result: a.option("result"), progress: a.option("progress") },
        "snooze" => Outcome::Snooze { delay: duration(&a.next("duration")?)? },
        "release" => Outcome::Release,
        _ => {
            let unrecoverable = a.flag("final") || a.parsed("final", boolean)?.unwrap_or(false);
            let category = a.next_if(|_| true).unwrap_or_else(|| "temporary".to_owned());
            if !matches!(category.as_str(), "temporary" | "permanent" | "timeout" | "system" | "cancelled") {
                return Err(format!("there is no category `{category}`"));
            }
            Outcome::Fail {
                category,
                code: a.option("code"),
                message: a.option("message").unwrap_or_else(|| "it went wrong".to_owned()),
                retry_after: a.parsed("retry_after", duration)?,
                unrecoverable,
            }
        }
    })
}
