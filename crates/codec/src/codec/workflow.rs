//! A workflow as bytes.

use std::sync::Arc;

use longshore_core::cancel::Force;
use longshore_core::id::{Seq, WorkflowId};
use longshore_core::time::Timestamp;
use longshore_core::workflow::{MemberCounts, Workflow, WorkflowAction, WorkflowOperation};

use super::{Damaged, FORMAT, Reader, Writer, seal, unseal};

const FORCE: [Force; 2] = [Force::ByPolicy, Force::Now];

pub fn encode(workflow: &Workflow) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.byte(FORMAT);
    writer.fixed(workflow.id.as_bytes());
    writer.signed(workflow.created_at.as_millis());
    writer.option(workflow.name.as_deref(), |writer, name| writer.text(name.as_bytes()));
    writer.flag(workflow.open);
    writer.flag(workflow.cancelled);
    writer.number(workflow.members_added);
    workflow.tally.counts.iter().for_each(|count| writer.number(*count));
    writer.number(workflow.tally.records);
    writer.option(workflow.operation.as_ref(), |writer, errand| {
        writer.number(errand.cursor.0);
        writer.number(errand.last_seq.0);
        writer.number(errand.changed);
        match &errand.action {
            WorkflowAction::Cancel { reason, force } => {
                writer.byte(0);
                writer.option(reason.as_deref(), |writer, reason| writer.text(reason.as_bytes()));
                writer.flag(*force == Force::Now);
            }
            WorkflowAction::Retry => writer.byte(1),
        }
    });
    seal(workflow.number.0, writer.bytes)
}

pub fn decode(number: Seq, sealed: &[u8]) -> Result<Workflow, Damaged> {
    let mut reader = Reader::new(unseal(number.0, sealed)?);
    let reader = &mut reader;
    if reader.byte()? != FORMAT {
        return Err(Damaged);
    }
    let id = WorkflowId::from_bytes(reader.fixed()?);
    let created_at = Timestamp::from_millis(reader.signed()?);
    let name = reader.option(|reader| reader.text().map(Arc::from))?;
    let (open, cancelled, joined) = (reader.flag()?, reader.flag()?, reader.number()?);
    let mut tally = MemberCounts::default();
    for count in &mut tally.counts {
        *count = reader.number()?;
    }
    tally.records = reader.number()?;
    let errand = reader.option(|reader| {
        let (reached, until) = (Seq(reader.number()?), Seq(reader.number()?));
        let changed = reader.number()?;
        let what = match reader.byte()? {
            0 => WorkflowAction::Cancel {
                reason: reader.option(|reader| reader.text().map(Arc::from))?,
                force: reader.one_of(&FORCE)?,
            },
            1 => WorkflowAction::Retry,
            _ => return Err(Damaged),
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
            assert_eq!(decode(Seq(1), &bytes), Err(Damaged), "elsewhere it is not itself");
        }
    }
}
