//! Which jobs are taken from the lines for claims that share a transaction.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use longshore_core::id::{JobType, QueueName};
use longshore_engine::ClaimRequest;
use tokio_postgres::Row;

use super::Transaction;
use crate::catalog::Catalog;
use crate::connection::{StatementCall, get, stmt};
use crate::error::TxError;
use crate::node_cache::{ReadyPosition, START};
use crate::row::JobRow;
use crate::statements::Statements;
use longshore_codec::type_hash;
use longshore_store::{Request, Response};

/// Beyond those that are wanted, looked at where the line has no index of its own: others may hold some of the first.
const OVERSCAN: i64 = 256;
/// Queues that one statement looks into.
const LINES_MAX: usize = 10_000;

/// Jobs of one line.
#[derive(Clone, Debug)]
pub(crate) struct ClaimScan {
    queue: i32,
    /// Hashes; none is any.
    types: Vec<i64>,
    /// In order of arrival, whatever the urgency.
    ignores_priority: bool,
    limit: usize,
    /// Where to begin.
    from: ReadyPosition,
}

impl ClaimScan {
    /// Not from the beginning, if there is somewhere else to begin.
    pub(crate) fn from(self, place: Option<ReadyPosition>) -> Self {
        Self { from: place.unwrap_or(self.from), ..self }
    }

    pub(crate) fn line(&self) -> i32 {
        self.queue
    }

    /// The line, if so many are simply its first.
    pub(crate) fn whole_line(&self, wanted: usize) -> Option<(i32, usize)> {
        (!self.ignores_priority && self.types.is_empty() && self.limit == wanted).then_some((self.queue, wanted))
    }

    pub(crate) fn order<'a>(&self, sql: &'a Statements, but: &[i64]) -> StatementCall<'a> {
        let limit = i64::try_from(self.limit).unwrap_or(i64::MAX);
        let (queue, types, but) = (self.queue, self.types.clone(), but.to_vec());
        match (self.ignores_priority, types.is_empty()) {
            (false, true) => stmt!(sql.claim, queue, limit, but, self.from.0, self.from.1),
            (false, false) => stmt!(sql.claim_types, queue, limit, but, types),
            (true, true) => stmt!(sql.claim_flat, queue, limit, but, limit + OVERSCAN),
            (true, false) => stmt!(sql.claim_flat_types, queue, limit, but, types, limit + OVERSCAN),
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Claims {
    any: bool,
    exhausted: Exhausted,
    pub looks: ScanCoverage,
}

/// Queues that have no more jobs than were fetched, by the types that were asked for; no types are all.
#[derive(Debug, Default)]
struct Exhausted(BTreeMap<Vec<i64>, BTreeSet<i32>>);

impl Exhausted {
    fn add(&mut self, queue: i32, types: &[i64]) {
        self.0.entry(types.to_vec()).or_default().insert(queue);
    }

    fn contains(&self, queue: i32, types: &[i64]) -> bool {
        let has = |types: &[i64]| self.0.get(types).is_some_and(|queues| queues.contains(&queue));
        has(types) || has(&[])
    }
}

/// What claims with the same queues and types still lack.
#[derive(Debug)]
pub(crate) struct Shortage {
    /// Queues in the order of the claims, and whether each is flat.
    lines: Vec<(i32, bool)>,
    types: Vec<i64>,
    limit: usize,
}

/// How lines were looked at.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ScanCoverage {
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
        Request::Submit(..) | Request::Settle(..) | Request::Heartbeat(..) | Request::Admin(..) | Request::Tick(..) => {
            None
        }
    })
}

impl Claims {
    pub(crate) fn is_empty(&self) -> bool {
        !self.any
    }

