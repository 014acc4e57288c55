//! Table of the codec's dictionary: numbers for queue names, types and policies.

use longshore_codec::Dictionary;
use longshore_codec::{append_checksum, verify_checksum};
use longshore_store::StoreError;
use rusqlite::{Connection, params};

use crate::error::{corrupt, sql};
use crate::key_order::KeyOrderCheck;

/// Binds a value to its key: the checksum fails if entries are swapped.
fn checksum_seed(kind: u8, number: u32) -> u64 {
    (u64::from(kind) << 32) | u64::from(number)
}

pub(crate) fn load(connection: &Connection) -> Result<Dictionary, StoreError> {
    let mut dictionary = Dictionary::default();
    let mut rows =
        connection.prepare("SELECT kind, number, value FROM dictionary ORDER BY kind, number").map_err(sql)?;
    let (mut rows, mut order) = (rows.query([]).map_err(sql)?, KeyOrderCheck::through("dictionary"));
    while let Some(row) = rows.next().map_err(sql)? {
        let (kind, number): (u8, u32) = (row.get(0).map_err(sql)?, row.get(1).map_err(sql)?);
        order.next((kind, number))?;
        let stored: Vec<u8> = row.get(2).map_err(sql)?;
        let value = verify_checksum(checksum_seed(kind, number), &stored).map_err(|_| corrupt("the dictionary"))?;
        dictionary.load_entry(kind, number, value).map_err(|_| corrupt("the dictionary"))?;
    }
    Ok(dictionary)
}

/// Writes new entries in the caller's transaction.
pub(crate) fn save(dictionary: &Dictionary, connection: &Connection) -> rusqlite::Result<()> {
    for (kind, number, value) in dictionary.unsaved() {
        let mut insert =
            connection.prepare_cached("INSERT OR REPLACE INTO dictionary(kind, number, value) VALUES (?1, ?2, ?3)")?;
        let value = value.map(|value| append_checksum(checksum_seed(kind, number), value));
        insert.execute(params![kind, number, value])?;
    }
    Ok(())
}
