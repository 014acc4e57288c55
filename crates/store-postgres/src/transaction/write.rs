//! Writing what the rules have changed, in one trip with the commit. Every write finds its rows as they were read, or the transaction fails.

use std::collections::BTreeMap;

use longshore_codec::codec;
use longshore_core::engine::{KeyEntry, PayloadSource, Queue, ordering};
use longshore_core::id::{QueueName, Seq};
use longshore_core::job::Job;
use longshore_core::policy::{IdempotencyScope, SubmitMode};
use longshore_core::state::StateKind;
use longshore_core::time::Timestamp;
use longshore_store::query::IndexedFields;
use tokio_postgres::types::{ToSql, Type};

use super::claim_scan::Looks;
use super::job_columns::Table;
use super::{Done, Orders, Run, Turn, totals_of};
use crate::catalog::Known;
use crate::connection::{Blob, Bounds, Value, order};
use crate::error::Trouble;
use crate::node::TOTALS_QUEUE;
use crate::node_cache::Place;
use crate::read_set::Fetched;
use crate::request::Request;
use crate::row::{Columns, Found, Origin, kind_of, number_of, still_offered};
use crate::statements::Statements;
use crate::working_set::Draft;

/// Places of the counts: one for each state, and the held ones.
const COUNTS: usize = StateKind::COUNT + 1;

/// From so many new jobs on a COPY is quicker than its round trips.
pub(super) const COPY_FROM: usize = 100;

/// Sums of what changed, by queue.
#[derive(Default)]
pub(super) struct Counts(BTreeMap<i32, [i64; COUNTS]>);

impl Counts {
    fn add(&mut self, queue: i32, state: StateKind, held: bool, sign: i64) {
        let of_queue = self.0.entry(queue).or_insert([0; COUNTS]);
        if let Some(count) = of_queue.get_mut(state as usize) {
            *count += sign;
        }
        if held && let Some(count) = of_queue.last_mut() {
            *count += sign;
        }
    }

    /// Numbers that are counted like those of a queue.
    pub(super) fn put(&mut self, queue: i32, numbers: &[i64]) {
        let of_queue = self.0.entry(queue).or_insert([0; COUNTS]);
        of_queue.iter_mut().zip(numbers).for_each(|(count, number)| *count += number);
    }

    /// Queues, and all their numbers one after the other.
    pub(super) fn values(self) -> [Value; 2] {
        let changed: Vec<_> = self.0.into_iter().filter(|(_, of)| of.iter().any(|change| *change != 0)).collect();
        let queues: Vec<i32> = changed.iter().map(|(queue, _)| *queue).collect();
        let changes: Vec<i64> = changed.into_iter().flat_map(|(_, of)| of).collect();
        [Box::new(queues), Box::new(changes)]
    }
}

/// The rows that a transaction writes, by what is done to them.
#[derive(Default)]
pub(super) struct Sorted {
    pub inserted: Table,
    pub updated: Table,
    pub beaten: Table,
    pub begun: Table,
    pub ended: Table,
    unarchived: Vec<i64>,
    pub written: Written,
}

impl Sorted {
    /// No rows are written.
    pub(super) fn is_nothing(&self) -> bool {
        let Self { inserted, updated, beaten, begun, ended, unarchived, written: _ } = self;
        unarchived.is_empty() && [inserted, updated, beaten, begun, ended].iter().all(|table| table.seq.is_empty())
    }
}

