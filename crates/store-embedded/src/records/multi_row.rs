//! Multi-row statements. SQLite finds the position of each row from the previous one; single-row
//! statements each start at the root of the B-tree.

use std::sync::LazyLock;

use longshore_core::id::Seq;
use rusqlite::{Connection, Statement};

/// Rows per statement. Rows that do not fill a size use the next smaller one.
const SIZES: [usize; 3] = [64, 8, 1];
/// Rows share a statement if the span of their numbers is at most this multiple of their count.
/// SQLite keeps all pages that a statement changes until it ends, and spills many of them to a
/// file.
const GAP_FACTOR_MAX: u64 = 4;

/// One statement in each of the sizes.
pub(super) struct MultiRowStatement {
    texts: [String; SIZES.len()],
    columns: usize,
}

pub(super) static INSERT_LIVE: LazyLock<MultiRowStatement> =
    LazyLock::new(|| MultiRowStatement::new("INSERT INTO live_jobs(seq, record)", 2));
/// For rows that exist.
pub(super) static REPLACE_LIVE: LazyLock<MultiRowStatement> =
    LazyLock::new(|| MultiRowStatement::new("INSERT OR REPLACE INTO live_jobs(seq, record)", 2));
pub(super) static INSERT_FINISHED: LazyLock<MultiRowStatement> =
    LazyLock::new(|| MultiRowStatement::new("INSERT INTO finished_jobs(seq, queue, state, type, prune_at, record)", 6));
pub(super) static INSERT_PAYLOADS: LazyLock<MultiRowStatement> =
    LazyLock::new(|| MultiRowStatement::new("INSERT INTO payload(seq, kind, checksum, bytes)", 4));

impl MultiRowStatement {
    fn new(into: &str, columns: usize) -> Self {
        let row = format!("({})", vec!["?"; columns].join(","));
        let texts = SIZES.map(|rows| format!("{into} VALUES {}", vec![row.as_str(); rows].join(",")));
        Self { texts, columns }
    }

    /// Writes rows sorted by number. `bind` gets the index of the row's first parameter.
    pub(super) fn write<T>(
        &self,
        connection: &Connection,
        rows: &[(Seq, T)],
        bind: impl Fn(&mut Statement<'_>, usize, &(Seq, T)) -> rusqlite::Result<()>,
    ) -> rusqlite::Result<()> {
        let mut pending = rows;
        while !pending.is_empty() {
            let next = self.texts.iter().zip(SIZES).find_map(|(text, size)| {
                let (rows, rest) = pending.split_at_checked(size)?;
                is_dense(rows).then_some((text, rows, rest))
            });
            // A single row is always dense.
            let (text, rows, rest) = next.ok_or(rusqlite::Error::InvalidQuery)?;
            let mut statement = connection.prepare_cached(text)?;
            for (index, row) in rows.iter().enumerate() {
                bind(&mut statement, index * self.columns + 1, row)?;
            }
            statement.raw_execute()?;
            pending = rest;
        }
        Ok(())
    }
}

fn is_dense<T>(rows: &[(Seq, T)]) -> bool {
    let (Some((first, _)), Some((last, _))) = (rows.first(), rows.last()) else { return false };
    let rows = u64::try_from(rows.len()).unwrap_or(u64::MAX);
    last.0.saturating_sub(first.0) <= rows.saturating_mul(GAP_FACTOR_MAX)
}

/// Returns the ranges of consecutive numbers, as first and last number.
pub(super) fn ranges(seqs: &[Seq]) -> impl Iterator<Item = (Seq, Seq)> {
    seqs.chunk_by(|one, next| one.0 + 1 == next.0).filter_map(|range| Some((*range.first()?, *range.last()?)))
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;

    fn table() -> Connection {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch("CREATE TABLE live_jobs(seq INTEGER PRIMARY KEY, record BLOB NOT NULL)").unwrap();
        connection
    }

    fn write(many: &MultiRowStatement, connection: &Connection, rows: &[(Seq, u8)]) -> rusqlite::Result<()> {
        many.write(connection, rows, |statement, first, (seq, byte)| {
            statement.raw_bind_parameter(first, seq.0.cast_signed())?;
            statement.raw_bind_parameter(first + 1, [*byte].as_slice())
        })
    }

    fn read(connection: &Connection) -> Vec<(Seq, u8)> {
        let mut select = connection.prepare("SELECT seq, record FROM live_jobs ORDER BY seq").unwrap();
        let rows = select.query_map([], |row| {
            Ok((Seq(row.get::<_, i64>(0)?.cast_unsigned()), row.get_ref(1)?.as_blob().unwrap()[0]))
        });
        rows.unwrap().collect::<Result<_, _>>().unwrap()
    }

    /// Each row is written once, for any count and any distance.
    #[test]
    fn write_handles_any_count_and_distance() {
        for number in [0, 1, 7, 8, 9, 63, 64, 65, 72, 73, 200] {
            for step in [1, 2, 4, 5, 1_000] {
                let connection = table();
                let rows: Vec<(Seq, u8)> =
                    (0..number).map(|index| (Seq(7 + index * step), u8::try_from(index).unwrap())).collect();
                write(&INSERT_LIVE, &connection, &rows).unwrap();
                assert_eq!(read(&connection), rows, "{number} rows by {step}");
                let others: Vec<(Seq, u8)> = rows.iter().map(|(seq, byte)| (*seq, byte ^ 0x80)).collect();
                write(&REPLACE_LIVE, &connection, &others).unwrap();
                assert_eq!(read(&connection), others, "{number} rows by {step}, replaced");
            }
        }
    }

    #[test]
    fn insert_refuses_an_existing_number() {
        let connection = table();
        write(&INSERT_LIVE, &connection, &[(Seq(9), 1)]).unwrap();
        let rows: Vec<(Seq, u8)> = (0..64).map(|number| (Seq(number), 2)).collect();
        assert!(write(&INSERT_LIVE, &connection, &rows).is_err());
        assert_eq!(read(&connection), [(Seq(9), 1)], "a failed statement changes nothing");
    }

    #[test]
    fn ranges_join_consecutive_numbers() {
        let seqs = [1, 2, 3, 5, 7, 8].map(Seq);
        let expected = [(1, 3), (5, 5), (7, 8)].map(|(first, last)| (Seq(first), Seq(last)));
        assert_eq!(ranges(&seqs).collect::<Vec<_>>(), expected);
        assert_eq!(ranges(&[]).count(), 0);
    }
}
