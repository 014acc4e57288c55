//! `longshore health`

use std::io::{Read, Write};
use std::net::TcpListener;

use crate::support::{Server, alone};

#[test]
fn a_ready_server_is_healthy() {
    let server = Server::in_memory();
    let line = server.run(&["health"]).expect(0).line();
    assert!(line.contains(&server.url) && line.contains("live and ready"), "{line}");
    let report = server.json(&["health"]);
    assert_eq!((&report["live"], &report["ready"]), (&true.into(), &true.into()), "{report}");
}

#[test]
fn no_server_is_exit_code_1() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    // A listener that never responds.
    let silent = alone(&["health", "--server", &url, "--timeout", "100ms"]).expect(1);
    assert!(silent.stderr.contains("is not live") && silent.stderr.contains("0.1 s"), "{silent:?}");
    drop(listener);
    let silent = alone(&["health", "--server", &url]).expect(1);
    assert!(silent.stderr.contains("is not live") && silent.stderr.contains("hint: "), "{silent:?}");
    let report = alone(&["health", "--server", &url, "--json"]).expect(1);
    assert_eq!((&report.json()["live"], &report.json()["ready"]), (&false.into(), &false.into()), "{report:?}");
    let error: serde_json::Value = serde_json::from_str(&report.stderr).unwrap();
    assert_eq!(error["exit_code"], 1);
}

/// Responds to `/livez` with 200 and to other paths with 503.
fn respond_live_and_not_ready(listener: &TcpListener) {
    for stream in listener.incoming().take(2) {
        let mut stream = stream.unwrap();
        let mut request = [0_u8; 4096];
        let length = stream.read(&mut request).unwrap();
        let alive = request[..length].starts_with(b"GET /livez ");
        let (status, body) = if alive {
            ("200 OK", r#"{"status":"ok"}"#)
        } else {
            let problem = r#"{"type":"about:blank","status":503,"code":"store_unavailable","title":"t","detail":"the server is stopping","retry":"safe"}"#;
            ("503 Service Unavailable", problem)
        };
        let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
        stream.write_all((head + body).as_bytes()).unwrap();
    }
}

#[test]
fn a_live_server_that_is_not_ready_is_reported() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let done = std::thread::scope(|scope| {
        scope.spawn(|| respond_live_and_not_ready(&listener));
        alone(&["health", "--json", "--server", &url, "--timeout", "60s"]).expect(1)
    });
    let report = done.json();
    assert_eq!((&report["live"], &report["ready"]), (&true.into(), &false.into()), "{done:?}");
    assert!(report["detail"].as_str().unwrap().contains("stopping"), "{done:?}");
    assert!(done.stderr.contains("live and not ready"), "{done:?}");
}
