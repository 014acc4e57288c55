//! `longshore bench`

use crate::support::Server;

#[test]
fn every_job_is_completed_and_measured() {
    let server = Server::in_memory();
    let result =
        server.json(&["bench", "--jobs", "300", "--mix", "submit=2,work=2,get=1,list=1", "--concurrency", "6"]);
    assert_eq!((&result["submitted"], &result["completed"], &result["errors"]), (&300.into(), &300.into(), &0.into()));
    let operations = result["operations"].as_array().unwrap();
    let names: Vec<&str> = operations.iter().map(|row| row["operation"].as_str().unwrap()).collect();
    assert_eq!(names, ["submit", "claim", "complete", "get", "list", "end_to_end"]);
    for row in operations {
        let at = |name: &str| row[name].as_f64().unwrap();
        assert!(at("p50_ms") > 0.0 && at("p50_ms") <= at("p90_ms") && at("p90_ms") <= at("p99_ms"), "{row}");
        assert!(at("p99_ms") <= at("p99_9_ms") && at("p99_9_ms") <= at("max_ms") * 1.01, "{row}");
    }
    assert_eq!(operations[5]["jobs"], 300);
    // The temporary queue is deleted.
    assert_eq!(server.json(&["queues", "list"])["queues"].as_array().unwrap().len(), 1);
}

#[test]
fn batches_rates_and_existing_queues() {
    let server = Server::in_memory();
    let result = server.json(&["bench", "--jobs", "250", "--batch", "100", "--mix", "submit=1", "--queue", "kept"]);
    assert_eq!(result["operations"][0]["calls"], 3);
    assert_eq!(server.json(&["queues", "get", "kept"])["counts"]["scheduled"], 250);
    // Only work, limited by time.
    let result = server.json(&["bench", "--mix", "work=1", "--queue", "kept", "--batch", "50", "--duration", "300ms"]);
    assert!(result["completed"].as_u64().unwrap() > 0, "{result}");
    let result = server.json(&["bench", "--rate", "200", "--jobs", "100"]);
    let seconds = result["seconds"].as_f64().unwrap();
    assert!(seconds > 0.45, "a hundred jobs at 200 a second take half of one: {seconds}");
    let shown = server.run(&["bench", "--jobs", "10"]).expect(0);
    assert!(shown.stdout.contains("P99.9") && shown.stdout.contains("end to end"), "{}", shown.stdout);
    assert!(!shown.stderr.contains('%'), "no bar without a terminal");
}

#[test]
fn invalid_options_are_refused() {
    let server = Server::in_memory();
    server.run(&["bench", "--mix", "work=1"]).expect(1);
    server.run(&["bench", "--mix", "sing=1"]).expect(2);
    server.run(&["bench", "--rate", "0"]).expect(2);
    let refused = server.run(&["bench", "--jobs", "10", "--queue", "no spaces"]).expect(2);
    assert!(refused.stderr.contains("validation"), "{refused:?}");
}
