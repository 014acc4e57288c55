//! A small store with every feature: jobs in every state, leases, attempts, dependencies, keys,
//! labels, queues of every kind. Each step of its creation is one commit.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;

use bytes::Bytes;
use longshore_core::backoff::{BackoffKind, JitterKind};
use longshore_core::cancel::Force;
use longshore_core::claim::ClaimOptions;
use longshore_core::edit::Edit;
use longshore_core::failure::{ReportedCategory, ReportedFailure};
use longshore_core::heartbeat::HeartbeatData;
use longshore_core::id::{JobId, JobType, LeaseToken, QueueName, WorkerName, WorkflowId};
use longshore_core::patch::{PolicyPatch, RetentionPatch, RetryPatch, SettingsPatch};
use longshore_core::policy::*;
use longshore_core::priority::Priority;
use longshore_core::profile::Profile;
use longshore_core::requeue::{Requeue, Reset};
use longshore_core::settle::Outcome;
use longshore_core::submit::{DependencyRef, NewJob, Payload, Start};
use longshore_core::tags::Tags;
use longshore_core::time::{Duration, Timestamp};
use longshore_engine::{
    AdminCommand, ClaimRequest, DeleteQueue, Heartbeat, QueueDeleteMode, Settlement, Submission, SubmitRequest,
    WorkflowTarget,
};
use longshore_store::{Store, VirtualClock};
use longshore_testkit::block_on::block_on;

/// 2026-01-01T00:00:00Z.
pub(crate) const BEGIN: Timestamp = Timestamp::from_millis(1_767_225_600_000);

pub(crate) struct Rich<'a> {
    store: &'a dyn Store,
    clock: Arc<VirtualClock>,
    jobs: BTreeMap<&'static str, JobId>,
    leases: BTreeMap<&'static str, LeaseToken>,
    workflows: Vec<WorkflowId>,
}

