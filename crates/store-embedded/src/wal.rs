//! Verification of the write-ahead log before SQLite opens it.
//!
//! SQLite treats the first invalid frame as the end of the WAL. After a crash that is right: the
//! frame is a torn write. After corruption it would discard every later commit.
//!
//! A power cut may lose any part of the commits that were not synced, so valid frames may follow
//! an invalid one. Each commit records the last synced commit before it ([`CommitRecord`]). An
//! invalid frame is corruption if a later frame records that its commit was synced.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufReader, Read, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use longshore_store::StoreError;

use crate::meta::CommitRecord;
use crate::recovery::read_without_wal;

const HEADER_BYTES: usize = 32;
const FRAME_HEADER_BYTES: usize = 24;
/// First word of a WAL. Its last bit selects the byte order of the checksums.
const MAGIC: u32 = 0x377f_0682;
/// Page size of all Longshore databases, used if the header is corrupt.
const PAGE_BYTES: usize = 4_096;

pub(crate) fn wal_path(database: &Path) -> PathBuf {
    beside(database, "-wal")
}

/// Returns the rollback journal of a database that is not in WAL mode.
pub(crate) fn journal_path(database: &Path) -> PathBuf {
    beside(database, "-journal")
}

fn beside(database: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(database);
    name.push(suffix);
    PathBuf::from(name)
}

/// Refuses a WAL that is corrupt in a synced commit. SQLite drops a torn end itself.
pub(crate) fn verify(database: &Path) -> Result<(), StoreError> {
    let path = wal_path(database);
    let corruption = match File::open(&path) {
        Ok(mut file) => find_corruption(&mut file, database),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => Err(error),
    };
    match corruption.map_err(StoreError::not_applied)? {
        None => Ok(()),
        Some(offset) => Err(StoreError::corrupt(format!("WAL {} at byte {offset}", path.display()))),
    }
}

/// Returns the offset of the first invalid frame, unless it can be a torn write.
fn find_corruption(file: &mut File, database: &Path) -> std::io::Result<Option<u64>> {
    let mut header = [0; HEADER_BYTES];
    if read_up_to(file, &mut header)? < HEADER_BYTES {
        return Ok(None);
    }
    let chain = ChecksumChain::read(&header);
    let Some(InvalidFrame { offset, is_followed }) = find_invalid_frame(file, chain)? else { return Ok(None) };
    if !is_followed {
        return Ok(None);
    }
    // The header is synced before the first frame: a commit behind it proves corruption.
    let Some(chain) = ChecksumChain::read(&header) else { return Ok(Some(0)) };
    file.seek(SeekFrom::Start(HEADER_BYTES as u64))?;
    let is_synced = read_evidence(file, &chain, offset, database)?.proves_sync();
    Ok(is_synced.then_some(offset))
}

/// The first invalid frame.
struct InvalidFrame {
    offset: u64,
    /// Frames of the same pass follow; behind an invalid header, the end of a commit. After a
    /// restart of the WAL, frames of the previous pass with other salts follow its end.
    is_followed: bool,
}

fn find_invalid_frame(file: &mut File, chain: Option<ChecksumChain>) -> std::io::Result<Option<InvalidFrame>> {
    let mut frames = Frames::new(file, chain.as_ref().map_or(PAGE_BYTES, |chain| chain.page_bytes));
    let mut salts = chain.as_ref().map(|chain| chain.salts);
    let mut invalid_at = if chain.is_some() { None } else { Some(0) };
    let (mut chain, mut offset) = (chain, HEADER_BYTES as u64);
    while let Some(frame) = frames.next(invalid_at.is_some())? {
        let is_current = *salts.get_or_insert(frame.salts) == frame.salts;
        if let Some(sums) = &mut chain
            && !(is_current && sums.continues(&frame, &frames.page))
        {
            (chain, invalid_at) = (None, Some(offset));
        }
        if let Some(invalid_at) = invalid_at
            && is_current
            && (frame.is_commit || (invalid_at > 0 && offset > invalid_at))
        {
            return Ok(Some(InvalidFrame { offset: invalid_at, is_followed: true }));
        }
        offset += frames.frame_bytes();
    }
    Ok(invalid_at.map(|offset| InvalidFrame { offset, is_followed: false }))
}

/// Records of commits before and behind an invalid frame.
#[derive(Debug)]
struct SyncEvidence {
    /// Last commit before the frame.
    last_valid: i64,
    /// Last commit that a frame behind it records as synced.
    last_synced: i64,
}

impl SyncEvidence {
    /// Returns whether the commit of the invalid frame was synced. It is the one after the last
    /// valid commit.
    fn proves_sync(&self) -> bool {
        self.last_synced > self.last_valid
    }
}

