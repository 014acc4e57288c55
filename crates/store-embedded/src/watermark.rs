//! How far the store had come, noted beside the database: before pages are copied from the log, and now and then between (see
//! [`crate::checkpoint`]).
//!
//! The mark among the store's notes (see [`crate::schema::mark`]) lies on a page that is copied like any other: while somebody reads an earlier
//! moment SQLite leaves it out, and a power cut may lose it and keep its neighbours. A log that then loses its end would make a mixture of two moments
//! that nobody notices. Here the mark is on disk first. Before anything was copied the log is all there is: without it the store would look empty.
//!
//! A store in real time also notes the time: see [`crate::seen`].
//!
//! Two places, written in turn: `mark (8 bytes) · CRC-32 of it and the store's key (4 bytes)`, then the last seen instant in the same form, little
//! endian. One that was torn leaves the other.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_codec::checksum;
use longshore_core::time::Timestamp;
use longshore_store::{Clock, StoreError};

use crate::data_dir::open_private;
use crate::error::is_no_space;
use crate::schema::Location;

pub(crate) const FILE: &str = "longshore.mark";
/// Each place lies in a sector of its own.
const SLOT_OFFSETS: [u64; 2] = [0, 4_096];
const BYTES: usize = 12;
/// The time alone is noted this often, in milliseconds.
const TIMES_APART: i64 = 1_000;

/// Nothing is noted for a database in memory.
#[derive(Debug, Default)]
pub(crate) struct WatermarkFile {
    file: Option<File>,
    id_key: [u8; 16],
    last: Option<i64>,
    /// The last instant that was noted, in milliseconds.
    seen: Option<i64>,
    /// `None`: the time of this store is not noted, or not yet.
    clock: Option<Arc<dyn Clock>>,
    next_place: usize,
}

impl WatermarkFile {
    /// On a full disk there may be no room for the file: a store that cannot note anything still opens, to finish its work.
    pub(crate) fn open(location: &Location, id_key: [u8; 16]) -> Result<Self, StoreError> {
        let Some(path) = path(location) else { return Ok(Self::default()) };
        let made = open_private(&path).and_then(|file| {
            if file.metadata()?.len() == 0 {
                // From now on nothing has to be found for it any more.
                SLOT_OFFSETS.iter().try_for_each(|place| file.write_all_at(&[0; 2 * BYTES], *place))?;
                file.sync_all()?;
            }
            Ok(file)
        });
        match made {
            Ok(file) => {
                let last = read_watermark(location, id_key).mark();
                // The newest stays until another one is on disk.
                let in_first = last.is_some_and(|mark| read(&path).first() == Some(&Some(sealed(mark, &id_key))));
                let seen = seen(location, id_key).map(Timestamp::as_millis);
                Ok(Self { file: Some(file), id_key, last, seen, clock: None, next_place: usize::from(in_first) })
            }
            Err(error) if is_no_space(&error) => Ok(Self::default()),
            Err(error) => Err(StoreError::not_applied(error)),
        }
    }

    /// From now on each note carries the time.
    pub(crate) fn follow(&mut self, clock: Arc<dyn Clock>) {
        self.clock = Some(clock);
    }

    /// The commit is on disk; whatever is copied up to it is copied after this.
    pub(crate) fn advance(&mut self, mark: i64) -> io::Result<()> {
        let Some(file) = self.file.as_ref() else { return Ok(()) };
        let seen = self.clock.as_ref().map(|clock| clock.now().as_millis()).max(self.seen);
        let later = match (self.seen, seen) {
            (Some(noted), Some(seen)) => seen.saturating_sub(noted) >= TIMES_APART,
            (noted, seen) => noted < seen,
        };
        if self.last >= Some(mark) && !later {
            return Ok(());
        }
        let mark = self.last.map_or(mark, |last| last.max(mark));
        let mut note = sealed(mark, &self.id_key).to_vec();
        note.extend(seen.into_iter().flat_map(|seen| sealed_time(seen, &self.id_key)));
        let place = SLOT_OFFSETS.get(self.next_place).copied().unwrap_or_default();
        file.write_all_at(&note, place)?;
        file.sync_data()?;
        (self.last, self.seen) = (Some(mark), seen);
        self.next_place = (self.next_place + 1) % SLOT_OFFSETS.len();
        Ok(())
    }
}

/// What lies beside a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatermarkRead {
    Nothing,
    /// The highest that was noted for this store.
    Mark(i64),
    /// Something that was not noted for this store.
    Foreign,
}

impl WatermarkRead {
    fn mark(self) -> Option<i64> {
        match self {
            Self::Mark(mark) => Some(mark),
            Self::Nothing | Self::Foreign => None,
        }
    }
}

