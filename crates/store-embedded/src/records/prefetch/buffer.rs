//! What was read ahead: records, as bytes or made into jobs, and payloads, helping by helping in the order of the line. A claim finds what it wants behind what it
//! took last; whatever else is looked for is searched.

use std::collections::VecDeque;
use std::ops::Range;

use longshore_core::id::Seq;
use longshore_core::job::Job;
use longshore_core::submit::Payload;

use longshore_codec::DecodeError;

/// Longer records lie by themselves, so that they can leave by themselves.
const SHARED_BYTES_MAX: usize = 4 << 10;
/// Memory of used up helpings that waits for the next ones.
const SPARE_MAX: usize = 32;

/// Jobs that were read together.
#[derive(Debug, Default)]
pub(super) struct RecordBlock {
    /// By rising numbers.
    entries: Vec<Entry>,
    bytes: Vec<u8>,
    /// Records and payloads that are here.
    parts: usize,
    /// Of parts that lie by themselves.
    apart_bytes: usize,
}

#[derive(Debug)]
struct Entry {
    seq: Seq,
    record: Record,
    payload: Option<Payload>,
}

#[derive(Debug, Default)]
enum Record {
    #[default]
    Absent,
    /// Where it lies among the bytes of its helping.
    Short(Range<u32>),
    Long(Box<[u8]>),
    Decoded(Box<Job>),
}

impl Entry {
    fn has(&self, what: Part) -> bool {
        match what {
            Part::Record => !matches!(self.record, Record::Absent),
            Part::Payload => self.payload.is_some(),
        }
    }
}

impl RecordBlock {
    /// For these jobs, by rising numbers. `bytes` lends its memory.
    pub(super) fn of(seqs: impl Iterator<Item = Seq>, mut bytes: Vec<u8>) -> Self {
        bytes.clear();
        let entry = |seq| Entry { seq, record: Record::Absent, payload: None };
        Self { entries: seqs.map(entry).collect(), bytes, parts: 0, apart_bytes: 0 }
    }

    fn find(&self, seq: Seq) -> Option<usize> {
        let (first, last) = (self.entries.first()?, self.entries.last()?);
        if !(first.seq..=last.seq).contains(&seq) {
            return None;
        }
        self.entries.binary_search_by_key(&seq, |entry| entry.seq).ok()
    }

    pub(super) fn put_record(&mut self, seq: Seq, record: &[u8]) {
        let Some(place) = self.find(seq) else { return };
        let record = if record.len() > SHARED_BYTES_MAX {
            self.apart_bytes += record.len();
            Record::Long(record.into())
        } else {
            Record::Short(self.share(record))
        };
        if let Some(entry) = self.entries.get_mut(place) {
            entry.record = record;
            self.parts += 1;
        }
    }

    /// A payload is never looked at by the writer: it passes it on.
    pub(super) fn put_payload(&mut self, seq: Seq, payload: Payload) {
        let bytes = payload.bytes().len();
        if let Some(entry) = self.find(seq).and_then(|place| self.entries.get_mut(place)) {
            entry.payload = Some(payload);
            self.parts += 1;
            self.apart_bytes += bytes;
        }
    }

    fn share(&mut self, record: &[u8]) -> Range<u32> {
        // A helping is of some hundred jobs.
        let end = |bytes: &Vec<u8>| u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let start = end(&self.bytes);
        self.bytes.extend_from_slice(record);
        start..end(&self.bytes)
    }

    fn take_record(&mut self, place: usize) -> Record {
        let record = self.entries.get_mut(place).map(|entry| std::mem::take(&mut entry.record)).unwrap_or_default();
        match &record {
            Record::Absent => {}
            Record::Long(bytes) => (self.parts, self.apart_bytes) = (self.parts - 1, self.apart_bytes - bytes.len()),
            Record::Short(_) | Record::Decoded(_) => self.parts -= 1,
        }
        record
    }

    fn take_payload(&mut self, place: usize) -> Option<Payload> {
        let payload = self.entries.get_mut(place)?.payload.take()?;
        (self.parts, self.apart_bytes) = (self.parts - 1, self.apart_bytes - payload.bytes().len());
        Some(payload)
    }

