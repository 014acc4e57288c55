//! Filters by ids, keys, time and several states: alone, combined, after changes and after a
//! reopen.

use std::sync::Arc;

use longshore_core::Duration;
use longshore_core::cancel::Force;
use longshore_core::edit::Edit;
use longshore_core::failure::{ReportedCategory, ReportedFailure};
use longshore_core::id::Seq;
use longshore_core::job::Job;
use longshore_core::patch::SettingsPatch;
use longshore_core::policy::IdempotencyScope;
use longshore_core::profile::Profile;
use longshore_core::settle::Outcome;
use longshore_core::state::StateKind;
use longshore_core::submit::NewJob;
use longshore_core::tags::Tags;
use longshore_core::time::Timestamp;
use longshore_engine::AdminCommand;
use longshore_store::{JobFilter, StateSet};

use super::harness::*;

const SCOPES: [IdempotencyScope; 3] = [IdempotencyScope::Type, IdempotencyScope::Queue, IdempotencyScope::Global];
const QUEUES: [&str; 3] = ["by-type", "by-queue", "global"];
const STEP: Duration = Duration::from_mins(10);

fn all() -> JobFilter {
    JobFilter::default()
}

fn seqs(jobs: &[Arc<Job>]) -> Vec<Seq> {
    jobs.iter().map(|job| job.seq).collect()
}

fn with_settings(h: &Harness, name: &str, scope: IdempotencyScope) {
    let settings = SettingsPatch {
        idempotency_scope: Some(scope),
        idempotency_window: Some(Duration::from_mins(1)),
        external_ids: Some(true),
        ..SettingsPatch::default()
    };
    h.put_queue_with(name, Profile::Standard, settings);
}

fn job(n: usize) -> NewJob {
    work_with(|job| {
        job.job_type = job_type(["a", "b"][n % 2]);
        job.external_id = n.is_multiple_of(4).then(|| format!("ext-{}", n / 4).into());
        job.idempotency_key = n.is_multiple_of(3).then(|| ["k", "other"][n / 3 % 2].into());
        job.correlation_id = [None, Some("trace".into()), Some("\u{0}ünï".into())][n / 2 % 3].clone();
        job.tags = if n.is_multiple_of(5) { Tags::List(vec!["alice".into()]) } else { Tags::None };
    })
}

/// Submits jobs to three queues at different times, in several states. Windows of keys end between
/// them.
fn crowd(h: &Harness, jobs: usize) {
    for (name, scope) in QUEUES.into_iter().zip(SCOPES) {
        with_settings(h, name, scope);
    }
    let fail = |code: &str| {
        Outcome::Fail(ReportedFailure {
            code: Some(code.into()),
            ..ReportedFailure::new(ReportedCategory::Permanent, "x")
        })
    };
    for n in 0..jobs {
        let (name, given) = (QUEUES[n % QUEUES.len()], job(n / QUEUES.len()));
        match n / 3 % 5 {
            0 => h.submit(name, NewJob { hold: Some(true), ..given }),
            1 => h.run(name, given, complete()),
            2 => h.run(name, given, fail("boom")),
            3 => h.run(name, given, fail("bang")),
            _ => {
                let submitted = h.submit(name, given);
                h.admin(super::admin::cancel(submitted.id, Force::Now));
                submitted
            }
        };
        h.clock().advance(STEP);
    }
}

/// The meaning of a filter, implemented a second time.
fn fits(filter: &JobFilter, states: &[StateKind], job: &Job) -> bool {
    let code = job.error.as_ref().and_then(|error| error.code.clone());
    let key = job.idempotency.as_ref().map(|idempotency| Arc::clone(&idempotency.key));
    (states.is_empty() || states.contains(&job.kind()))
        && (filter.queue.is_none() || filter.queue.as_ref() == Some(&job.queue))
        && (filter.tag.is_none() || job.tags.pairs().any(|(key, _)| Some(key) == filter.tag.as_deref()))
        && (filter.error_code.is_none() || filter.error_code == code)
        && (filter.external_id.is_none() || filter.external_id == job.external_id)
        && (filter.idempotency_key.is_none() || filter.idempotency_key == key)
        && (filter.correlation_id.is_none() || filter.correlation_id == job.correlation_id)
        && filter.created_after.is_none_or(|after| after <= job.created_at)
        && filter.created_before.is_none_or(|before| before > job.created_at)
}

const STATES: [&[StateKind]; 4] = [
    &[],
    &[StateKind::Failed],
    &[StateKind::Failed, StateKind::Cancelled],
    &[StateKind::Pending, StateKind::Completed, StateKind::DeadLetter],
];

