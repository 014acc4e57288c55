//! A disk that loses what was not synced: it keeps the durable bytes of each file and every change
//! since the last sync.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use longshore_core::rng::SeededRng;
use longshore_store_embedded::DiskObserver;

use super::between;

/// Unit that reaches the disk completely or not at all.
const SECTOR_BYTES: usize = 512;

/// Watches the files of a store and cuts the power at one of their changes.
#[derive(Debug)]
pub(crate) struct SimulatedDisk {
    state: Mutex<DiskState>,
    /// Acknowledgements that the test has seen.
    acknowledged: AtomicUsize,
}

#[derive(Debug)]
struct DiskState {
    files: BTreeMap<PathBuf, SimulatedFile>,
    /// Number of the next change or sync.
    next: u64,
    cut_at: u64,
    rng: SeededRng,
    cut: Option<PowerCut>,
}

#[derive(Debug, Default)]
struct SimulatedFile {
    durable: Vec<u8>,
    pending: Vec<(u64, Change)>,
}

#[derive(Debug)]
enum Change {
    Write { offset: usize, bytes: Vec<u8> },
    Truncate { bytes: usize },
}

/// State of the disk after a power cut.
#[derive(Debug)]
pub(crate) struct PowerCut {
    files: BTreeMap<PathBuf, Vec<u8>>,
    /// Acknowledgements before the cut.
    pub(crate) acknowledged: usize,
    /// Changes that were lost, completely or in part.
    pub(crate) lost: usize,
}

impl SimulatedDisk {
    /// Starts with the files of a directory. Cuts at the change with this number.
    pub(crate) fn new(directory: &Path, cut_at: u64, seed: u64) -> Self {
        let file = |entry: fs::DirEntry| {
            let durable = fs::read(entry.path()).expect("bytes");
            (entry.path(), SimulatedFile { durable, pending: Vec::new() })
        };
        let entries = fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("an entry"));
        let files = entries.filter(|entry| is_durable(&entry.path())).map(file).collect();
        let state = DiskState { files, next: 0, cut_at, rng: SeededRng::new(seed), cut: None };
        Self { state: Mutex::new(state), acknowledged: AtomicUsize::new(0) }
    }

    /// Records that the test has seen an acknowledgement.
    pub(crate) fn acknowledge(&self) {
        self.acknowledged.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.state.lock().expect("no panic").cut.is_some()
    }

    /// Returns the state after the cut, which is now if it was not before.
    pub(crate) fn cut(&self) -> PowerCut {
        let mut state = self.state.lock().expect("no panic");
        if state.cut.is_none() {
            state.cut_now(self.acknowledged.load(Ordering::SeqCst));
        }
        state.cut.take().expect("a cut")
    }

    fn change(&self, file: &Path, change: Option<Change>) -> u64 {
        let mut state = self.state.lock().expect("no panic");
        let number = state.next;
        state.next += 1;
        if let Some(change) = change {
            state.files.entry(file.to_owned()).or_default().pending.push((number, change));
        }
        if number == state.cut_at {
            // The change itself may be lost like any other.
            state.cut_now(self.acknowledged.load(Ordering::SeqCst));
        }
        number
    }
}

impl DiskState {
    fn cut_now(&mut self, acknowledged: usize) {
        if self.cut.is_some() {
            return;
        }
        let mut lost = 0;
        let files = self.files.iter().map(|(path, file)| {
            let (bytes, lost_here) = file.after_cut(&mut self.rng);
            lost += lost_here;
            (path.clone(), bytes)
        });
        let files = files.collect();
        self.cut = Some(PowerCut { files, acknowledged, lost });
    }
}

impl SimulatedFile {
    /// Applies the changes from before a mark to the durable bytes.
    fn sync(&mut self, mark: u64) {
        let later = self.pending.partition_point(|(number, _)| *number < mark);
        let synced: Vec<_> = self.pending.drain(..later).collect();
        synced.into_iter().for_each(|(_, change)| apply(&mut self.durable, &change));
    }

    /// Returns the bytes after a cut, and the number of changes that did not survive completely.
    ///
    /// A truncation that is lost takes all later changes with it, as in a journal of metadata.
    fn after_cut(&self, rng: &mut SeededRng) -> (Vec<u8>, usize) {
        let (mut bytes, mut lost) = (self.durable.clone(), 0);
        let survival = between(rng, 0, 4);
        for (index, (_, change)) in self.pending.iter().enumerate() {
            match change {
                Change::Truncate { .. } if between(rng, 0, 1) == 0 => {
                    return (bytes, lost + self.pending.len() - index);
                }
                Change::Truncate { .. } => apply(&mut bytes, change),
                Change::Write { offset, bytes: written } => {
                    let mut is_complete = true;
                    for (from, sector) in sectors(*offset, written) {
                        // 0: nothing survives, 4: everything does.
                        if between(rng, 1, 4) <= survival {
                            apply(&mut bytes, &Change::Write { offset: from, bytes: sector.to_vec() });
                        } else {
                            is_complete = false;
                        }
                    }
                    lost += usize::from(!is_complete);
                }
            }
        }
        (bytes, lost)
    }
}

/// Splits a write at the borders of sectors.
fn sectors(offset: usize, bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let mut start = 0;
    std::iter::from_fn(move || {
        let from = offset + start;
        let end = (start + SECTOR_BYTES - from % SECTOR_BYTES).min(bytes.len());
        let sector = bytes.get(start..end).filter(|sector| !sector.is_empty())?;
        start = end;
        Some((from, sector))
    })
}

fn apply(file: &mut Vec<u8>, change: &Change) {
    match change {
        Change::Truncate { bytes } => file.resize(*bytes, 0),
        Change::Write { offset, bytes } => {
            let end = offset + bytes.len();
            if file.len() < end {
                file.resize(end, 0);
            }
            file[*offset..end].copy_from_slice(bytes);
        }
    }
}

/// The index of the WAL and the lock are not read after a restart.
fn is_durable(path: &Path) -> bool {
    !["-shm", ".lock"].iter().any(|suffix| path.to_str().expect("a path").ends_with(suffix))
}

impl PowerCut {
    /// Writes the files into an empty directory.
    pub(crate) fn restore(&self, directory: &Path) {
        for (path, bytes) in &self.files {
            fs::write(directory.join(path.file_name().expect("a name")), bytes).expect("a file");
        }
    }
}

impl DiskObserver for SimulatedDisk {
    fn on_write(&self, file: &Path, offset: u64, bytes: &[u8]) {
        let offset = usize::try_from(offset).expect("small");
        self.change(file, Some(Change::Write { offset, bytes: bytes.to_vec() }));
    }

    fn on_truncate(&self, file: &Path, bytes: u64) {
        self.change(file, Some(Change::Truncate { bytes: usize::try_from(bytes).expect("small") }));
    }

    fn on_delete(&self, file: &Path) {
        self.change(file, None);
        self.state.lock().expect("no panic").files.remove(file);
    }

    fn on_sync_start(&self, file: &Path) -> u64 {
        self.change(file, None)
    }

    fn on_sync_end(&self, file: &Path, mark: u64) {
        let mut state = self.state.lock().expect("no panic");
        if let Some(file) = state.files.get_mut(file) {
            file.sync(mark);
        }
    }
}