    /// Lets go of what is not wanted any more.
    pub(super) fn forget(&mut self, place: usize, record: bool, payload: bool) {
        if record {
            drop(self.take_record(place));
        }
        if payload {
            drop(self.take_payload(place));
        }
    }

    /// Makes a job of the bytes that are there, if that can be done.
    fn make(&mut self, place: usize, decode: Decode<'_>) {
        if let Some(entry) = self.entries.get_mut(place)
            && let Record::Short(range) = &entry.record
            && let Ok(job) = decode(entry.seq, shared(&self.bytes, range))
        {
            entry.record = Record::Decoded(Box::new(job));
        }
    }

    fn size(&self) -> usize {
        self.bytes.len() + self.apart_bytes
    }

    #[cfg(test)]
    pub(super) fn records(&self) -> usize {
        self.entries.iter().filter(|entry| entry.has(Part::Record)).count()
    }
}

/// How a record becomes a job.
pub(super) type Decode<'a> = &'a dyn Fn(Seq, &[u8]) -> Result<Job, DecodeError>;

fn shared<'a>(bytes: &'a [u8], range: &Range<u32>) -> &'a [u8] {
    let place = |end: u32| usize::try_from(end).unwrap_or(usize::MAX);
    bytes.get(place(range.start)..place(range.end)).unwrap_or_default()
}

/// A place on the shelf.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BufferSlot {
    /// Counted from the first helping that ever was here.
    helping: usize,
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
    /// Helpings that have left at the front.
    dropped_blocks: usize,
    /// No higher number is here.
    highest: Seq,
    next_record: BufferSlot,
    next_payload: BufferSlot,
    /// The next one to be made into a job, and how many before it were.
    next_make: BufferSlot,
    made: usize,
    pub(super) spare: Vec<Vec<u8>>,
}

impl PrefetchBuffer {
    pub(super) fn add(&mut self, helping: RecordBlock) {
        if self.blocks.is_empty() {
            self.highest = Seq(0);
        }
        self.highest = helping.entries.last().map_or(self.highest, |entry| entry.seq.max(self.highest));
        self.blocks.push_back(helping);
    }

    /// Records and payloads that are here.
    pub(super) fn parts(&self) -> usize {
        self.blocks.iter().map(|helping| helping.parts).sum()
    }

    pub(super) fn bytes(&self) -> usize {
        self.blocks.iter().map(RecordBlock::size).sum()
    }

    fn entry(&self, place: BufferSlot) -> Option<&Entry> {
        self.blocks.get(place.helping.checked_sub(self.dropped_blocks)?)?.entries.get(place.entry)
    }

    fn is_here(&self, place: BufferSlot, seq: Seq, what: Part) -> bool {
        self.entry(place).is_some_and(|entry| entry.seq == seq && entry.has(what))
    }

    /// Looks at the likely place first.
    fn find(&self, seq: Seq, likely: BufferSlot, what: Part) -> Option<BufferSlot> {
        if self.is_here(likely, seq, what) {
            return Some(likely);
        }
        if seq > self.highest {
            return None;
        }
        let places = self.blocks.iter().enumerate();
        let mut places = places.filter_map(|(n, helping)| {
            Some(BufferSlot { helping: self.dropped_blocks + n, entry: helping.find(seq)? })
        });
        places.find(|place| self.is_here(*place, seq, what))
    }

    /// Where the one behind this one in line is likely to be.
    fn behind(&self, place: BufferSlot) -> BufferSlot {
        let helping = place.helping.checked_sub(self.dropped_blocks).and_then(|n| self.blocks.get(n));
        if helping.is_some_and(|helping| place.entry + 1 < helping.entries.len()) {
            BufferSlot { entry: place.entry + 1, ..place }
        } else {
            BufferSlot { helping: place.helping + 1, entry: 0 }
        }
    }

    /// Whether the next record in line is this one.
    pub(super) fn is_next(&self, seq: Seq) -> bool {
        self.is_here(self.next_record, seq, Part::Record)
    }

    /// Where whoever walks along the line begins.
    pub(super) fn first(&self) -> BufferSlot {
        self.next_record
    }

    /// Whether its record is here, and its payload. `likely` walks along.
    pub(super) fn has(&self, seq: Seq, likely: &mut BufferSlot) -> (bool, bool) {
        let record = self.find(seq, *likely, Part::Record);
        let payload = self.find(seq, record.unwrap_or(*likely), Part::Payload);
        if let Some(place) = record.or(payload) {
            *likely = self.behind(place);
        }
        (record.is_some(), payload.is_some())
    }

