//! Workflows over HTTP: responses are read by refs, as a client does.

use std::collections::{BTreeMap, HashSet};

use longshore_core::id::WorkflowId;
use longshore_testkit::target::*;
use serde_json::{Value, json};

use crate::http_subject::{HttpSubject, Refused};

impl HttpSubject {
    pub(crate) fn start_workflow(&mut self, queue: &str, jobs: &[NewJob], open: bool) -> Result<Answer, Refused> {
        let bodies: Vec<Value> = jobs.iter().map(|new| self.new_job(new)).collect();
        let mut body = json!({ "queue": queue, "open": open, "jobs": bodies });
        if jobs.is_empty() && open {
            body = json!({ "open": true });
        }
        self.join("/v1/workflows", &body, jobs, &bodies)
    }

    pub(crate) fn grow_workflow(&mut self, workflow: Handle, queue: &str, jobs: &[NewJob]) -> Result<Answer, Refused> {
        let bodies: Vec<Value> = jobs.iter().map(|new| self.new_job(new)).collect();
        let path = format!("/v1/workflows/{}/jobs", self.workflow_id(workflow));
        self.join(&path, &json!({ "queue": queue, "jobs": bodies }), jobs, &bodies)
    }

    fn join(&mut self, path: &str, body: &Value, jobs: &[NewJob], bodies: &[Value]) -> Result<Answer, Refused> {
        let made = self.post(path, body)?;
        let id = made["id"].as_str().unwrap().to_owned();
        let known = self.workflows.iter().position(|one| *one == id);
        let workflow = known.unwrap_or_else(|| {
            self.workflows.push(id);
            self.workflows.len() - 1
        });
        let names: BTreeMap<String, String> = serde_json::from_value(made["jobs"].clone()).unwrap();
        let ids = self.ids_by_name(&names, jobs);
        // Handles are in the order of the request, which is that of creation.
        let mut submitted = Vec::new();
        for (id, body) in ids.iter().zip(bodies) {
            let record = self.get(&format!("/v1/jobs/{id}"));
            let state = record.map(|record| record["state"].as_str().unwrap().to_owned());
            let new = state.is_some() && !self.handles.contains_key(id);
            let job = state.as_ref().map(|_| self.adopt(&json!(id)));
            if let Some(job) = job.filter(|_| new) {
                self.payloads.insert(job, body["payload"].clone());
            }
            submitted.push(Submitted { job, state, duplicate: !new });
        }
        Ok(Answer::Workflow { workflow, jobs: submitted })
    }

    /// Returns the ids of jobs by their `ref`, or by a number for a job without one.
    ///
    /// A duplicate has the ref of its first submission, found by its key.
    fn ids_by_name(&mut self, names: &BTreeMap<String, String>, jobs: &[NewJob]) -> Vec<String> {
        let given: HashSet<&String> = jobs.iter().filter_map(|job| job.reference.as_ref()).collect();
        let number = |name: &str| name.trim_end_matches('_').parse::<u64>().ok();
        let mut numbers: Vec<(u64, &String)> = names
            .iter()
            .filter(|(name, _)| !given.contains(name))
            .filter_map(|(name, id)| Some((number(name)?, id)))
            .collect();
        numbers.sort_unstable();
        let mut numbers = numbers.into_iter();
        let mut ids = Vec::new();
        for job in jobs {
            let by_reference = job.reference.as_ref().and_then(|name| names.get(name)).cloned();
            let by_key = |http: &mut Self, key: &str| {
                let mut others = names.iter().filter(|(name, _)| !given.contains(name));
                others.find_map(|(_, id)| {
                    let record = http.get(&format!("/v1/jobs/{id}"))?;
                    (record["idempotency_key"] == key).then(|| id.clone())
                })
            };
            let id = match (by_reference, &job.idempotency_key) {
                (Some(id), _) => Some(id),
                (None, Some(key)) if !key.is_empty() => by_key(self, key),
                (None, _) => numbers.next().map(|(_, id)| id.clone()),
            };
            ids.push(id.unwrap_or_else(|| panic!("{job:?} is not among {names:?}")));
        }
        ids
    }

    pub(crate) fn command_workflow(&mut self, workflow: Handle, verb: &str, body: &Value) -> Result<Answer, Refused> {
        let id = self.workflow_id(workflow);
        let reply = self.call("POST", &format!("/v1/workflows/{id}/{verb}"), Some(body))?;
        let shown = reply.json();
        let state = shown["state"].as_str().unwrap().to_owned();
        if verb == "cancel" {
            assert_eq!(reply.status, if state == "running" { 202 } else { 200 }, "{shown}");
        }
        self.adopt_clones(&id);
        Ok(Answer::WorkflowState { workflow, state })
    }

    /// Finds the clones of a retry among the members, in order of creation.
    fn adopt_clones(&mut self, workflow: &str) {
        let Some(shown) = self.get(&format!("/v1/workflows/{workflow}")) else { return };
        for member in shown["jobs"].as_array().unwrap() {
            if self.handles.contains_key(member["id"].as_str().unwrap()) {
                continue;
            }
            let clone = self.adopt(&member["id"]);
            let record = self.get(&format!("/v1/jobs/{}", member["id"].as_str().unwrap())).unwrap();
            let original = record["requeued_from"].as_str().and_then(|id| self.handles.get(id)).copied();
            if let Some(payload) = original.and_then(|original| self.payloads.get(&original).cloned()) {
                self.payloads.insert(clone, payload);
            }
        }
    }

    fn workflow_id(&mut self, workflow: Handle) -> String {
        let known = self.workflows.get(workflow).cloned();
        known.unwrap_or_else(|| WorkflowId::random(&mut self.rng).to_string())
    }

    pub(crate) fn workflow_snapshot(&mut self, workflow: Handle) -> Option<WorkflowSnapshot> {
        let id = self.workflows.get(workflow)?.clone();
        let shown = self.get(&format!("/v1/workflows/{id}"))?;
        let counts: BTreeMap<String, u64> = serde_json::from_value(shown["counts"].clone()).unwrap();
        assert_eq!(shown["total"].as_u64(), Some(counts.values().sum()), "{shown}");
        let member = |member: &Value| {
            let job = self.handles.get(member["id"].as_str().unwrap()).copied();
            (member["ref"].as_str().unwrap().to_owned(), job.unwrap_or(usize::MAX))
        };
        Some(WorkflowSnapshot {
            state: shown["state"].as_str().unwrap().to_owned(),
            open: shown["open"].as_bool().unwrap(),
            counts,
            members: shown["jobs"].as_array().unwrap().iter().map(member).collect(),
        })
    }
}