pub(crate) fn read_watermark(location: &Location, id_key: [u8; 16]) -> WatermarkRead {
    let places = path(location).map(|path| read(&path)).unwrap_or_default();
    let marks = places.iter().flatten().filter_map(|found| {
        let mark = i64::from_le_bytes(*found.first_chunk()?);
        (*found == sealed(mark, &id_key)).then_some(mark)
    });
    match marks.max() {
        Some(mark) => WatermarkRead::Mark(mark),
        None if places == [None; 2] => WatermarkRead::Nothing,
        None => WatermarkRead::Foreign,
    }
}

/// The last instant that was noted for this store. A note of another store, or a damaged one, says nothing.
pub(crate) fn seen(location: &Location, id_key: [u8; 16]) -> Option<Timestamp> {
    let times = path(location).map(|path| read_at(&path, BYTES as u64)).unwrap_or_default();
    let times = times.iter().flatten().filter_map(|found| {
        let time = i64::from_le_bytes(*found.first_chunk()?);
        (*found == sealed_time(time, &id_key)).then_some(time)
    });
    times.max().map(Timestamp::from_millis)
}

/// Whether anything was ever noted beside this database, for whichever store.
pub(crate) fn exists(database: &Path) -> bool {
    read(&database.with_file_name(FILE)) != [None; 2]
}

/// Both places, where they were written to. What cannot be read says nothing.
fn read(path: &Path) -> [Option<[u8; BYTES]>; 2] {
    read_at(path, 0)
}

/// So many bytes behind the beginning of each place.
fn read_at(path: &Path, behind: u64) -> [Option<[u8; BYTES]>; 2] {
    let Ok(file) = File::open(path) else { return [None; 2] };
    SLOT_OFFSETS.map(|place| {
        let mut found = [0; BYTES];
        file.read_exact_at(&mut found, place + behind).ok()?;
        (found != [0; BYTES]).then_some(found)
    })
}

/// For a store that goes on from an earlier moment by intention.
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

fn sealed(mark: i64, id_key: &[u8; 16]) -> [u8; BYTES] {
    with_checksum(mark, checksum(mark.cast_unsigned(), id_key))
}

/// Another checksum than that of the same number as a mark.
fn sealed_time(time: i64, id_key: &[u8; 16]) -> [u8; BYTES] {
    with_checksum(time, checksum(!time.cast_unsigned(), id_key))
}

