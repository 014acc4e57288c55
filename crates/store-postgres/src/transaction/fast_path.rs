//! A transaction in one trip: the rules decide over what the node believes, and the database does it if all of that is so. If anything else would be needed, or
//! was otherwise, the long way is taken.

use std::time::Duration;

use longshore_core::id::Seq;
use longshore_core::time::Timestamp;
use longshore_engine::PayloadSource;
use tokio_postgres::Row;

use super::claim_scan::Claims;
use super::job_columns::JobColumns;
use super::write::{COPY_FROM, CountDeltas, Written, first_in_line};
use super::{Committed, Evaluation, Transaction, totals_of};
use crate::connection::{Blob, Connection, StatementCall, TxBoundary, Value, get};
use crate::error::TxError;
use crate::node::{Shared, TOTALS_QUEUE};
use crate::node_cache::{ReadyPosition, START};
use crate::read_set::ReadSet;
use crate::row::kind_of;
use longshore_store::ErrorMessage;
use longshore_store::{Request, Response};

/// What all requests of a transaction are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Submit,
    /// Claims, settlements and heartbeats.
    FastWork,
}

/// `None`: nothing was done.
pub(crate) async fn take(
    shared: &Shared,
    link: &Connection,
    requests: &[Request],
) -> Result<Option<Committed>, TxError> {
    let Some(kind) = kind_of_all(requests).filter(|_| link.supports_copy()) else { return Ok(None) };
    let begin =
        || Transaction { now: shared.clock.estimate(), ..Transaction::new(shared, link, false, Duration::ZERO) };
    match kind {
        Kind::Submit => {
            let block = shared.believed.block();
            if let Some(done) = begin().fast_submit(requests).await? {
                return Ok(Some(done));
            }
            if shared.believed.block() == block {
                return Ok(None);
            }
            // Somebody else has drawn numbers: now there are new ones.
            begin().fast_submit(requests).await
        }
        Kind::FastWork => begin().fast_work(requests).await,
    }
}

fn kind_of_all(requests: &[Request]) -> Option<Kind> {
    let mut kinds = requests.iter().map(|request| match request {
        Request::Submit(..) => Some(Kind::Submit),
        Request::Claim(..) | Request::Settle(..) | Request::Heartbeat(..) => Some(Kind::FastWork),
        Request::Admin(..) | Request::Tick(..) => None,
    });
    let first = kinds.next()??;
    kinds.all(|kind| kind == Some(first)).then_some(first)
}

