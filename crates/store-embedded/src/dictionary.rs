//! The names of the records crate, kept in a table.

use longshore_codec::Dictionary;
use longshore_codec::{append_checksum, verify_checksum};
use longshore_store::StoreError;
use rusqlite::{Connection, params};

use crate::error::{damaged, sql};
use crate::key_order::KeyOrderCheck;

/// What the checksum of a name covers beside the name.
fn place_of(kind: u8, number: u32) -> u64 {
    (u64::from(kind) << 32) | u64::from(number)
}

pub(crate) fn load(connection: &Connection) -> Result<Dictionary, StoreError> {
    let mut names = Dictionary::default();
    let mut rows = connection.prepare("SELECT kind, number, value FROM name ORDER BY kind, number").map_err(sql)?;
    let (mut rows, mut order) = (rows.query([]).map_err(sql)?, KeyOrderCheck::through("name"));
    while let Some(row) = rows.next().map_err(sql)? {
        let (kind, number): (u8, u32) = (row.get(0).map_err(sql)?, row.get(1).map_err(sql)?);
        order.next((kind, number))?;
        let sealed: Vec<u8> = row.get(2).map_err(sql)?;
        let value = verify_checksum(place_of(kind, number), &sealed).map_err(|_| damaged("the table of names"))?;
        names.load_entry(kind, number, value).map_err(|_| damaged("the table of names"))?;
    }
    Ok(names)
}

/// Writes what is new, inside the caller's transaction.
pub(crate) fn save(names: &Dictionary, connection: &Connection) -> rusqlite::Result<()> {
    for (kind, number, value) in names.unsaved() {
        let mut insert =
            connection.prepare_cached("INSERT OR REPLACE INTO name(kind, number, value) VALUES (?1, ?2, ?3)")?;
        let value = value.map(|value| append_checksum(place_of(kind, number), value));
        insert.execute(params![kind, number, value])?;
    }
    Ok(())
}
