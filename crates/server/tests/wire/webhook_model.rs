//! Random histories of endpoints and jobs: which deliveries exist, and in which state.
//!
//! The model says which end of which job owes a delivery to which endpoint. No network is allowed,
//! so that each delivery fails at once and the history does not depend on a receiver.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use longshore_core::rng::{Rng as _, SeededRng};
use serde_json::{Value, json};

use crate::common::client::lease;
use crate::common::{Client, Setup};

const EVENTS: [&str; 4] = ["job.completed", "job.failed", "job.dead_letter", "job.cancelled"];
const QUEUES: [&str; 4] = ["mail", "mail.eu", "reports", "report"];
/// Whether a pattern covers a queue.
type CoverRule = fn(&str) -> bool;
const PATTERNS: [(&str, CoverRule); 5] = [
    ("*", |_| true),
    ("mail", |queue| queue == "mail"),
    ("mail*", |queue| queue == "mail" || queue == "mail.eu"),
    ("mail.*", |queue| queue == "mail.eu"),
    ("report", |queue| queue == "report"),
];

#[derive(Clone, Debug)]
struct ModelEndpoint {
    events: Vec<usize>,
    patterns: Vec<usize>,
    enabled: bool,
}

/// A delivery: job, event, and the endpoint or `callback`.
type ExpectedDelivery = (String, &'static str, String);

#[derive(Default)]
struct Model {
    endpoints: BTreeMap<String, ModelEndpoint>,
    expected: BTreeSet<ExpectedDelivery>,
}

impl Model {
    fn on_end(&mut self, job: &str, queue: &str, event: usize, has_callback: bool) {
        for (name, endpoint) in &self.endpoints {
            let covers = endpoint.patterns.iter().any(|pattern| PATTERNS[*pattern].1(queue));
            if endpoint.enabled && covers && endpoint.events.contains(&event) {
                self.expected.insert((job.to_owned(), EVENTS[event], name.clone()));
            }
        }
        if has_callback {
            self.expected.insert((job.to_owned(), EVENTS[event], "callback".to_owned()));
        }
    }
}

struct History {
    rng: SeededRng,
    model: Model,
    jobs: Vec<String>,
}

impl History {
    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.rng.next_u64() % bound as u64).unwrap()
    }

    /// Returns some of the numbers below a bound, at least one.
    fn some_of(&mut self, bound: usize) -> Vec<usize> {
        let first = self.below(bound);
        (0..bound).filter(|index| *index == first || self.below(3) == 0).collect()
    }

    async fn put_endpoint(&mut self, c: &mut Client) {
        let name = ["a", "b", "c"][self.below(3)].to_owned();
        let (events, patterns) = (self.some_of(EVENTS.len()), self.some_of(PATTERNS.len()));
        let enabled = self.below(4) > 0;
        let body = json!({
            "url": "http://127.0.0.1:9/hook", "enabled": enabled,
            "events": events.iter().map(|event| EVENTS[*event]).collect::<Vec<_>>(),
            "queues": patterns.iter().map(|pattern| PATTERNS[*pattern].0).collect::<Vec<_>>(),
        });
        let reply = c.put(&format!("/v1/webhooks/{name}"), &body.to_string()).await;
        let created = !self.model.endpoints.contains_key(&name);
        assert_eq!(reply.status, if created { 201 } else { 200 });
        self.model.endpoints.insert(name, ModelEndpoint { events, patterns, enabled });
    }

    /// Submits a job and ends it in one of the four ways, or does not end it.
    async fn run_job(&mut self, c: &mut Client) {
        let queue = QUEUES[self.below(QUEUES.len())];
        let has_callback = self.below(3) == 0;
        let mut job = json!({"type": "t", "payload": "secret", "retry": {"limit": 1, "on_permanent": "failed"}});
        if has_callback {
            job["callback_url"] = json!("http://127.0.0.1:9/callback");
        }
        let id = c.submit(queue, &job.to_string()).await;
        self.jobs.push(id.clone());
        let event = self.below(5);
        match event {
            0 => {
                let (claimed, token) = lease(&c.claim(queue).await);
                assert_eq!(claimed, id);
                c.post(&format!("/v1/jobs/{id}/complete"), &json!({"lease": token}).to_string()).await.ok(200);
            }
            1 => {
                let (_, token) = lease(&c.claim(queue).await);
                let error = json!({"category": "permanent", "message": "no"});
                let body = json!({"lease": token, "error": error}).to_string();
                c.post(&format!("/v1/jobs/{id}/fail"), &body).await.ok(200);
            }
            2 => drop(c.post(&format!("/v1/jobs/{id}/dead-letter"), "{}").await.ok(200)),
            3 => drop(c.post(&format!("/v1/jobs/{id}/cancel"), "{}").await.ok(200)),
            // It waits for a time that never comes in this history.
            _ => {
                let (_, token) = lease(&c.claim(queue).await);
                let body = json!({"lease": token, "delay": "100d"}).to_string();
                c.post(&format!("/v1/jobs/{id}/snooze"), &body).await.ok(200);
                return;
            }
        }
        self.model.on_end(&id, queue, event, has_callback);
    }

    async fn step(&mut self, c: &mut Client) {
        match self.below(6) {
            0 => self.put_endpoint(c).await,
            1 => {
                let name = ["a", "b", "c"][self.below(3)];
                let existed = self.model.endpoints.remove(name).is_some();
                let reply = c.delete(&format!("/v1/webhooks/{name}")).await;
                assert_eq!(reply.status, if existed { 204 } else { 404 });
            }
            _ => self.run_job(c).await,
        }
    }
}

