//! The scenario language itself: invalid texts are rejected with their line, and mismatches are
//! reported.

use longshore_testkit::engine_subject::EngineSubject;
use longshore_testkit::model::Model;
use longshore_testkit::scenario::{self, Failure, Problem};

fn run(text: &str) -> Result<scenario::Report, Failure> {
    scenario::run(text, "story.txt", &mut Model::new())
}

/// Returns line and message for an invalid text.
fn complaint(text: &str) -> (usize, String) {
    let failure = run(text).expect_err(text);
    match *failure.problem {
        Problem::Language(what) => (failure.line, what),
        Problem::Mismatch { .. } => panic!("this is a scenario, and it failed: {failure}"),
    }
}

/// Returns expected and actual of a failing scenario.
fn mismatch(text: &str) -> (usize, String, String) {
    let failure = run(text).expect_err(text);
    match *failure.problem {
        Problem::Mismatch { expected, got } => (failure.line, expected, got),
        Problem::Language(what) => panic!("this is no scenario: {what}"),
    }
}

#[test]
fn unknown_word_is_reported_with_line() {
    for (statement, part) in [
        ("queu q", "no statement `queu`"),
        ("queue q leese=3s", "no option `leese=`"),
        ("submit q b prio=high", "no option `prio=`"),
        ("submit q b priority=urgent", "`urgent` is no priority"),
        ("submit q b delay=soon", "`soon` is no duration"),
        ("submit q b run_at=1h", "`1h` is no instant"),
        ("submit q b extra", "`extra` is not understood"),
        ("claim q", "the worker is missing"),
        ("claim q w -> a", "which lease version of `a`"),
        ("complete a", "the lease token (v1, bogus, none) is missing"),
        ("complete a 1", "`1` is no lease token"),
        ("complete a v1 -> finished", "`finished` is neither a state nor an error code"),
        ("fail a v1 sad", "no category `sad`"),
        ("expect a", "nothing is expected"),
        ("expect a mood=good", "no field `mood`"),
        ("expect a state=ready", "no state `ready`"),
        ("history a -> ready", "no state `ready`"),
        ("history a", "an arrow is missing"),
        ("attempts a colours -> red", "attempts have no `colours`"),
        ("counts q ready=1", "shows no `ready`"),
        ("view a sidekiq -> state=x", "no view `sidekiq`"),
        ("advance a while", "`a` is no duration"),
        ("cancel a ->", "nothing stands behind the arrow"),
        ("complete ghost v1", "no job is called `ghost`"),
        ("expect a error=\"x", "not closed"),
        ("submit q b key={x}", "means repetition"),
        ("repeat 0", "at least once"),
        ("repeat 99999999999", "repeat at most 100000 times"),
        ("submit q b key={x*99999999999}", "is longer than 100000 bytes"),
        ("submit q b payload=99999999999", "at most 33554432 bytes"),
        ("submit q b after=j1..j99999999999", "more than 100000 names"),
        ("view a taskharbor -> run_at=soon", "`soon` is no instant"),
        ("for x 1 2", "say `repeat 3` or"),
        ("claim q <who>", "nothing is called `<who>`"),
        ("end", "`end` without"),
        ("+ b", "`+` lines belong to"),
    ] {
        let (line, what) = complaint(&format!("# a title\nproves G-1.1\nsubmit q a\n{statement}\n"));
        assert_eq!(line, if statement.starts_with('+') { 3 } else { 4 }, "{statement}: {what}");
        assert!(what.contains(part), "{statement}: {what}");
    }
}

#[test]
fn heads_and_tables_are_checked() {
    for (text, part) in [
        ("proves X-1\n", "no requirement id"),
        ("proves\n", "no requirement id"),
        ("each | a |\nsubmit q <a>\n", "without rows"),
        ("each | a | b |\n| 1 |\n", "1 cells under 2 columns"),
        ("each | a |\n| 1 |\nsubmit q x\n", "`a` is used nowhere"),
        ("submit q x\neach | a |\n| 1 |\n", "before the first statement"),
        ("| 1 |\n", "without `each`"),
        ("repeat 2\nsubmit q x\n", "not closed by `end`"),
        ("repeat 90000\nrepeat 90000\nsubmit q x\nend\nend\n", "the loops make more than 100000 statements"),
    ] {
        let (_, what) = complaint(text);
        assert!(what.contains(part), "{text}: {what}");
    }
}

/// The last line is parsed before the first one runs.
#[test]
fn syntax_error_is_found_before_any_step_runs() {
    let text = "claim q w -> a v1\nnonsense\n";
    assert_eq!(complaint(text).0, 2);
}

