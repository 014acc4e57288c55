//! System records: ordered, written by compare-and-set, in one commit with jobs.

use longshore_core::state::StateKind;
use longshore_engine::{Submission, SubmitRequest, SystemKind};
use longshore_store::{Expected, SystemChange, SystemQuery, SystemRefusal, SystemWrite, SystemWritten};

use super::harness::*;

fn put(key: &str, expected: Expected, value: &str) -> SystemChange {
    SystemChange::put(SystemKind::Schedule, key, expected, value.into())
}

fn write(h: &Harness, changes: Vec<SystemChange>) -> Result<SystemWritten, SystemRefusal> {
    answered(h.store().write_system(SystemWrite::new(changes)))
}

/// Returns keys and values of a range.
fn read(h: &Harness, query: SystemQuery) -> Vec<(String, String)> {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    answered(h.store().system_records(query)).into_iter().map(|found| (text(found.key), text(found.value))).collect()
}

fn keys(h: &Harness, query: SystemQuery) -> Vec<String> {
    read(h, query).into_iter().map(|(key, _)| key).collect()
}

pub(super) fn records_are_ordered_by_key(h: &mut Harness) {
    let kind = SystemKind::Schedule;
    let changes = ["b", "a", "c", "ab"].map(|key| put(key, Expected::Absent, key)).to_vec();
    write(h, changes).unwrap();
    assert_eq!(keys(h, SystemQuery::all(kind, 10)), ["a", "ab", "b", "c"]);
    assert_eq!(keys(h, SystemQuery::all(kind, 2)), ["a", "ab"]);
    assert_eq!(keys(h, SystemQuery::all(kind, 2).after(b"ab")), ["b", "c"]);
    assert_eq!(keys(h, SystemQuery::all(kind, 3).descending()), ["c", "b", "ab"]);
    assert_eq!(keys(h, SystemQuery::prefix(kind, "a", 10)), ["a", "ab"]);
    assert_eq!(read(h, SystemQuery::one(kind, "b")), [("b".to_owned(), "b".to_owned())]);
    assert_eq!(keys(h, SystemQuery::one(kind, "d")), [""; 0]);
    assert_eq!(keys(h, SystemQuery::all(SystemKind::Token, 10)), [""; 0], "kinds are apart");
}

pub(super) fn record_changes_by_compare_and_set(h: &mut Harness) {
    let first = write(h, vec![put("a", Expected::Absent, "1")]).unwrap().revision;
    assert_eq!(write(h, vec![put("a", Expected::Absent, "2")]), Err(SystemRefusal::Conflict { index: 0 }));
    let second = write(h, vec![put("a", Expected::Revision(first), "2")]).unwrap().revision;
    assert!(second > first, "revisions grow");
    let stale = vec![put("b", Expected::Absent, "new"), put("a", Expected::Revision(first), "3")];
    assert_eq!(write(h, stale), Err(SystemRefusal::Conflict { index: 1 }));
    let kind = SystemKind::Schedule;
    assert_eq!(read(h, SystemQuery::all(kind, 9)), [("a".to_owned(), "2".to_owned())], "all or nothing");
    let delete = |expected| vec![SystemChange::delete(kind, "a", expected)];
    assert_eq!(write(h, delete(Expected::Revision(first))), Err(SystemRefusal::Conflict { index: 0 }));
    write(h, delete(Expected::Revision(second))).unwrap();
    let third = write(h, vec![put("a", Expected::Any, "4")]).unwrap().revision;
    assert!(third > second, "a deleted record does not bring its revision back");
}

pub(super) fn record_and_jobs_are_one_commit(h: &mut Harness) {
    let kind = SystemKind::Tick;
    let request = |name: &str| SubmitRequest::new(vec![Submission { queue: queue(name), job: work() }]);
    let change =
        |expected| SystemChange { append_job_ids: true, ..SystemChange::put(kind, "tick", expected, b"job:".to_vec()) };
    let fire = |h: &Harness, expected| {
        let write = SystemWrite::unannounced(vec![change(expected)]).with_jobs(request("q"));
        answered(h.store().write_system(write))
    };
    let written = fire(h, Expected::Absent).unwrap();
    let job = written.submitted[0].id;
    assert_eq!(h.state(job), StateKind::Scheduled);
    let stored = answered(h.store().system_records(SystemQuery::one(kind, "tick"))).remove(0);
    assert_eq!(stored.value, [b"job:".as_slice(), job.as_bytes()].concat());
    assert_eq!(stored.revision, written.revision);
    assert_eq!(fire(h, Expected::Absent), Err(SystemRefusal::Conflict { index: 0 }));
    assert_eq!(h.try_claim(super::harness::request("q", 10)).unwrap().len(), 1, "a conflict submits nothing");
    let mut unknown = work();
    unknown.external_id = Some("not allowed here".into());
    let refused = SystemWrite::new(vec![put("a", Expected::Any, "1")])
        .with_jobs(SubmitRequest::new(vec![Submission { queue: queue("q"), job: unknown }]));
    let refused = answered(h.store().write_system(refused));
    assert!(matches!(refused, Err(SystemRefusal::Submission(_))), "{refused:?}");
    assert_eq!(keys(h, SystemQuery::all(SystemKind::Schedule, 9)), [""; 0], "a refusal writes nothing");
}

pub(super) fn announced_write_changes_the_version(h: &mut Harness) {
    let version = |h: &Harness, kind| answered(h.store().system_version(kind));
    let (before, tokens) = (version(h, SystemKind::Schedule), version(h, SystemKind::Token));
    answered(h.store().write_system(SystemWrite::unannounced(vec![put("a", Expected::Any, "1")]))).unwrap();
    assert_eq!(version(h, SystemKind::Schedule), before);
    write(h, vec![put("a", Expected::Any, "2")]).unwrap();
    let after = version(h, SystemKind::Schedule);
    assert_ne!(after, before);
    assert!(write(h, vec![put("a", Expected::Absent, "3")]).is_err());
    assert_eq!(version(h, SystemKind::Schedule), after, "a conflict announces nothing");
    assert_eq!(version(h, SystemKind::Token), tokens);
}

/// Of several writers that expect the same revision, one succeeds.
pub(super) fn one_of_many_writers_wins(h: &mut Harness) {
    for round in 0..5 {
        let key = format!("round {round}");
        let revision = write(h, vec![put(&key, Expected::Absent, "0")]).unwrap().revision;
        let store = &**h.store();
        let results: Vec<bool> = std::thread::scope(|scope| {
            let attempt = |number: usize| {
                let change = put(&key, Expected::Revision(revision), &number.to_string());
                scope.spawn(move || answered(store.write_system(SystemWrite::new(vec![change]))).is_ok())
            };
            let threads: Vec<_> = (0..6).map(attempt).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(results.iter().filter(|won| **won).count(), 1, "{results:?}");
    }
}

pub(super) fn system_records_survive_reopen(h: &mut Harness) {
    let revision = write(h, vec![put("a", Expected::Absent, "1"), put("b", Expected::Absent, "2")]).unwrap().revision;
    write(h, vec![SystemChange::delete(SystemKind::Schedule, "b", Expected::Any)]).unwrap();
    h.reopen();
    let stored = answered(h.store().system_records(SystemQuery::all(SystemKind::Schedule, 9)));
    assert_eq!(stored.len(), 1);
    assert_eq!((stored[0].value.as_slice(), stored[0].revision), (b"1".as_slice(), revision));
    assert!(write(h, vec![put("a", Expected::Revision(revision), "3")]).unwrap().revision > revision);
}
