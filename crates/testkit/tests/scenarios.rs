//! Every scenario file passes on every target.

use longshore_testkit::engine_subject::EngineSubject;
use longshore_testkit::model::Model;
use longshore_testkit::scenario;
use longshore_testkit::target::TestTarget;

type Make = fn() -> Box<dyn TestTarget>;

/// The targets of this test.
const SUBJECTS: &[(&str, Make)] =
    &[("model", || Box::new(Model::new())), ("engine", || Box::new(EngineSubject::new()))];

#[test]
fn every_scenario_passes_on_every_target() {
    let mut failures = Vec::new();
    let files = scenario::all_files();
    assert!(files.len() >= 70, "only {} scenario files were found", files.len());
    for file in &files {
        let name = file.file_name().unwrap().to_string_lossy();
        let text = std::fs::read_to_string(file).unwrap();
        for (subject, make) in SUBJECTS {
            if let Err(failure) = scenario::run(&text, &name, make().as_mut()) {
                failures.push(format!("on the {subject}: {failure}"));
            }
        }
    }
    assert!(failures.is_empty(), "{} scenarios failed:\n\n{}\n", failures.len(), failures.join("\n\n"));
}

/// Every file has a title and cites a rule.
#[test]
fn every_scenario_cites_a_rule() {
    for file in scenario::all_files() {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let script = scenario::parse(&std::fs::read_to_string(&file).unwrap(), &name).unwrap_or_else(|f| panic!("{f}"));
        assert!(!script.title.is_empty(), "{name} has no title");
        let cited = script.proves.len() + script.settles.len() + script.rulings.len();
        assert!(cited > 0, "{name} proves nothing");
    }
}
