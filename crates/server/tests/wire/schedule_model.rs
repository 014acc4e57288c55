//! Random histories of schedules on the server and on a model that shares no code with it.
//!
//! The model counts minutes: it has no cron library, no progress record and no plan of ticks.

use std::collections::BTreeMap;

use longshore_core::rng::{Rng as _, SeededRng};
use serde_json::{Value, json};

use crate::common::{Client, EPOCH, Setup};

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
/// Milliseconds since the start of virtual time, which is a midnight.
type Instant = u64;

/// When a schedule of the model is due.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Times {
    Every(u64),
    /// Minutes of the hour that are multiples of this number.
    EachMinutes(u64),
    /// One minute of every hour.
    Minute(u64),
}

impl Times {
    const ALL: [Self; 6] = [
        Self::Every(MINUTE),
        Self::Every(90 * SECOND),
        Self::Every(7 * MINUTE),
        Self::EachMinutes(1),
        Self::EachMinutes(5),
        Self::Minute(30),
    ];

    fn field(self) -> (&'static str, String) {
        match self {
            Self::Every(millis) => ("every", format!("{}s", millis / SECOND)),
            Self::EachMinutes(step) => ("cron", format!("*/{step} * * * *")),
            Self::Minute(minute) => ("cron", format!("{minute} * * * *")),
        }
    }

