//! Prefetch buffer: blocks of records (encoded or decoded) and payloads, in queue order.
//!
//! A claim finds the next record behind the last one. Any other record is searched.

use std::collections::VecDeque;
use std::ops::Range;

use longshore_core::id::Seq;
use longshore_core::job::Job;
use longshore_core::submit::Payload;

use longshore_codec::DecodeError;

/// Longer records get their own allocation, which is freed with the record.
const SHARED_BYTES_MAX: usize = 4 << 10;
/// Buffers of empty blocks that are kept for reuse.
const SPARE_MAX: usize = 32;

/// Jobs that were read together.
#[derive(Debug, Default)]
pub(super) struct RecordBlock {
    /// In ascending order of numbers.
    entries: Vec<BufferEntry>,
    bytes: Vec<u8>,
    /// Records and payloads in this block.
    parts: usize,
    /// Size of the parts with their own allocation.
    own_bytes: usize,
}

#[derive(Debug)]
struct BufferEntry {
    seq: Seq,
    record: Record,
    payload: Option<Payload>,
}

#[derive(Debug, Default)]
enum Record {
    #[default]
    Absent,
    /// Range in the bytes of the block.
    Short(Range<u32>),
    Long(Box<[u8]>),
    Decoded(Box<Job>),
}

impl BufferEntry {
    fn has(&self, part: Part) -> bool {
        match part {
            Part::Record => !matches!(self.record, Record::Absent),
            Part::Payload => self.payload.is_some(),
        }
    }
}

impl RecordBlock {
    /// Creates a block for jobs in ascending order. Reuses the memory of `bytes`.
    pub(super) fn of(seqs: impl Iterator<Item = Seq>, mut bytes: Vec<u8>) -> Self {
        bytes.clear();
        let entry = |seq| BufferEntry { seq, record: Record::Absent, payload: None };
        Self { entries: seqs.map(entry).collect(), bytes, parts: 0, own_bytes: 0 }
    }

    fn find(&self, seq: Seq) -> Option<usize> {
        let (first, last) = (self.entries.first()?, self.entries.last()?);
        if !(first.seq..=last.seq).contains(&seq) {
            return None;
        }
        self.entries.binary_search_by_key(&seq, |entry| entry.seq).ok()
    }

    pub(super) fn put_record(&mut self, seq: Seq, record: &[u8]) {
        let Some(index) = self.find(seq) else { return };
        let record = if record.len() > SHARED_BYTES_MAX {
            self.own_bytes += record.len();
            Record::Long(record.into())
        } else {
            Record::Short(self.share(record))
        };
        if let Some(entry) = self.entries.get_mut(index) {
            entry.record = record;
            self.parts += 1;
        }
    }

    /// Adds a payload. The writer passes payloads on unread.
    pub(super) fn put_payload(&mut self, seq: Seq, payload: Payload) {
        let bytes = payload.bytes().len();
        if let Some(entry) = self.find(seq).and_then(|index| self.entries.get_mut(index)) {
            entry.payload = Some(payload);
            self.parts += 1;
            self.own_bytes += bytes;
        }
    }

    fn share(&mut self, record: &[u8]) -> Range<u32> {
        // A block has some hundred jobs, so its size fits in 32 bits.
        let end = |bytes: &Vec<u8>| u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let start = end(&self.bytes);
        self.bytes.extend_from_slice(record);
        start..end(&self.bytes)
    }

    fn take_record(&mut self, index: usize) -> Record {
        let record = self.entries.get_mut(index).map(|entry| std::mem::take(&mut entry.record)).unwrap_or_default();
        match &record {
            Record::Absent => {}
            Record::Long(bytes) => (self.parts, self.own_bytes) = (self.parts - 1, self.own_bytes - bytes.len()),
            Record::Short(_) | Record::Decoded(_) => self.parts -= 1,
        }
        record
    }

    fn take_payload(&mut self, index: usize) -> Option<Payload> {
        let payload = self.entries.get_mut(index)?.payload.take()?;
        (self.parts, self.own_bytes) = (self.parts - 1, self.own_bytes - payload.bytes().len());
        Some(payload)
    }

    /// Drops parts of a job.
    pub(super) fn discard(&mut self, index: usize, record: bool, payload: bool) {
        if record {
            drop(self.take_record(index));
        }
        if payload {
            drop(self.take_payload(index));
        }
    }

