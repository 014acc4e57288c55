//! High-watermark file: the last durable commit, in a file beside the database.
//!
//! The store advances it before every checkpoint and within a second of each commit
//! (`wal_checkpoint.rs`). Recovery refuses a database that, with its WAL, ends below it.
//!
//! The commit sequence in the database is not enough. Its page is checkpointed like any other: a
//! reader can delay it, and a power cut can lose it while newer pages survive. A WAL that then
//! loses its end would leave a mixture of two commits. Before the first checkpoint, a store without
//! its WAL would even look empty.
//!
//! In real time the file also records the time (`clock_floor.rs`).
//!
//! Format: two slots, written alternately, so that a torn write leaves the other slot. A slot is
//! `commit_seq (8 bytes) · CRC-32 of it and the store's key (4 bytes)`, then the time in the same
//! form, little endian.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration as Wait;

use longshore_codec::checksum;
use longshore_core::time::Timestamp;
use longshore_store::clock::monotonic;
use longshore_store::{Clock, StoreError};
use longshore_vfs::StoreFiles;

use crate::data_dir::open_private;
use crate::error::is_no_space;
use crate::sqlite::Location;

pub(crate) const FILE: &str = "longshore.watermark";
/// Each slot has its own sector.
const SLOT_OFFSETS: [u64; 2] = [0, 4_096];
const FIELD_BYTES: usize = 12;
/// Interval in which the time is written without a new commit, in milliseconds.
const TIME_INTERVAL_MS: i64 = 1_000;

/// The watermark of an open store. A store in memory has no file.
#[derive(Debug, Default)]
pub(crate) struct WatermarkFile {
    file: Option<OpenFile>,
    id_key: [u8; 16],
    commit_seq: Option<i64>,
    /// Recorded time in milliseconds.
    time_ms: Option<i64>,
    /// Monotonic time of the last write.
    written_at: Option<Wait>,
    /// `None` in virtual time, and until recovery has extended the leases.
    clock: Option<Arc<dyn Clock>>,
    next_slot: usize,
}

/// The open file and how to write it.
#[derive(Debug)]
struct OpenFile {
    file: File,
    path: PathBuf,
    files: Arc<StoreFiles>,
}

impl OpenFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.files.write_at(&self.path, &self.file, bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.files.sync(&self.path, &self.file)
    }
}

impl WatermarkFile {
    /// Opens or creates the file. On a full disk the store opens without it, to finish its work.
    pub(crate) fn open(location: &Location, id_key: [u8; 16], files: Arc<StoreFiles>) -> Result<Self, StoreError> {
        let Some(path) = path(location) else { return Ok(Self::default()) };
        let opened = open_private(&path).and_then(|file| {
            let opened = OpenFile { file, path: path.clone(), files };
            if opened.file.metadata()?.len() == 0 {
                // Allocates both slots: later writes need no space.
                SLOT_OFFSETS.iter().try_for_each(|slot| opened.write_at(&[0; 2 * FIELD_BYTES], *slot))?;
                opened.sync()?;
            }
            Ok(opened)
        });
        match opened {
            Ok(file) => {
                let commit_seq = read_watermark(location, id_key).commit_seq();
                // The newest slot stays until the other one is durable.
                let in_first =
                    commit_seq.is_some_and(|seq| read_slots(&path).first() == Some(&Some(encode_seq(seq, &id_key))));
                let time_ms = read_time(location, id_key).map(Timestamp::as_millis);
                let next_slot = usize::from(in_first);
                Ok(Self { file: Some(file), id_key, commit_seq, time_ms, written_at: None, clock: None, next_slot })
            }
            Err(error) if is_no_space(&error) => Ok(Self::default()),
            Err(error) => Err(StoreError::not_applied(error)),
        }
    }

    /// Records the time of this clock from now on.
    pub(crate) fn follow_clock(&mut self, clock: Arc<dyn Clock>) {
        self.clock = Some(clock);
    }

    /// Returns how long the file has not covered the last commit.
    pub(crate) fn age(&self, commit_seq: i64) -> Option<Wait> {
        self.file.as_ref()?;
        let written_at = self.written_at.filter(|_| self.commit_seq < Some(commit_seq));
        Some(written_at.map_or(Wait::ZERO, |at| monotonic().saturating_sub(at)))
    }

