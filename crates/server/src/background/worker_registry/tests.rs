use super::*;

fn name(text: &str) -> WorkerName {
    WorkerName::new(text).unwrap()
}

fn claim<'a>(worker: &'a WorkerName, queues: &'a [QueueName], types: &'a [JobType]) -> ClaimInfo<'a> {
    ClaimInfo { worker: Some(worker), version: Some("1.2"), queues, types, can_claim: true }
}

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

#[test]
fn a_worker_is_shown_while_it_claims_and_runs_jobs() {
    let workers = Arc::new(WorkerRegistry::default());
    let (queue, job) = (QueueName::new("q").unwrap(), JobId::from_bytes([1; 16]));
    let [mail, other] = ["mail", "other"].map(|text| JobType::new(text).unwrap());
    assert!(!workers.has_recent_claims(&queue, &mail));
    let (w, queues, types) = (name("w"), [queue.clone()], [mail.clone()]);
    let quiet = ClaimInfo { can_claim: false, ..claim(&w, &queues, &types) };
    drop(workers.claim_started(quiet, at(4)));
    assert!(!workers.has_recent_claims(&queue, &mail), "a quiet worker serves no queue");
    let waiting = workers.claim_started(claim(&w, &queues, &types), at(5));
    let listed = workers.workers();
    assert_eq!((listed[0].waiting, listed[0].seen.version.as_deref()), (1, Some("1.2")));
    assert!(workers.has_recent_claims(&queue, &mail) && !workers.has_recent_claims(&queue, &other));
    drop(workers.claim_started(claim(&w, &queues, &[]), at(5)));
    assert!(workers.has_recent_claims(&queue, &other), "no types: all types");
    drop(waiting);
    workers.jobs_assigned(Some(&name("w")), [job].into_iter(), at(6));
    workers.heartbeat(Some(&name("w")), job, at(9));
    let listed = workers.workers();
    assert_eq!((listed[0].running, listed[0].waiting, listed[0].seen.last_seen_at), (1, 0, at(9)));
    workers.jobs_assigned(Some(&name("other")), [job].into_iter(), at(10));
    assert_eq!(workers.workers().iter().map(|worker| worker.running).collect::<Vec<_>>(), [1, 0]);
    workers.jobs_released([job, job].into_iter());
    assert_eq!(workers.workers().iter().map(|worker| worker.running).collect::<Vec<_>>(), [0, 0]);
}

/// (name, running, last seen) of every worker.
fn summary(workers: &WorkerRegistry) -> Vec<(String, u64, i64)> {
    let one =
        |worker: LocalWorker| (worker.seen.name.to_string(), worker.running, worker.seen.last_seen_at.as_millis());
    workers.workers().into_iter().map(one).collect()
}

fn expected(one: &[(&str, u64, i64)]) -> Vec<(String, u64, i64)> {
    one.iter().map(|(name, running, at)| ((*name).to_owned(), *running, *at)).collect()
}

#[test]
fn the_store_corrects_the_registry() {
    let workers = Arc::new(WorkerRegistry::default());
    let job = |number| JobId::from_bytes([number; 16]);
    workers.jobs_assigned(Some(&name("w")), (1..=4).map(job), at(6));
    assert_eq!(workers.stale_assignments(10, Duration::from_secs(3_600)), []);
    let stale = workers.stale_assignments(3, Duration::ZERO);
    assert_eq!(stale.iter().map(|assignment| assignment.id).collect::<Vec<_>>(), [job(1), job(2), job(3)]);
    workers.resolve(stale[0], None);
    workers.resolve(stale[1], Some((Some(&name("w")), at(20))));
    workers.resolve(stale[2], Some((Some(&name("other")), at(15))));
    assert_eq!(summary(&workers), expected(&[("other", 1, 15), ("w", 2, 20)]));
    // The unchecked job first, then those that were checked.
    let stale = workers.stale_assignments(10, Duration::ZERO);
    assert_eq!(stale.iter().map(|assignment| assignment.id).collect::<Vec<_>>(), [job(4), job(2), job(3)]);
    // Claimed again, or ended, since the store was read.
    workers.jobs_assigned(Some(&name("w")), [job(4)].into_iter(), at(30));
    workers.jobs_released([job(2)].into_iter());
    stale.into_iter().for_each(|assignment| workers.resolve(assignment, None));
    assert_eq!(summary(&workers), expected(&[("other", 0, 15), ("w", 1, 30)]));
    // A heartbeat of a job that was claimed on another server.
    workers.heartbeat(Some(&name("far")), job(9), at(31));
    assert_eq!(summary(&workers), expected(&[("far", 1, 31), ("other", 0, 15), ("w", 1, 30)]));
}

#[test]
fn the_registry_is_bounded() {
    let workers = Arc::new(WorkerRegistry::default());
    for number in 0..WORKERS_MAX + 500 {
        drop(workers.claim_started(claim(&name(&format!("w{number}")), &[], &[]), at(1)));
    }
    assert!(workers.workers().len() <= WORKERS_MAX);
    assert!(workers.workers().iter().any(|worker| worker.seen.name.as_str() == format!("w{}", WORKERS_MAX + 499)));
}

#[test]
fn reports_have_own_jobs_and_are_sent_once() {
    let workers = Arc::new(WorkerRegistry::default());
    let (w, lag) = (name("w"), Duration::from_secs(10));
    drop(workers.claim_started(claim(&w, &[], &[]), at(1)));
    assert_eq!(workers.take_reports(lag).len(), 1);
    assert_eq!(workers.take_reports(lag), []);
    workers.jobs_assigned(Some(&w), [JobId::from_bytes([1; 16])].into_iter(), at(2));
    workers.heartbeat(Some(&w), JobId::from_bytes([2; 16]), at(3));
    let reports = workers.take_reports(lag);
    assert_eq!((reports.len(), reports[0].running, workers.workers()[0].running), (1, 1, 2));
    // Only the time of the last request has changed.
    workers.heartbeat(Some(&w), JobId::from_bytes([1; 16]), at(9_000));
    assert_eq!(workers.take_reports(lag), []);
    workers.heartbeat(Some(&w), JobId::from_bytes([1; 16]), at(10_003));
    let reports = workers.take_reports(lag);
    assert_eq!((reports.len(), reports[0].last_seen_at), (1, at(10_003)));
    workers.report_again(&reports);
    assert_eq!(workers.take_reports(lag), reports);
}