    /// Decodes a short record in place. A corrupt record stays encoded.
    fn decode_entry(&mut self, index: usize, decode: Decode<'_>) {
        if let Some(entry) = self.entries.get_mut(index)
            && let Record::Short(range) = &entry.record
            && let Ok(job) = decode(entry.seq, shared(&self.bytes, range))
        {
            entry.record = Record::Decoded(Box::new(job));
        }
    }

    fn size(&self) -> usize {
        self.bytes.len() + self.own_bytes
    }

    #[cfg(test)]
    pub(super) fn records(&self) -> usize {
        self.entries.iter().filter(|entry| entry.has(Part::Record)).count()
    }
}

/// Decodes a record.
pub(super) type Decode<'a> = &'a dyn Fn(Seq, &[u8]) -> Result<Job, DecodeError>;

fn shared<'a>(bytes: &'a [u8], range: &Range<u32>) -> &'a [u8] {
    let index = |end: u32| usize::try_from(end).unwrap_or(usize::MAX);
    bytes.get(index(range.start)..index(range.end)).unwrap_or_default()
}

/// Position of an entry in the buffer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BufferSlot {
    /// Number of the block, counted from the first one ever added.
    block: usize,
    entry: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Record,
    Payload,
}

#[derive(Debug, Default)]
pub(super) struct PrefetchBuffer {
    blocks: VecDeque<RecordBlock>,
    /// Blocks that were removed at the front.
    dropped_blocks: usize,
    /// Upper bound of the numbers in the buffer.
    highest: Seq,
    next_record: BufferSlot,
    next_payload: BufferSlot,
    /// Next entry to decode ahead, and the number of decoded entries before it.
    next_decode: BufferSlot,
    decoded: usize,
    pub(super) spare: Vec<Vec<u8>>,
}

impl PrefetchBuffer {
    pub(super) fn add(&mut self, block: RecordBlock) {
        if self.blocks.is_empty() {
            self.highest = Seq(0);
        }
        self.highest = block.entries.last().map_or(self.highest, |entry| entry.seq.max(self.highest));
        self.blocks.push_back(block);
    }

    /// Returns the number of records and payloads in the buffer.
    pub(super) fn parts(&self) -> usize {
        self.blocks.iter().map(|block| block.parts).sum()
    }

    pub(super) fn bytes(&self) -> usize {
        self.blocks.iter().map(RecordBlock::size).sum()
    }

    fn entry(&self, slot: BufferSlot) -> Option<&BufferEntry> {
        self.blocks.get(slot.block.checked_sub(self.dropped_blocks)?)?.entries.get(slot.entry)
    }

    fn holds(&self, slot: BufferSlot, seq: Seq, part: Part) -> bool {
        self.entry(slot).is_some_and(|entry| entry.seq == seq && entry.has(part))
    }

    /// Finds a part. Checks the hint first.
    fn find(&self, seq: Seq, hint: BufferSlot, part: Part) -> Option<BufferSlot> {
        if self.holds(hint, seq, part) {
            return Some(hint);
        }
        if seq > self.highest {
            return None;
        }
        let blocks = self.blocks.iter().enumerate();
        let mut slots = blocks
            .filter_map(|(n, block)| Some(BufferSlot { block: self.dropped_blocks + n, entry: block.find(seq)? }));
        slots.find(|slot| self.holds(*slot, seq, part))
    }

    /// Returns the slot behind this one, where the next job of the queue usually is.
    fn slot_after(&self, slot: BufferSlot) -> BufferSlot {
        let block = slot.block.checked_sub(self.dropped_blocks).and_then(|n| self.blocks.get(n));
        if block.is_some_and(|block| slot.entry + 1 < block.entries.len()) {
            BufferSlot { entry: slot.entry + 1, ..slot }
        } else {
            BufferSlot { block: slot.block + 1, entry: 0 }
        }
    }

    /// Returns whether this is the next record.
    pub(super) fn is_next(&self, seq: Seq) -> bool {
        self.holds(self.next_record, seq, Part::Record)
    }

    /// Returns the slot of the next record, as a hint for a search along the queue.
    pub(super) fn first(&self) -> BufferSlot {
        self.next_record
    }

    /// Returns whether the record and the payload are in the buffer. Advances the hint.
    pub(super) fn has(&self, seq: Seq, hint: &mut BufferSlot) -> (bool, bool) {
        let record = self.find(seq, *hint, Part::Record);
        let payload = self.find(seq, record.unwrap_or(*hint), Part::Payload);
        if let Some(slot) = record.or(payload) {
            *hint = self.slot_after(slot);
        }
        (record.is_some(), payload.is_some())
    }