impl Turn<'_> {
    pub(super) async fn write(
        self,
        requests: &[Request],
        mut run: Run<'_>,
        fetched: &Fetched,
    ) -> Result<Done, Trouble> {
        let mut known = std::sync::Arc::clone(&self.known);
        let mut orders = Vec::new();
        let changes_queues = !run.draft.queues.is_empty();
        if changes_queues {
            let names = std::mem::take(&mut run.draft.names);
            known = Known { names, queues: run.engine.all_queues().clone(), ..Known::clone(&self.known) }.into();
            self.write_queues(&run.draft, &known, &mut orders)?;
        }
        let sorted = self.sort(&run, &known, fetched)?;
        let newcomers: Vec<_> =
            [&sorted.updated, &sorted.inserted].into_iter().flat_map(Table::first_in_lines).collect();
        let over: Vec<i64> = [&sorted.updated, &sorted.ended].into_iter().flat_map(|table| table.seq.clone()).collect();
        let runs: Vec<_> = [&sorted.begun, &sorted.beaten].into_iter().flat_map(Table::runs).collect();
        let (inserted, mut written) = write_jobs(sorted, &mut orders, &self.shared.sql);
        self.insert(inserted, &run.draft, &mut orders).await?;
        self.write_removals(&run.draft, &known, fetched, &mut orders, &mut written);
        self.write_tags_and_links(&run.draft, &known, &mut orders);
        self.write_keys(&run.draft, fetched, &mut orders);
        self.write_workflows(&run.draft.workflows, fetched, &mut orders);
        let sql = &self.shared.sql;
        for (queue, changes) in std::mem::take(&mut written.counts.0) {
            if changes.iter().any(|change| *change != 0) {
                orders.push(order!(sql.add_counts, queue, changes.to_vec()));
            }
        }
        if let Some(totals) = totals_of(&run.effects) {
            orders.push(order!(sql.add_counts, TOTALS_QUEUE, totals));
        }
        let line = self.only_line(requests).filter(|_| self.link.copies());
        let first = line.and_then(|(line, _)| Some((line, first_in_line(&run, fetched, known.name_of(line)?)?)));
        let ahead = line.map_or(0, |(line, wanted)| self.look_ahead(line, wanted, fetched));
        if let Some((line, place)) = first.filter(|_| ahead > 0) {
            orders.push(order!(sql.look, line, ahead, place.0, place.1));
        }
        let mut answers = self.link.travel(&orders, Bounds::Commit).await?;
        if changes_queues {
            let mut known = Known::clone(&known);
            known.names.committed();
            known.version += 1;
            self.shared.publish_known(known);
        }
        let believed = &self.shared.believed;
        believed.forget_runs(&over);
        believed.remember_runs(runs);
        newcomers.into_iter().for_each(|(line, place)| believed.comes_to(line, place));
        if let Some((line, place)) = first {
            match self.claims.looks {
                Looks { whole: true, partial: false } => believed.begins_at(line, place, Some(self.now)),
                Looks { whole: false, .. } => believed.begins_at(line, place, None),
                // There was somebody before the place from which the line was looked at first.
                Looks { whole: true, partial: true } => believed.forget_line(line),
            }
            if ahead > 0
                && let Some(rows) = answers.pop()
            {
                believed.remember_head(line, &rows);
            }
        }
        if let Some(first) = self.first_number {
            believed.remember_block(first, run.engine.next_number() - first);
        }
        Ok(run.done(&written, self.now))
    }

    /// How much of what comes next in the line is looked at, so that the next claim knows it.
    fn look_ahead(&self, line: i32, wanted: usize, fetched: &Fetched) -> i64 {
        // Who was not served in full has seen the end of the line.
        let all = fetched.order.len() >= wanted;
        let ahead = if all { self.shared.believed.worth_looking(line, wanted, fetched.payload_bytes()) } else { 0 };
        i64::try_from(ahead).unwrap_or(0)
    }

    fn write_queues<'o>(&'o self, draft: &Draft<'_>, known: &Known, orders: &mut Orders<'o>) -> Result<(), Trouble> {
        let sql = &self.shared.sql;
        for (kind, number, value) in known.names.unsaved() {
            let (number, value) = (i32::try_from(number).unwrap_or(i32::MAX), value.ok_or(Trouble::NotStorable)?);
            if kind == 0 {
                let name = String::from_utf8(value).map_err(|_| Trouble::NotStorable)?;
                orders.push(order!(sql.add_name, number, name));
            } else {
                orders.push(order!(sql.add_policy, number, value));
            }
        }
        for (name, queue) in &draft.queues {
            let number = known.number_of(name).ok_or(Trouble::NotStorable)?;
            match queue {
                Some(queue) => {
                    let record = codec::policy::encode_queue(queue).map_err(|_| Trouble::NotStorable)?;
                    let policy = known.names.policy_number(&queue.policy).ok_or(Trouble::NotStorable)?;
                    orders.push(order!(sql.put_queue, number, record, intake_of(queue, policy)));
                }
                None => orders.push(order!(sql.remove_queue, number)),
            }
        }
        orders.push(order!(sql.bump_version));
        Ok(())
    }

    pub(super) fn sort(&self, run: &Run<'_>, known: &Known, fetched: &Fetched) -> Result<Sorted, Trouble> {
        let mut sorted = Sorted::default();
        let Sorted { inserted, updated, beaten, begun, ended, unarchived, written } = &mut sorted;
        let told_more = |(seq, found): (&Seq, &Found)| (told(run, *seq) != found.told).then_some(*seq);
        let mut changed = run.draft.changed.clone();
        changed.extend(fetched.rows.iter().filter(|(seq, _)| run.draft.job(**seq).is_some()).filter_map(told_more));
        for seq in &changed {
            let Some(job) = run.draft.job(*seq) else { continue };
            let (found, told) = (fetched.rows.get(seq), told(run, *seq));
            let offered = run.engine.is_reclaimable(job)
                || found.is_some_and(|found| found.offered() && still_offered(job, self.now));
            let columns = Columns::of(job, ordering(job, offered));
            let record = codec::job::encode_unpadded(job, &known.names).ok_or(Trouble::NotStorable)?;
            let queue = known.number_of(&job.queue).ok_or(Trouble::NotStorable)?;
            written.count(queue, job, run.draft.before.get(seq));
            written.note(&columns);
            match found {
                None => inserted.push((*seq, queue), &columns, told, record, None),
                Some(found) if found.origin == Origin::Archive => {
                    unarchived.push(seq.0.cast_signed());
                    inserted.push((*seq, queue), &columns, told, record, None);
                }
                Some(found) if beats(job, found, &columns) && same_words(&run.draft, job) => {
                    beaten.push((*seq, queue), &columns, told, record, Some(found));
                }
                Some(found) if begins(found, &columns) => {
                    begun.push((*seq, queue), &columns, told, record, Some(found));
                }
                Some(found) if ends(found, &columns) && told.is_none() => {
                    ended.push((*seq, queue), &columns, told, record, Some(found));
                }
                Some(found) => updated.push((*seq, queue), &columns, told, record, Some(found)),
            }
        }
        self.correct_timers(run, known, fetched, updated)?;
        Ok(sorted)
    }

    /// New jobs and their payloads: few go with the rest, many before it.
    async fn insert<'o>(&'o self, inserted: Table, draft: &Draft<'_>, orders: &mut Orders<'o>) -> Result<(), Trouble> {
        let sql = &self.shared.sql;
        if inserted.seq.len() < COPY_FROM || !self.link.copies() || !orders.is_empty() {
            inserted.insert(orders, sql);
            self.write_payloads(draft, orders);
            return Ok(());
        }
        inserted.copy(self.link, sql).await?;
        let mut payloads = Vec::with_capacity(draft.inserted.len());
        for (seq, source) in &draft.inserted {
            match source {
                PayloadSource::Given(payload) => {
                    payloads.push((seq.0.cast_signed(), kind_of(payload), Blob(payload.bytes().clone())));
                }
                PayloadSource::CopyOf(original) => {
                    orders.push(order!(sql.copy_payload, seq.0.cast_signed(), original.0.cast_signed()));
                }
            }
        }
        let rows = payloads.iter().map(|(seq, kind, bytes)| vec![seq as &(dyn ToSql + Sync), kind, bytes]);
        self.link.copy(&sql.copy_payloads, &[Type::INT8, Type::INT2, Type::BYTEA], rows).await
    }

    /// Rows that a tick has found too early: heartbeats have moved their timers.
    fn correct_timers(
        &self,
        run: &Run<'_>,
        known: &Known,
        fetched: &Fetched,
        updated: &mut Table,
    ) -> Result<(), Trouble> {
        for (seq, found) in &fetched.rows {
            let (Some(job), Some((due_at, _))) = (run.draft.job(*seq), found.due) else { continue };
            let unchanged =
                found.origin == Origin::Jobs && !run.draft.changed.contains(seq) && told(run, *seq) == found.told;
            if !unchanged || due_at > self.now.as_millis() {
                continue;
            }
            let offered = found.offered() && still_offered(job, self.now);
            let columns = Columns::of(job, ordering(job, offered));
            if columns.due != found.due {
                let queue = known.number_of(&job.queue).ok_or(Trouble::NotStorable)?;
                updated.push((*seq, queue), &columns, found.told, found.record.clone(), Some(found));
            }
        }
        Ok(())
    }

    fn write_payloads<'o>(&'o self, draft: &Draft<'_>, orders: &mut Orders<'o>) {
        let sql = &self.shared.sql;
        let (mut seqs, mut kinds, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
        for (seq, source) in &draft.inserted {
            match source {
                PayloadSource::Given(payload) => {
                    seqs.push(seq.0.cast_signed());
                    kinds.push(kind_of(payload));
                    bytes.push(Blob(payload.bytes().clone()));
                }
                PayloadSource::CopyOf(original) => {
                    orders.push(order!(sql.copy_payload, seq.0.cast_signed(), original.0.cast_signed()));
                }
            }
        }
        if !seqs.is_empty() {
            orders.push(order!(sql.insert_payloads, seqs, kinds, bytes));
        }
    }

    fn write_removals<'o>(
        &'o self,
        draft: &Draft<'_>,
        known: &Known,
        fetched: &Fetched,
        orders: &mut Orders<'o>,
        written: &mut Written,
    ) {
        let sql = &self.shared.sql;
        let (mut gone, mut queues, mut names, mut named) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (mut dependencies, mut dependents) = (Vec::new(), Vec::new());
        for (seq, job) in &draft.removed {
            // One that was never stored leaves nothing.
            let (Some(_), Some(before)) = (fetched.rows.get(seq), draft.before.get(seq)) else { continue };
            let number = known.number_of(&job.queue).unwrap_or(-1);
            written.counts.add(number, before.state, before.held, -1);
            gone.push(seq.0.cast_signed());
            if let Some(external_id) = &job.external_id {
                queues.push(number);
                names.push(external_id.to_string());
                named.push(seq.0.cast_signed());
            }
            for dependency in job.dependencies.all() {
                dependencies.push(known.seal.decrypt(dependency).0.cast_signed());
                dependents.push(seq.0.cast_signed());
            }
        }
        if gone.is_empty() {
            return;
        }
        let rows = i64::try_from(gone.len()).unwrap_or(i64::MAX);
        orders.push(order!(sql.remove_jobs, gone, rows));
        if !named.is_empty() {
            orders.push(order!(sql.remove_external_ids, queues, names, named));
        }
        if !dependents.is_empty() {
            orders.push(order!(sql.remove_edges, dependencies, dependents));
        }
    }

    fn write_tags_and_links<'o>(&'o self, draft: &Draft<'_>, known: &Known, orders: &mut Orders<'o>) {
        let sql = &self.shared.sql;
        let (mut old, mut new) = ((Vec::new(), Vec::new()), (Vec::new(), Vec::new()));
        let mut external: (Vec<i32>, Vec<String>, Vec<i64>) = Default::default();
        for seq in draft.changed.iter().chain(draft.removed.keys()) {
            let (after, before) = (draft.job(*seq), draft.before.get(seq).map(|before| &before.indexed));
            if after.is_some_and(|job| before.is_some_and(|before| before.are_those_of(job))) {
                continue;
            }
            let before = before.map(IndexedFields::words).unwrap_or_default();
            let after = after.map(|job| IndexedFields::of(job).words()).unwrap_or_default();
            for (from, without, (words, seqs)) in [(&before, &after, &mut old), (&after, &before, &mut new)] {
                for word in from.difference(without) {
                    words.push(word.clone());
                    seqs.push(seq.0.cast_signed());
                }
            }
        }
        for seq in draft.inserted.keys() {
            let Some(job) = draft.job(*seq) else { continue };
            if let Some(external_id) = &job.external_id {
                external.0.push(known.number_of(&job.queue).unwrap_or(-1));
                external.1.push(external_id.to_string());
                external.2.push(seq.0.cast_signed());
            }
        }
        if !old.0.is_empty() {
            orders.push(order!(sql.remove_tags, old.0, old.1));
        }
        if !new.0.is_empty() {
            orders.push(order!(sql.insert_tags, new.0, new.1));
        }
        if !external.0.is_empty() {
            let rows = i64::try_from(external.0.len()).unwrap_or(i64::MAX);
            orders.push(order!(sql.insert_external_ids, external.0, external.1, external.2, rows));
        }
        if !draft.unlinks.is_empty() {
            let (from, to): (Vec<i64>, Vec<i64>) =
                draft.unlinks.iter().map(|(from, to)| (from.0.cast_signed(), to.0.cast_signed())).unzip();
            orders.push(order!(sql.remove_edges, from, to));
        }
        if !draft.links.is_empty() {
            let (from, to): (Vec<i64>, Vec<i64>) =
                draft.links.iter().map(|(from, to)| (from.0.cast_signed(), to.0.cast_signed())).unzip();
            orders.push(order!(sql.insert_edges, from, to));
        }
    }

    fn write_keys<'o>(&'o self, draft: &Draft<'_>, fetched: &Fetched, orders: &mut Orders<'o>) {
        let sql = &self.shared.sql;
        let (mut new, mut changed, mut gone) = (Keys::default(), Keys::default(), Vec::new());
        for (path, entry) in &draft.keys {
            let before = fetched.keys.get(path).copied().flatten();
            match (before, entry) {
                (None, Some(entry)) => new.push(codec::key::encode(path), entry, None),
                (Some(before), Some(entry)) => changed.push(codec::key::encode(path), entry, Some(before.seq)),
                (Some(_), None) => gone.push(codec::key::encode(path)),
                (None, None) => {}
            }
        }
        let count = |keys: &Keys| i64::try_from(keys.paths.len()).unwrap_or(i64::MAX);
        if !new.paths.is_empty() {
            let rows = count(&new);
            orders.push(order!(sql.insert_keys, new.paths, new.seqs, new.ids, new.ats, new.purges, rows));
        }
        if !changed.paths.is_empty() {
            let (rows, Keys { paths, seqs, ids, ats, purges, was }) = (count(&changed), changed);
            orders.push(order!(sql.update_keys, paths, seqs, ids, ats, purges, was, rows));
        }
        if !gone.is_empty() {
            orders.push(order!(sql.remove_keys, gone));
        }
    }
}

