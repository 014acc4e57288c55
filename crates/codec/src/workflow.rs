//! The encoding of a workflow.

use std::sync::Arc;

use longshore_core::cancel::Force;
use longshore_core::id::{Seq, WorkflowId};
use longshore_core::time::Timestamp;
use longshore_core::workflow::{MemberCounts, Workflow, WorkflowAction, WorkflowOperation};

use crate::record::{DecodeError, Decoder, Encoder, FORMAT, append_checksum, verify_checksum};

const FORCE: [Force; 2] = [Force::ByPolicy, Force::Now];

pub fn encode(workflow: &Workflow) -> Vec<u8> {
    let mut encoder = Encoder::default();
    encoder.byte(FORMAT);
    encoder.fixed(workflow.id.as_bytes());
    encoder.zigzag(workflow.created_at.as_millis());
    encoder.option(workflow.name.as_deref(), |encoder, name| encoder.text(name.as_bytes()));
    encoder.flag(workflow.open);
    encoder.flag(workflow.cancelled);
    encoder.varint(workflow.members_added);
    workflow.tally.counts.iter().for_each(|count| encoder.varint(*count));
    encoder.varint(workflow.tally.records);
    encoder.option(workflow.operation.as_ref(), |encoder, operation| {
        encoder.varint(operation.cursor.0);
        encoder.varint(operation.last_seq.0);
        encoder.varint(operation.changed);
        match &operation.action {
            WorkflowAction::Cancel { reason, force } => {
                encoder.byte(0);
                encoder.option(reason.as_deref(), |encoder, reason| encoder.text(reason.as_bytes()));
                encoder.flag(*force == Force::Now);
            }
            WorkflowAction::Retry => encoder.byte(1),
        }
    });
    append_checksum(workflow.number.0, encoder.bytes)
}

pub fn decode(number: Seq, record: &[u8]) -> Result<Workflow, DecodeError> {
    let mut decoder = Decoder::new(verify_checksum(number.0, record)?);
    let decoder = &mut decoder;
    if decoder.byte()? != FORMAT {
        return Err(DecodeError);
    }
    let id = WorkflowId::from_bytes(decoder.fixed()?);
    let created_at = Timestamp::from_millis(decoder.zigzag()?);
    let name = decoder.option(|decoder| decoder.text().map(Arc::from))?;
    let (open, cancelled, members_added) = (decoder.flag()?, decoder.flag()?, decoder.varint()?);
    let mut tally = MemberCounts::default();
    for count in &mut tally.counts {
        *count = decoder.varint()?;
    }
    tally.records = decoder.varint()?;
    let operation = decoder.option(|decoder| {
        let (cursor, last_seq) = (Seq(decoder.varint()?), Seq(decoder.varint()?));
        let changed = decoder.varint()?;
        let action = match decoder.byte()? {
            0 => WorkflowAction::Cancel {
                reason: decoder.option(|decoder| decoder.text().map(Arc::from))?,
                force: decoder.variant(&FORCE)?,
            },
            1 => WorkflowAction::Retry,
            _ => return Err(DecodeError),
        };
        Ok(WorkflowOperation { action, cursor, last_seq, changed })
    })?;
    decoder.end()?;
    Ok(Workflow { id, number, name, open, created_at, members_added, cancelled, operation, tally })
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
        let operation =
            |action| Some(WorkflowOperation { action, cursor: Seq(301), last_seq: Seq(u64::MAX), changed: 70_000 });
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
            Workflow { operation: operation(WorkflowAction::Retry), ..plain.clone() },
            Workflow { operation: operation(cancel(None, Force::Now)), ..plain.clone() },
            Workflow { operation: operation(cancel(Some("enough"), Force::ByPolicy)), ..plain.clone() },
            plain,
        ] {
            let bytes = encode(&workflow);
            assert_eq!(decode(workflow.number, &bytes), Ok(workflow.clone()));
            assert_eq!(decode(Seq(1), &bytes), Err(DecodeError), "the checksum covers the number");
        }
    }
}