    /// Records that a commit is durable. The caller checkpoints its pages only afterwards.
    pub(crate) fn advance(&mut self, commit_seq: i64) -> io::Result<()> {
        let Some(file) = self.file.as_ref() else { return Ok(()) };
        let time_ms = self.clock.as_ref().map(|clock| clock.now().as_millis()).max(self.time_ms);
        let is_time_due = match (self.time_ms, time_ms) {
            (Some(recorded), Some(now)) => now.saturating_sub(recorded) >= TIME_INTERVAL_MS,
            (recorded, now) => recorded < now,
        };
        if self.commit_seq >= Some(commit_seq) && !is_time_due {
            return Ok(());
        }
        let commit_seq = self.commit_seq.map_or(commit_seq, |recorded| recorded.max(commit_seq));
        let mut slot = encode_seq(commit_seq, &self.id_key).to_vec();
        slot.extend(time_ms.into_iter().flat_map(|time_ms| encode_time(time_ms, &self.id_key)));
        let offset = SLOT_OFFSETS.get(self.next_slot).copied().unwrap_or_default();
        file.write_at(&slot, offset)?;
        file.sync()?;
        (self.commit_seq, self.time_ms, self.written_at) = (Some(commit_seq), time_ms, Some(monotonic()));
        self.next_slot = (self.next_slot + 1) % SLOT_OFFSETS.len();
        Ok(())
    }
}

/// Content of a watermark file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatermarkRead {
    Empty,
    /// Highest commit that was recorded for this store.
    CommitSeq(i64),
    /// The file belongs to another store, or both slots are corrupt.
    Foreign,
}

impl WatermarkRead {
    fn commit_seq(self) -> Option<i64> {
        match self {
            Self::CommitSeq(commit_seq) => Some(commit_seq),
            Self::Empty | Self::Foreign => None,
        }
    }
}

pub(crate) fn read_watermark(location: &Location, id_key: [u8; 16]) -> WatermarkRead {
    let slots = path(location).map(|path| read_slots(&path)).unwrap_or_default();
    let commit_seqs = slots.iter().flatten().filter_map(|slot| {
        let commit_seq = i64::from_le_bytes(*slot.first_chunk()?);
        (*slot == encode_seq(commit_seq, &id_key)).then_some(commit_seq)
    });
    match commit_seqs.max() {
        Some(commit_seq) => WatermarkRead::CommitSeq(commit_seq),
        None if slots == [None; 2] => WatermarkRead::Empty,
        None => WatermarkRead::Foreign,
    }
}

/// Returns the last recorded time. Slots of another store and corrupt slots are ignored.
pub(crate) fn read_time(location: &Location, id_key: [u8; 16]) -> Option<Timestamp> {
    let fields = path(location).map(|path| read_fields(&path, FIELD_BYTES as u64)).unwrap_or_default();
    let times = fields.iter().flatten().filter_map(|field| {
        let time = i64::from_le_bytes(*field.first_chunk()?);
        (*field == encode_time(time, &id_key)).then_some(time)
    });
    times.max().map(Timestamp::from_millis)
}

/// Returns whether any store has written a watermark beside this database.
pub(crate) fn exists(database: &Path) -> bool {
    read_slots(&database.with_file_name(FILE)) != [None; 2]
}

/// Returns the commit field of both slots. An unreadable or empty slot is `None`.
fn read_slots(path: &Path) -> [Option<[u8; FIELD_BYTES]>; 2] {
    read_fields(path, 0)
}

/// Returns the field at an offset of each slot.
fn read_fields(path: &Path, offset: u64) -> [Option<[u8; FIELD_BYTES]>; 2] {
    let Ok(file) = File::open(path) else { return [None; 2] };
    SLOT_OFFSETS.map(|slot| {
        let mut field = [0; FIELD_BYTES];
        file.read_exact_at(&mut field, slot + offset).ok()?;
        (field != [0; FIELD_BYTES]).then_some(field)
    })
}

/// Removes the file of a store that is about to be replaced by a restored one.
pub(crate) fn remove(location: &Location) -> io::Result<()> {
    match path(location).map(fs::remove_file) {
        Some(Err(error)) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Some(_) | None => Ok(()),
    }
}