#[derive(Default)]
struct Keys {
    paths: Vec<Vec<u8>>,
    seqs: Vec<i64>,
    ids: Vec<Vec<u8>>,
    ats: Vec<i64>,
    purges: Vec<Option<i64>>,
    was: Vec<i64>,
}

impl Keys {
    fn push(&mut self, path: Vec<u8>, entry: &KeyEntry, was: Option<Seq>) {
        self.paths.push(path);
        self.seqs.push(entry.seq.0.cast_signed());
        self.ids.push(entry.id.as_bytes().to_vec());
        self.ats.push(entry.at.as_millis());
        self.purges.push(entry.prune_at.map(Timestamp::as_millis));
        self.was.extend(was.map(|seq| seq.0.cast_signed()));
    }
}

/// What is known of a transaction once all is written.
#[derive(Default)]
pub(super) struct Written {
    pub counts: Counts,
    pub deadline: Option<i64>,
    pub over: bool,
}

impl Written {
    fn count(&mut self, queue: i32, job: &Job, before: Option<&crate::working_set::Before>) {
        if let Some(before) = before {
            self.counts.add(queue, before.state, before.held, -1);
        }
        self.counts.add(queue, job.kind(), job.state.held(), 1);
    }

    fn note(&mut self, columns: &Columns) {
        let due = columns.due.map(|(at, _)| at);
        self.deadline = self.deadline.into_iter().chain(due).min();
        self.over |= columns.over;
    }
}