fn with_checksum(number: i64, checksum: u32) -> [u8; BYTES] {
    let mut sealed = [0; BYTES];
    let (value, sum) = sealed.split_at_mut(size_of::<i64>());
    value.copy_from_slice(&number.to_le_bytes());
    sum.copy_from_slice(&checksum.to_le_bytes());
    sealed
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use longshore_core::time::Duration;
    use longshore_store::VirtualClock;

    use super::*;
    use crate::schema::{self, ClockMode, Role};
    use crate::wal;
    use crate::wal_checkpoint::checkpoint_with_watermark;

    fn filled(directory: &Path) -> (Location, rusqlite::Connection) {
        let location = Location::File(directory.join(schema::DATABASE));
        let writer = location.open(Role::Writer).unwrap();
        schema::prepare(&writer, ClockMode::Virtual).unwrap();
        (location, writer)
    }

    fn commit(writer: &rusqlite::Connection, mark: i64) {
        let transaction = writer.unchecked_transaction().unwrap();
        let insert = "INSERT INTO payload(seq, kind, checksum, bytes) VALUES (?1, 0, 0, zeroblob(20000))";
        transaction.execute(insert, [mark]).unwrap();
        schema::set_commit_seq(&transaction, mark, 0).unwrap();
        transaction.commit().unwrap();
    }

    /// P13: pages were copied while somebody read an earlier moment, and then the log lost its end.
    #[test]
    fn a_log_that_loses_what_was_copied_beside_a_reader_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let (location, writer) = filled(home.path());
        wal::checkpoint_on_open(&location, &writer, &Mutex::default()).unwrap();
        commit(&writer, 10);
        let log = wal::path_of(&home.path().join(schema::DATABASE));
        let short = fs::metadata(&log).unwrap().len();
        commit(&writer, 11);
        // Reads the moment of the eleventh commit, on and on.
        let reader = location.open(Role::Reader).unwrap();
        let moment = reader.unchecked_transaction().unwrap();
        assert_eq!(schema::mark(&moment).unwrap(), 11);
        commit(&writer, 12);
        let id_key = schema::id_key(&writer).unwrap();
        let noted = Mutex::new(WatermarkFile::open(&location, id_key).unwrap());
        let (copier, guard) = (location.open(Role::Checkpointer).unwrap(), location.open(Role::Reader).unwrap());
        let (pages, copied) = checkpoint_with_watermark(&copier, &guard, &noted).unwrap();
        assert!(copied > 0 && copied < pages, "{copied} of {pages} pages were copied");
        assert_eq!(read_watermark(&location, id_key), WatermarkRead::Mark(12));
        let whole = tempfile::tempdir().unwrap();
        for file in fs::read_dir(home.path()).unwrap() {
            let file = file.unwrap();
            fs::copy(file.path(), whole.path().join(file.file_name())).unwrap();
        }
        let location = Location::File(whole.path().join(schema::DATABASE));
        wal::check_wal_complete(&location, &location.open(Role::Writer).unwrap()).unwrap();
        File::options()
            .write(true)
            .open(wal::path_of(&whole.path().join(schema::DATABASE)))
            .unwrap()
            .set_len(short)
            .unwrap();
        let opened = || wal::check_wal_complete(&location, &location.open(Role::Writer).unwrap());
        let refused = opened().unwrap_err().to_string();
        assert!(refused.contains("lost its end"), "{refused}");
        // The database alone would not have told.
        remove(&location).unwrap();
        opened().unwrap();
    }

    #[test]
    fn one_place_outlives_the_other_and_other_stores_say_nothing() {
        let home = tempfile::tempdir().unwrap();
        let location = Location::File(home.path().join(schema::DATABASE));
        let mut noted = WatermarkFile::open(&location, [7; 16]).unwrap();
        assert_eq!(read_watermark(&location, [7; 16]), WatermarkRead::Nothing);
        for mark in [1, 5, 5, 4, 9] {
            noted.advance(mark).unwrap();
        }
        assert_eq!(read_watermark(&location, [7; 16]), WatermarkRead::Mark(9));
        assert_eq!(read_watermark(&location, [8; 16]), WatermarkRead::Foreign);
        File::options().write(true).open(path(&location).unwrap()).unwrap().write_all_at(b"torn", 0).unwrap();
        assert_eq!(read_watermark(&location, [7; 16]), WatermarkRead::Mark(5), "the third went where the first was");
        let mut again = WatermarkFile::open(&location, [7; 16]).unwrap();
        assert_eq!(again.last, Some(5));
        // Whoever opens it writes over the older one first, whichever place that has.
        again.advance(10).unwrap();
        assert_eq!(read(&path(&location).unwrap()).map(Option::unwrap), [sealed(10, &[7; 16]), sealed(5, &[7; 16])]);
        WatermarkFile::open(&location, [7; 16]).unwrap().advance(11).unwrap();
        assert_eq!(read(&path(&location).unwrap()).map(Option::unwrap), [sealed(10, &[7; 16]), sealed(11, &[7; 16])]);
    }

    #[test]
    fn the_time_is_noted_with_the_mark_and_without_a_new_one() {
        let home = tempfile::tempdir().unwrap();
        let location = Location::File(home.path().join(schema::DATABASE));
        let (key, clock) = ([7; 16], Arc::new(VirtualClock::new(Timestamp::from_millis(50_000))));
        let told = || seen(&location, key).map(Timestamp::as_millis);
        let mut noted = WatermarkFile::open(&location, key).unwrap();
        noted.advance(1).unwrap();
        assert_eq!(told(), None, "nothing is noted before the clock is followed");
        noted.follow(clock.clone());
        noted.advance(1).unwrap();
        assert_eq!((told(), read_watermark(&location, key)), (Some(50_000), WatermarkRead::Mark(1)));
        clock.advance(Duration::from_millis(999));
        noted.advance(1).unwrap();
        assert_eq!(told(), Some(50_000), "not every moment");
        clock.advance(Duration::from_millis(1));
        noted.advance(1).unwrap();
        assert_eq!((told(), seen(&location, [8; 16])), (Some(51_000), None));
        // A torn note of the time leaves the other one, and both marks.
        let file = File::options().write(true).open(path(&location).unwrap()).unwrap();
        file.write_all_at(b"torn", SLOT_OFFSETS[0] + 12).unwrap();
        file.write_all_at(b"torn", SLOT_OFFSETS[1] + 12).unwrap();
        assert_eq!((told(), read_watermark(&location, key)), (None, WatermarkRead::Mark(1)));
        // A store that does not follow its clock yet keeps what was noted.
        noted.advance(2).unwrap();
        let mut again = WatermarkFile::open(&location, key).unwrap();
        again.advance(3).unwrap();
        assert_eq!((told(), read_watermark(&location, key)), (Some(51_000), WatermarkRead::Mark(3)));
    }
}
