//! The log and its listeners, without sockets.

use std::sync::Arc;

use longshore_core::history::{Cause, Transition};
use longshore_core::id::{JobId, JobType, QueueName, Seq};
use longshore_core::state::StateKind;
use longshore_core::time::Timestamp;
use longshore_core::{QueueChange, ScheduleChange};
use longshore_engine::Effect;
use tokio_util::sync::CancellationToken;

use super::{Cursor, EventFilter, EventLog, StreamStart};
use crate::events::listener::Listener;

fn queue(name: &str) -> QueueName {
    QueueName::new(name).unwrap()
}

fn moved(job: u8, name: &str, job_type: &str, to: StateKind) -> Effect {
    Effect::Moved {
        id: JobId::from_bytes([job; 16]),
        seq: Seq(job.into()),
        queue: queue(name),
        job_type: JobType::new(job_type).unwrap(),
        workflow: None,
        step: Transition { from: None, to, at: Timestamp::from_millis(0), cause: Cause::Create },
        since: None,
    }
}

fn publish(log: &EventLog, events: Vec<Effect>) {
    log.publish(&events.into());
}

/// Returns the names of the events of the next chunk, with queue or state.
async fn read(listener: &mut Listener) -> Vec<String> {
    let chunk = listener.next_chunk(&CancellationToken::new()).await.unwrap();
    let text = std::str::from_utf8(&chunk).unwrap().to_owned();
    let kind = |block: &str| {
        let word =
            |name: &str| block.split_once(&format!("\"{name}\":\"")).map(|(_, rest)| rest.split('"').next().unwrap());
        let name = block.lines().find_map(|line| line.strip_prefix("event: "))?;
        Some(
            [Some(name), word("queue"), word("to"), word("change")].into_iter().flatten().collect::<Vec<_>>().join(" "),
        )
    };
    text.split("\n\n").filter_map(kind).collect()
}

async fn listen(log: &Arc<EventLog>, filter: EventFilter, start: StreamStart) -> Listener {
    let mut listener = log.listen(filter, start);
    let first = read(&mut listener).await;
    assert!(first.is_empty() || first == ["gap"], "{first:?}");
    listener
}

#[tokio::test]
async fn each_filter_reads_its_own_events() {
    let log = Arc::new(EventLog::default());
    let job = EventFilter { job: Some(JobId::from_bytes([1; 16])), ..EventFilter::default() };
    let states = EventFilter { states: StateKind::Running.into(), ..EventFilter::default() };
    let queues = EventFilter { queue: Some(queue("a")), ..EventFilter::default() };
    let types = EventFilter { job_type: Some(JobType::new("y").unwrap()), ..EventFilter::default() };
    let both = EventFilter { states: StateKind::Running.into(), ..types.clone() };
    let filters = [EventFilter::default(), job, states, queues, types, both];
    let mut listeners = Vec::new();
    for filter in filters {
        listeners.push(listen(&log, filter, StreamStart::Now).await);
    }
    let at = Timestamp::from_millis(0);
    let first =
        [moved(1, "a", "x", StateKind::Pending), Effect::Claimable(queue("a")), moved(2, "b", "y", StateKind::Running)];
    publish(&log, first.to_vec());
    publish(&log, vec![Effect::Claimable(queue("a"))]);
    publish(&log, vec![Effect::Queue { name: queue("a"), change: QueueChange::Paused, at }]);
    publish(&log, vec![Effect::Schedule { name: "s".into(), queue: queue("a"), change: ScheduleChange::Fired, at }]);
    publish(&log, vec![moved(3, "a", "y", StateKind::Failed), moved(1, "a", "x", StateKind::Running)]);
    let expected: [&[&str]; 6] = [
        &["job a pending", "job b running", "queue paused", "schedule fired", "job a failed", "job a running"],
        &["job a pending", "job a running"],
        &["job b running", "job a running"],
        &["job a pending", "queue paused", "job a failed", "job a running"],
        &["job b running", "job a failed"],
        &["job b running"],
    ];
    for (listener, expected) in listeners.iter_mut().zip(expected) {
        assert_eq!(read(listener).await, expected);
    }
}

#[tokio::test]
async fn a_gap_reaches_every_listener_and_invalidates_older_cursors() {
    let log = Arc::new(EventLog::default());
    let other = EventFilter { queue: Some(queue("other")), ..EventFilter::default() };
    let (mut all, mut keyed) =
        (listen(&log, EventFilter::default(), StreamStart::Now).await, listen(&log, other, StreamStart::Now).await);
    publish(&log, vec![moved(1, "a", "x", StateKind::Pending)]);
    log.publish_gap();
    log.publish_gap();
    publish(&log, vec![moved(1, "other", "x", StateKind::Running)]);
    assert_eq!(read(&mut all).await, ["job a pending", "gap", "job other running"]);
    assert_eq!(read(&mut keyed).await, ["gap", "job other running"]);
    let after = |number| StreamStart::After(log.cursor(number));
    let before_gap = log.listen(EventFilter::default(), after(1));
    assert_eq!(read(&mut { before_gap }).await, ["gap"]);
    let mut at_gap = listen(&log, EventFilter::default(), after(2)).await;
    assert_eq!(read(&mut at_gap).await, ["job other running"]);
    let foreign = Cursor { epoch: log.cursor(0).epoch ^ 1, number: 2 };
    assert_eq!(read(&mut { log.listen(EventFilter::default(), StreamStart::After(foreign)) }).await, ["gap"]);
}

#[tokio::test]
async fn the_log_is_bounded_and_drops_listeners_that_fall_behind() {
    let log = Arc::new(EventLog::default());
    let keyed = EventFilter { queue: Some(queue("a")), ..EventFilter::default() };
    let (mut all, mut slow) = (
        listen(&log, EventFilter::default(), StreamStart::Now).await,
        listen(&log, keyed.clone(), StreamStart::Now).await,
    );
    let rare = EventFilter { job: Some(JobId::from_bytes([9; 16])), ..EventFilter::default() };
    let mut rare = listen(&log, rare, StreamStart::Now).await;
    for _ in 0..600 {
        publish(&log, vec![moved(1, "a", "x", StateKind::Pending); 100]);
    }
    publish(&log, vec![moved(9, "b", "x", StateKind::Running)]);
    assert_eq!(read(&mut all).await, ["closed"]);
    assert_eq!(read(&mut slow).await, ["closed"]);
    assert!(all.next_chunk(&CancellationToken::new()).await.is_none());
    // A listener is not behind because of events that it does not want.
    assert_eq!(read(&mut rare).await, ["job b running"]);
    assert_eq!(log.cut_off(), 2);
    drop((all, slow, rare));
    assert_eq!(log.listeners(), 0);
    // A topic begins with the events that the log has.
    let last = log.cursor(60_001);
    let mut resumed = listen(&log, keyed, StreamStart::After(Cursor { number: last.number - 3, ..last })).await;
    assert_eq!(read(&mut resumed).await, ["job a pending"; 2]);
}

#[tokio::test]
async fn a_stream_ends_when_the_server_stops() {
    let log = Arc::new(EventLog::default());
    let mut listener = listen(&log, EventFilter::default(), StreamStart::Now).await;
    let stopping = CancellationToken::new();
    stopping.cancel();
    assert!(listener.next_chunk(&stopping).await.is_none());
}
