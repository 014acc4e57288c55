//! Which jobs the claims of a transaction lock.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use longshore_core::id::{JobType, QueueName};
use longshore_engine::ClaimRequest;
use longshore_store::ClaimedJob;
use tokio_postgres::Row;

use super::Transaction;
use crate::catalog::Catalog;
use crate::connection::{StatementCall, get, stmt};
use crate::error::TxError;
use crate::node_cache::{ReadyPosition, START, ScanCoverage};
use crate::request::{TxRequest, TxResponse};
use crate::row::{JobRow, type_hash};
use crate::statements::Statements;

/// Rows of a FIFO queue that are read beyond the limit, because other transactions may have locked
/// the first ones.
const OVERSCAN: i64 = 256;
/// Queues that one statement scans.
const QUEUES_MAX: usize = 10_000;

/// The scan of one queue.
#[derive(Clone, Debug)]
pub(crate) struct ClaimScan {
    queue_id: i32,
    /// Hashes; empty: all types.
    types: Vec<i64>,
    /// The queue is in FIFO order.
    ignores_priority: bool,
    limit: usize,
    from: ReadyPosition,
}

impl ClaimScan {
    pub(crate) fn starting_at(self, start: Option<ReadyPosition>) -> Self {
        Self { from: start.unwrap_or(self.from), ..self }
    }

    pub(crate) fn queue_id(&self) -> i32 {
        self.queue_id
    }

    /// Whether the scan takes exactly the first `jobs` jobs of the queue.
    pub(crate) fn is_head_of(&self, jobs: usize) -> bool {
        !self.ignores_priority && self.types.is_empty() && self.limit == jobs
    }

    pub(crate) fn statement<'a>(&self, sql: &'a Statements) -> StatementCall<'a> {
        let limit = i64::try_from(self.limit).unwrap_or(i64::MAX);
        let (queue_id, types, excluded) = (self.queue_id, self.types.clone(), Vec::<i64>::new());
        match (self.ignores_priority, types.is_empty()) {
            (false, true) => stmt!(sql.claim, queue_id, limit, excluded, self.from.0, self.from.1),
            (false, false) => stmt!(sql.claim_types, queue_id, limit, excluded, types),
            (true, true) => stmt!(sql.claim_fifo, queue_id, limit, excluded, limit + OVERSCAN),
            (true, false) => stmt!(sql.claim_fifo_types, queue_id, limit, excluded, types, limit + OVERSCAN),
        }
    }
}

/// The claims of a transaction, and what is known of their queues.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    any: bool,
    exhausted: ExhaustedQueues,
    pub coverage: ScanCoverage,
}

/// Queues that have no more jobs than were read, by the types of the scan; no types: all.
#[derive(Debug, Default)]
struct ExhaustedQueues(BTreeMap<Vec<i64>, BTreeSet<i32>>);

impl ExhaustedQueues {
    fn add(&mut self, queue_id: i32, types: &[i64]) {
        self.0.entry(types.to_vec()).or_default().insert(queue_id);
    }

    fn contains(&self, queue_id: i32, types: &[i64]) -> bool {
        let has = |types: &[i64]| self.0.get(types).is_some_and(|queues| queues.contains(&queue_id));
        has(types) || has(&[])
    }
}

/// Jobs that claims with the same queues and types lack.
#[derive(Debug)]
pub(crate) struct UnmetClaims {
    /// Queues in the order of the claims, and whether each is in FIFO order.
    queues: Vec<(i32, bool)>,
    types: Vec<i64>,
    limit: usize,
}

fn hashes(types: &[JobType]) -> Vec<i64> {
    let hashes: BTreeSet<i64> = types.iter().map(|job_type| type_hash(job_type.as_str())).collect();
    hashes.into_iter().collect()
}

fn claims(requests: &[TxRequest]) -> impl Iterator<Item = (usize, &ClaimRequest)> {
    requests.iter().enumerate().filter_map(|(index, request)| Some((index, request.claim()?)))
}

impl Claims {
    pub(crate) fn is_empty(&self) -> bool {
        !self.any
    }

    /// Returns one scan per queue that a claim names first. Of claims with different types only the
    /// first is included; the others are served by [`Self::unmet_claims`].
    pub(crate) fn first_scans(&mut self, requests: &[TxRequest], catalog: &Catalog) -> Vec<ClaimScan> {
        let mut scans: BTreeMap<&QueueName, ClaimScan> = BTreeMap::new();
        for (_, claim) in claims(requests) {
            self.any = true;
            let Some(name) = claim.queues.first() else { continue };
            let Some(scan) = scan_of(name, claim, catalog) else { continue };
            match scans.get_mut(name) {
                Some(other) if other.types == scan.types => other.limit += claim.limit,
                Some(_) => {}
                None => drop(scans.insert(name, scan)),
            }
        }
        scans.into_values().collect()
    }