/// Whether the run goes on under the same lease: then a timer that comes later may stay where it is, and nothing but the record is written.
fn beats(job: &Job, found: &Found, columns: &Columns) -> bool {
    let running = number_of(StateKind::Running);
    let same_lease = found.state == running && columns.state == running && found.lease_version == columns.lease_version;
    let later = match (found.due, columns.due) {
        (Some(found), Some(due)) => found.0 <= due.0,
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    };
    same_lease
        && later
        && found.place.is_none()
        && columns.place.is_none()
        && job.pending_propagation == longshore_core::dependency::PendingPropagation::Nothing
}

/// Where the first of those stands that were found in a line.
pub(super) fn first_in_line(run: &Run<'_>, fetched: &Fetched, queue: &QueueName) -> Option<Place> {
    let place = |(seq, found): (&Seq, &Found)| {
        let job = run.draft.job(*seq).filter(|job| job.queue == *queue)?;
        Some((i16::from(job.effective_priority().level()), found.place?))
    };
    fetched.rows.iter().filter_map(place).min()
}

/// Answers the new ones, which take their own way.
fn write_jobs<'o>(sorted: Sorted, orders: &mut Orders<'o>, sql: &'o Statements) -> (Table, Written) {
    let Sorted { inserted, updated, beaten, begun, ended, unarchived, written } = sorted;
    if !unarchived.is_empty() {
        let rows = i64::try_from(unarchived.len()).unwrap_or(i64::MAX);
        orders.push(order!(sql.unarchive, unarchived, rows));
    }
    updated.update(orders, sql);
    begun.begin_runs(orders, sql);
    ended.end_runs(orders, sql);
    beaten.heartbeat(orders, sql);
    (inserted, written)
}

