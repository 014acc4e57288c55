//! The log, before it is believed.
//!
//! SQLite reads its log up to the first frame that does not fit and takes what follows for a torn end. That is right after a crash and wrong after damage: one
//! flipped bit would silently take back everything that was acknowledged after it. The two can be told apart, because a commit is on disk before
//! the next one is begun: whatever was torn lies in the last commit, and no second one can follow it.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use longshore_store::StoreError;
use rusqlite::Connection;
use rusqlite::config::DbConfig;

use crate::error::{DiskErrorKind, classify, io_as_sqlite, sql};
use crate::schema::{self, Location};
use crate::wal_checkpoint::checkpoint;
use crate::watermark::{self, WatermarkFile, WatermarkRead};

const HEADER_BYTES: usize = 32;
const FRAME_HEADER_BYTES: usize = 24;
/// The two first words of a log; the last bit is the order of bytes in its checksums.
const MAGIC: u32 = 0x377f_0682;
/// Where the header is lost; all our databases have it.
const PAGE_BYTES: usize = 4_096;

pub(crate) fn path_of(database: &Path) -> PathBuf {
    beside(database, "-wal")
}

/// Where SQLite keeps what it would have to take back, in a database that has no log.
pub(crate) fn journal_of(database: &Path) -> PathBuf {
    beside(database, "-journal")
}

fn beside(database: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(database);
    name.push(ending);
    PathBuf::from(name)
}

/// Refuses a log that is damaged before its last commit. A torn end is none of our business: SQLite cuts it off.
pub(crate) fn check(database: &Path) -> Result<(), StoreError> {
    let path = path_of(database);
    let damage = match File::open(&path) {
        Ok(mut file) => find_damage(&mut file),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => Err(error),
    };
    match damage.map_err(StoreError::not_applied)? {
        None => Ok(()),
        Some(offset) => Err(StoreError::corrupt(format!("the log {} at byte {offset}", path.display()))),
    }
}

/// Where the first damaged byte can be, if what follows shows that it is not the torn end.
fn find_damage(file: &mut File) -> std::io::Result<Option<u64>> {
    let mut header = [0; HEADER_BYTES];
    if read_up_to(file, &mut header)? < HEADER_BYTES {
        return Ok(None);
    }
    let header = Header::read(&header);
    let page_bytes = header.as_ref().map_or(PAGE_BYTES, |header| header.page_bytes);
    let mut frames = Frames { file: BufReader::with_capacity(1 << 16, file), page: vec![0; page_bytes] };
    let mut place = HEADER_BYTES as u64;
    let mut sound = header;
    // The salts of this log; a log that was begun again may have frames of the one before behind its end.
    let mut salts = sound.as_ref().map(|header| header.salts);
    // A lost header: it was on disk before the first frame.
    let (mut broken_at, mut commits, enough) = if sound.is_some() { (None, 0, 2) } else { (Some(0), 0, 1) };
    while let Some(frame) = frames.next(broken_at.is_some())? {
        let own = *salts.get_or_insert(frame.salts) == frame.salts;
        if let Some(header) = &mut sound
            && !(own && header.continues(&frame, &frames.page))
        {
            (sound, broken_at) = (None, Some(place));
        }
        if broken_at.is_some() && own && frame.commits {
            commits += 1;
            if commits == enough {
                return Ok(broken_at);
            }
        }
        place += (FRAME_HEADER_BYTES + page_bytes) as u64;
    }
    Ok(None)
}

/// What the chain of checksums has come to.
struct Header {
    page_bytes: usize,
    salts: [u8; 8],
    big_endian: bool,
    sums: (u32, u32),
}

impl Header {
    /// `None`: not what was written.
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
        let right = sums == (u32::from_be_bytes(sum1), u32::from_be_bytes(sum2));
        let salts = [salt1, salt2].as_flattened().try_into().ok()?;
        (right && (512..=65_536).contains(&page_bytes)).then_some(Self { page_bytes, salts, big_endian, sums })
    }

    /// Whether this frame is the next one, as it was written.
    fn continues(&mut self, frame: &Frame, page: &[u8]) -> bool {
        self.sums = add(self.big_endian, add(self.big_endian, self.sums, &frame.summed), page);
        self.sums == frame.sums
    }
}

/// The log's own checksum: two running sums over pairs of words.
fn add(big_endian: bool, sums: (u32, u32), bytes: &[u8]) -> (u32, u32) {
    let word = |bytes: [u8; 4]| if big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) };
    let (pairs, _) = bytes.as_chunks::<8>();
    pairs.iter().fold(sums, |(first, second), [a, b, c, d, e, f, g, h]| {
        let first = first.wrapping_add(word([*a, *b, *c, *d])).wrapping_add(second);
        (first, second.wrapping_add(word([*e, *f, *g, *h])).wrapping_add(first))
    })
}

struct Frame {
    /// The part of its header that the checksum covers.
    summed: [u8; 8],
    salts: [u8; 8],
    sums: (u32, u32),
    commits: bool,
}