    /// The record leaves, unless it cannot be made into a job.
    pub(super) fn take_record(&mut self, seq: Seq, decode: Decode<'_>) -> Option<Box<Job>> {
        let place = self.find(seq, self.next_record, Part::Record)?;
        self.next_record = self.behind(place);
        self.made = self.made.saturating_sub(1);
        let helping = self.blocks.get_mut(place.helping - self.dropped_blocks)?;
        let job = match helping.take_record(place.entry) {
            Record::Absent => None,
            Record::Short(range) => decode(seq, shared(&helping.bytes, &range)).ok().map(Box::new),
            Record::Long(record) => decode(seq, &record).ok().map(Box::new),
            Record::Decoded(job) => Some(job),
        };
        self.recycle(place);
        job
    }

    pub(super) fn take_payload(&mut self, seq: Seq) -> Option<Payload> {
        let place = self.find(seq, self.next_payload, Part::Payload)?;
        self.next_payload = self.behind(place);
        let helping = self.blocks.get_mut(place.helping - self.dropped_blocks)?;
        let payload = helping.take_payload(place.entry);
        self.recycle(place);
        payload
    }

    /// Makes some of the next jobs, but no more than `ahead` before they are taken. Says whether there was anything to do.
    pub(super) fn decode_next(&mut self, some: usize, ahead: usize, decode: Decode<'_>) -> bool {
        if (self.next_make.helping, self.next_make.entry) < (self.next_record.helping, self.next_record.entry) {
            (self.next_make, self.made) = (self.next_record, 0);
        }
        let mut todo = some.min(ahead.saturating_sub(self.made));
        let busy = todo > 0;
        while todo > 0 {
            let Some(n) = self.next_make.helping.checked_sub(self.dropped_blocks) else { return false };
            let Some(helping) = self.blocks.get_mut(n) else { return false };
            helping.make(self.next_make.entry, decode);
            self.next_make = self.behind(self.next_make);
            self.made += 1;
            todo -= 1;
        }
        busy
    }

    /// Lets go of everything but these.
    pub(super) fn retain(&mut self, keep: impl Fn(Seq) -> bool) {
        for helping in &mut self.blocks {
            for place in 0..helping.entries.len() {
                let gone = helping.entries.get(place).is_some_and(|entry| !keep(entry.seq));
                helping.forget(place, gone, gone);
            }
        }
        for n in 0..self.blocks.len() {
            self.empty(n);
        }
        self.drop_empty();
    }

    /// After something was taken from there.
    fn recycle(&mut self, place: BufferSlot) {
        let n = place.helping - self.dropped_blocks;
        if self.blocks.get(n).is_some_and(|helping| helping.parts == 0) {
            self.empty(n);
            self.drop_empty();
        }
    }

    /// A helping without parts needs no bytes.
    fn empty(&mut self, n: usize) {
        if let Some(helping) = self.blocks.get_mut(n).filter(|helping| helping.parts == 0) {
            helping.entries = Vec::new();
            let bytes = std::mem::take(&mut helping.bytes);
            if self.spare.len() < SPARE_MAX {
                self.spare.push(bytes);
            }
        }
    }

    fn drop_empty(&mut self) {
        while self.blocks.pop_front_if(|helping| helping.parts == 0).is_some() {
            self.dropped_blocks += 1;
        }
    }

    /// Every record and payload that is here.
    #[cfg(test)]
    pub(super) fn all(&self, decode: Decode<'_>) -> (Vec<Job>, Vec<(Seq, Payload)>) {
        let (mut records, mut payloads) = (Vec::new(), Vec::new());
        for helping in &self.blocks {
            for entry in &helping.entries {
                match &entry.record {
                    Record::Absent => {}
                    Record::Short(range) => records.push(decode(entry.seq, shared(&helping.bytes, range)).unwrap()),
                    Record::Long(record) => records.push(decode(entry.seq, record).unwrap()),
                    Record::Decoded(job) => records.push(Job::clone(job)),
                }
                payloads.extend(entry.payload.clone().map(|payload| (entry.seq, payload)));
            }
        }
        (records, payloads)
    }
}
