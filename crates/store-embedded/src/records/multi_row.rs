//! Statements that write many rows at once: SQLite finds the place of each from the one before, where statements of their own would each begin at the root.

use std::sync::LazyLock;

use longshore_core::id::Seq;
use rusqlite::{Connection, Statement};

/// Rows of one statement: as many as there are, and the rest one by one.
const SIZES: [usize; 3] = [64, 8, 1];
/// Rows share a statement if no more numbers than this lie between them, for each of them. SQLite keeps the pages that a statement changes until it ends, in a
/// file if there are more than a few.
const GAP_FACTOR_MAX: u64 = 4;

/// The same statement for each of the sizes.
pub(super) struct MultiRowStatement {
    texts: [String; SIZES.len()],
    columns: usize,
}

pub(super) static INSERT_LIVE: LazyLock<MultiRowStatement> =
    LazyLock::new(|| MultiRowStatement::new("INSERT INTO live(seq, record)", 2));
/// Of rows that are there.
pub(super) static REPLACE_LIVE: LazyLock<MultiRowStatement> =
    LazyLock::new(|| MultiRowStatement::new("INSERT OR REPLACE INTO live(seq, record)", 2));
pub(super) static INSERT_ENDED: LazyLock<MultiRowStatement> =
    LazyLock::new(|| MultiRowStatement::new("INSERT INTO ended(seq, queue, state, type, prune_at, record)", 6));
pub(super) static INSERT_PAYLOADS: LazyLock<MultiRowStatement> =
    LazyLock::new(|| MultiRowStatement::new("INSERT INTO payload(seq, kind, checksum, bytes)", 4));

impl MultiRowStatement {
    fn new(into: &str, columns: usize) -> Self {
        let row = format!("({})", vec!["?"; columns].join(","));
        let texts = SIZES.map(|rows| format!("{into} VALUES {}", vec![row.as_str(); rows].join(",")));
        Self { texts, columns }
    }

    /// Writes rows that are sorted by their numbers; `bind` gets the place of a row's first parameter.
    pub(super) fn write<T>(
        &self,
        connection: &Connection,
        rows: &[(Seq, T)],
        bind: impl Fn(&mut Statement<'_>, usize, &(Seq, T)) -> rusqlite::Result<()>,
    ) -> rusqlite::Result<()> {
        let mut left = rows;
        while !left.is_empty() {
            let together = self.texts.iter().zip(SIZES).find_map(|(text, size)| {
                let (rows, rest) = left.split_at_checked(size)?;
                is_dense(rows).then_some((text, rows, rest))
            });
            // One row is always close to itself.
            let (text, rows, rest) = together.ok_or(rusqlite::Error::InvalidQuery)?;
            let mut statement = connection.prepare_cached(text)?;
            for (place, row) in rows.iter().enumerate() {
                bind(&mut statement, place * self.columns + 1, row)?;
            }
            statement.raw_execute()?;
            left = rest;
        }
        Ok(())
    }
}

fn is_dense<T>(rows: &[(Seq, T)]) -> bool {
    let (Some((first, _)), Some((last, _))) = (rows.first(), rows.last()) else { return false };
    let rows = u64::try_from(rows.len()).unwrap_or(u64::MAX);
    last.0.saturating_sub(first.0) <= rows.saturating_mul(GAP_FACTOR_MAX)
}

/// Numbers without a gap, as the first and the last of each.
pub(super) fn ranges(seqs: &[Seq]) -> impl Iterator<Item = (Seq, Seq)> {
    seqs.chunk_by(|one, next| one.0 + 1 == next.0).filter_map(|range| Some((*range.first()?, *range.last()?)))
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;

    fn table() -> Connection {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch("CREATE TABLE live(seq INTEGER PRIMARY KEY, record BLOB NOT NULL)").unwrap();
        connection
    }

    fn write(many: &MultiRowStatement, connection: &Connection, rows: &[(Seq, u8)]) -> rusqlite::Result<()> {
        many.write(connection, rows, |statement, first, (seq, byte)| {
            statement.raw_bind_parameter(first, seq.0.cast_signed())?;
            statement.raw_bind_parameter(first + 1, [*byte].as_slice())
        })
    }

    fn read(connection: &Connection) -> Vec<(Seq, u8)> {
        let mut select = connection.prepare("SELECT seq, record FROM live ORDER BY seq").unwrap();
        let rows = select.query_map([], |row| {
            Ok((Seq(row.get::<_, i64>(0)?.cast_unsigned()), row.get_ref(1)?.as_blob().unwrap()[0]))
        });
        rows.unwrap().collect::<Result<_, _>>().unwrap()
    }

    /// However many there are, and however far apart: each row once.
    #[test]
    fn every_number_of_rows_and_every_distance() {
        for number in [0, 1, 7, 8, 9, 63, 64, 65, 72, 73, 200] {
            for step in [1, 2, 4, 5, 1_000] {
                let connection = table();
                let rows: Vec<(Seq, u8)> =
                    (0..number).map(|place| (Seq(7 + place * step), u8::try_from(place).unwrap())).collect();
                write(&INSERT_LIVE, &connection, &rows).unwrap();
                assert_eq!(read(&connection), rows, "{number} rows by {step}");
                let others: Vec<(Seq, u8)> = rows.iter().map(|(seq, byte)| (*seq, byte ^ 0x80)).collect();
                write(&REPLACE_LIVE, &connection, &others).unwrap();
                assert_eq!(read(&connection), others, "{number} rows by {step}, replaced");
            }
        }
    }

    #[test]
    fn a_number_that_is_taken_is_refused() {
        let connection = table();
        write(&INSERT_LIVE, &connection, &[(Seq(9), 1)]).unwrap();
        let rows: Vec<(Seq, u8)> = (0..64).map(|place| (Seq(place), 2)).collect();
        assert!(write(&INSERT_LIVE, &connection, &rows).is_err());
        assert_eq!(read(&connection), [(Seq(9), 1)], "a statement that fails has done nothing");
    }

    #[test]
    fn ranges_of_neighbours() {
        let seqs = [1, 2, 3, 5, 7, 8].map(Seq);
        let expected = [(1, 3), (5, 5), (7, 8)].map(|(first, last)| (Seq(first), Seq(last)));
        assert_eq!(ranges(&seqs).collect::<Vec<_>>(), expected);
        assert_eq!(ranges(&[]).count(), 0);
    }
}
