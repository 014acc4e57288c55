//! A transaction in one trip: the rules decide over what the node believes, and the database does it if all of that is so. If anything else would be needed, or
//! was otherwise, the long way is taken.

use longshore_core::engine::PayloadSource;
use longshore_core::id::Seq;
use tokio_postgres::Row;

use super::claims::Claims;
use super::table::Table;
use super::write::{COPY_FROM, Counts, Sorted};
use super::{Done, Run, Turn, totals_of};
use crate::error::Trouble;
use crate::fetched::Fetched;
use crate::link::{Blob, Bounds, Link, Order, Value, get};
use crate::request::{Answered, Request};
use crate::row::{Found, kind_of};
use crate::shared::{Shared, TOTALS_QUEUE};

/// What all requests of a transaction are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Submit,
    Claim,
    /// Settlements and heartbeats.
    Settle,
}

/// `None`: nothing was done.
pub(crate) async fn take(shared: &Shared, link: &Link, requests: &[Request]) -> Result<Option<Done>, Trouble> {
    let Some(kind) = kind_of_all(requests).filter(|_| link.copies()) else { return Ok(None) };
    let mut turn = Turn::new(shared, link, false);
    turn.now = shared.clock.now();
    match kind {
        Kind::Submit => {
            if let Some(done) = turn.submit_quickly(requests).await? {
                return Ok(Some(done));
            }
            // Somebody else has drawn numbers: now there are new ones.
            let mut turn = Turn::new(shared, link, false);
            turn.now = shared.clock.now();
            turn.submit_quickly(requests).await
        }
        Kind::Claim => turn.claim_quickly(requests).await,
        Kind::Settle => turn.settle_quickly(requests).await,
    }
}

fn kind_of_all(requests: &[Request]) -> Option<Kind> {
    let mut kinds = requests.iter().map(|request| match request {
        Request::Submit(..) => Some(Kind::Submit),
        Request::Claim(..) => Some(Kind::Claim),
        Request::Settle(..) | Request::Extend(..) => Some(Kind::Settle),
        Request::Admin(..) | Request::Tick(..) => None,
    });
    let first = kinds.next()??;
    kinds.all(|kind| kind == Some(first)).then_some(first)
}

