//! Listings: every filter, every combination, every page, compared with a filter over all jobs.

use std::collections::HashSet;
use std::sync::Arc;

use longshore_core::Duration;
use longshore_core::cancel::Force;
use longshore_core::edit::Edit;
use longshore_core::failure::{ReportedCategory, ReportedFailure};
use longshore_core::id::Seq;
use longshore_core::job::Job;
use longshore_core::priority::Priority;
use longshore_core::settle::Outcome;
use longshore_core::state::StateKind;
use longshore_core::submit::NewJob;
use longshore_core::tags::Tags;
use longshore_engine::AdminCommand;
use longshore_store::{JobFilter, JobQuery};

use super::harness::*;

const QUEUES: [&str; 2] = ["one", "two"];
const TYPES: [&str; 3] = ["a", "b", "c"];
const PRIORITIES: [Priority; 3] = [Priority::Critical, Priority::Normal, Priority::Bulk];
const CODES: [&str; 2] = ["boom", "bang"];
const TAGS: [&str; 7] = ["tenant", "tenant:acme", "tenant:other", "alice", "a:b", "acme", "unknown"];

fn seqs(jobs: &[Arc<Job>]) -> Vec<Seq> {
    jobs.iter().map(|job| job.seq).collect()
}

fn all() -> JobFilter {
    JobFilter::default()
}

fn tags(n: usize) -> Tags {
    match n % 5 {
        0 => Tags::None,
        1 => Tags::Map([("tenant".into(), Some("acme".into()))].into()),
        2 => Tags::Map([("tenant".into(), Some("other".into())), ("alice".into(), None)].into()),
        3 => Tags::List(vec!["alice".into(), "a:b".into(), "alice".into()]),
        _ => Tags::Map([("a".into(), Some("b".into())), ("tenant".into(), None)].into()),
    }
}

fn colourful(n: usize) -> NewJob {
    work_with(|job| {
        job.job_type = job_type(TYPES[n % TYPES.len()]);
        job.priority = PRIORITIES[n / 3 % PRIORITIES.len()];
        job.tags = tags(n / 2);
    })
}

/// Drives a job that was just submitted, and is first in its queue, to one of nine ends.
fn drive(h: &Harness, name: &str, job: NewJob, end: usize) {
    let failing = |category, code: &str| {
        Outcome::Fail(ReportedFailure { code: Some(code.into()), ..ReportedFailure::new(category, "x") })
    };
    match end % 9 {
        0 => {
            h.run(name, job, complete());
        }
        1 => {
            h.run(name, job, failing(ReportedCategory::Permanent, CODES[0]));
        }
        2 => {
            h.run(name, job, failing(ReportedCategory::Temporary, CODES[1]));
        }
        3 => {
            let id = h.submit(name, job).id;
            h.admin(super::admin::cancel(id, Force::Now));
        }
        4 => {
            let id = h.submit(name, job).id;
            h.admin(AdminCommand::DeadLetter { id, reason: None });
        }
        5 => {
            h.submit(name, NewJob { hold: Some(true), ..job });
        }
        6 => {
            let start = longshore_core::submit::Start::In(Duration::from_mins(10));
            h.submit(name, NewJob { start, ..job });
        }
        7 => {
            h.submit(name, job);
            h.claim_one(name);
        }
        _ => {
            // Ended later; until then no other job may be ready.
            let id = h.submit(name, job).id;
            let claimed = h.claim_one(name);
            assert_eq!(claimed.id, id);
            h.settle(&claimed, Outcome::Snooze { delay: Duration::from_mins(10) }).unwrap();
        }
    }
}

/// Submits jobs of all kinds in all states.
pub(super) fn crowd(h: &Harness, jobs: usize) {
    for n in 0..jobs {
        drive(h, QUEUES[n % QUEUES.len()], colourful(n), n / 2);
    }
    for n in 0..jobs / 9 {
        h.submit(QUEUES[n % QUEUES.len()], colourful(n));
    }
}

/// The meaning of a filter, implemented a second time.
fn fits(filter: &JobFilter, job: &Job) -> bool {
    let has = |tag: &str| {
        job.tags.pairs().any(|(key, value)| key == tag || value.is_some_and(|value| format!("{key}:{value}") == tag))
    };
    let code = job.error.as_ref().and_then(|error| error.code.clone());
    filter.queue.as_ref().is_none_or(|queue| *queue == job.queue)
        && filter.states.admits(job.kind())
        && filter.job_type.as_ref().is_none_or(|job_type| *job_type == job.job_type)
        && filter.tag.as_ref().is_none_or(|tag| has(tag))
        && filter.priority.is_none_or(|priority| priority == job.priority)
        && (filter.error_code.is_none() || filter.error_code == code)
}

fn choices<T: Clone>(given: impl IntoIterator<Item = T>) -> Vec<Option<T>> {
    std::iter::once(None).chain(given.into_iter().map(Some)).collect()
}