pub(crate) type Step = fn(&mut Rich<'_>);

impl<'a> Rich<'a> {
    pub(crate) fn new(store: &'a dyn Store, clock: Arc<VirtualClock>) -> Self {
        Self { store, clock, jobs: BTreeMap::new(), leases: BTreeMap::new(), workflows: Vec::new() }
    }

    fn admin(&self, command: AdminCommand) {
        let word = format!("{command:?}");
        let _ = block_on(self.store.admin(command)).expect("the store does it").expect(&word);
    }

    fn put(&self, name: &str, profile: Profile, overrides: SettingsPatch) {
        let overrides = Some(Box::new(overrides));
        self.admin(AdminCommand::PutQueue { queue: queue(name), profile: Some(profile), overrides });
    }

    /// The type of a job is its label, so that a claim can select it.
    fn submit(&mut self, name: &str, job: (&'static str, NewJob)) {
        self.submit_all(&[job], |batch| {
            let batch = batch.into_iter().map(|job| Submission { queue: queue(name), job }).collect();
            SubmitRequest::new(batch)
        });
    }

    fn submit_all(&mut self, jobs: &[(&'static str, NewJob)], request: impl FnOnce(Vec<NewJob>) -> SubmitRequest) {
        let request = request(jobs.iter().map(|(_, job)| job.clone()).collect());
        let submitted = block_on(self.store.submit(request)).expect("the store takes it").expect("the rules allow it");
        let workflow = submitted.iter().find_map(|one| Some(one.membership.as_ref()?.workflow));
        self.workflows.extend(workflow.filter(|workflow| !self.workflows.contains(workflow)));
        self.jobs.extend(jobs.iter().zip(&submitted).map(|((label, _), one)| (*label, one.id)));
    }

    fn workflow(&mut self, joining: WorkflowTarget, jobs: &[(&'static str, NewJob)]) {
        self.submit_all(jobs, |batch| {
            let batch = batch.into_iter().map(|job| Submission { queue: queue("gopher"), job }).collect();
            SubmitRequest::workflow(batch, joining)
        });
    }

    fn id(&self, label: &str) -> JobId {
        *self.jobs.get(label).expect("a job")
    }

    fn claim(&mut self, name: &str, label: &'static str) {
        let worker = Some(WorkerName::new("worker-1").expect("a name"));
        let terms = ClaimOptions { worker, lease: None, execution_timeout: None };
        let request = ClaimRequest { queues: vec![queue(name)], limit: 1, types: vec![job_type(label)], terms };
        let claimed = block_on(self.store.claim(request)).expect("the store gives").expect("the rules allow it");
        let claimed = &claimed.first().expect("the job is ready").claimed;
        assert_eq!(claimed.id, self.id(label));
        self.leases.insert(label, claimed.token);
    }

    fn settle(&self, label: &str, outcome: Outcome) {
        let settlement = Settlement { id: self.id(label), token: self.leases.get(label).copied(), outcome };
        let verdicts = block_on(self.store.settle(vec![settlement])).expect("the store settles");
        assert!(verdicts.iter().all(Result::is_ok), "{label}: {verdicts:?}");
    }

    fn heartbeat(&self, label: &str, progress: &[u8], checkpoint: &[u8]) {
        let notes = HeartbeatData {
            progress: Some(Bytes::copy_from_slice(progress)),
            checkpoint: Some(Bytes::copy_from_slice(checkpoint)),
        };
        let heartbeat = Heartbeat { id: self.id(label), token: self.leases.get(label).copied(), notes };
        let verdicts = block_on(self.store.heartbeat(vec![heartbeat])).expect("the store extends");
        assert!(verdicts.iter().all(Result::is_ok), "{label}: {verdicts:?}");
    }

    fn pass(&self, time: Duration) {
        self.clock.advance(time);
    }

    fn tick(&self) {
        let budget = NonZeroUsize::new(1_000).expect("not zero");
        let _: longshore_engine::Ticked = block_on(self.store.tick(budget)).expect("the store ticks");
    }
}

pub(crate) fn queue(name: &str) -> QueueName {
    QueueName::new(name).expect("a name")
}

fn job_type(name: &str) -> JobType {
    JobType::new(name).expect("a name")
}

/// A payload with every byte value.
fn all_bytes() -> Payload {
    Payload::Binary((0..=255).collect::<Vec<u8>>().into())
}

fn json(text: &'static str) -> Payload {
    Payload::Json(Bytes::from_static(text.as_bytes()))
}

fn job(label: &'static str, payload: Payload) -> (&'static str, NewJob) {
    (label, NewJob::new(job_type(label), payload))
}

/// Creates a small job and applies `change`.
fn with(label: &'static str, change: impl FnOnce(&mut NewJob)) -> (&'static str, NewJob) {
    let (label, mut job) = job(label, json("{\"n\": 1}"));
    change(&mut job);
    (label, job)
}

fn failed(category: ReportedCategory) -> Outcome {
    Outcome::Fail(ReportedFailure {
        code: Some("E42".into()),
        cause: Some("the disk, it seems".into()),
        retry_after: Some(HOUR),
        ..ReportedFailure::new(category, "it did not work: \u{fc}")
    })
}

/// Overrides every setting.
fn overrides() -> SettingsPatch {
    let length = |secs| Some(Duration::from_secs(secs));
    SettingsPatch {
        job: PolicyPatch {
            retry: RetryPatch {
                limit: Some(7),
                counts: Some(RetryLimitUnit::Failures),
                backoff_kind: Some(BackoffKind::List),
                base: length(2),
                multiplier: Some(1.5),
                cap: length(90),
                delays: Some(vec![Duration::from_secs(1), Duration::from_secs(30)]),
                jitter_kind: Some(JitterKind::Symmetric),
                jitter_factor: Some(0.25),
                honour_retry_after: Some(false),
                on_permanent: Some(OnPermanent::DeadLetter),
                on_exhausted: Some(OnExhausted::Failed),
                on_timeout: Some(OnFailure::Final),
                on_system: Some(OnFailure::Final),
            },
            execution_timeout: length(600),
            lease: length(45),
            lifetime: length(86_400),
            retention: RetentionPatch {
                completed: length(1_000),
                failed: length(2_000),
                dead_letter: length(3_000),
                cancelled: length(4_000),
            },
            max_reclaims: Some(Some(5)),
        },
        on_lease_expiry: Some(OnLeaseExpiry::ReclaimFree),
        reclaim: Some(Reclaim::Lazy),
        fencing: Some(Fencing::Optional),
        idempotency_scope: Some(IdempotencyScope::Queue),
        idempotency_window: length(7_200),
        external_ids: Some(true),
        payload_max: Some(100_000),
        priority_order: Some(false),
        requeue_order: Some(RequeueOrder::Tail),
        submit: Some(SubmitMode::Auto),
        delayed_start: Some(true),
        manual_requeue: Some(ManualRequeue::Clone),
        cancel_running: Some(CancelRunning::Immediate),
        clear_error_on_success: Some(true),
        max_queued: Some(Some(500)),
        wait_target: None,
    }
}

const HOUR: Duration = Duration::from_hours(1);

/// Queues of every profile, paused queues, queues with overrides.
const QUEUES: &[Step] = &[
    |rich| rich.put("plain", Profile::Standard, SettingsPatch::default()),
    |rich| rich.put("tuned", Profile::Standard, overrides()),
    |rich| rich.put("ocypod", Profile::Ocypod, SettingsPatch::default()),
    |rich| rich.put("document", Profile::Document, SettingsPatch::default()),
    |rich| rich.put("weave", Profile::Weave, SettingsPatch::default()),
    |rich| rich.put("taskharbor", Profile::Taskharbor, SettingsPatch::default()),
    |rich| rich.put("gopherqueue", Profile::Gopherqueue, SettingsPatch::default()),
    |rich| rich.admin(AdminCommand::PauseQueue { queue: queue("gopherqueue") }),
];

/// Jobs that are not claimed.
const WAITING: &[Step] = &[
    |rich| rich.submit("plain", job("scheduled", all_bytes())),
    |rich| rich.submit("plain", job("empty", Payload::Binary(Bytes::new()))),
    |rich| rich.submit("plain", job("long", Payload::Binary(vec![0xa5; 9_000].into()))),
    |rich| {
        rich.submit(
            "plain",
            with("labelled", |job| {
                job.priority = Priority::Critical;
                job.tags = Tags::Map([("tenant".into(), Some("acme".into())), ("urgent".into(), None)].into());
                job.correlation_id = Some("request 17".into());
                job.callback_url = Some("https://example.org/done?a=b".into());
                job.idempotency_key = Some("once".into());
            }),
        );
    },
    |rich| {
        rich.submit("ocypod", with("listed", |job| job.tags = Tags::List(vec!["b".into(), "a".into(), "b".into()])));
    },
    |rich| {
        rich.submit(
            "tuned",
            with("external", |job| {
                job.external_id = Some("order-0815".into());
                job.idempotency_key = Some("another".into());
                job.policy.retry.limit = Some(2);
            }),
        );
    },
    |rich| rich.submit("plain", with("delayed", |job| job.start = Start::In(HOUR))),
    |rich| rich.submit("document", with("held", |_| {})),
    |rich| {
        rich.submit(
            "plain",
            with("held_until", |job| {
                job.hold = Some(true);
                job.start = Start::At(BEGIN + HOUR);
            }),
        );
    },
    |rich| {
        let edit = Edit {
            job_type: Some(job_type("edited")),
            priority: Some(Priority::Bulk),
            tags: Some(Tags::Map([("edited".into(), None)].into())),
            retry_limit: Some(9),
            ..Edit::default()
        };
        rich.admin(AdminCommand::Edit { id: rich.id("empty"), edit });
    },
];

/// Running jobs.
const RUNNING: &[Step] = &[
    |rich| rich.submit("plain", job("running", json("[1, 2]"))),
    |rich| rich.claim("plain", "running"),
    |rich| {
        rich.pass(Duration::from_secs(7));
        rich.heartbeat("running", b"half", b"\x00\x01checkpoint");
    },
    |rich| {
        let (id, reason) = (rich.id("running"), Some("not needed".to_owned()));
        rich.admin(AdminCommand::Cancel { id, reason, force: Force::ByPolicy });
    },
    |rich| rich.submit("ocypod", job("without_lease", json("null"))),
    |rich| rich.claim("ocypod", "without_lease"),
    |rich| rich.submit("weave", with("parent", |job| job.external_id = Some("p".into()))),
    |rich| rich.claim("weave", "parent"),
    |rich| {
        let (parent, token) = (rich.id("parent"), rich.leases.get("parent").copied());
        let finally = Submission { queue: queue("weave"), job: with("finally", |_| {}).1 };
        rich.submit_all(&[with("child_1", |_| {}), with("child_2", |_| {})], |batch| {
            let batch = batch.into_iter().map(|job| Submission { queue: queue("weave"), job }).collect();
            SubmitRequest::children(parent, token, batch, Some(finally))
        });
    },
];

/// Jobs that are finished or wait for a retry.
const ENDED: &[Step] = &[
    |rich| rich.submit("plain", job("completed", json("true"))),
    |rich| rich.claim("plain", "completed"),
    |rich| {
        rich.settle(
            "completed",
            Outcome::Complete { result: Some(Bytes::from_static(b"\xff\x00result")), progress: None },
        );
    },
    |rich| rich.submit("plain", job("retrying", json("1"))),
    |rich| rich.claim("plain", "retrying"),
    |rich| rich.settle("retrying", failed(ReportedCategory::Temporary)),
    |rich| rich.submit("plain", with("failed", |job| job.idempotency_key = Some("failing".into()))),
    |rich| rich.claim("plain", "failed"),
    |rich| rich.settle("failed", failed(ReportedCategory::Permanent)),
    |rich| rich.submit("plain", job("dead_letter", json("3"))),
    |rich| {
        let (id, reason) = (rich.id("dead_letter"), Some("give up".to_owned()));
        rich.admin(AdminCommand::DeadLetter { id, reason });
    },
    |rich| rich.submit("taskharbor", job("cancelled", json("4"))),
    |rich| {
        let (id, reason) = (rich.id("cancelled"), Some("changed our mind".to_owned()));
        rich.admin(AdminCommand::Cancel { id, reason, force: Force::Now });
    },
    |rich| rich.submit("taskharbor", job("snoozed", json("5"))),
    |rich| rich.claim("taskharbor", "snoozed"),
    |rich| rich.settle("snoozed", Outcome::Snooze { delay: HOUR }),
    |rich| rich.submit("taskharbor", job("released", json("6"))),
    |rich| rich.claim("taskharbor", "released"),
    |rich| rich.settle("released", Outcome::Release),
    |rich| rich.submit("plain", job("orphan", json("7"))),
    |rich| rich.claim("plain", "orphan"),
    |rich| rich.submit("plain", with("deleted", |job| job.idempotency_key = Some("outlives".into()))),
    |rich| rich.admin(AdminCommand::DeadLetter { id: rich.id("deleted"), reason: None }),
    |rich| rich.admin(AdminCommand::Delete { id: rich.id("deleted") }),
    |rich| rich.submit("tuned", job("pruned_later", json("8"))),
    |rich| rich.claim("tuned", "pruned_later"),
    |rich| rich.settle("pruned_later", Outcome::Complete { result: None, progress: None }),
];

/// Jobs with dependencies: waiting, ended by a dependency, revived.
const RELATED: &[Step] = &[
    |rich| {
        let (first, second) = (rich.id("running"), rich.id("completed"));
        let after = vec![DependencyRef::Job(first), DependencyRef::Job(second)];
        rich.submit("plain", with("dependent", |job| job.after = after));
    },
    |rich| {
        let any = vec![DependencyRef::Job(rich.id("scheduled")), DependencyRef::Job(rich.id("delayed"))];
        rich.submit("plain", with("dependent_on_any", |job| job.after_any = any));
    },
    |rich| {
        let after = vec![DependencyRef::Job(rich.id("dead_letter"))];
        rich.submit("plain", with("ended_through", |job| job.after = after));
    },
    |rich| rich.submit("plain", job("requeued", json("9"))),
    |rich| rich.claim("plain", "requeued"),
    |rich| rich.settle("requeued", failed(ReportedCategory::Permanent)),
    |rich| {
        let how = Requeue { counters: Reset::Keep, run_at: None };
        rich.admin(AdminCommand::Requeue { id: rich.id("requeued"), how });
    },
    |rich| rich.submit("weave", job("cloned", json("10"))),
    |rich| rich.admin(AdminCommand::DeadLetter { id: rich.id("cloned"), reason: None }),
    |rich| {
        let how = Requeue { counters: Reset::Zero, run_at: Some(BEGIN + HOUR) };
        rich.admin(AdminCommand::Requeue { id: rich.id("cloned"), how });
    },
    |rich| rich.submit("leaving", job("left", json("11"))),
    |rich| {
        let how = DeleteQueue::Force(QueueDeleteMode::Cancel);
        rich.admin(AdminCommand::DeleteQueue { queue: queue("leaving"), how });
    },
    // Leases of 30 s expire, except for the extended one.
    |rich| {
        rich.pass(Duration::from_secs(25));
        rich.tick();
    },
    |rich| {
        rich.pass(Duration::from_secs(2));
        rich.heartbeat("running", b"nearly there", b"");
    },
    |rich| {
        rich.pass(Duration::from_secs(3));
        rich.tick();
    },
];

fn named(label: &'static str, after: &[&str]) -> (&'static str, NewJob) {
    with(label, |job| {
        job.reference = Some(label.into());
        job.after = after.iter().map(|name| DependencyRef::Local((*name).into())).collect();
    })
}

/// Workflows: open, growing, cancelled, failed, retried as clones.
const WORKFLOWS: &[Step] = &[
    |rich| rich.put("gopher", Profile::Gopherqueue, SettingsPatch::default()),
    |rich| {
        let nightly = WorkflowTarget::New { name: Some("nightly".into()), open: true };
        rich.workflow(nightly, &[named("load", &[]), named("sum", &["load"]), with("unnamed", |_| {})]);
    },
    |rich| rich.workflow(WorkflowTarget::Open(rich.workflows[0]), &[named("report", &["sum"])]),
    |rich| rich.claim("gopher", "load"),
    |rich| rich.settle("load", failed(ReportedCategory::Permanent)),
    |rich| rich.admin(AdminCommand::RetryWorkflow { id: rich.workflows[0] }),
    |rich| rich.workflow(WorkflowTarget::New { name: None, open: false }, &[named("one", &[]), named("two", &["one"])]),
    |rich| {
        let reason = Some("enough".to_owned());
        rich.admin(AdminCommand::CancelWorkflow { id: rich.workflows[1], reason, force: Force::ByPolicy });
    },
    |rich| rich.admin(AdminCommand::OpenWorkflow { name: Some("empty".into()) }),
];

pub(crate) fn steps() -> impl Iterator<Item = Step> {
    [QUEUES, WAITING, RUNNING, ENDED, RELATED, WORKFLOWS].into_iter().flatten().copied()
}

/// Applies all steps.
pub(crate) fn fill(store: &dyn Store, clock: &Arc<VirtualClock>) {
    let mut rich = Rich::new(store, Arc::clone(clock));
    steps().for_each(|step| step(&mut rich));
}