/// What `submit` in SQL has to know of a queue, as JSON.
pub(crate) fn intake_of(queue: &Queue, policy: u32) -> String {
    let Queue { intake, deleting: leaving, .. } = queue;
    let option = |number: Option<u64>| number.map_or_else(|| "null".to_owned(), |number| number.to_string());
    let scope = match intake.idempotency.scope {
        IdempotencyScope::Off => None,
        scope @ (IdempotencyScope::Type | IdempotencyScope::Queue | IdempotencyScope::Global) => {
            IdempotencyScope::ALL.iter().position(|one| *one == scope).and_then(|place| u64::try_from(place).ok())
        }
    };
    format!(
        "{{\"open\":{},\"policy\":{policy},\"payload_max\":{},\"external_ids\":{},\"delayed_start\":{},\"held\":{},\"scope\":{},\
         \"window\":{},\"max_queued\":{},\"lifetime\":{}}}",
        leaving.is_none(),
        intake.payload_max,
        intake.external_ids,
        intake.delayed_start,
        intake.submit == SubmitMode::Explicit,
        option(scope),
        option(intake.idempotency.window.map(|window| window.as_millis())),
        option(intake.max_queued),
        option(queue.policy.lifetime.map(|lifetime| lifetime.as_millis())),
    )
}

/// News that were begun and not finished.
fn told(run: &Run<'_>, seq: Seq) -> Option<i64> {
    run.engine.propagation_cursor(seq).map(|told| told.0.cast_signed())
}

fn begins(found: &Found, columns: &Columns) -> bool {
    found.state == number_of(StateKind::Scheduled) && columns.state == number_of(StateKind::Running)
}

fn ends(found: &Found, columns: &Columns) -> bool {
    found.state == number_of(StateKind::Running) && columns.ended_at.is_some() && columns.due.is_none()
}

fn same_words(draft: &Draft<'_>, job: &Job) -> bool {
    draft.before.get(&job.seq).is_some_and(|before| before.indexed.are_those_of(job))
}
