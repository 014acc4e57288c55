//! Chunk index of finished jobs.
//!
//! Finished jobs are in one table by sequence number, without an SQL index: an index would cost
//! every job several writes. Instead, each chunk of 4,096 numbers has a summary: the queues, states
//! and types in it, and the earliest prune time. Most jobs add nothing to the summary of their
//! chunk. A search skips the chunks without a match.

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
use crate::records::state_number;
use longshore_codec::Dictionary;
use longshore_codec::type_hash;

/// Size of a chunk, as a power of two.
const CHUNK_BITS: u32 = 12;

pub(crate) fn chunk_of(seq: Seq) -> u64 {
    seq.0 >> CHUNK_BITS
}

/// Returns the numbers of a chunk: the first, and the end (exclusive).
pub(crate) fn numbers_of(chunk: u64) -> (i64, i64) {
    ((chunk << CHUNK_BITS).cast_signed(), ((chunk + 1) << CHUNK_BITS).cast_signed())
}

/// Fields of a finished job that listings filter by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FilterKey {
    pub queue: i64,
    pub state: i64,
    /// Hash of the type; the record has the type itself.
    pub job_type: i64,
}

impl FilterKey {
    pub(crate) fn of(job: &Job, dictionary: &Dictionary) -> Self {
        Self {
            queue: dictionary.queue_number(&job.queue).map_or(-1, i64::from),
            state: state_number(job.kind()),
            job_type: type_hash(job.job_type.as_str()),
        }
    }
}

/// Filter of a listing; `None` matches everything.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FilterPattern {
    pub queue: Option<i64>,
    /// State numbers as bits.
    pub states: Option<i64>,
    pub job_type: Option<i64>,
}

impl FilterPattern {
    fn matches(&self, key: &FilterKey) -> bool {
        self.queue.is_none_or(|queue| queue == key.queue)
            && self.states.is_none_or(|states| states >> key.state & 1 == 1)
            && self.job_type.is_none_or(|job_type| job_type == key.job_type)
    }
}

/// Summaries of all chunks. Entries are never removed: an empty chunk costs one search.
#[derive(Debug, Default)]
pub(crate) struct Chunks(BTreeMap<u64, HashSet<FilterKey>>);

impl Chunks {
    pub(crate) fn load(connection: &Connection) -> Result<Self, StoreError> {
        let mut chunks = Self::default();
        let summaries = "SELECT chunk, queue, state, type FROM finished_chunks ORDER BY chunk, queue, state, type";
        let mut select = connection.prepare(summaries).map_err(sql)?;
        let (mut rows, mut order) = (select.query([]).map_err(sql)?, KeyOrderCheck::through("finished_chunks"));
        while let Some(row) = rows.next().map_err(sql)? {
            let chunk: i64 = row.get(0).map_err(sql)?;
            let key = FilterKey {
                queue: row.get(1).map_err(sql)?,
                state: row.get(2).map_err(sql)?,
                job_type: row.get(3).map_err(sql)?,
            };
            order.next((chunk, key.queue, key.state, key.job_type))?;
            chunks.0.entry(chunk.cast_unsigned()).or_default().insert(key);
        }
        Ok(chunks)
    }

    pub(crate) fn contains(&self, chunk: u64, key: &FilterKey) -> bool {
        self.0.get(&chunk).is_some_and(|keys| keys.contains(key))
    }

    pub(crate) fn add(&mut self, chunk: u64, key: FilterKey) {
        self.0.entry(chunk).or_default().insert(key);
    }

    pub(crate) fn remove(&mut self, chunk: u64, key: &FilterKey) {
        if let Some(keys) = self.0.get_mut(&chunk) {
            keys.remove(key);
        }
    }

    /// Returns chunks that may have a match, newest first, from the chunk of `before` on.
    pub(crate) fn matching(&self, pattern: &FilterPattern, before: Option<Seq>, limit: usize) -> Vec<u64> {
        let last = before.map_or(u64::MAX, |before| chunk_of(Seq(before.0.saturating_sub(1))));
        let may_match = |(_, keys): &(&u64, &HashSet<FilterKey>)| keys.iter().any(|key| pattern.matches(key));
        self.0.range(..=last).rev().filter(may_match).take(limit).map(|(chunk, _)| *chunk).collect()
    }
}

pub(crate) fn save_chunk_key(connection: &Connection, chunk: u64, key: &FilterKey) -> rusqlite::Result<()> {
    let mut insert = connection
        .prepare_cached("INSERT OR IGNORE INTO finished_chunks(chunk, queue, state, type) VALUES (?1, ?2, ?3, ?4)")?;
    insert.execute(params![chunk.cast_signed(), key.queue, key.state, key.job_type]).map(|_| ())
}

