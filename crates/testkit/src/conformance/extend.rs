//! Heartbeats.

use bytes::Bytes;
use longshore_core::Duration;
use longshore_core::cancel::Force;
use longshore_core::claim::ClaimOptions;
use longshore_core::heartbeat::HeartbeatData;
use longshore_core::id::{JobId, LeaseToken};
use longshore_core::limits::BATCH_ITEMS_MAX;
use longshore_core::refusal::Refusal;
use longshore_core::settle::Outcome;
use longshore_core::state::StateKind;
use longshore_engine::{AdminCommand, AdminResponse, ClaimRequest, Heartbeat};

use super::harness::*;

const LEASE: Duration = Duration::from_secs(30);

pub(super) fn heartbeat_extends_lease_from_now(h: &mut Harness) {
    let job = h.submit("q", work());
    let claimed = h.claim_one("q");
    for _ in 0..4 {
        h.pass(Duration::from_secs(29));
        let renewal = h.heartbeat(heartbeat(&claimed)).unwrap();
        assert_eq!((renewal.expires_at, renewal.cancel_requested), (Some(h.now() + LEASE), false));
        let stored = h.job(job.id);
        assert_eq!(stored.state.lease().unwrap().expires_at, renewal.expires_at);
        assert_eq!(stored.last_heartbeat_at, Some(h.now()));
    }
    h.clock().advance(LEASE);
    h.refused("stale_lease", "expired by the clock", |h| h.heartbeat(heartbeat(&claimed)));
}

pub(super) fn heartbeat_stores_progress_and_checkpoint(h: &mut Harness) {
    let job = h.submit("q", work());
    let claimed = h.claim_one("q");
    let beat = |progress: Option<&'static [u8]>, checkpoint: Option<&'static [u8]>| {
        let data = HeartbeatData {
            progress: progress.map(Bytes::from_static),
            checkpoint: checkpoint.map(Bytes::from_static),
        };
        h.heartbeat(Heartbeat { notes: data, ..heartbeat(&claimed) }).unwrap();
        let stored = h.job(job.id);
        (stored.progress.clone(), stored.checkpoint.clone())
    };
    let some = |bytes: &'static [u8]| Some(Bytes::from_static(bytes));
    assert_eq!(beat(Some(b"10 %"), None), (some(b"10 %"), None));
    assert_eq!(beat(None, Some(b"\x00\xff")), (some(b"10 %"), some(b"\x00\xff")), "absent data is kept");
    assert_eq!(beat(Some(b""), None), (some(b""), some(b"\x00\xff")), "empty data is stored");
    h.settle(&claimed, Outcome::Release).unwrap();
    let again = h.claim_one("q");
    assert_eq!(again.checkpoint, some(b"\x00\xff"));
    assert_eq!(h.job(job.id).progress, None, "progress belongs to one run");
}

pub(super) fn heartbeat_reports_cancel_request(h: &mut Harness) {
    let job = h.submit("q", work());
    let claimed = h.claim_one("q");
    let cancel = AdminCommand::Cancel { id: job.id, reason: Some("enough".to_owned()), force: Force::ByPolicy };
    assert_eq!(h.admin(cancel), AdminResponse::CancelRequested);
    assert!(h.heartbeat(heartbeat(&claimed)).unwrap().cancel_requested);
    assert_eq!(h.settle(&claimed, Outcome::Release), Ok(StateKind::Cancelled));
}

pub(super) fn heartbeat_verdicts_keep_order(h: &mut Harness) {
    h.submit_all("q", vec![work(); 3]);
    let claimed = h.claim_all("q");
    let batch = vec![
        heartbeat(&claimed[2]),
        Heartbeat { id: JobId::from_bytes([7; 16]), ..heartbeat(&claimed[0]) },
        Heartbeat { token: Some(LeaseToken::from_bytes([9; 16])), ..heartbeat(&claimed[1]) },
        heartbeat(&claimed[0]),
        Heartbeat { token: None, ..heartbeat(&claimed[1]) },
    ];
    h.pass(Duration::from_secs(1));
    let verdicts = answered(h.store().heartbeat(batch));
    let codes: Vec<&str> =
        verdicts.iter().map(|verdict| verdict.as_ref().map_or_else(Refusal::code, |_| "extended")).collect();
    assert_eq!(codes, ["extended", "job_not_found", "stale_lease", "extended", "validation"]);
    assert_eq!(h.job(claimed[1].id).last_heartbeat_at, None);
}

pub(super) fn heartbeat_stops_at_execution_deadline(h: &mut Harness) {
    h.submit("q", work());
    let terms = ClaimOptions { execution_timeout: Some(Duration::from_secs(40)), ..ClaimOptions::default() };
    let claimed = h.try_claim(ClaimRequest { terms, ..request("q", 1) }).unwrap().remove(0).claimed;
    let deadline = claimed.deadline_at.unwrap();
    h.pass(Duration::from_secs(20));
    assert_eq!(h.heartbeat(heartbeat(&claimed)).unwrap().expires_at, Some(deadline));
    h.pass(Duration::from_secs(20));
    h.tick_until_idle();
    assert_eq!(h.state(claimed.id), StateKind::Retrying);
    assert_eq!(h.job(claimed.id).error.as_ref().unwrap().code.as_deref(), Some("execution_timeout"));
}

pub(super) fn heartbeat_max_batch(h: &mut Harness) {
    assert!(answered(h.store().heartbeat(Vec::new())).is_empty());
    h.submit_all("q", vec![work(); BATCH_ITEMS_MAX]);
    let claimed = h.claim_all("q");
    h.pass(Duration::from_secs(10));
    let verdicts = answered(h.store().heartbeat(claimed.iter().map(heartbeat).collect()));
    assert_eq!(verdicts.len(), BATCH_ITEMS_MAX);
    let later = Some(h.now() + LEASE);
    assert!(verdicts.iter().all(|verdict| verdict.as_ref().is_ok_and(|renewal| renewal.expires_at == later)));
}