    /// Returns what claims lack and queues may still have. The result is bounded: claims that are
    /// left out follow after the next evaluation.
    pub(crate) fn unmet_claims(
        &self,
        requests: &[TxRequest],
        answers: &[TxResponse],
        catalog: &Catalog,
    ) -> Vec<UnmetClaims> {
        let (mut unmet_claims, mut queues_total) = (Vec::<UnmetClaims>::new(), 0);
        let mut indexes = HashMap::new();
        for (index, claim) in claims(requests) {
            let Some(claimed) = answers.get(index).and_then(TxResponse::claimed) else { continue };
            let bytes = claimed.iter().map(ClaimedJob::delivered_bytes).sum();
            let missing = claim.limit.saturating_sub(claimed.len());
            if claim.is_met(claimed.len(), bytes) || queues_total >= QUEUES_MAX {
                continue;
            }
            let types = hashes(&claim.types);
            let queues = claim.queues.iter().filter_map(|name| claimable_queue(name, catalog));
            let queues: Vec<_> = queues.filter(|(queue_id, _)| !self.exhausted.contains(*queue_id, &types)).collect();
            if queues.is_empty() {
                continue;
            }
            let next = unmet_claims.len();
            let index = *indexes.entry((queues.clone(), types.clone())).or_insert(next);
            if let Some(same) = unmet_claims.get_mut(index) {
                same.limit += missing;
            } else {
                queues_total += queues.len();
                unmet_claims.push(UnmetClaims { queues, types, limit: missing });
            }
        }
        unmet_claims
    }
}

/// Returns the id of a queue that can be claimed from, and whether it is in FIFO order.
fn claimable_queue(name: &QueueName, catalog: &Catalog) -> Option<(i32, bool)> {
    let queue = catalog.queues.get(name).filter(|queue| !queue.paused && queue.deleting.is_none())?;
    Some((catalog.queue_id(name)?, !queue.admission.priority_order))
}

fn scan_of(name: &QueueName, claim: &ClaimRequest, catalog: &Catalog) -> Option<ClaimScan> {
    let (queue_id, ignores_priority) = claimable_queue(name, catalog)?;
    let limit = claim.limit.min(10_000);
    Some(ClaimScan { queue_id, types: hashes(&claim.types), ignores_priority, limit, from: START })
}

impl Transaction<'_> {
    /// Adds the rows that a scan has locked.
    pub(super) fn add_claimable(&mut self, scan: &ClaimScan, rows: &[Row]) -> Result<(), TxError> {
        if scan.from == START {
            self.claims.coverage.full = true;
            if rows.len() < scan.limit {
                self.claims.exhausted.add(scan.queue_id, &scan.types);
            }
        } else {
            self.claims.coverage.partial = true;
        }
        for row in rows {
            let (seq, row) = JobRow::scanned(row)?;
            self.read_set.add(seq, row);
        }
        Ok(())
    }

    /// Locks jobs for unmet claims, from all their queues in one round trip. Each call adds jobs or
    /// exhausts queues.
    pub(super) async fn fetch_more_claims(&mut self, unmet_claims: &[UnmetClaims]) -> Result<(), TxError> {
        let excluded = super::numbers(self.read_set.order.iter().copied());
        let rows = self.connection.query(claim_queues(&self.node.sql, unmet_claims, excluded)).await?;
        self.claims.coverage.full = true;
        let mut locked = vec![0_usize; unmet_claims.iter().map(|unmet| unmet.queues.len()).sum()];
        for row in &rows {
            let (seq, job) = JobRow::scanned(row)?;
            self.read_set.add(seq, job);
            let index = usize::try_from(get::<i32>(row, 11)?).ok().and_then(|index| index.checked_sub(1));
            if let Some(locked) = index.and_then(|index| locked.get_mut(index)) {
                *locked += 1;
            }
        }
        let mut locked = locked.into_iter();
        for UnmetClaims { queues, types, limit } in unmet_claims {
            let mut missing = *limit;
            for ((queue_id, _), locked) in queues.iter().zip(locked.by_ref()) {
                // A queue that had all missing jobs may have more.
                if locked < missing {
                    self.claims.exhausted.add(*queue_id, types);
                }
                missing = missing.saturating_sub(locked);
            }
        }
        Ok(())
    }
}

/// One statement for all unmet_claims. `excluded` are jobs that were read before.
fn claim_queues<'a>(sql: &'a Statements, unmet_claims: &[UnmetClaims], excluded: Vec<i64>) -> StatementCall<'a> {
    let (mut queue_ids, mut fifo, mut queue_claims) = (Vec::new(), Vec::new(), Vec::new());
    let (mut types, mut type_claims, mut limits) = (Vec::<i64>::new(), Vec::new(), Vec::new());
    for (claim, unmet) in (1_i32..).zip(unmet_claims) {
        for (queue_id, is_fifo) in &unmet.queues {
            queue_ids.push(*queue_id);
            fifo.push(*is_fifo);
            queue_claims.push(claim);
        }
        types.extend(&unmet.types);
        type_claims.extend(unmet.types.iter().map(|_| claim));
        limits.push(i64::try_from(unmet.limit).unwrap_or(i64::MAX - OVERSCAN));
    }
    stmt!(sql.claim_queues, queue_ids, fifo, queue_claims, types, type_claims, limits, excluded, OVERSCAN)
}