struct Frames<'a> {
    file: BufReader<&'a mut File>,
    page: Vec<u8>,
}

impl Frames<'_> {
    /// The next frame that is there as a whole; its page is passed over if nobody wants it.
    fn next(&mut self, pass_over: bool) -> std::io::Result<Option<Frame>> {
        let mut header = [0; FRAME_HEADER_BYTES];
        if read_up_to(&mut self.file, &mut header)? < FRAME_HEADER_BYTES {
            return Ok(None);
        }
        if pass_over {
            self.file.seek_relative(i64::try_from(self.page.len()).unwrap_or(i64::MAX))?;
        } else if read_up_to(&mut self.file, &mut self.page)? < self.page.len() {
            return Ok(None);
        }
        let (eights, _) = header.as_chunks::<8>();
        let [summed, salts, [a, b, c, d, e, f, g, h]] = *eights else { return Ok(None) };
        let sums = (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]));
        let commits = summed.iter().skip(4).any(|byte| *byte != 0);
        Ok(Some(Frame { summed, salts, sums, commits }))
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

/// Moves what the log holds into the database, before anything is built upon it.
///
/// After a sync that failed, memory may show pages which the disk does not have and will never be given: the kernel takes them for written. Here
/// they are written again, elsewhere, and synced.
pub(crate) fn checkpoint_on_open(
    location: &Location,
    connection: &Connection,
    noted: &Mutex<WatermarkFile>,
) -> Result<(), StoreError> {
    match truncate_wal(connection, schema::mark(connection)?, noted) {
        Ok(()) => Ok(()),
        // The log keeps what does not fit now.
        Err(error) if classify(location, &error) == DiskErrorKind::Full => Ok(()),
        Err(error) => Err(sql(error)),
    }
}

/// Empties the log into the database. What is copied is marked first, above the last mark.
pub(crate) fn truncate_wal(connection: &Connection, mark: i64, noted: &Mutex<WatermarkFile>) -> rusqlite::Result<()> {
    let (log, _) = checkpoint(connection, "NOOP")?;
    if log > 0 {
        let transaction = connection.unchecked_transaction()?;
        schema::bump_commit_seq(&transaction, mark + 1)?;
        transaction.commit()?;
        advance_watermark(noted, mark + 1)?;
    }
    checkpoint(connection, "TRUNCATE").map(drop)
}

/// This commit is on disk; nothing up to it is copied before it is noted.
pub(crate) fn advance_watermark(noted: &Mutex<WatermarkFile>, mark: i64) -> rusqlite::Result<()> {
    noted.lock().unwrap_or_else(PoisonError::into_inner).advance(mark).map_err(|error| io_as_sqlite(&error))
}

/// Refuses a log that ends before what was copied from it into the database, or that belongs to another one. What both show together would be a
/// mixture of two moments.
///
/// Another process may go on writing meanwhile: what it has noted or copied was committed before, so it is read first.
pub(crate) fn check_wal_complete(location: &Location, connection: &Connection) -> Result<(), StoreError> {
    let Location::File(path) = location else { return Ok(()) };
    // A database that was never copied into says nothing.
    let copied = read_without_wal(path);
    check_watermark(location, connection)?;
    let (Some(copied), seen) = (copied, StoreIdentity::read(connection)?) else { return Ok(()) };
    if copied.id_key != seen.id_key {
        return Err(StoreError::corrupt(format!("the log {} is of another store", path_of(path).display())));
    }
    if copied.mark > seen.mark {
        return Err(StoreError::corrupt(format!("the log {} has lost its end", path_of(path).display())));
    }
    Ok(())
}

/// Refuses what is of an earlier moment than was noted beside the database of this place.
pub(crate) fn check_watermark(location: &Location, connection: &Connection) -> Result<(), StoreError> {
    let Location::File(path) = location else { return Ok(()) };
    match watermark::read_watermark(location, schema::id_key(connection)?) {
        WatermarkRead::Mark(noted) if noted > schema::mark(connection)? => {
            let what = "has lost its end, or the files are of an earlier moment than was noted beside them";
            Err(StoreError::corrupt(format!("the log {} {what}", path_of(path).display())))
        }
        WatermarkRead::Foreign => {
            let what = format!("{} beside {} is of another store, or damaged", watermark::FILE, path.display());
            Err(StoreError::corrupt(what))
        }
        WatermarkRead::Mark(_) | WatermarkRead::Nothing => Ok(()),
    }
}

/// Which store, and how far it had come.
struct StoreIdentity {
    id_key: [u8; 16],
    mark: i64,
}

impl StoreIdentity {
    fn read(connection: &Connection) -> Result<Self, StoreError> {
        Ok(Self { id_key: schema::id_key(connection)?, mark: schema::mark(connection)? })
    }
}

/// What the database shows without its log.
fn read_without_wal(path: &Path) -> Option<StoreIdentity> {
    let connection = schema::open_immutable(path).ok()?;
    // While pages are copied the database may be shorter than it says; this lets it be read all the same.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_WRITABLE_SCHEMA, true).ok()?;
    StoreIdentity::read(&connection).ok()
}
