//! Every refusal is reachable through the traits, and none changes anything.

use std::collections::BTreeSet;

use bytes::Bytes;
use longshore_core::id::JobId;
use longshore_core::limits::{DEPENDENCIES_MAX, DEPENDENCY_DEPTH_MAX};
use longshore_core::patch::SettingsPatch;
use longshore_core::profile::Profile;
use longshore_core::refusal::Refusal;
use longshore_core::settle::Outcome;
use longshore_core::submit::{DependencyRef, NewJob, Payload};
use longshore_engine::{AdminCommand, Claimed};

use super::harness::*;

/// All codes of the rules.
const CODES: [&str; 12] = [
    "validation",
    "payload_too_large",
    "queue_not_found",
    "job_not_found",
    "stale_lease",
    "illegal_transition",
    "duplicate_id",
    "queue_full",
    "dependency_unknown",
    "dependency_cycle",
    "dependency_depth",
    "dependency_breadth",
];

type Attempt<'a> = Box<dyn Fn(&Harness) -> Result<(), Refusal> + 'a>;

fn submitting<'a>(name: &'a str, jobs: Vec<NewJob>) -> Attempt<'a> {
    Box::new(move |h| h.try_submit(name, jobs.clone()).map(drop).map_err(|refused| refused.first))
}

fn settling(claimed: &Claimed, outcome: Outcome) -> Attempt<'_> {
    Box::new(move |h| h.settle(claimed, outcome.clone()).map(drop))
}

fn ordering<'a>(command: AdminCommand) -> Attempt<'a> {
    Box::new(move |h| h.try_admin(command.clone()).map(drop))
}

/// Makes an item of a batch: its reference and its dependencies.
fn linked(name: &str, after: &[&str]) -> NewJob {
    work_with(|job| {
        job.reference = Some(name.into());
        job.after = after.iter().map(|name| DependencyRef::Local((*name).into())).collect();
    })
}

/// Returns the last job of a chain of the maximal length.
fn long_chain(h: &Harness) -> JobId {
    let link = |n: u32| match n {
        0 => linked("0", &[]),
        _ => linked(&n.to_string(), &[&(n - 1).to_string()]),
    };
    let chain = h.submit_all("chain", (0..DEPENDENCY_DEPTH_MAX).map(link).collect());
    chain.last().unwrap().id
}

fn stage(h: &Harness) -> (Claimed, Claimed) {
    let bounded = SettingsPatch { max_queued: Some(Some(1)), ..SettingsPatch::default() };
    h.put_queue_with("full", Profile::Standard, bounded);
    h.submit("full", work());
    h.put_queue("named", Profile::Weave);
    h.submit("named", work_with(|job| job.external_id = Some("x".into())));
    h.submit("q", work());
    let settled = h.claim_one("q");
    h.settle(&settled, complete()).unwrap();
    h.submit("q", work());
    (settled, h.claim_one("q"))
}

pub(super) fn every_refusal_changes_nothing(h: &mut Harness) {
    let (settled, running) = stage(h);
    let (deep, unknown) = (long_chain(h), JobId::from_bytes([7; 16]));
    let many: Vec<JobId> = (0..=DEPENDENCIES_MAX as u128).map(|n| JobId::from_bytes(n.to_be_bytes())).collect();
    let huge = NewJob::new(job_type("work"), Payload::Binary(Bytes::from(vec![0; (1 << 20) + 1])));
    let large_result = Outcome::Complete { result: Some(Bytes::from(vec![0; (1 << 20) + 1])), progress: None };
    let attempts: Vec<(&str, &str, Attempt<'_>)> = vec![
        ("validation", "no jobs", submitting("q", Vec::new())),
        ("validation", "a queue's bounds", {
            let overrides = SettingsPatch { payload_max: Some(0), ..SettingsPatch::default() };
            let overrides = Some(Box::new(overrides));
            ordering(AdminCommand::PutQueue { queue: queue("q"), profile: None, overrides })
        }),
        ("payload_too_large", "payload", submitting("q", vec![huge])),
        ("payload_too_large", "result", settling(&running, large_result)),
        ("queue_not_found", "pause", ordering(AdminCommand::PauseQueue { queue: queue("nowhere") })),
        ("job_not_found", "run now", ordering(AdminCommand::RunNow { id: unknown })),
        ("job_not_found", "delete", ordering(AdminCommand::Delete { id: unknown })),
        ("stale_lease", "settled", settling(&settled, Outcome::Release)),
        ("illegal_transition", "requeue of a running job", ordering(super::admin::requeue(running.id))),
        ("duplicate_id", "external id", submitting("named", vec![work_with(|job| job.external_id = Some("x".into()))])),
        ("queue_full", "one too many", submitting("full", vec![work()])),
        ("dependency_unknown", "unknown id", submitting("q", vec![after(&[unknown])])),
        ("dependency_unknown", "no such reference", submitting("q", vec![linked("a", &["b"])])),
        ("dependency_cycle", "two of a batch", submitting("q", vec![linked("a", &["b"]), linked("b", &["a"])])),
        ("dependency_cycle", "itself", submitting("q", vec![work(), linked("a", &["a"])])),
        ("dependency_depth", "one link more", submitting("q", vec![after(&[deep])])),
        ("dependency_breadth", "one too many", submitting("q", vec![after(&many)])),
    ];
    let mut codes = BTreeSet::new();
    for (code, what, attempt) in attempts {
        h.refused(code, what, attempt);
        codes.insert(code);
    }
    assert_eq!(codes, BTreeSet::from(CODES), "every code was returned");
    h.settle(&running, complete()).unwrap();
}