fn path(location: &Location) -> Option<PathBuf> {
    match location {
        Location::Memory(_) => None,
        Location::File(database) => Some(database.parent().unwrap_or(Path::new("")).join(FILE)),
    }
}

fn encode_seq(commit_seq: i64, id_key: &[u8; 16]) -> [u8; FIELD_BYTES] {
    with_checksum(commit_seq, checksum(commit_seq.cast_unsigned(), id_key))
}

/// The seed differs from that of a commit, so the two fields cannot be swapped.
fn encode_time(time: i64, id_key: &[u8; 16]) -> [u8; FIELD_BYTES] {
    with_checksum(time, checksum(!time.cast_unsigned(), id_key))
}

fn with_checksum(number: i64, checksum: u32) -> [u8; FIELD_BYTES] {
    let mut field = [0; FIELD_BYTES];
    let (value, sum) = field.split_at_mut(size_of::<i64>());
    value.copy_from_slice(&number.to_le_bytes());
    sum.copy_from_slice(&checksum.to_le_bytes());
    field
}

#[cfg(test)]
mod tests {

    use longshore_core::time::Duration;
    use longshore_store::VirtualClock;
    use parking_lot::Mutex;

    use super::*;
    use crate::meta::{self, CommitRecord};
    use crate::recovery::{LastStop, check_wal_complete, checkpoint_on_open};
    use crate::schema::{self, ClockMode};
    use crate::sqlite::{DATABASE, Role};
    use crate::wal::wal_path;
    use crate::wal_checkpoint::checkpoint_with_watermark;

    fn files(location: &Location) -> Arc<StoreFiles> {
        match location {
            Location::Memory(name) => StoreFiles::attach(Path::new(name), 0, None),
            Location::File(path) => StoreFiles::attach(path, 0, None),
        }
    }

    fn filled(directory: &Path) -> (Location, rusqlite::Connection) {
        let location = Location::File(directory.join(DATABASE));
        let writer = location.open(Role::Writer).unwrap();
        schema::prepare(&writer, ClockMode::Virtual).unwrap();
        (location, writer)
    }

    fn commit(writer: &rusqlite::Connection, commit_seq: i64) {
        let transaction = writer.unchecked_transaction().unwrap();
        let insert = "INSERT INTO payload(seq, kind, checksum, bytes) VALUES (?1, 0, 0, zeroblob(20000))";
        transaction.execute(insert, [commit_seq]).unwrap();
        let record = CommitRecord { commit_seq, live_jobs: 0, synced_seq: CommitRecord::NONE_SYNCED };
        meta::set_commit_record(&transaction, record).unwrap();
        transaction.commit().unwrap();
    }

    /// P13: a checkpoint ran beside a reader of an older snapshot, then the WAL lost its end.
    #[test]
    fn open_refuses_a_wal_that_lost_checkpointed_frames() {
        let home = tempfile::tempdir().unwrap();
        let (location, writer) = filled(home.path());
        checkpoint_on_open(&location, &writer, &Mutex::default(), LastStop::Clean, Timestamp::from_millis(0), None)
            .unwrap();
        commit(&writer, 10);
        let wal = wal_path(&home.path().join(DATABASE));
        let short = fs::metadata(&wal).unwrap().len();
        commit(&writer, 11);
        // Keeps a snapshot of commit 11 open.
        let reader = location.open(Role::Reader).unwrap();
        let snapshot = reader.unchecked_transaction().unwrap();
        assert_eq!(meta::commit_seq(&snapshot).unwrap(), 11);
        commit(&writer, 12);
        let id_key = meta::id_key(&writer).unwrap();
        let watermark = Mutex::new(WatermarkFile::open(&location, id_key, files(&location)).unwrap());
        let (checkpointer, guard) = (location.open(Role::Checkpointer).unwrap(), location.open(Role::Reader).unwrap());
        let (pages, copied) = checkpoint_with_watermark(&checkpointer, &guard, &watermark, &|| Ok(())).unwrap();
        assert!(copied > 0 && copied < pages, "{copied} of {pages} pages were copied");
        assert_eq!(read_watermark(&location, id_key), WatermarkRead::CommitSeq(12));
        let complete = tempfile::tempdir().unwrap();
        for file in fs::read_dir(home.path()).unwrap() {
            let file = file.unwrap();
            fs::copy(file.path(), complete.path().join(file.file_name())).unwrap();
        }
        let location = Location::File(complete.path().join(DATABASE));
        check_wal_complete(&location, &location.open(Role::Writer).unwrap()).unwrap();
        File::options().write(true).open(wal_path(&complete.path().join(DATABASE))).unwrap().set_len(short).unwrap();
        let opened = || check_wal_complete(&location, &location.open(Role::Writer).unwrap());
        let refused = opened().unwrap_err().to_string();
        assert!(refused.contains("data is missing"), "{refused}");
        // The database alone does not show the loss.
        remove(&location).unwrap();
        opened().unwrap();
    }

