//! The engine and the reference model agree on random histories: every answer and the whole visible state.

use longshore_testkit::engine_subject::EngineSubject;
use longshore_testkit::side_by_side;

#[test]
fn engine_and_model_agree_on_2000_histories_of_200_commands() {
    side_by_side::campaign(EngineSubject::new, 0..2_000, 200).unwrap_or_else(|report| panic!("{report}"));
}
