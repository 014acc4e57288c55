//! A workflow as bytes.

use std::sync::Arc;

use longshore_core::cancel::Force;
use longshore_core::id::{Seq, WorkflowId};
use longshore_core::time::Timestamp;
use longshore_core::workflow::{MemberCounts, Workflow, WorkflowAction, WorkflowOperation};

use super::{DecodeError, FORMAT, Reader, Writer, append_checksum, verify_checksum};

const FORCE: [Force; 2] = [Force::ByPolicy, Force::Now];

pub fn encode(workflow: &Workflow) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.byte(FORMAT);
    writer.fixed(workflow.id.as_bytes());
    writer.zigzag(workflow.created_at.as_millis());
    writer.option(workflow.name.as_deref(), |writer, name| writer.text(name.as_bytes()));
    writer.flag(workflow.open);
    writer.flag(workflow.cancelled);
    writer.varint(workflow.members_added);
    workflow.tally.counts.iter().for_each(|count| writer.varint(*count));
    writer.varint(workflow.tally.records);
    writer.option(workflow.operation.as_ref(), |writer, errand| {
        writer.varint(errand.cursor.0);
        writer.varint(errand.last_seq.0);
        writer.varint(errand.changed);
        match &errand.action {
            WorkflowAction::Cancel { reason, force } => {
                writer.byte(0);
                writer.option(reason.as_deref(), |writer, reason| writer.text(reason.as_bytes()));
                writer.flag(*force == Force::Now);
            }
            WorkflowAction::Retry => writer.byte(1),
        }
    });
    append_checksum(workflow.number.0, writer.bytes)
}

pub fn decode(number: Seq, sealed: &[u8]) -> Result<Workflow, DecodeError> {
    let mut reader = Reader::new(verify_checksum(number.0, sealed)?);
    let reader = &mut reader;
    if reader.byte()? != FORMAT {
        return Err(DecodeError);
    }
    let id = WorkflowId::from_bytes(reader.fixed()?);
    let created_at = Timestamp::from_millis(reader.zigzag()?);
    let name = reader.option(|reader| reader.text().map(Arc::from))?;
    let (open, cancelled, joined) = (reader.flag()?, reader.flag()?, reader.varint()?);
    let mut tally = MemberCounts::default();
    for count in &mut tally.counts {
        *count = reader.varint()?;
    }
    tally.records = reader.varint()?;
    let errand = reader.option(|reader| {
        let (reached, until) = (Seq(reader.varint()?), Seq(reader.varint()?));
        let changed = reader.varint()?;
        let what = match reader.byte()? {
            0 => WorkflowAction::Cancel {
                reason: reader.option(|reader| reader.text().map(Arc::from))?,
                force: reader.variant(&FORCE)?,
            },
            1 => WorkflowAction::Retry,
            _ => return Err(DecodeError),
        };
        Ok(WorkflowOperation { action: what, cursor: reached, last_seq: until, changed })
    })?;
    reader.end()?;
    Ok(Workflow { id, number, name, open, created_at, members_added: joined, cancelled, operation: errand, tally })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workflows_round_trip() {
        let plain = Workflow {
            id: WorkflowId::from_bytes([7; 16]),
            number: Seq(300),
            name: None,
            open: true,
            created_at: Timestamp::from_millis(-5),
            members_added: 0,
            cancelled: false,
            operation: None,
            tally: MemberCounts::default(),
        };
        let tally = MemberCounts { counts: [0, 1, 2, 3, 4, 500, 6, 7, 100_000], records: 9 };
        let errand =
            |what| Some(WorkflowOperation { action: what, cursor: Seq(301), last_seq: Seq(u64::MAX), changed: 70_000 });
        let cancel = |reason: Option<&str>, force| WorkflowAction::Cancel { reason: reason.map(Arc::from), force };
        for workflow in [
            Workflow {
                name: Some("nightly".into()),
                open: false,
                cancelled: true,
                members_added: 1 << 40,
                tally,
                ..plain.clone()
            },
            Workflow { operation: errand(WorkflowAction::Retry), ..plain.clone() },
            Workflow { operation: errand(cancel(None, Force::Now)), ..plain.clone() },
            Workflow { operation: errand(cancel(Some("enough"), Force::ByPolicy)), ..plain.clone() },
            plain,
        ] {
            let bytes = encode(&workflow);
            assert_eq!(decode(workflow.number, &bytes), Ok(workflow.clone()));
            assert_eq!(decode(Seq(1), &bytes), Err(DecodeError), "elsewhere it is not itself");
        }
    }
}