#[test]
fn mismatch_shows_expected_and_actual() {
    let (line, expected, got) =
        mismatch("queue q profile=taskharbor\nsubmit q a\nexpect a state=running starts=0 lease_version=3\n");
    assert_eq!(
        (line, expected.as_str(), got.as_str()),
        (3, "state=running lease_version=3", "state=scheduled lease_version=0")
    );
    let (_, expected, got) = mismatch("queue q profile=taskharbor\nsubmit q a\nclaim q w -> a v2\n");
    assert_eq!((expected.as_str(), got.as_str()), ("a v2", "a v1 (attempt 1, lease until +30s)"));
    let (_, expected, got) = mismatch("submit q a\ncomplete a bogus\n");
    assert_eq!((expected.as_str(), got.as_str()), ("accepted", "refused: stale_lease"));
    let (_, expected, got) = mismatch("submit q a\ncancel a -> illegal_transition\n");
    assert_eq!((expected.as_str(), got.as_str()), ("refused: illegal_transition", "cancelled"));
    let (_, expected, _) = mismatch("submit q a key=k\nsubmit q b key=k\n");
    assert_eq!(expected, "a new job");
    let (_, expected, _) = mismatch("submit q a\ncancel a\nrequeue a as b\n");
    assert_eq!(expected, "a new job");
    let (_, expected, got) = mismatch("submit q a\nhistory a -> pending scheduled:due\n");
    assert_eq!((expected.as_str(), got.as_str()), ("pending scheduled:due", "pending:create@+0s scheduled:submit@+0s"));
    let (_, expected, got) = mismatch("submit q a\nadvance 2s\nexpect a created_at=+1s..now\n");
    assert_eq!((expected.as_str(), got.as_str()), ("created_at=+1s..+2s", "created_at=+0s"));
    let (_, expected, got) = mismatch("submit q a\nexpect a gone\n");
    assert_eq!((expected.as_str(), got.as_str()), ("gone", "still there, scheduled"));
    let (_, expected, got) = mismatch("submit q a\nsubmit q b -> scheduled unchanged\n");
    assert_eq!((expected.as_str(), got.as_str()), ("nothing changes", "the queue q changed"));
    let (_, expected, got) = mismatch("submit q a\ncancel a -> cancelled unchanged\n");
    assert_eq!(expected, "nothing changes");
    assert!(got.starts_with("a: state scheduled → cancelled"), "{got}");
    let (_, expected, got) = mismatch("submit q a\ncounts q scheduled=2\n");
    assert_eq!((expected.as_str(), got.as_str()), ("scheduled=2", "scheduled=1"));
    let (_, expected, got) = mismatch("submit q a\nview a ocypod -> status=running colour=red\n");
    assert_eq!(
        (expected.as_str(), got.as_str()),
        ("status=running colour=red", "status=created colour=(no such field)")
    );
}

/// Refusals show field and reason if the target has them; views show times in the usual syntax.
#[test]
fn refusals_show_reason_and_views_show_times() {
    let play = |text: &str| {
        let failure = scenario::run(text, "story.txt", &mut EngineSubject::new()).expect_err(text);
        match *failure.problem {
            Problem::Mismatch { expected, got } => (expected, got),
            Problem::Language(what) => panic!("this is no scenario: {what}"),
        }
    };
    let (expected, got) = play("submit q a\nclaim q w lease=0s -> a v1\n");
    assert_eq!(expected, "a v1");
    assert!(got.starts_with("refused: validation (\"lease\" must be"), "{got}");
    let (_, got) = play("submit q a priority=-1\n");
    assert_eq!(got, "refused: validation (\"priority\" must be 0-4)");
    let (expected, got) = play(
        "queue q profile=taskharbor\nadvance 5s\nsubmit q a delay=1m\n\
         view a taskharbor -> run_at=now+1m created_at=+5s failed_at=null\nview a taskharbor -> run_at=now..now+2s\n",
    );
    assert_eq!((expected.as_str(), got.as_str()), ("run_at=+5s..+7s", "run_at=+1m5s"));
}

#[test]
fn failures_show_file_line_row_and_statement() {
    let text =
        "# title\neach | worker |\n| anna |\n| bert |\nsubmit q a\nclaim q <worker> -> a v1\nexpect a worker=anna\n";
    let shown = run(text).expect_err("bert is not anna").to_string();
    let lines = [
        "story.txt:7: unexpected behaviour",
        "    row:       worker=bert",
        "    statement: expect a worker=anna",
        "    expected:  worker=anna",
        "    got:       worker=bert",
    ];
    assert_eq!(shown, lines.join("\n"));
}

#[test]
fn rows_loops_and_reports() {
    let text = "# A title\nproves G-1.1 T-2\nsettles C-17\nruling Leases\n\
                each | jobs |\n| 2 |\n| 3 |\n\
                queue q profile=taskharbor\n\
                repeat <jobs>\n  submit q j<n>\nend\n\
                for a,b in 1,2\n  claim q w limit=2 -> j<a> v1 j<b> v1  # in order\nend\n\
                batch q\n  + k1..k3 type=\"two words\"\n\
                advance 1h\n";
    let report = run(text).unwrap();
    assert_eq!(report.title, "A title");
    assert_eq!(report.proves, ["G-1.1", "T-2"]);
    assert_eq!(report.settles, ["C-17"]);
    assert_eq!(report.rulings, ["Leases"]);
    assert_eq!((report.stories, report.statements), (2, 6 + 7));
}
