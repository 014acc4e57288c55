//! The generated column `workflows.state` equals the state that the rules compute, for any counts.

mod common;

use std::sync::Arc;

use longshore_core::id::{Seq, WorkflowId};
use longshore_core::rng::{Rng, SeededRng};
use longshore_core::time::Timestamp;
use longshore_core::workflow::{MemberCounts, Workflow, WorkflowAction, WorkflowOperation};
use tokio_postgres::NoTls;
use tokio_postgres::types::Type;

const WORKFLOWS: i64 = 2_000;

fn random(number: i64, rng: &mut SeededRng) -> Workflow {
    let mut tally = MemberCounts::default();
    for count in &mut tally.counts {
        // Mostly 0, so that rare states occur as well.
        *count = (rng as &mut dyn Rng).uniform_inclusive(9).saturating_sub(7);
    }
    let any = |rng: &mut SeededRng| (rng as &mut dyn Rng).uniform_inclusive(6) == 0;
    Workflow {
        id: WorkflowId::random(rng),
        number: Seq(number.unsigned_abs()),
        name: None,
        open: any(rng),
        cancelled: any(rng),
        created_at: Timestamp::from_millis(0),
        members_added: 0,
        operation: any(rng).then_some(WorkflowOperation {
            action: WorkflowAction::Retry,
            cursor: Seq(0),
            last_seq: Seq(1),
            changed: 0,
        }),
        tally,
    }
}

#[test]
fn the_column_equals_the_state_of_the_rules() {
    let schema = Arc::new(common::Schema::take());
    let mut rng = SeededRng::new(7);
    common::runtime().block_on(async {
        let (client, connection) = tokio_postgres::connect(&schema.url, NoTls).await.expect("a connection");
        tokio::spawn(connection);
        let mut seen = std::collections::BTreeMap::new();
        for number in 1..=WORKFLOWS {
            let workflow = random(number, &mut rng);
            let counts = workflow.tally.counts.iter().chain([&workflow.tally.records]);
            let counts: Vec<i64> = counts.map(|count| i64::try_from(*count).expect("small")).collect();
            let text = format!(
                "INSERT INTO {}.workflows (number, open, operation_active, counts, record) VALUES ($1, $2, $3, $4, '') RETURNING state",
                schema.name
            );
            let operation_active = workflow.operation.is_some();
            let rows = client
                .query_typed(&text, &[(&number, Type::INT8), (&workflow.open, Type::BOOL), (&operation_active, Type::BOOL), (&counts, Type::INT8_ARRAY)])
                .await
                .expect("it is written");
            let state: i16 = rows.first().expect("a row").get(0);
            assert_eq!(state, workflow.state() as i16, "{workflow:?}");
            *seen.entry(state).or_insert(0) += 1;
        }
        assert!(seen.len() == 4 && seen.values().all(|times| *times > 10), "{seen:?}");
    });
}
