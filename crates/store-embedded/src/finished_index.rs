//! Where to look among the jobs that have ended.
//!
//! Ended jobs lie in one table by sequence number, without any index: an index would cost every job several writes at its end. Instead,
//! chunks of neighbours are summed up: which queues, states and types occur in a chunk, and the earliest instant at which one of its jobs may be pruned.
//! Most jobs add nothing new to the sum of their chunk, so it costs them nothing; whoever looks for something passes over the chunks that do not have it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, HashSet};

use longshore_core::id::Seq;
use longshore_core::job::Job;
use longshore_core::time::Timestamp;
use longshore_engine::PruneTarget;
use longshore_store::StoreError;
use rusqlite::{Connection, params};

use crate::error::sql;
use crate::key_order::KeyOrderCheck;
use crate::records::{state_number, type_hash};
use longshore_codec::Dictionary;

/// Neighbours in a chunk, as a power of two.
const CHUNK_BITS: u32 = 12;

pub(crate) fn chunk_of(seq: Seq) -> u64 {
    seq.0 >> CHUNK_BITS
}

/// The numbers of a chunk: from the first up to, not including, the second.
pub(crate) fn numbers_of(chunk: u64) -> (i64, i64) {
    ((chunk << CHUNK_BITS).cast_signed(), ((chunk + 1) << CHUNK_BITS).cast_signed())
}

/// What listings ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FilterKey {
    pub queue: i64,
    pub state: i64,
    /// A hash: the record tells.
    pub job_type: i64,
}

impl FilterKey {
    pub(crate) fn of(job: &Job, names: &Dictionary) -> Self {
        Self {
            queue: names.queue_number(&job.queue).map_or(-1, i64::from),
            state: state_number(job.kind()),
            job_type: type_hash(job.job_type.as_str()),
        }
    }
}

/// What is looked for; `None` is anything.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FilterPattern {
    pub queue: Option<i64>,
    /// The states' numbers as bits.
    pub states: Option<i64>,
    pub job_type: Option<i64>,
}

impl FilterPattern {
    fn fits(&self, features: &FilterKey) -> bool {
        self.queue.is_none_or(|queue| queue == features.queue)
            && self.states.is_none_or(|states| states >> features.state & 1 == 1)
            && self.job_type.is_none_or(|job_type| job_type == features.job_type)
    }
}

/// The sums of all chunks. Grows; a chunk that has become empty only costs a look.
#[derive(Debug, Default)]
pub(crate) struct Chunks(BTreeMap<u64, HashSet<FilterKey>>);

impl Chunks {
    pub(crate) fn load(connection: &Connection) -> Result<Self, StoreError> {
        let mut chunks = Self::default();
        let sums = "SELECT chunk, queue, state, type FROM ended_chunk ORDER BY chunk, queue, state, type";
        let mut select = connection.prepare(sums).map_err(sql)?;
        let (mut rows, mut order) = (select.query([]).map_err(sql)?, KeyOrderCheck::through("ended_chunk"));
        while let Some(row) = rows.next().map_err(sql)? {
            let chunk: i64 = row.get(0).map_err(sql)?;
            let features = FilterKey {
                queue: row.get(1).map_err(sql)?,
                state: row.get(2).map_err(sql)?,
                job_type: row.get(3).map_err(sql)?,
            };
            order.next((chunk, features.queue, features.state, features.job_type))?;
            chunks.0.entry(chunk.cast_unsigned()).or_default().insert(features);
        }
        Ok(chunks)
    }

    pub(crate) fn knows(&self, chunk: u64, features: &FilterKey) -> bool {
        self.0.get(&chunk).is_some_and(|known| known.contains(features))
    }

    pub(crate) fn add(&mut self, chunk: u64, features: FilterKey) {
        self.0.entry(chunk).or_default().insert(features);
    }

    pub(crate) fn remove(&mut self, chunk: u64, features: &FilterKey) {
        if let Some(known) = self.0.get_mut(&chunk) {
            known.remove(features);
        }
    }

    /// Chunks that may have what is wanted, newest first, from the one in which `before` lies.
    pub(crate) fn with(&self, wanted: &FilterPattern, before: Option<Seq>, limit: usize) -> Vec<u64> {
        let last = before.map_or(u64::MAX, |before| chunk_of(Seq(before.0.saturating_sub(1))));
        let fits = |(_, known): &(&u64, &HashSet<FilterKey>)| known.iter().any(|features| wanted.fits(features));
        self.0.range(..=last).rev().filter(fits).take(limit).map(|(chunk, _)| *chunk).collect()
    }
}