    /// Whether it is due at an instant, which is a whole second after `counts_from`.
    fn is_due(self, counts_from: Instant, at: Instant) -> bool {
        let minute_of_hour = at / MINUTE % 60;
        match self {
            Self::Every(interval) => at > counts_from && (at - counts_from).is_multiple_of(interval),
            Self::EachMinutes(step) => at.is_multiple_of(MINUTE) && minute_of_hour.is_multiple_of(step),
            Self::Minute(minute) => at.is_multiple_of(MINUTE) && minute_of_hour == minute,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
struct Definition {
    times: Times,
    queue: usize,
    skips_overlap: bool,
}

#[derive(Clone, Debug)]
struct ModelSchedule {
    definition: Definition,
    paused: bool,
    note: Option<String>,
    created_at: Instant,
    updated_at: Instant,
    counts_from: Instant,
    /// Due time, outcome, index of the job; oldest first.
    ticks: Vec<(Instant, &'static str, Option<usize>)>,
}

/// A job of a tick or a trigger.
#[derive(Clone, Debug)]
struct ModelJob {
    queue: usize,
    has_ended: bool,
    /// Known once the ticks were compared.
    id: Option<String>,
}

#[derive(Debug, Default)]
struct Model {
    now: Instant,
    schedules: BTreeMap<&'static str, ModelSchedule>,
    jobs: Vec<ModelJob>,
}

/// The second queue takes one waiting job.
const QUEUES: [(&str, usize); 2] = [("open", usize::MAX), ("narrow", 1)];
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

impl Model {
    fn submit(&mut self, queue: usize) -> Option<usize> {
        let waiting = self.jobs.iter().filter(|job| job.queue == queue && !job.has_ended).count();
        (waiting < QUEUES[queue].1).then(|| {
            self.jobs.push(ModelJob { queue, has_ended: false, id: None });
            self.jobs.len() - 1
        })
    }

    /// Visits every second.
    fn advance(&mut self, by: u64) {
        for _ in 0..by / SECOND {
            self.now += SECOND;
            for name in NAMES {
                let Some(schedule) = self.schedules.get(name) else { continue };
                let ModelSchedule { definition, counts_from, .. } = schedule;
                if schedule.paused || !definition.times.is_due(*counts_from, self.now) {
                    continue;
                }
                let last_job = schedule.ticks.iter().rev().find_map(|(_, _, job)| *job);
                let overlaps = definition.skips_overlap && last_job.is_some_and(|job| !self.jobs[job].has_ended);
                let queue = definition.queue;
                let job = if overlaps { None } else { self.submit(queue) };
                let outcome = match (overlaps, job) {
                    (true, _) => "skipped_overlap",
                    (false, Some(_)) => "fired",
                    (false, None) => "refused",
                };
                let now = self.now;
                self.schedules.get_mut(name).unwrap().ticks.push((now, outcome, job));
            }
        }
    }

    fn put(&mut self, name: &'static str, definition: Definition, paused: Option<bool>) -> bool {
        let now = self.now;
        let Some(present) = self.schedules.get_mut(name) else {
            let (created_at, updated_at, counts_from) = (now, now, now);
            let (paused, ticks) = (paused.unwrap_or(false), Vec::new());
            let new = ModelSchedule { definition, paused, note: None, created_at, updated_at, counts_from, ticks };
            self.schedules.insert(name, new);
            return true;
        };
        let paused = paused.unwrap_or(present.paused);
        if present.definition.times != definition.times {
            present.counts_from = now;
        }
        if (&present.definition, present.paused) != (&definition, paused) {
            present.updated_at = now;
        }
        (present.definition, present.paused) = (definition, paused);
        present.note = present.note.take().filter(|_| paused);
        false
    }

    fn set_paused(&mut self, name: &str, paused: bool, note: Option<String>) -> bool {
        let now = self.now;
        let Some(schedule) = self.schedules.get_mut(name) else { return false };
        let note = if paused { note.or_else(|| schedule.note.clone()) } else { None };
        if (schedule.paused, &schedule.note) != (paused, &note) {
            schedule.updated_at = now;
        }
        (schedule.paused, schedule.note) = (paused, note);
        true
    }
}

fn time(at: Instant) -> String {
    let start: jiff::Timestamp = EPOCH.parse().unwrap();
    let at = start + std::time::Duration::from_millis(at);
    at.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string()
}

/// Returns what the model expects of `GET /v1/schedules/{name}`, without the job.
fn shown(name: &str, schedule: &ModelSchedule, now: Instant) -> Value {
    let Definition { times, queue, skips_overlap } = &schedule.definition;
    let mut next = Vec::new();
    let mut at = now;
    while next.len() < 10 {
        at += SECOND;
        if times.is_due(schedule.counts_from, at) {
            next.push(time(at));
        }
    }
    let last = schedule.ticks.last().map(|(due, outcome, _)| json!([time(*due), outcome]));
    json!({
        "name": name, "queue": QUEUES[*queue].0, "overlap": if *skips_overlap { "skip" } else { "allow" },
        "paused": schedule.paused, "pause_note": schedule.note, "next": next, "last": last,
        "created_at": time(schedule.created_at), "updated_at": time(schedule.updated_at),
    })
}

async fn compare(c: &mut Client, model: &mut Model, story: &[String]) {
    let listed = c.get("/v1/schedules").await.ok(200);
    let found: Vec<Value> = listed["schedules"]
        .as_array()
        .unwrap()
        .iter()
        .map(|schedule| {
            let last = &schedule["last"];
            let last = if last.is_null() { Value::Null } else { json!([last["due_at"], last["outcome"]]) };
            let keys = ["name", "queue", "overlap", "paused", "pause_note", "next", "created_at", "updated_at"];
            let mut shown: serde_json::Map<String, Value> =
                keys.iter().map(|key| ((*key).to_owned(), schedule[*key].clone())).collect();
            shown.insert("last".to_owned(), last);
            Value::Object(shown)
        })
        .collect();
    let expected: Vec<Value> =
        model.schedules.iter().map(|(name, schedule)| shown(name, schedule, model.now)).collect();
    assert_eq!(found, expected, "{story:#?}");
    let Model { schedules, jobs, .. } = model;
    for (name, schedule) in schedules {
        let ticks = c.get(&format!("/v1/schedules/{name}/ticks")).await.ok(200)["ticks"].clone();
        let ticks = ticks.as_array().unwrap();
        let expected: Vec<_> = schedule.ticks.iter().rev().take(100).collect();
        assert_eq!(ticks.len(), expected.len(), "{name}: {story:#?}");
        for (tick, (due, outcome, job)) in ticks.iter().zip(expected) {
            let due = time(*due);
            assert_eq!((&tick["due_at"], &tick["outcome"]), (&json!(due), &json!(outcome)), "{name}: {story:#?}");
            let fired_at = if job.is_some() { json!(due) } else { Value::Null };
            assert_eq!(tick["fired_at"], fired_at, "{name}: {story:#?}");
            let id = tick["job"].as_str().map(str::to_owned);
            assert_eq!(id.is_some(), job.is_some(), "{name}: {story:#?}");
            if let Some(job) = job {
                let known = jobs[*job].id.get_or_insert_with(|| id.clone().unwrap());
                assert_eq!(Some(&*known), id.as_ref(), "a tick has another job: {story:#?}");
            }
        }
    }
    for (index, (queue, _)) in QUEUES.iter().enumerate() {
        let counts = c.get(&format!("/v1/queues/{queue}")).await.ok(200)["counts"].clone();
        let count = |has_ended| jobs.iter().filter(|job| job.queue == index && job.has_ended == has_ended).count();
        let pair = (&counts["scheduled"], &counts["cancelled"]);
        assert_eq!(pair, (&json!(count(false)), &json!(count(true))), "{story:#?}");
    }
}

struct History {
    rng: SeededRng,
    model: Model,
    story: Vec<String>,
}

impl History {
    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.rng.next_u64() % bound as u64).unwrap()
    }

    async fn put(&mut self, c: &mut Client, name: &'static str) {
        let times = Times::ALL[self.below(Times::ALL.len())];
        let definition = Definition { times, queue: self.below(2), skips_overlap: self.below(2) == 0 };
        let paused = [None, None, None, Some(true), Some(false)][self.below(5)];
        let mut body = json!({
            "queue": QUEUES[definition.queue].0, "job": {"type": "t"},
            "overlap": if definition.skips_overlap { "skip" } else { "allow" },
        });
        let (field, value) = times.field();
        body[field] = json!(value);
        if let Some(paused) = paused {
            body["paused"] = json!(paused);
        }
        self.story.push(format!("put {name} {body}"));
        let created = self.model.put(name, definition, paused);
        c.put(&format!("/v1/schedules/{name}"), &body.to_string()).await.ok(if created { 201 } else { 200 });
    }

    async fn pause(&mut self, c: &mut Client, name: &'static str, paused: bool) {
        let note = if self.below(2) == 0 { Some(format!("note {}", self.below(3))) } else { None };
        let (verb, body) = match &note {
            Some(note) if paused => ("pause", json!({"note": note}).to_string()),
            _ if paused => ("pause", "{}".to_owned()),
            _ => ("resume", "{}".to_owned()),
        };
        self.story.push(format!("{verb} {name} {body}"));
        let exists = self.model.set_paused(name, paused, note.filter(|_| paused));
        let reply = c.post(&format!("/v1/schedules/{name}/{verb}"), &body).await;
        if exists {
            reply.ok(200)
        } else {
            reply.problem(404, "schedule_not_found")
        };
    }

    async fn trigger(&mut self, c: &mut Client, name: &'static str) {
        self.story.push(format!("trigger {name}"));
        let reply = c.post(&format!("/v1/schedules/{name}/trigger"), "").await;
        let Some(queue) = self.model.schedules.get(name).map(|schedule| schedule.definition.queue) else {
            reply.problem(404, "schedule_not_found");
            return;
        };
        match self.model.submit(queue) {
            Some(job) => self.model.jobs[job].id = Some(reply.ok(201)["id"].as_str().unwrap().to_owned()),
            None => drop(reply.problem(429, "queue_full")),
        }
    }

    async fn cancel(&mut self, c: &mut Client) {
        let live: Vec<usize> = (0..self.model.jobs.len()).filter(|job| !self.model.jobs[*job].has_ended).collect();
        if live.is_empty() {
            return;
        }
        let job = live[self.below(live.len())];
        // A deleted schedule shows its ticks no more.
        let Some(id) = self.model.jobs[job].id.clone() else { return };
        self.story.push(format!("cancel job {job}"));
        c.post(&format!("/v1/jobs/{id}/cancel"), "{}").await.ok(200);
        self.model.jobs[job].has_ended = true;
    }

    async fn step(&mut self, c: &mut Client) {
        let name = NAMES[self.below(NAMES.len())];
        match self.below(12) {
            0..=2 => self.put(c, name).await,
            3 => self.pause(c, name, true).await,
            4 => self.pause(c, name, false).await,
            5 => self.trigger(c, name).await,
            6 => {
                self.story.push(format!("delete {name}"));
                let reply = c.delete(&format!("/v1/schedules/{name}")).await;
                let existed = self.model.schedules.remove(name).is_some();
                assert_eq!(reply.status, if existed { 204 } else { 404 }, "{:#?}", self.story);
            }
            7 | 8 => self.cancel(c).await,
            _ => {
                let seconds = [1, 29, 60, 150, 600, 5_400][self.below(6)];
                self.story.push(format!("advance {seconds}s"));
                self.model.advance(seconds * SECOND);
                c.advance(&format!("{seconds}s")).await;
            }
        }
    }
}

/// Rules Schedules, small print.
#[tokio::test]
async fn random_histories_of_schedules_agree_with_the_model() {
    for seed in 1..=4 {
        let server = Setup::memory().start().await;
        let mut c = server.client().await;
        c.put("/v1/queues/open", "{}").await.ok(201);
        c.put("/v1/queues/narrow", r#"{"settings":{"max_queued":1}}"#).await.ok(201);
        let mut history = History { rng: SeededRng::new(seed), model: Model::default(), story: Vec::new() };
        for _ in 0..60 {
            history.step(&mut c).await;
            compare(&mut c, &mut history.model, &history.story).await;
        }
        server.stop().await;
    }
}
