//! In-memory indexes that the writer updates and the readers share.

use longshore_codec::Dictionary;
use longshore_store::StoreError;
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use rusqlite::Connection;

use crate::finished_index::Chunks;
use crate::id_cipher::{StoreIdCipher, store_id_cipher};
use crate::live_index::LiveIndex;
use crate::meta;

#[derive(Debug)]
pub(crate) struct Indexes {
    dictionary: RwLock<Dictionary>,
    live: RwLock<LiveIndex>,
    chunks: RwLock<Chunks>,
    pub id_cipher: StoreIdCipher,
}

impl Indexes {
    /// Loads the indexes that have tables. `live` comes from the recovery scan.
    pub(crate) fn load(connection: &Connection, dictionary: Dictionary, live: LiveIndex) -> Result<Self, StoreError> {
        Ok(Self {
            dictionary: RwLock::new(dictionary),
            live: RwLock::new(live),
            chunks: RwLock::new(Chunks::load(connection)?),
            id_cipher: store_id_cipher(meta::id_key(connection)?),
        })
    }

    pub(crate) fn dictionary(&self) -> RwLockReadGuard<'_, Dictionary> {
        self.dictionary.read()
    }

    pub(crate) fn dictionary_mut(&self) -> RwLockWriteGuard<'_, Dictionary> {
        self.dictionary.write()
    }

    pub(crate) fn live(&self) -> RwLockReadGuard<'_, LiveIndex> {
        self.live.read()
    }

    pub(crate) fn live_mut(&self) -> RwLockWriteGuard<'_, LiveIndex> {
        self.live.write()
    }

    pub(crate) fn chunks(&self) -> RwLockReadGuard<'_, Chunks> {
        self.chunks.read()
    }

    pub(crate) fn chunks_mut(&self) -> RwLockWriteGuard<'_, Chunks> {
        self.chunks.write()
    }
}