/// Returns the deliveries of all jobs, or `None` while one of them was not attempted.
async fn deliveries(c: &mut Client, jobs: &[String]) -> Option<BTreeSet<ExpectedDelivery>> {
    let mut found = BTreeSet::new();
    for id in jobs {
        let list = c.get(&format!("/v1/jobs/{id}/deliveries")).await.ok(200)["deliveries"].clone();
        for delivery in list.as_array().unwrap() {
            if delivery["state"] == "pending" {
                return None;
            }
            check_failed(delivery, id);
            let event = EVENTS.into_iter().find(|event| delivery["event"] == *event).unwrap();
            let receiver = match delivery["webhook"].as_str().unwrap() {
                "callbacks" => "callback",
                endpoint => endpoint,
            };
            assert!(found.insert((id.clone(), event, receiver.to_owned())), "recorded twice: {delivery}");
        }
    }
    Some(found)
}

fn check_failed(delivery: &Value, job: &str) {
    assert_eq!((&delivery["state"], &delivery["next_at"]), (&json!("failed"), &Value::Null), "{delivery}");
    assert_eq!(delivery["job"], job);
    let attempts = delivery["attempts"].as_array().unwrap();
    let error = attempts[0]["error"].as_str().unwrap();
    // An endpoint may be changed before its delivery is due.
    assert!(["address_not_allowed", "endpoint_deleted", "endpoint_disabled"].contains(&error), "{delivery}");
    assert_eq!((attempts.len(), &attempts[0]["status"]), (1, &Value::Null), "{delivery}");
}

/// Rules Webhooks, small print.
#[tokio::test]
async fn random_histories_of_webhooks_agree_with_the_model() {
    for seed in 1..=3 {
        let server = Setup::memory().start().await;
        let mut c = server.client().await;
        let mut history = History { rng: SeededRng::new(seed), model: Model::default(), jobs: Vec::new() };
        for _ in 0..80 {
            history.step(&mut c).await;
        }
        let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
        let found = loop {
            if let Some(found) = deliveries(&mut c, &history.jobs).await {
                break found;
            }
            assert!(tokio::time::Instant::now() < deadline, "deliveries are not attempted");
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        assert!(!history.model.expected.is_empty());
        assert_eq!(found.symmetric_difference(&history.model.expected).next(), None, "seed {seed}");
        server.stop().await;
    }
}
