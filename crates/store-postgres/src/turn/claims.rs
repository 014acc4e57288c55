//! Which jobs are taken from the lines for claims that share a transaction.

use std::collections::{BTreeMap, BTreeSet};

use longshore_core::engine::ClaimRequest;
use longshore_core::id::{JobType, QueueName};
use tokio_postgres::Row;

use super::Turn;
use crate::believed::{BEGINNING, Place};
use crate::error::Trouble;
use crate::known::Known;
use crate::link::{Order, order};
use crate::request::{Answered, Request};
use crate::row::{Found, type_hash};
use crate::statements::Statements;

/// Beyond those that are wanted, looked at where the line has no index of its own: others may hold some of the first.
const SPARE: i64 = 256;

/// Jobs of one line.
#[derive(Clone, Debug)]
pub(crate) struct Selection {
    queue: i32,
    /// Hashes; none is any.
    types: Vec<i64>,
    /// In order of arrival, whatever the urgency.
    flat: bool,
    limit: usize,
    /// Where to begin.
    from: Place,
}

impl Selection {
    /// Not from the beginning, if there is somewhere else to begin.
    pub(crate) fn from(self, place: Option<Place>) -> Self {
        Self { from: place.unwrap_or(self.from), ..self }
    }

    pub(crate) fn line(&self) -> i32 {
        self.queue
    }

    /// The line, if so many are simply its first.
    pub(crate) fn whole_line(&self, wanted: usize) -> Option<(i32, usize)> {
        (!self.flat && self.types.is_empty() && self.limit == wanted).then_some((self.queue, wanted))
    }

    pub(crate) fn order<'a>(&self, sql: &'a Statements, but: &[i64]) -> Order<'a> {
        let limit = i64::try_from(self.limit).unwrap_or(i64::MAX);
        let (queue, types, but) = (self.queue, self.types.clone(), but.to_vec());
        match (self.flat, types.is_empty()) {
            (false, true) => order!(sql.claim, queue, limit, but, self.from.0, self.from.1),
            (false, false) => order!(sql.claim_types, queue, limit, but, types),
            (true, true) => order!(sql.claim_flat, queue, limit, but, limit + SPARE),
            (true, false) => order!(sql.claim_flat_types, queue, limit, but, types, limit + SPARE),
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Claims {
    any: bool,
    /// Lines in which nobody else stands.
    exhausted: BTreeSet<(i32, Vec<i64>)>,
    done: bool,
    pub looks: Looks,
}

/// How lines were looked at.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Looks {
    /// From the beginning.
    pub whole: bool,
    /// From a place that was believed to be the first.
    pub partial: bool,
}

fn hashes(types: &[JobType]) -> Vec<i64> {
    let all: BTreeSet<i64> = types.iter().map(|job_type| type_hash(job_type.as_str())).collect();
    all.into_iter().collect()
}

fn claims(requests: &[Request]) -> impl Iterator<Item = (usize, &ClaimRequest)> {
    requests.iter().enumerate().filter_map(|(place, request)| match request {
        Request::Claim(claim, _) => Some((place, claim)),
        Request::Submit(..) | Request::Settle(..) | Request::Extend(..) | Request::Admin(..) | Request::Tick(..) => {
            None
        }
    })
}

impl Claims {
    pub(crate) fn is_empty(&self) -> bool {
        !self.any
    }

    pub(crate) fn all_exhausted(&mut self) {
        self.done = true;
    }

    /// For each queue that somebody asks first, the first sort of claim: the others come later, if they are not served by then.
    pub(crate) fn first_selections(&mut self, requests: &[Request], known: &Known) -> Vec<Selection> {
        let mut first: BTreeMap<&QueueName, Selection> = BTreeMap::new();
        for (_, claim) in claims(requests) {
            self.any = true;
            let Some(name) = claim.queues.first() else { continue };
            let Some(selection) = selection(name, claim, known, claim.limit) else { continue };
            match first.get_mut(name) {
                Some(known) if known.types == selection.types => known.limit += claim.limit,
                Some(_) => {}
                None => drop(first.insert(name, selection)),
            }
        }
        first.into_values().collect()
    }

    /// Lines to look into once more: a claim was not served in full, and they may have more.
    pub(crate) fn shortage(&self, requests: &[Request], answers: &[Answered]) -> Vec<(QueueName, Vec<JobType>, usize)> {
        let mut shortage = Vec::new();
        if self.done {
            return shortage;
        }
        for (place, claim) in claims(requests) {
            let Some(Answered::Claim(Ok(claimed))) = answers.get(place) else { continue };
            let missing = claim.limit.saturating_sub(claimed.len());
            if missing > 0 {
                shortage.extend(claim.queues.iter().map(|queue| (queue.clone(), claim.types.clone(), missing)));
            }
        }
        shortage
    }
}

fn selection(name: &QueueName, claim: &ClaimRequest, known: &Known, limit: usize) -> Option<Selection> {
    let queue = known.queues.get(name).filter(|queue| !queue.paused && queue.leaving.is_none())?;
    let (flat, types) = (!queue.intake.priority_order, hashes(&claim.types));
    Some(Selection { queue: known.number_of(name)?, types, flat, limit: limit.min(10_000), from: BEGINNING })
}

impl Turn<'_> {
    pub(super) fn take_in_claims(&mut self, selection: &Selection, found: &[Row]) -> Result<bool, Trouble> {
        if found.len() < selection.limit && selection.from == BEGINNING {
            self.claims.exhausted.insert((selection.queue, selection.types.clone()));
        }
        if selection.from == BEGINNING {
            self.claims.looks.whole = true;
        } else {
            self.claims.looks.partial = true;
        }
        for row in found {
            let (seq, found) = Found::claimable(row)?;
            self.fetched.add(seq, found);
        }
        Ok(!found.is_empty())
    }

    /// Looks into more lines, one after the other. Says whether there was anything.
    pub(super) async fn fetch_more_claims(
        &mut self,
        shortage: Vec<(QueueName, Vec<JobType>, usize)>,
    ) -> Result<bool, Trouble> {
        let mut anything = false;
        for (name, types, limit) in shortage {
            let Some(queue) = self.known.queues.get(&name).filter(|queue| !queue.paused && queue.leaving.is_none())
            else {
                continue;
            };
            let flat = !queue.intake.priority_order;
            let Some(number) = self.known.number_of(&name) else { continue };
            let selection = Selection { queue: number, types: hashes(&types), flat, limit, from: BEGINNING };
            let exhausted = |types: &[i64]| self.claims.exhausted.contains(&(number, types.to_vec()));
            if exhausted(&selection.types) || exhausted(&[]) {
                continue;
            }
            let but = super::numbers(self.fetched.order.iter().copied());
            let found = self.link.ask(selection.order(&self.shared.sql, &but)).await?;
            anything |= self.take_in_claims(&selection, &found)?;
            if anything {
                // Who gets what is for the rules to say.
                break;
            }
        }
        Ok(anything)
    }
}