    /// Takes a record and decodes it. Returns `None` if it is missing or corrupt.
    pub(super) fn take_record(&mut self, seq: Seq, decode: Decode<'_>) -> Option<Box<Job>> {
        let slot = self.find(seq, self.next_record, Part::Record)?;
        self.next_record = self.slot_after(slot);
        self.decoded = self.decoded.saturating_sub(1);
        let block = self.blocks.get_mut(slot.block - self.dropped_blocks)?;
        let job = match block.take_record(slot.entry) {
            Record::Absent => None,
            Record::Short(range) => decode(seq, shared(&block.bytes, &range)).ok().map(Box::new),
            Record::Long(record) => decode(seq, &record).ok().map(Box::new),
            Record::Decoded(job) => Some(job),
        };
        self.recycle(slot);
        job
    }

    pub(super) fn take_payload(&mut self, seq: Seq) -> Option<Payload> {
        let slot = self.find(seq, self.next_payload, Part::Payload)?;
        self.next_payload = self.slot_after(slot);
        let block = self.blocks.get_mut(slot.block - self.dropped_blocks)?;
        let payload = block.take_payload(slot.entry);
        self.recycle(slot);
        payload
    }

    /// Decodes up to `limit` of the next records, at most `ahead` of them before they are taken.
    /// Returns whether it did any work.
    pub(super) fn decode_next(&mut self, limit: usize, ahead: usize, decode: Decode<'_>) -> bool {
        if (self.next_decode.block, self.next_decode.entry) < (self.next_record.block, self.next_record.entry) {
            (self.next_decode, self.decoded) = (self.next_record, 0);
        }
        let mut pending = limit.min(ahead.saturating_sub(self.decoded));
        let has_work = pending > 0;
        while pending > 0 {
            let Some(n) = self.next_decode.block.checked_sub(self.dropped_blocks) else { return false };
            let Some(block) = self.blocks.get_mut(n) else { return false };
            block.decode_entry(self.next_decode.entry, decode);
            self.next_decode = self.slot_after(self.next_decode);
            self.decoded += 1;
            pending -= 1;
        }
        has_work
    }

    /// Drops all jobs but those that `keep` selects.
    pub(super) fn retain(&mut self, keep: impl Fn(Seq) -> bool) {
        for block in &mut self.blocks {
            for index in 0..block.entries.len() {
                let is_dropped = block.entries.get(index).is_some_and(|entry| !keep(entry.seq));
                block.discard(index, is_dropped, is_dropped);
            }
        }
        for n in 0..self.blocks.len() {
            self.reclaim(n);
        }
        self.drop_empty();
    }

    /// Frees the block of a slot if it is empty.
    fn recycle(&mut self, slot: BufferSlot) {
        let n = slot.block - self.dropped_blocks;
        if self.blocks.get(n).is_some_and(|block| block.parts == 0) {
            self.reclaim(n);
            self.drop_empty();
        }
    }

    /// Keeps the memory of an empty block for reuse.
    fn reclaim(&mut self, n: usize) {
        if let Some(block) = self.blocks.get_mut(n).filter(|block| block.parts == 0) {
            block.entries = Vec::new();
            let bytes = std::mem::take(&mut block.bytes);
            if self.spare.len() < SPARE_MAX {
                self.spare.push(bytes);
            }
        }
    }

    fn drop_empty(&mut self) {
        while self.blocks.pop_front_if(|block| block.parts == 0).is_some() {
            self.dropped_blocks += 1;
        }
    }

    /// Returns all records and payloads.
    #[cfg(test)]
    pub(super) fn all(&self, decode: Decode<'_>) -> (Vec<Job>, Vec<(Seq, Payload)>) {
        let (mut records, mut payloads) = (Vec::new(), Vec::new());
        for block in &self.blocks {
            for entry in &block.entries {
                match &entry.record {
                    Record::Absent => {}
                    Record::Short(range) => records.push(decode(entry.seq, shared(&block.bytes, range)).unwrap()),
                    Record::Long(record) => records.push(decode(entry.seq, record).unwrap()),
                    Record::Decoded(job) => records.push(Job::clone(job)),
                }
                payloads.extend(entry.payload.clone().map(|payload| (entry.seq, payload)));
            }
        }
        (records, payloads)
    }
}