/// Prune times in order. A chunk is expanded to its jobs when the first of them is due.
#[derive(Debug, Default)]
pub(crate) struct PruneQueue {
    queue: BinaryHeap<Reverse<(Timestamp, PruneEntry)>>,
    /// Time of each chunk in the queue.
    chunks: HashMap<u64, Timestamp>,
    /// Chunks whose jobs are in the queue individually.
    expanded: HashSet<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PruneEntry {
    Chunk(u64),
    Job(Seq),
}

impl PruneQueue {
    pub(crate) fn load(connection: &Connection) -> Result<Self, StoreError> {
        let mut prunes = Self::default();
        let mut select =
            connection.prepare("SELECT chunk, prune_at FROM chunk_prune_at ORDER BY chunk").map_err(sql)?;
        let (mut rows, mut order) = (select.query([]).map_err(sql)?, KeyOrderCheck::through("chunk_prune_at"));
        while let Some(row) = rows.next().map_err(sql)? {
            let (chunk, at): (i64, i64) = (row.get(0).map_err(sql)?, row.get(1).map_err(sql)?);
            order.next(chunk)?;
            prunes.set_chunk(chunk.cast_unsigned(), Timestamp::from_millis(at));
        }
        Ok(prunes)
    }

    fn set_chunk(&mut self, chunk: u64, at: Timestamp) {
        self.chunks.insert(chunk, at);
        self.queue.push(Reverse((at, PruneEntry::Chunk(chunk))));
    }

    /// Adds the prune time of a job.
    pub(crate) fn schedule_prune(&mut self, connection: &Connection, seq: Seq, at: Timestamp) -> rusqlite::Result<()> {
        let chunk = chunk_of(seq);
        if self.expanded.contains(&chunk) {
            self.queue.push(Reverse((at, PruneEntry::Job(seq))));
        }
        if self.chunks.get(&chunk).is_some_and(|first| *first <= at) || self.expanded.contains(&chunk) {
            return Ok(());
        }
        self.set_chunk(chunk, at);
        let mut upsert =
            connection.prepare_cached("INSERT OR REPLACE INTO chunk_prune_at(chunk, prune_at) VALUES (?1, ?2)")?;
        upsert.execute(params![chunk.cast_signed(), at.as_millis()]).map(|_| ())
    }

    /// Returns the first entry. The caller expands a chunk that is due.
    pub(crate) fn first(&mut self) -> Option<NextPrune> {
        while let Some(Reverse((at, entry))) = self.queue.peek().copied() {
            match entry {
                PruneEntry::Job(seq) => return Some(NextPrune::Job(at, seq)),
                PruneEntry::Chunk(chunk) if self.chunks.get(&chunk) == Some(&at) => {
                    return Some(NextPrune::Chunk(at, chunk));
                }
                // The chunk has moved to another time.
                PruneEntry::Chunk(_) => self.drop_first(),
            }
        }
        None
    }

    pub(crate) fn drop_first(&mut self) {
        self.queue.pop();
    }

    /// Replaces the first chunk in the queue by its jobs.
    pub(crate) fn expand_chunk(&mut self, connection: &Connection, chunk: u64) -> rusqlite::Result<()> {
        self.drop_first();
        self.chunks.remove(&chunk);
        let (from, to) = numbers_of(chunk);
        let mut select = connection.prepare_cached(
            "SELECT prune_at, seq FROM finished_jobs WHERE seq >= ?1 AND seq < ?2 AND prune_at IS NOT NULL",
        )?;
        let rows = select.query_map([from, to], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)))?;
        let mut jobs = 0;
        for row in rows {
            let (at, number) = row?;
            self.queue.push(Reverse((Timestamp::from_millis(at), PruneEntry::Job(Seq(number.cast_unsigned())))));
            jobs += 1;
        }
        if jobs == 0 {
            // The row serves the next recovery. Without jobs it is obsolete.
            connection.prepare_cached("DELETE FROM chunk_prune_at WHERE chunk = ?1")?.execute([chunk.cast_signed()])?;
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

/// Returns the earlier of two prune targets.
pub(crate) fn earlier(
    a: Option<(Timestamp, PruneTarget)>,
    b: Option<(Timestamp, PruneTarget)>,
) -> Option<(Timestamp, PruneTarget)> {
    a.into_iter().chain(b).min()
}
