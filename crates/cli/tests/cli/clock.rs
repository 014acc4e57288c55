//! `longshore clock`

use crate::support::Server;

#[test]
fn virtual_time_is_read_and_advanced() {
    let server = Server::start(&["--store", "memory:", "--virtual-clock"]);
    let id = server.submit(&["-t", "a", "--delay", "1h"]);
    let before = server.run(&["clock", "get"]).expect(0).line();
    assert_eq!(server.json(&["clock", "get"])["now"], before.as_str(), "the clock does not advance by itself");
    let after = server.run(&["clock", "advance", "1h30m"]).expect(0).line();
    assert!(after > before, "{before} {after}");
    assert_eq!(server.state(&id), "scheduled");
    assert_eq!(server.run(&["clock", "get"]).expect(0).line(), after);
    assert!(server.json(&["clock", "advance", "1ms"])["now"].as_str().unwrap() > after.as_str());
    server.run(&["clock", "advance", "soon"]).expect(2);
}

#[test]
fn real_time_cannot_be_advanced() {
    let server = Server::in_memory();
    server.run(&["clock", "get"]).expect(0);
    let refused = server.run(&["clock", "advance", "1s"]).expect(1);
    assert!(refused.stderr.contains("--virtual-clock"), "{refused:?}");
}