    /// For each queue that somebody asks first, the first sort of claim: the others come later, if they are not served by then.
    pub(crate) fn first_selections(&mut self, requests: &[Request], known: &Catalog) -> Vec<ClaimScan> {
        let mut first: BTreeMap<&QueueName, ClaimScan> = BTreeMap::new();
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

    /// What unserved claims lack and queues may still have. It is bounded: claims that are left out come with the next run of the rules.
    pub(crate) fn shortages(&self, requests: &[Request], answers: &[Response], known: &Catalog) -> Vec<Shortage> {
        let (mut shortages, mut lines_total) = (Vec::<Shortage>::new(), 0);
        let mut places = HashMap::new();
        for (place, claim) in claims(requests) {
            let Some(Response::Claim(Ok(claimed))) = answers.get(place) else { continue };
            let missing = claim.limit.saturating_sub(claimed.len());
            if missing == 0 || lines_total >= LINES_MAX {
                continue;
            }
            let types = hashes(&claim.types);
            let lines = claim.queues.iter().filter_map(|name| line_of(name, known));
            let lines: Vec<_> = lines.filter(|(queue, _)| !self.exhausted.contains(*queue, &types)).collect();
            if lines.is_empty() {
                continue;
            }
            let next = shortages.len();
            let place = *places.entry((lines.clone(), types.clone())).or_insert(next);
            if let Some(same) = shortages.get_mut(place) {
                same.limit += missing;
            } else {
                lines_total += lines.len();
                shortages.push(Shortage { lines, types, limit: missing });
            }
        }
        shortages
    }
}

/// The number of a queue that may be claimed from, and whether it is flat.
fn line_of(name: &QueueName, known: &Catalog) -> Option<(i32, bool)> {
    let queue = known.queues.get(name).filter(|queue| !queue.paused && queue.deleting.is_none())?;
    Some((known.queue_id(name)?, !queue.intake.priority_order))
}

fn selection(name: &QueueName, claim: &ClaimRequest, known: &Catalog, limit: usize) -> Option<ClaimScan> {
    let (queue, flat) = line_of(name, known)?;
    Some(ClaimScan {
        queue,
        types: hashes(&claim.types),
        ignores_priority: flat,
        limit: limit.min(10_000),
        from: START,
    })
}

impl Transaction<'_> {
    pub(super) fn take_in_claims(&mut self, selection: &ClaimScan, found: &[Row]) -> Result<bool, TxError> {
        if found.len() < selection.limit && selection.from == START {
            self.claims.exhausted.add(selection.queue, &selection.types);
        }
        if selection.from == START {
            self.claims.looks.whole = true;
        } else {
            self.claims.looks.partial = true;
        }
        for row in found {
            let (seq, found) = JobRow::claimable(row)?;
            self.fetched.add(seq, found);
        }
        Ok(!found.is_empty())
    }

    /// Fetches what claims lack, from all their queues in one trip. Afterwards there are more jobs, or fewer queues to look into.
    pub(super) async fn fetch_more_claims(&mut self, shortages: &[Shortage]) -> Result<(), TxError> {
        let but = super::numbers(self.fetched.order.iter().copied());
        let found = self.link.query(lines_order(&self.shared.sql, shortages, but)).await?;
        self.claims.looks.whole = true;
        let mut picked = vec![0_usize; shortages.iter().map(|shortage| shortage.lines.len()).sum()];
        for row in &found {
            let (seq, job) = JobRow::claimable(row)?;
            self.fetched.add(seq, job);
            let line = usize::try_from(get::<i32>(row, 10)?).ok().and_then(|line| line.checked_sub(1));
            if let Some(picked) = line.and_then(|line| picked.get_mut(line)) {
                *picked += 1;
            }
        }
        let mut picked = picked.into_iter();
        for Shortage { lines, types, limit } in shortages {
            let mut wanted = *limit;
            for ((queue, _), picked) in lines.iter().zip(picked.by_ref()) {
                // A queue that gave all that was wanted may have more.
                if picked < wanted {
                    self.claims.exhausted.add(*queue, types);
                }
                wanted = wanted.saturating_sub(picked);
            }
        }
        Ok(())
    }
}

/// One statement for all shortages; `but` are jobs that were fetched before.
fn lines_order<'a>(sql: &'a Statements, shortages: &[Shortage], but: Vec<i64>) -> StatementCall<'a> {
    let (mut queues, mut flat, mut queue_claims) = (Vec::new(), Vec::new(), Vec::new());
    let (mut types, mut type_claims, mut limits) = (Vec::<i64>::new(), Vec::new(), Vec::new());
    for (claim, shortage) in (1_i32..).zip(shortages) {
        for (queue, is_flat) in &shortage.lines {
            queues.push(*queue);
            flat.push(*is_flat);
            queue_claims.push(claim);
        }
        types.extend(&shortage.types);
        type_claims.extend(shortage.types.iter().map(|_| claim));
        limits.push(i64::try_from(shortage.limit).unwrap_or(i64::MAX - OVERSCAN));
    }
    stmt!(sql.claim_lines, queues, flat, queue_claims, types, type_claims, limits, but, OVERSCAN)
}