pub(crate) fn save_features(connection: &Connection, chunk: u64, features: &FilterKey) -> rusqlite::Result<()> {
    let mut insert = connection
        .prepare_cached("INSERT OR IGNORE INTO ended_chunk(chunk, queue, state, type) VALUES (?1, ?2, ?3, ?4)")?;
    insert.execute(params![chunk.cast_signed(), features.queue, features.state, features.job_type]).map(|_| ())
}

/// What will have to go, by time; chunks are taken apart only when the first of their jobs is due.
#[derive(Debug, Default)]
pub(crate) struct PruneQueue {
    queue: BinaryHeap<Reverse<(Timestamp, Entry)>>,
    /// The instant under which a chunk stands in the queue.
    chunks: HashMap<u64, Timestamp>,
    /// Chunks whose jobs stand in the queue one by one.
    expanded: HashSet<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Entry {
    Chunk(u64),
    Job(Seq),
}

impl PruneQueue {
    pub(crate) fn load(connection: &Connection) -> Result<Self, StoreError> {
        let mut prunes = Self::default();
        let mut select = connection.prepare("SELECT chunk, prune_at FROM prune_chunk ORDER BY chunk").map_err(sql)?;
        let (mut rows, mut order) = (select.query([]).map_err(sql)?, KeyOrderCheck::through("prune_chunk"));
        while let Some(row) = rows.next().map_err(sql)? {
            let (chunk, at): (i64, i64) = (row.get(0).map_err(sql)?, row.get(1).map_err(sql)?);
            order.next(chunk)?;
            prunes.set_chunk(chunk.cast_unsigned(), Timestamp::from_millis(at));
        }
        Ok(prunes)
    }

    fn set_chunk(&mut self, chunk: u64, at: Timestamp) {
        self.chunks.insert(chunk, at);
        self.queue.push(Reverse((at, Entry::Chunk(chunk))));
    }

    /// A job may be pruned at `at`.
    pub(crate) fn schedule_prune(&mut self, connection: &Connection, seq: Seq, at: Timestamp) -> rusqlite::Result<()> {
        let chunk = chunk_of(seq);
        if self.expanded.contains(&chunk) {
            self.queue.push(Reverse((at, Entry::Job(seq))));
        }
        if self.chunks.get(&chunk).is_some_and(|known| *known <= at) || self.expanded.contains(&chunk) {
            return Ok(());
        }
        self.set_chunk(chunk, at);
        let mut upsert =
            connection.prepare_cached("INSERT OR REPLACE INTO prune_chunk(chunk, prune_at) VALUES (?1, ?2)")?;
        upsert.execute(params![chunk.cast_signed(), at.as_millis()]).map(|_| ())
    }

    /// What stands first. A chunk is not due as such: take it apart.
    pub(crate) fn first(&mut self) -> Option<NextPrune> {
        while let Some(Reverse((at, entry))) = self.queue.peek().copied() {
            match entry {
                Entry::Job(seq) => return Some(NextPrune::Job(at, seq)),
                Entry::Chunk(chunk) if self.chunks.get(&chunk) == Some(&at) => {
                    return Some(NextPrune::Chunk(at, chunk));
                }
                // Moved meanwhile.
                Entry::Chunk(_) => self.drop_first(),
            }
        }
        None
    }

    pub(crate) fn drop_first(&mut self) {
        self.queue.pop();
    }

    /// Puts the jobs of the first chunk into the queue one by one.
    pub(crate) fn expand_chunk(&mut self, connection: &Connection, chunk: u64) -> rusqlite::Result<()> {
        self.drop_first();
        self.chunks.remove(&chunk);
        let (from, to) = numbers_of(chunk);
        let mut select = connection
            .prepare_cached("SELECT prune_at, seq FROM ended WHERE seq >= ?1 AND seq < ?2 AND prune_at IS NOT NULL")?;
        let rows = select.query_map([from, to], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)))?;
        let mut jobs = 0;
        for row in rows {
            let (at, number) = row?;
            self.queue.push(Reverse((Timestamp::from_millis(at), Entry::Job(Seq(number.cast_unsigned())))));
            jobs += 1;
        }
        if jobs == 0 {
            // The note on disk is for the next start only; now it has nothing to say.
            connection.prepare_cached("DELETE FROM prune_chunk WHERE chunk = ?1")?.execute([chunk.cast_signed()])?;
        } else {
            self.expanded.insert(chunk);
        }
        Ok(())
    }
}

pub(crate) enum NextPrune {
    Job(Timestamp, Seq),
    Chunk(Timestamp, u64),
}

/// The earlier of two.
pub(crate) fn earlier(
    a: Option<(Timestamp, PruneTarget)>,
    b: Option<(Timestamp, PruneTarget)>,
) -> Option<(Timestamp, PruneTarget)> {
    a.into_iter().chain(b).min()
}
