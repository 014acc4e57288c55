//! The byte format is fixed: this program writes the same bytes as an older one of the same format.
//! `tests/formats.rs` reads the same fixture and says how it is created.

use std::path::Path;

use longshore_core::id::{QueueName, Seq};
use rusqlite::{Connection, OpenFlags};

use crate::schema::{ClockMode, prepare};
use crate::sqlite::{Location, Role};
use longshore_codec::{FORMAT, job, policy, verify_checksum, workflow};

const HINT: &str = "the format has changed and its number has not: raise it, keep reading the old one, and add a fixture of the new one";

fn fixture() -> Connection {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("fixtures/format-{FORMAT}/longshore.db"));
    assert!(path.is_file(), "format {FORMAT} has no fixture yet: see tests/formats.rs");
    let uri = format!("file:{}?immutable=1", path.display());
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    Connection::open_with_flags(uri, flags).expect("the fixture opens")
}

fn rows<T: rusqlite::types::FromSql>(connection: &Connection, statement: &str) -> Vec<(T, Vec<u8>)> {
    let mut select = connection.prepare(statement).expect("a table");
    let rows = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).expect("rows");
    rows.collect::<Result<_, _>>().expect("rows")
}

/// Removes the zero padding, which may have any length.
fn body(seq: Seq, record: &[u8]) -> &[u8] {
    let bytes = verify_checksum(seq.0, record).expect("its checksum is right");
    let end = bytes.iter().rposition(|byte| *byte != 0).expect("it has a version") + 1;
    &bytes[..end]
}

#[test]
fn jobs_are_written_as_they_were() {
    let connection = fixture();
    let names = crate::dictionary::load(&connection).expect("the names are read");
    let mut seen = 0;
    for table in ["live_jobs", "finished_jobs"] {
        for (number, record) in rows::<i64>(&connection, &format!("SELECT seq, record FROM {table}")) {
            let seq = Seq(number.cast_unsigned());
            assert_eq!(body(seq, &record)[0], FORMAT);
            let decoded = job::decode(seq, &record, &names).expect("it is read");
            let encoded = job::encode(&decoded, &names, Vec::new()).expect("it can be stored");
            assert!(body(seq, &encoded) == body(seq, &record), "job {seq}: {HINT}");
            seen += 1;
        }
    }
    assert!(seen > 30, "only {seen} jobs");
}

#[test]
fn workflows_are_written_as_they_were() {
    let connection = fixture();
    let workflows = rows::<i64>(&connection, "SELECT number, record FROM workflow");
    assert!(workflows.len() > 2, "only {} workflows", workflows.len());
    for (number, record) in workflows {
        let decoded = workflow::decode(Seq(number.cast_unsigned()), &record).expect("it is read");
        assert!(workflow::encode(&decoded) == record, "workflow {number}: {HINT}");
    }
}

#[test]
fn queues_are_written_as_they_were() {
    let connection = fixture();
    let queues = rows::<String>(&connection, "SELECT name, record FROM queue");
    assert!(queues.len() > 6, "only {} queues", queues.len());
    for (name, record) in queues {
        let queue = policy::decode_queue(QueueName::new(&name).expect("a name"), &record).expect("it is read");
        assert!(policy::encode_queue(&queue).as_deref() == Ok(record.as_slice()), "queue {name}: {HINT}");
    }
}

#[test]
fn tables_are_made_as_they_were() {
    let tables = |connection: &Connection| {
        let mut select =
            connection.prepare("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY sql").expect("tables");
        let rows = select.query_map([], |row| row.get::<_, String>(0)).expect("tables");
        rows.collect::<Result<Vec<_>, _>>().expect("tables")
    };
    let fresh = Location::Memory("longshore-fixture".to_owned()).open(Role::Writer).expect("a database");
    prepare(&fresh, ClockMode::Virtual).expect("tables are made");
    assert_eq!(tables(&fresh), tables(&fixture()), "{HINT} (SCHEMA)");
}