/// Returns every combination of these values, with absent ones.
fn filters(times: [Timestamp; 2]) -> Vec<(JobFilter, &'static [StateKind])> {
    fn texts<const N: usize>(given: [&str; N]) -> Vec<Option<Arc<str>>> {
        std::iter::once(None).chain(given.into_iter().map(|text| Some(text.into()))).collect()
    }
    let mut filters = vec![all()];
    let mut widen = |set: &dyn Fn(&JobFilter) -> Vec<JobFilter>| filters = filters.iter().flat_map(set).collect();
    widen(&|old| {
        [None, Some("global")].map(|name| JobFilter { queue: name.map(queue), ..old.clone() }).into_iter().collect()
    });
    widen(&|old| texts(["alice"]).into_iter().map(|tag| JobFilter { tag, ..old.clone() }).collect());
    widen(&|old| texts(["boom"]).into_iter().map(|error_code| JobFilter { error_code, ..old.clone() }).collect());
    widen(&|old| {
        texts(["ext-0", "no\u{0}ne"]).into_iter().map(|external_id| JobFilter { external_id, ..old.clone() }).collect()
    });
    widen(&|old| {
        texts(["k"]).into_iter().map(|idempotency_key| JobFilter { idempotency_key, ..old.clone() }).collect()
    });
    widen(&|old| {
        let ids = texts(["trace", "\u{0}ünï", "none"]).into_iter();
        ids.map(|correlation_id| JobFilter { correlation_id, ..old.clone() }).collect()
    });
    let [after, before] = times;
    widen(&|old| {
        let bounds = [(None, None), (Some(after), None), (None, Some(before)), (Some(after), Some(before))];
        let bounds = bounds.into_iter();
        bounds
            .map(|(after, before)| JobFilter { created_after: after, created_before: before, ..old.clone() })
            .collect()
    });
    let with = |states: &'static [StateKind]| {
        let of = move |filter: &JobFilter| JobFilter { states: states.iter().copied().collect(), ..filter.clone() };
        filters.iter().map(of).map(move |filter| (filter, states)).collect::<Vec<_>>()
    };
    STATES.into_iter().flat_map(with).collect()
}

fn check_all(h: &Harness) {
    let jobs = h.jobs();
    let middle = |n: usize| jobs[n].created_at;
    let times = [middle(jobs.len() * 3 / 4), middle(jobs.len() / 4)];
    let limits = [1_000, 3, 1, 17];
    let mut matched = 0;
    for ((filter, states), limit) in filters(times).into_iter().zip(limits.into_iter().cycle()) {
        let expected: Vec<Seq> = jobs.iter().filter(|job| fits(&filter, states, job)).map(|job| job.seq).collect();
        matched += usize::from(!expected.is_empty());
        assert_eq!(seqs(&walk(&**h.store(), &filter, limit)), expected, "{filter:?}, pages of {limit}");
    }
    assert!(matched > 100, "only {matched} filters found anything");
}

pub(super) fn list_by_value_filters_combined(h: &mut Harness) {
    crowd(h, 90);
    check_all(h);
}

pub(super) fn filters_survive_reopen(h: &mut Harness) {
    crowd(h, 90);
    h.reopen();
    check_all(h);
}

/// A key refers to one job at a time; earlier jobs keep it in their records.
pub(super) fn list_by_key_finds_all_jobs(h: &mut Harness) {
    for (name, scope) in QUEUES.into_iter().zip(SCOPES) {
        with_settings(h, name, scope);
    }
    let keyed = || work_with(|job| job.idempotency_key = Some("k".into()));
    let mut made = Vec::new();
    for _ in 0..2 {
        for name in QUEUES {
            made.push(h.submit(name, keyed()).seq);
            assert!(h.submit(name, keyed()).duplicate, "nothing new is listed");
        }
        h.clock().advance(STEP);
    }
    made.reverse();
    let by_key = JobFilter { idempotency_key: Some("k".into()), ..all() };
    assert_eq!(seqs(&h.list(&by_key)), made);
    let gone = h.jobs().last().unwrap().id;
    h.admin(super::admin::cancel(gone, Force::Now));
    h.admin(AdminCommand::Delete { id: gone });
    made.pop();
    assert_eq!(seqs(&h.list(&by_key)), made);
}