impl Transaction<'_> {
    async fn fast_submit(&mut self, requests: &[Request]) -> Result<Option<Committed>, TxError> {
        let jobs: usize = requests.iter().map(Request::commands).sum();
        let elders = !self.job_seqs_of(requests).is_empty() || !self.capacity_limited_queues(requests).is_empty();
        if jobs >= COPY_FROM || elders || !self.catalog_loaded() {
            return Ok(None);
        }
        let numbers = u64::try_from(jobs).unwrap_or(u64::MAX);
        let taken = self.shared.believed.allocate_seqs(numbers);
        // Without a block the call only draws one.
        let (block, first) = taken.unwrap_or((0, 0));
        self.first_seq = Some(first);
        let fetched = ReadSet::default();
        // What goes wrong here goes wrong on the long way, and is told there.
        let Ok((run, wanted)) = self.run(requests, &fetched) else { return Ok(None) };
        if wanted.is_some() || run.engine.next_number() - first > numbers || !run.draft.only_job_rows() {
            return Ok(None);
        }
        let mut sorted = self.sort(&run, &self.known, &fetched)?;
        let inserted = std::mem::take(&mut sorted.inserted);
        if !sorted.is_nothing() {
            return Ok(None);
        }
        let mut values = self.preconditions();
        values.push(Box::new(block.cast_signed()));
        let (mut kinds, mut payloads) = (Vec::with_capacity(jobs), Vec::with_capacity(jobs));
        for source in run.draft.inserted.values() {
            let PayloadSource::Given(payload) = source else { return Ok(None) };
            kinds.push(kind_of(payload));
            payloads.push(Blob(payload.bytes().clone()));
        }
        let (done, counts) = finish(run, sorted.written, self.now);
        let lines = inserted.first_in_lines();
        let Some(newcomers) = inserted.newcomers() else { return Ok(None) };
        values.extend(newcomers);
        values.extend([Box::new(kinds) as Value, Box::new(payloads)]);
        values.extend(counts.values());
        let sql = &self.shared.sql.quick_submit;
        let rows = self
            .link
            .pipeline(&[StatementCall { sql, values }], TxBoundary::SingleStatement)
            .await?
            .pop()
            .unwrap_or_default();
        let Some(answer) = rows.first() else {
            return Err(TxError::Unknown(ErrorMessage("there was no answer".to_owned())));
        };
        if self.applied(answer, 0)? {
            lines.into_iter().for_each(|(line, place)| self.shared.believed.invalidate_if_before(line, place));
            return Ok(Some(done));
        }
        if let Some(block) = get::<Option<i64>>(answer, 2)? {
            self.shared.believed.remember_block(block.cast_unsigned(), 0);
        }
        Ok(None)
    }

    async fn fast_work(&mut self, requests: &[Request]) -> Result<Option<Committed>, TxError> {
        let believed = &self.shared.believed;
        let runs: Vec<Seq> = self.job_seqs_of(requests).into_iter().map(|number| Seq(number.cast_unsigned())).collect();
        self.claims.first_selections(requests, &self.known);
        let claims = !self.claims.is_empty();
        let line = self.single_queue(requests);
        if (claims && line.is_none()) || !believed.knows_runs(&runs) {
            return Ok(None);
        }
        let mut fetched = ReadSet::default();
        if let Some((line, length)) = line {
            // Now and then the whole line is looked at.
            if self.scan_start(line).is_none() && !self.shared.clock.is_virtual() {
                return Ok(None);
            }
            let Some(head) = believed.take_head(line, length) else { return Ok(None) };
            head.into_iter().for_each(|(seq, found)| fetched.add(seq, found));
        }
        let head = fetched.order.clone();
        believed.take_runs(&runs).into_iter().for_each(|(seq, found)| fetched.add(seq, found));
        let Some((done, work, first)) = self.decide(requests, &fetched, line)? else { return Ok(None) };
        let ahead = line.map_or(0, |(line, length)| believed.prefetch_size(line, length, fetched.payload_bytes()));
        let line = line.map(|(line, _)| line);
        let from = line.and_then(|line| self.scan_start(line)).unwrap_or(START);
        let Some(begun) = work.begun.in_order(&head) else { return Ok(None) };
        let runs = begun.runs().into_iter().chain(work.beaten.runs()).collect();
        let mut values = self.preconditions();
        let befores = [&work.ended, &work.beaten, &begun].map(|table| expected_records(table, &fetched));
        let [of_ended, of_beaten, of_begun] = befores.map(|befores| Box::new(befores) as Value);
        values.extend(work.ended.ended());
        values.push(of_ended);
        values.extend(work.beaten.beaten());
        values.push(of_beaten);
        values.push(Box::new(line));
        values.extend([Box::new(from.0) as Value, Box::new(from.1)]);
        values.extend(begun.begun());
        values.push(of_begun);
        values.extend(work.counts.values());
        values.push(Box::new(i64::try_from(ahead).unwrap_or(i64::MAX)));
        let wrong = || line.into_iter().for_each(|line| believed.on_mispredict(line));
        let sql = &self.shared.sql.quick_work;
        let rows = self.link.pipeline(&[StatementCall { sql, values }], TxBoundary::SingleStatement).await;
        let rows = rows.inspect_err(|_| wrong())?.pop().unwrap_or_default();
        let Some((answer, next)) = rows.split_first() else {
            return Err(TxError::Unknown(ErrorMessage("there was no answer".to_owned())));
        };
        if !self.applied(answer, 10)? {
            wrong();
            return Ok(None);
        }
        believed.store_running(runs);
        if let (Some(line), Some(first)) = (line, first) {
            believed.set_scan_start(line, first, None);
        }
        if let Some(line) = line.filter(|_| ahead > 0) {
            believed.store_head(line, next);
        }
        Ok(Some(done))
    }

    /// Asks the rules; `None` where there is more to it than runs that begin, go on, and end.
    fn decide(
        &self,
        requests: &[Request],
        fetched: &ReadSet,
        line: Option<(i32, usize)>,
    ) -> Result<Option<(Committed, FastWork, Option<ReadyPosition>)>, TxError> {
        let Ok((run, wanted)) = self.run(requests, fetched) else { return Ok(None) };
        let served = run.answers.iter().map(claimed).sum::<usize>() == line.map_or(0, |(_, length)| length);
        if wanted.is_some() || !served || run.engine.next_number() > 0 || !run.draft.only_job_rows() {
            return Ok(None);
        }
        let mut sorted = self.sort(&run, &self.known, fetched)?;
        let tables = [&mut sorted.claimed, &mut sorted.ended, &mut sorted.heartbeats].map(std::mem::take);
        if !sorted.is_nothing() {
            return Ok(None);
        }
        let [begun, ended, beaten] = tables;
        // What is not written is not checked: who is refused because of what is only believed may have been right.
        if begun.seq.len() + ended.seq.len() + beaten.seq.len() < fetched.rows.len() {
            return Ok(None);
        }
        let queue = line.and_then(|(line, _)| self.known.name_of(line));
        let first = queue.and_then(|queue| first_in_line(&run, fetched, queue));
        let (done, counts) = finish(run, sorted.written, self.now);
        Ok(Some((done, FastWork { begun, ended, beaten, counts }, first)))
    }

    /// The line that all claims ask first, and how many jobs they want; not where there is a choice to be made.
    pub(super) fn single_queue(&self, requests: &[Request]) -> Option<(i32, usize)> {
        let selections = Claims::default().first_selections(requests, &self.known);
        let wanted: usize = requests.iter().filter(|request| request.is_claim()).map(Request::commands).sum();
        match selections.as_slice() {
            [selection] => selection.whole_line(wanted),
            [] | [_, ..] => None,
        }
    }

    /// Names and queues were read at least once.
    fn catalog_loaded(&self) -> bool {
        self.known.version > 0
    }

    /// What every call has to find as it is.
    fn preconditions(&self) -> Vec<Value> {
        let now = (!self.shared.clock.is_virtual()).then(|| self.now.as_millis());
        vec![Box::new(self.shared.lock_key), Box::new(self.known.version), Box::new(now)]
    }

    /// Whether it was done; in any case the answer says what time it is.
    fn applied(&self, answer: &Row, column: usize) -> Result<bool, TxError> {
        // It may have been done.
        let unknown = |_: TxError| TxError::Unknown(ErrorMessage("an answer that cannot be read".to_owned()));
        self.shared.time_of(get(answer, column + 1).map_err(unknown)?);
        get(answer, column).map_err(unknown)
    }
}

/// The rows that are written, and the counts.
struct FastWork {
    begun: JobColumns,
    ended: JobColumns,
    beaten: JobColumns,
    counts: CountDeltas,
}

fn claimed(answered: &Response) -> usize {
    match answered {
        Response::Claim(Ok(jobs)) => jobs.len(),
        Response::Claim(Err(_))
        | Response::Submit(_)
        | Response::Settle(_)
        | Response::Heartbeat(_)
        | Response::Admin(_)
        | Response::Tick(_) => 0,
    }
}

/// What is answered once it is done, and the counts.
fn finish(run: Evaluation<'_>, mut written: Written, now: Timestamp) -> (Committed, CountDeltas) {
    let mut counts = std::mem::take(&mut written.counts);
    if let Some(totals) = totals_of(&run.effects) {
        counts.put(TOTALS_QUEUE, &totals);
    }
    (run.done(&written, now), counts)
}

/// The records that the rules have seen.
fn expected_records(table: &JobColumns, fetched: &ReadSet) -> Vec<Vec<u8>> {
    let before = |number: &i64| fetched.rows.get(&Seq(number.cast_unsigned())).map(|found| found.record.clone());
    table.seq.iter().map(|number| before(number).unwrap_or_default()).collect()
}