/// Reads the commit records of all frames. They are on one page: other pages may have payloads that
/// look like a record.
fn read_evidence(
    file: &mut File,
    chain: &ChecksumChain,
    invalid_at: u64,
    database: &Path,
) -> std::io::Result<SyncEvidence> {
    let mut frames = Frames::new(file, chain.page_bytes);
    let (mut last_valid, mut last_synced) = (None, CommitRecord::NONE_SYNCED);
    let (mut offset, mut record_page, mut open_commit) = (HEADER_BYTES as u64, None, None);
    while let Some(frame) = frames.next(false)? {
        if frame.salts == chain.salts
            && record_page.is_none_or(|page| page == frame.page_number())
            && let Some(record) = CommitRecord::find_in_page(&frames.page)
        {
            record_page = Some(frame.page_number());
            if offset < invalid_at {
                open_commit = Some(record.commit_seq);
            } else {
                last_synced = last_synced.max(record.synced_seq);
            }
        }
        if offset < invalid_at && frame.is_commit {
            last_valid = open_commit.take().or(last_valid);
        }
        offset += frames.frame_bytes();
    }
    // Without a commit before the frame: the last commit of the previous pass, which is in the
    // database.
    let in_database = || read_without_wal(database).map(|identity| identity.commit_seq);
    let last_valid = last_valid.or_else(in_database).unwrap_or(CommitRecord::NONE_SYNCED);
    Ok(SyncEvidence { last_valid, last_synced })
}

/// Running checksum over the header and all frames so far.
struct ChecksumChain {
    page_bytes: usize,
    salts: [u8; 8],
    big_endian: bool,
    sums: (u32, u32),
}

impl ChecksumChain {
    /// Returns `None` if the header is invalid.
    fn read(bytes: &[u8; HEADER_BYTES]) -> Option<Self> {
        let (words, _) = bytes.as_chunks::<4>();
        let [magic, _version, page_bytes, _checkpoints, salt1, salt2, sum1, sum2] = *words else { return None };
        let magic = u32::from_be_bytes(magic);
        if magic & !1 != MAGIC {
            return None;
        }
        let big_endian = magic & 1 == 1;
        let sums = add(big_endian, (0, 0), bytes.get(..24)?);
        let page_bytes = usize::try_from(u32::from_be_bytes(page_bytes)).ok()?;
        let is_valid = sums == (u32::from_be_bytes(sum1), u32::from_be_bytes(sum2));
        let salts = [salt1, salt2].as_flattened().try_into().ok()?;
        (is_valid && (512..=65_536).contains(&page_bytes)).then_some(Self { page_bytes, salts, big_endian, sums })
    }

    /// Adds a frame to the chain. Returns whether its checksum matches.
    fn continues(&mut self, frame: &Frame, page: &[u8]) -> bool {
        self.sums = add(self.big_endian, add(self.big_endian, self.sums, &frame.summed), page);
        self.sums == frame.sums
    }
}

/// Checksum of the WAL format: two running sums over pairs of words.
fn add(big_endian: bool, sums: (u32, u32), bytes: &[u8]) -> (u32, u32) {
    let word = |bytes: [u8; 4]| if big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) };
    let (pairs, _) = bytes.as_chunks::<8>();
    pairs.iter().fold(sums, |(first, second), [a, b, c, d, e, f, g, h]| {
        let first = first.wrapping_add(word([*a, *b, *c, *d])).wrapping_add(second);
        (first, second.wrapping_add(word([*e, *f, *g, *h])).wrapping_add(first))
    })
}

struct Frame {
    /// Part of the frame header that the checksum covers.
    summed: [u8; 8],
    salts: [u8; 8],
    sums: (u32, u32),
    is_commit: bool,
}

impl Frame {
    fn page_number(&self) -> [u8; 4] {
        let [a, b, c, d, ..] = self.summed;
        [a, b, c, d]
    }
}

struct Frames<'a> {
    file: BufReader<&'a mut File>,
    page: Vec<u8>,
}

impl<'a> Frames<'a> {
    fn new(file: &'a mut File, page_bytes: usize) -> Self {
        Self { file: BufReader::with_capacity(1 << 16, file), page: vec![0; page_bytes] }
    }

    fn frame_bytes(&self) -> u64 {
        (FRAME_HEADER_BYTES + self.page.len()) as u64
    }

    /// Returns the next complete frame. `skip_page` leaves `page` unread.
    fn next(&mut self, skip_page: bool) -> std::io::Result<Option<Frame>> {
        let mut header = [0; FRAME_HEADER_BYTES];
        if read_up_to(&mut self.file, &mut header)? < FRAME_HEADER_BYTES {
            return Ok(None);
        }
        if skip_page {
            self.file.seek_relative(i64::try_from(self.page.len()).unwrap_or(i64::MAX))?;
        } else if read_up_to(&mut self.file, &mut self.page)? < self.page.len() {
            return Ok(None);
        }
        let (eights, _) = header.as_chunks::<8>();
        let [summed, salts, [a, b, c, d, e, f, g, h]] = *eights else { return Ok(None) };
        let sums = (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]));
        let is_commit = summed.iter().skip(4).any(|byte| *byte != 0);
        Ok(Some(Frame { summed, salts, sums, is_commit }))
    }
}

fn read_up_to(from: &mut impl Read, into: &mut [u8]) -> std::io::Result<usize> {
    let mut read = 0;
    while let Some(rest) = into.get_mut(read..).filter(|rest| !rest.is_empty()) {
        match from.read(rest)? {
            0 => break,
            more => read += more,
        }
    }
    Ok(read)
}