    #[test]
    fn a_torn_slot_leaves_the_other_and_other_stores_are_foreign() {
        let home = tempfile::tempdir().unwrap();
        let location = Location::File(home.path().join(DATABASE));
        let mut watermark = WatermarkFile::open(&location, [7; 16], files(&location)).unwrap();
        assert_eq!(read_watermark(&location, [7; 16]), WatermarkRead::Empty);
        for commit_seq in [1, 5, 5, 4, 9] {
            watermark.advance(commit_seq).unwrap();
        }
        assert_eq!(read_watermark(&location, [7; 16]), WatermarkRead::CommitSeq(9));
        assert_eq!(read_watermark(&location, [8; 16]), WatermarkRead::Foreign);
        File::options().write(true).open(path(&location).unwrap()).unwrap().write_all_at(b"torn", 0).unwrap();
        assert_eq!(
            read_watermark(&location, [7; 16]),
            WatermarkRead::CommitSeq(5),
            "the third write replaced the first"
        );
        let mut again = WatermarkFile::open(&location, [7; 16], files(&location)).unwrap();
        assert_eq!(again.commit_seq, Some(5));
        // After a reopen the older slot is written first.
        again.advance(10).unwrap();
        assert_eq!(
            read_slots(&path(&location).unwrap()).map(Option::unwrap),
            [encode_seq(10, &[7; 16]), encode_seq(5, &[7; 16])]
        );
        WatermarkFile::open(&location, [7; 16], files(&location)).unwrap().advance(11).unwrap();
        assert_eq!(
            read_slots(&path(&location).unwrap()).map(Option::unwrap),
            [encode_seq(10, &[7; 16]), encode_seq(11, &[7; 16])]
        );
    }

    #[test]
    fn time_is_recorded_with_and_without_a_new_commit() {
        let home = tempfile::tempdir().unwrap();
        let location = Location::File(home.path().join(DATABASE));
        let (key, clock) = ([7; 16], Arc::new(VirtualClock::new(Timestamp::from_millis(50_000))));
        let recorded = || read_time(&location, key).map(Timestamp::as_millis);
        let mut watermark = WatermarkFile::open(&location, key, files(&location)).unwrap();
        watermark.advance(1).unwrap();
        assert_eq!(recorded(), None, "no time before follow_clock");
        watermark.follow_clock(clock.clone());
        watermark.advance(1).unwrap();
        assert_eq!((recorded(), read_watermark(&location, key)), (Some(50_000), WatermarkRead::CommitSeq(1)));
        clock.advance(Duration::from_millis(999));
        watermark.advance(1).unwrap();
        assert_eq!(recorded(), Some(50_000), "at most once per second");
        clock.advance(Duration::from_millis(1));
        watermark.advance(1).unwrap();
        assert_eq!((recorded(), read_time(&location, [8; 16])), (Some(51_000), None));
        // Torn time fields leave the commit fields intact.
        let file = File::options().write(true).open(path(&location).unwrap()).unwrap();
        file.write_all_at(b"torn", SLOT_OFFSETS[0] + 12).unwrap();
        file.write_all_at(b"torn", SLOT_OFFSETS[1] + 12).unwrap();
        assert_eq!((recorded(), read_watermark(&location, key)), (None, WatermarkRead::CommitSeq(1)));
        // A file that follows no clock yet keeps the recorded time.
        watermark.advance(2).unwrap();
        let mut again = WatermarkFile::open(&location, key, files(&location)).unwrap();
        again.advance(3).unwrap();
        assert_eq!((recorded(), read_watermark(&location, key)), (Some(51_000), WatermarkRead::CommitSeq(3)));
    }
}