pub(super) fn list_by_external_id_across_queues(h: &mut Harness) {
    let mut made = Vec::new();
    for (name, scope) in QUEUES.into_iter().zip(SCOPES) {
        with_settings(h, name, scope);
        h.submit(name, work_with(|job| job.external_id = Some("another".into())));
        made.push(h.submit(name, work_with(|job| job.external_id = Some("x".into()))));
    }
    let by_id = JobFilter { external_id: Some("x".into()), ..all() };
    let found = |filter: &JobFilter| seqs(&walk(&**h.store(), filter, 1));
    assert_eq!(found(&by_id), [made[2].seq, made[1].seq, made[0].seq]);
    assert_eq!(found(&JobFilter { queue: Some(queue(QUEUES[1])), ..by_id.clone() }), [made[1].seq]);
    assert!(found(&JobFilter { queue: Some(queue("nowhere")), ..by_id.clone() }).is_empty());
    h.admin(super::admin::cancel(made[1].id, Force::Now));
    assert_eq!(found(&by_id), [made[2].seq, made[1].seq, made[0].seq], "ended jobs as well");
    h.admin(AdminCommand::Delete { id: made[1].id });
    assert_eq!(found(&by_id), [made[2].seq, made[0].seq]);
}

pub(super) fn list_by_correlation_id_follows_edits(h: &mut Harness) {
    h.put_queue("q", Profile::Gopherqueue);
    let by_id = |id: &str| seqs(&h.list(&JobFilter { correlation_id: Some(id.into()), ..all() }));
    let job = h.submit("q", work_with(|job| job.correlation_id = Some("old".into())));
    let bare = h.submit("q", work());
    assert_eq!(by_id("old"), [job.seq]);
    let edit = |id, correlation_id: Option<&str>| {
        let edit = Edit { correlation_id: Some(correlation_id.map(Into::into)), ..Edit::default() };
        h.admin(AdminCommand::Edit { id, edit });
    };
    edit(job.id, Some("new"));
    edit(bare.id, Some("new"));
    assert!(by_id("old").is_empty());
    assert_eq!(by_id("new"), [bare.seq, job.seq]);
    edit(bare.id, None);
    assert_eq!(by_id("new"), [job.seq]);
    h.admin(super::admin::cancel(job.id, Force::Now));
    assert_eq!(by_id("new"), [job.seq], "an ended job");
    h.admin(super::admin::requeue(job.id));
    assert_eq!(by_id("new").len(), 2, "the clone and its original");
    h.admin(AdminCommand::Delete { id: job.id });
    assert_eq!(by_id("new").len(), 1);
}

/// The lower bound belongs to the range, the upper bound does not.
pub(super) fn list_by_creation_time_range(h: &mut Harness) {
    let start = h.now();
    let mut made = Vec::new();
    for n in 0..200 {
        made.push((h.submit("q", work()).seq, h.now()));
        if n % 3 == 0 {
            let claimed = h.claim_one("q");
            h.settle(&claimed, complete()).unwrap();
        }
        h.clock().advance(Duration::from_secs(20));
    }
    made.reverse();
    let times = [0, 1_000, 20_000, 400_000, 1_999_999, 2_000_000, 3_980_000, 9_000_000];
    let times = times.map(|millis| start + Duration::from_millis(millis));
    for after in times.map(Some).into_iter().chain([None]) {
        for before in times.map(Some).into_iter().chain([None]) {
            let fits = |at: Timestamp| after.is_none_or(|after| at >= after) && before.is_none_or(|before| at < before);
            let expected: Vec<Seq> = made.iter().filter(|(_, at)| fits(*at)).map(|(seq, _)| *seq).collect();
            let filter = JobFilter { created_after: after, created_before: before, ..all() };
            for limit in [1, 30, 1_000] {
                assert_eq!(seqs(&walk(&**h.store(), &filter, limit)), expected, "{after:?} to {before:?} by {limit}");
            }
        }
    }
}

pub(super) fn list_by_several_states(h: &mut Harness) {
    for n in 0..40 {
        let id = h.submit("q", work_with(|job| job.hold = Some(n % 4 == 0))).id;
        if n % 4 == 1 {
            h.admin(super::admin::cancel(id, Force::Now));
        }
        if n % 4 == 2 {
            h.admin(AdminCommand::DeadLetter { id, reason: None });
        }
    }
    let jobs = h.jobs();
    for bits in 0_usize..1 << 4 {
        let kinds = [StateKind::Pending, StateKind::Scheduled, StateKind::DeadLetter, StateKind::Cancelled];
        let selected: Vec<StateKind> =
            (0..4).filter(|index| bits >> index & 1 == 1).map(|index| kinds[index]).collect();
        let expected = jobs.iter().filter(|job| selected.is_empty() || selected.contains(&job.kind()));
        let expected: Vec<Seq> = expected.map(|job| job.seq).collect();
        let states: StateSet = selected.iter().copied().collect();
        for limit in [1, 7, 1_000] {
            let filter = JobFilter { states, queue: bits.is_multiple_of(3).then(|| queue("q")), ..all() };
            assert_eq!(seqs(&walk(&**h.store(), &filter, limit)), expected, "{selected:?} by {limit}");
        }
    }
}