impl Turn<'_> {
    async fn submit_quickly(&mut self, requests: &[Request]) -> Result<Option<Done>, Trouble> {
        let jobs: usize = requests.iter().map(Request::commands).sum();
        let elders = !self.rows_of(requests).is_empty() || !self.bounded_queues(requests).is_empty();
        if jobs >= COPY_FROM || elders || !self.known_as_it_is() {
            return Ok(None);
        }
        let numbers = u64::try_from(jobs).unwrap_or(u64::MAX);
        let taken = self.shared.believed.take_numbers(numbers);
        // Without a block the call only draws one.
        let (block, first) = taken.unwrap_or((0, 0));
        self.first_number = Some(first);
        let fetched = Fetched::default();
        // What goes wrong here goes wrong on the long way, and is told there.
        let Ok((run, wanted)) = self.run(requests, &fetched) else { return Ok(None) };
        if wanted.is_some() || run.engine.next_number() - first > numbers || !run.draft.nothing_but_jobs() {
            return Ok(None);
        }
        let Some(sorted) = self.sort_for(&run, &fetched, |sorted| &mut sorted.inserted)? else { return Ok(None) };
        let mut values = self.beliefs();
        values.push(Box::new(block.cast_signed()));
        let (mut kinds, mut payloads) = (Vec::with_capacity(jobs), Vec::with_capacity(jobs));
        for source in run.draft.inserted.values() {
            let PayloadSource::Given(payload) = source else { return Ok(None) };
            kinds.push(kind_of(payload));
            payloads.push(Blob(payload.bytes().clone()));
        }
        let (done, table, counts) = finish(run, sorted, |sorted| std::mem::take(&mut sorted.inserted), self.now);
        values.extend(table.whole());
        values.extend([Box::new(kinds) as Value, Box::new(payloads)]);
        values.extend(counts.values());
        let sql = &self.shared.sql.quick_submit;
        let rows = self.link.travel(&[Order { sql, values }], Bounds::Whole).await?.pop().unwrap_or_default();
        let Some(answer) = rows.first() else { return Err(Trouble::Damaged("an answer".to_owned())) };
        if self.good(answer, 0)? {
            return Ok(Some(done));
        }
        if let Some(block) = get::<Option<i64>>(answer, 2)? {
            self.shared.believed.remember_block(block.cast_unsigned(), 0);
        }
        Ok(None)
    }

    async fn claim_quickly(&mut self, requests: &[Request]) -> Result<Option<Done>, Trouble> {
        let Some((line, length)) = self.only_line(requests) else { return Ok(None) };
        let believed = &self.shared.believed;
        let Some(head) = believed.take_head(line, length) else { return Ok(None) };
        self.claims.first_selections(requests, &self.known);
        let mut fetched = Fetched::default();
        for (seq, found) in head {
            fetched.add(seq, found);
        }
        let Ok((run, wanted)) = self.run(requests, &fetched) else { return Ok(None) };
        let all = run.answers.iter().map(claimed).sum::<usize>() == length;
        if wanted.is_some() || !all || run.engine.next_number() > 0 || !run.draft.nothing_but_jobs() {
            return Ok(None);
        }
        let Some(sorted) = self.sort_for(&run, &fetched, |sorted| &mut sorted.begun)? else { return Ok(None) };
        let ahead = believed.worth_looking(line, length, fetched.payload_bytes());
        let (done, table, counts) = finish(run, sorted, |sorted| std::mem::take(&mut sorted.begun), self.now);
        let Some(table) = table.in_order(&fetched.order) else { return Ok(None) };
        let runs = table.runs();
        let mut values = self.beliefs();
        values.push(Box::new(line));
        let befores = befores(&table, &fetched);
        values.extend(table.begun());
        values.push(Box::new(befores));
        values.extend(counts.values());
        values.push(Box::new(i64::try_from(ahead).unwrap_or(i64::MAX)));
        let sql = &self.shared.sql.quick_claim;
        let rows = self.link.travel(&[Order { sql, values }], Bounds::Whole).await;
        let rows = rows.inspect_err(|_| believed.was_wrong_about(line))?.pop().unwrap_or_default();
        let Some((answer, next)) = rows.split_first() else { return Err(Trouble::Damaged("an answer".to_owned())) };
        if !self.good(answer, 10)? {
            believed.was_wrong_about(line);
            return Ok(None);
        }
        believed.remember_runs(runs);
        if ahead > 0 {
            believed.remember_head(line, next.iter().map(Found::claimable).collect::<Result<_, _>>()?);
        }
        Ok(Some(done))
    }

    async fn settle_quickly(&mut self, requests: &[Request]) -> Result<Option<Done>, Trouble> {
        let believed = &self.shared.believed;
        let wanted: Vec<Seq> = self.rows_of(requests).into_iter().map(|number| Seq(number.cast_unsigned())).collect();
        let Some(runs) = believed.take_runs(&wanted) else { return Ok(None) };
        let mut fetched = Fetched::default();
        for (seq, found) in runs {
            fetched.add(seq, found);
        }
        let Ok((run, wanted)) = self.run(requests, &fetched) else { return Ok(None) };
        if wanted.is_some() || run.engine.next_number() > 0 || !run.draft.nothing_but_jobs() {
            return Ok(None);
        }
        let mut sorted = self.sort(&run, &self.known, &fetched)?;
        let (ended, beaten) = (std::mem::take(&mut sorted.ended), std::mem::take(&mut sorted.beaten));
        if !sorted.is_nothing() {
            return Ok(None);
        }
        let (done, _, counts) = finish(run, sorted, |_| Table::default(), self.now);
        let runs = beaten.runs();
        let mut values = self.beliefs();
        let (of_ended, of_beaten) = (befores(&ended, &fetched), befores(&beaten, &fetched));
        values.extend(ended.ended());
        values.push(Box::new(of_ended));
        values.extend(beaten.beaten());
        values.push(Box::new(of_beaten));
        values.extend(counts.values());
        let sql = &self.shared.sql.quick_settle;
        let rows = self.link.travel(&[Order { sql, values }], Bounds::Whole).await?.pop().unwrap_or_default();
        let Some(answer) = rows.first() else { return Err(Trouble::Damaged("an answer".to_owned())) };
        if !self.good(answer, 0)? {
            return Ok(None);
        }
        believed.remember_runs(runs);
        Ok(Some(done))
    }

    /// The line that all claims ask first, and how many jobs they want; not where there is a choice to be made.
    pub(super) fn only_line(&self, requests: &[Request]) -> Option<(i32, usize)> {
        let selections = Claims::default().first_selections(requests, &self.known);
        let wanted: usize = requests.iter().map(Request::commands).sum();
        match selections.as_slice() {
            [selection] => selection.whole_line(wanted),
            [] | [_, ..] => None,
        }
    }

    /// Names and queues were read at least once.
    fn known_as_it_is(&self) -> bool {
        self.known.version > 0
    }

    /// What every call has to find as it is.
    fn beliefs(&self) -> Vec<Value> {
        let now = (!self.shared.clock.is_virtual()).then(|| self.now.as_millis());
        vec![Box::new(self.shared.lock_key), Box::new(self.known.version), Box::new(now)]
    }

    /// Whether it was done; in any case the answer says what time it is.
    fn good(&self, answer: &Row, column: usize) -> Result<bool, Trouble> {
        self.shared.time_of(get(answer, column + 1)?);
        get(answer, column)
    }

    /// Everything that changes is of one kind.
    fn sort_for(
        &self,
        run: &Run<'_>,
        fetched: &Fetched,
        kind: impl Fn(&mut Sorted) -> &mut Table,
    ) -> Result<Option<Sorted>, Trouble> {
        let mut sorted = self.sort(run, &self.known, fetched)?;
        let wanted = std::mem::take(kind(&mut sorted));
        let nothing_else = sorted.is_nothing();
        *kind(&mut sorted) = wanted;
        Ok(nothing_else.then_some(sorted))
    }
}

fn claimed(answered: &Answered) -> usize {
    match answered {
        Answered::Claim(Ok(jobs)) => jobs.len(),
        Answered::Claim(Err(_))
        | Answered::Submit(_)
        | Answered::Settle(_)
        | Answered::Extend(_)
        | Answered::Admin(_)
        | Answered::Tick(_) => 0,
    }
}

/// What is answered once it is done, the rows, and the counts.
fn finish(
    run: Run<'_>,
    mut sorted: Sorted,
    rows: impl Fn(&mut Sorted) -> Table,
    now: longshore_core::time::Timestamp,
) -> (Done, Table, Counts) {
    let table = rows(&mut sorted);
    let mut counts = std::mem::take(&mut sorted.written.counts);
    if let Some(totals) = totals_of(&run.effects) {
        counts.put(TOTALS_QUEUE, &totals);
    }
    (run.done(&sorted.written, now), table, counts)
}

/// The records that the rules have seen.
fn befores(table: &Table, fetched: &Fetched) -> Vec<Vec<u8>> {
    let before = |number: &i64| fetched.rows.get(&Seq(number.cast_unsigned())).map(|found| found.record.clone());
    table.seq.iter().map(|number| before(number).unwrap_or_default()).collect()
}