fn filters() -> Vec<JobFilter> {
    let mut filters = vec![all()];
    let mut widen = |set: &dyn Fn(&JobFilter) -> Vec<JobFilter>| filters = filters.iter().flat_map(set).collect();
    widen(&|old| choices(QUEUES).into_iter().map(|one| JobFilter { queue: one.map(queue), ..old.clone() }).collect());
    widen(&|old| {
        let states = choices(StateKind::ALL).into_iter();
        states.map(|one| JobFilter { states: one.into_iter().copied().collect(), ..old.clone() }).collect()
    });
    widen(&|old| {
        let types = choices(&TYPES[..2]).into_iter();
        types.map(|one| JobFilter { job_type: one.map(|name| job_type(name)), ..old.clone() }).collect()
    });
    widen(&|old| choices(TAGS).into_iter().map(|one| JobFilter { tag: one.map(Arc::from), ..old.clone() }).collect());
    widen(&|old| {
        choices([PRIORITIES[0], PRIORITIES[1]])
            .into_iter()
            .map(|one| JobFilter { priority: one, ..old.clone() })
            .collect()
    });
    widen(&|old| {
        choices([CODES[0]]).into_iter().map(|one| JobFilter { error_code: one.map(Arc::from), ..old.clone() }).collect()
    });
    filters
}

pub(super) fn list_newest_first_without_duplicates(h: &mut Harness) {
    assert!(h.jobs().is_empty());
    let mut expected: Vec<Seq> = (0..5).flat_map(|_| h.submit_all("q", vec![work(); 31])).map(|job| job.seq).collect();
    expected.reverse();
    for limit in [1, 2, 7, 100, 1_000] {
        assert_eq!(seqs(&walk(&**h.store(), &all(), limit)), expected, "pages of {limit}");
    }
}

pub(super) fn list_by_every_filter_combination(h: &mut Harness) {
    crowd(h, 108);
    let jobs = h.jobs();
    for state in StateKind::ALL {
        assert!(jobs.iter().any(|job| job.kind() == *state), "the crowd has a {state} job");
    }
    let limits = [1_000, 3, 1, 17];
    let mut matched = 0;
    for (filter, limit) in filters().into_iter().zip(limits.into_iter().cycle()) {
        let expected: Vec<Seq> = jobs.iter().filter(|job| fits(&filter, job)).map(|job| job.seq).collect();
        matched += usize::from(!expected.is_empty());
        assert_eq!(seqs(&walk(&**h.store(), &filter, limit)), expected, "{filter:?}, pages of {limit}");
    }
    assert!(matched > 300, "only {matched} filters found anything");
}

pub(super) fn list_pages_are_bounded(h: &mut Harness) {
    h.submit_all("q", vec![work(); 60]);
    let rare = h.submit("q", colourful(1));
    h.submit_all("q", vec![work(); 60]);
    let page = |filter: JobFilter, limit, before| answered(h.store().list(JobQuery { filter, limit, before }));
    let first = page(all(), 10, None);
    assert!(first.jobs.len() <= 10 && first.next.is_some());
    let past_the_end = page(all(), 10, Some(Seq(1)));
    assert!(past_the_end.jobs.is_empty() && past_the_end.next.is_none());
    let rare_filter = JobFilter { job_type: Some(job_type("b")), ..all() };
    assert_eq!(seqs(&walk(&**h.store(), &rare_filter, 1)), [rare.seq]);
    let nothing = JobFilter { queue: Some(queue("nowhere")), ..all() };
    assert!(walk(&**h.store(), &nothing, 5).is_empty());
}

pub(super) fn list_cursor_without_job(h: &mut Harness) {
    let jobs = h.submit_all("q", vec![work(); 9]);
    let before = |before: Seq| {
        let page = answered(h.store().list(JobQuery { filter: all(), limit: 100, before: Some(before) }));
        seqs(&page.jobs)
    };
    let expected = |before: Seq| jobs.iter().rev().map(|job| job.seq).filter(|seq| *seq < before).collect::<Vec<_>>();
    for cursor in [Seq(0), jobs[0].seq, jobs[4].seq, jobs[8].seq, Seq(jobs[8].seq.0 + 1), Seq(u64::MAX)] {
        assert_eq!(before(cursor), expected(cursor), "before {cursor}");
    }
    for job in &jobs {
        h.admin(super::admin::cancel(job.id, Force::Now));
    }
    h.admin(AdminCommand::Delete { id: jobs[4].id });
    let gone: Vec<Seq> = expected(jobs[4].seq);
    assert_eq!(before(jobs[4].seq), gone, "before a job that is gone");
}

