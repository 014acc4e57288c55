//! `same_payload` of duplicates: a key that is reused for something else is a bug that its caller wants to see.

use std::collections::HashMap;

use longshore_api::job::Submitted as Told;
use longshore_core::id::Seq;
use longshore_core::submit::Payload;
use longshore_engine::{Submission, Submitted};

use crate::app::AppState;
use crate::routes::batch::to_wire;

/// Payloads that are read at once: each may have megabytes.
const SLICE: usize = 16;

/// Payloads of members that have an idempotency key, by place. Others cannot be duplicates and cost nothing.
pub(super) struct KeyedPayloads(HashMap<usize, Payload>);

impl KeyedPayloads {
    /// Payloads are shared bytes: none is copied.
    pub(super) fn of(members: &[Submission]) -> Self {
        let keyed = members.iter().enumerate().filter(|(_, member)| member.job.key().is_some());
        Self(keyed.map(|(place, member)| (place, member.job.payload.clone())).collect())
    }
}

/// The answers to a submission, each duplicate compared with the job that it repeats.
pub(super) async fn tell(app: &AppState, submitted: &[Submitted], given: KeyedPayloads) -> Vec<Told> {
    let mut answers: Vec<Told> = submitted.iter().map(to_wire).collect();
    let KeyedPayloads(given) = given;
    let known = |(place, job): (usize, &Submitted)| {
        let payload = given.get(&place).filter(|_| job.duplicate && job.state.is_some())?;
        Some((place, job.seq, payload))
    };
    let duplicates: Vec<(usize, Seq, &Payload)> = submitted.iter().enumerate().filter_map(known).collect();
    for slice in duplicates.chunks(SLICE) {
        let earlier = app.call_store(app.store.payloads(slice.iter().map(|(_, seq, _)| *seq).collect())).await;
        // The submission itself is durable: it is answered without the comparison.
        let Ok(earlier) = earlier else { break };
        for ((place, _, payload), earlier) in slice.iter().zip(earlier) {
            if let Some(answer) = answers.get_mut(*place) {
                answer.same_payload = earlier.map(|earlier| earlier == **payload);
            }
        }
    }
    answers
}
