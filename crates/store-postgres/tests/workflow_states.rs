//! The state of a workflow is a column that the database computes, so that listings have an index: it is what the rules say, whatever the counts.

mod common;

use std::sync::Arc;

use longshore_core::id::{Seq, WorkflowId};
use longshore_core::rng::{Dice, SeededDice};
use longshore_core::time::Timestamp;
use longshore_core::workflow::{Deed, Errand, Tally, Workflow};
use tokio_postgres::NoTls;
use tokio_postgres::types::Type;

const WORKFLOWS: i64 = 2_000;

fn random(number: i64, dice: &mut SeededDice) -> Workflow {
    let mut tally = Tally::default();
    for count in &mut tally.counts {
        // Mostly none: then the rarer states are seen as well.
        *count = (dice as &mut dyn Dice).up_to(9).saturating_sub(7);
    }
    let any = |dice: &mut SeededDice| (dice as &mut dyn Dice).up_to(6) == 0;
    Workflow {
        id: WorkflowId::random(dice),
        number: Seq(number.unsigned_abs()),
        name: None,
        open: any(dice),
        cancelled: any(dice),
        created_at: Timestamp::from_millis(0),
        joined: 0,
        errand: any(dice).then_some(Errand { what: Deed::Retry, reached: Seq(0), until: Seq(1), changed: 0 }),
        tally,
    }
}

#[test]
fn the_column_says_what_the_rules_say() {
    let schema = Arc::new(common::Schema::take());
    let mut dice = SeededDice::new(7);
    common::runtime().block_on(async {
        let (client, connection) = tokio_postgres::connect(&schema.url, NoTls).await.expect("a connection");
        tokio::spawn(connection);
        let mut seen = std::collections::BTreeMap::new();
        for number in 1..=WORKFLOWS {
            let workflow = random(number, &mut dice);
            let counts = workflow.tally.counts.iter().chain([&workflow.tally.records]);
            let counts: Vec<i64> = counts.map(|count| i64::try_from(*count).expect("small")).collect();
            let text = format!(
                "INSERT INTO {}.workflows (number, open, errand, counts, record) VALUES ($1, $2, $3, $4, '') RETURNING state",
                schema.name
            );
            let errand = workflow.errand.is_some();
            let rows = client
                .query_typed(&text, &[(&number, Type::INT8), (&workflow.open, Type::BOOL), (&errand, Type::BOOL), (&counts, Type::INT8_ARRAY)])
                .await
                .expect("it is written");
            let state: i16 = rows.first().expect("a row").get(0);
            assert_eq!(state, workflow.state() as i16, "{workflow:?}");
            *seen.entry(state).or_insert(0) += 1;
        }
        assert!(seen.len() == 4 && seen.values().all(|times| *times > 10), "{seen:?}");
    });
}