/// Jobs are created, changed and deleted between pages.
pub(super) fn list_during_changes_has_no_duplicates(h: &mut Harness) {
    let old = h.submit_all("q", vec![work(); 50]);
    let (mut seen, mut before) = (Vec::new(), None);
    let mut turn = 0;
    loop {
        let page = answered(h.store().list(JobQuery { filter: all(), limit: 7, before }));
        seen.extend(seqs(&page.jobs));
        let Some(next) = page.next else { break };
        before = Some(next);
        h.submit_all("q", vec![work(); 3]);
        let claimed = h.claim_one("q");
        h.settle(&claimed, complete()).unwrap();
        if turn % 2 == 0 {
            h.admin(AdminCommand::Delete { id: claimed.id });
        }
        turn += 1;
    }
    assert!(seen.is_sorted_by(|one, next| one > next), "newest first, each once");
    let newest = old.last().unwrap().seq;
    assert!(seen.iter().all(|seq| *seq <= newest), "what came later is on no later page");
    let left: HashSet<Seq> = h.jobs().iter().map(|job| job.seq).filter(|seq| *seq <= newest).collect();
    assert!(left.iter().all(|seq| seen.contains(seq)), "what was there all the time was shown");
}

pub(super) fn list_filter_follows_changes(h: &mut Harness) {
    let job = h.submit("q", colourful(2));
    let found = |filter: JobFilter| !h.list(&filter).is_empty();
    let of_type = |name: &str| JobFilter { job_type: Some(job_type(name)), ..all() };
    let tagged = |tag: &str| JobFilter { tag: Some(tag.into()), ..all() };
    let urgent = |priority| JobFilter { priority: Some(priority), ..all() };
    let (old_tag, priority) = ("tenant:acme", h.job(job.id).priority);
    assert!(found(of_type("c")) && found(tagged(old_tag)) && found(urgent(priority)));
    let edit = Edit {
        job_type: Some(job_type("z")),
        tags: Some(Tags::Map([("new".into(), Some("tag".into()))].into())),
        priority: Some(Priority::Low),
        ..Edit::default()
    };
    h.admin(AdminCommand::Edit { id: job.id, edit });
    assert!(!found(of_type("c")) && !found(tagged(old_tag)) && !found(urgent(priority)), "as it was");
    assert!(found(of_type("z")), "by its new type");
    assert!(found(tagged("new")) && found(tagged("new:tag")), "by its new tag");
    assert!(found(urgent(Priority::Low)), "by its new priority");
    let claimed = h.claim_one("q");
    assert!(found(filter("q", StateKind::Running)) && !found(filter("q", StateKind::Scheduled)));
    let code = |code: &str| JobFilter { error_code: Some(code.into()), ..all() };
    h.settle(&claimed, Outcome::Fail(ReportedFailure::new(ReportedCategory::Permanent, "x"))).unwrap();
    assert!(found(code("permanent")) && found(filter("q", StateKind::Failed)));
    h.admin(super::admin::requeue(job.id));
    assert!(!found(code("permanent")) && !found(filter("q", StateKind::Failed)));
    h.admin(super::admin::cancel(job.id, Force::Now));
    assert!(found(code("cancelled")));
    h.admin(AdminCommand::Delete { id: job.id });
    assert!(!found(code("cancelled")) && !found(tagged("new")) && !found(all()));
}

pub(super) fn list_by_tag_key_and_value(h: &mut Harness) {
    let with = |tags: Tags| h.submit("q", work_with(|job| job.tags = tags)).seq;
    let value = with(Tags::Map([("a".into(), Some("b".into()))].into()));
    let key = with(Tags::Map([("a:b".into(), None)].into()));
    let bare = with(Tags::Map([("a".into(), None)].into()));
    let list = with(Tags::List(vec!["a".into(), "b".into(), "a".into()]));
    let empty = with(Tags::Map([("a".into(), Some("".into()))].into()));
    let colons = with(Tags::Map([("a".into(), Some("b:c".into()))].into()));
    let odd = with(Tags::List(vec!["Ünïcode %_' \"\\".into()]));
    let found = |tag: &str| {
        let mut found = seqs(&h.list(&JobFilter { tag: Some(tag.into()), ..all() }));
        found.reverse();
        found
    };
    assert_eq!(found("a"), [value, bare, list, empty, colons]);
    assert_eq!(found("a:b"), [value, key], "the key with its value, and the key of that name");
    assert_eq!(found("b"), [list]);
    assert_eq!(found("a:"), [empty]);
    assert_eq!(found("a:b:c"), [colons]);
    assert_eq!(found("Ünïcode %_' \"\\"), [odd]);
    assert!(found("A").is_empty() && found("%").is_empty() && found("").is_empty() && found("a:b:").is_empty());
}

/// A few matching jobs among many. Pages between them may be empty, but there are few pages.
pub(super) fn list_by_sparse_filter(h: &mut Harness) {
    let mut rare = Vec::new();
    for _ in 0..4 {
        h.submit_all("q", vec![work(); 700]);
        rare.push(h.submit("q", colourful(1)).seq);
    }
    rare.reverse();
    let sparse = JobFilter { tag: None, job_type: Some(job_type("b")), queue: Some(queue("q")), ..all() };
    for limit in [1, 2, 1_000] {
        assert_eq!(seqs(&walk(&**h.store(), &sparse, limit)), rare);
    }
}
