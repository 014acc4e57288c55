//! A worker during an outage of its server.

use std::io::copy;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use rustix::process::Signal;

use crate::support::{Running, Server, longshore};

/// A proxy in front of a server whose connections can be cut.
#[derive(Clone)]
struct Gateway {
    url: String,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    cut: bool,
    streams: Vec<TcpStream>,
}

impl Gateway {
    fn to(server: &Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let target: SocketAddr = server.url.trim_start_matches("http://").parse().unwrap();
        let gateway = Self { url, state: Arc::default() };
        let own = gateway.clone();
        std::thread::Builder::new().spawn(move || own.serve(&listener, target)).unwrap();
        gateway
    }

    fn serve(&self, listener: &TcpListener, target: SocketAddr) {
        for near in listener.incoming() {
            let mut state = self.state.lock().unwrap();
            let (Ok(near), Ok(far)) = (near, TcpStream::connect(target)) else { continue };
            if state.cut {
                continue;
            }
            for (from, to) in [(&near, &far), (&far, &near)] {
                let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                let pass = move || {
                    drop(copy(&mut from, &mut to));
                    drop(to.shutdown(Shutdown::Both));
                };
                std::thread::Builder::new().spawn(pass).unwrap();
            }
            state.streams.extend([near, far]);
        }
    }

    fn cut(&self) {
        let mut state = self.state.lock().unwrap();
        state.cut = true;
        for stream in state.streams.drain(..) {
            drop(stream.shutdown(Shutdown::Both));
        }
    }

    fn restore(&self) {
        self.state.lock().unwrap().cut = false;
    }

    fn worker(&self, arguments: &[&str]) -> Running {
        let mut command = longshore();
        command.env("LONGSHORE_SERVER", &self.url).args(arguments);
        Running::start(command)
    }
}

#[test]
fn a_worker_reports_the_start_and_the_end_of_an_outage() {
    let server = Server::in_memory();
    let gateway = Gateway::to(&server);
    let worker = gateway.worker(&["work", "--exec", "true"]);
    worker.wait_for_stderr("claims from default");
    for _ in 0..2 {
        gateway.cut();
        // Retries print nothing: the next line about the server is the end of the outage.
        assert!(worker.wait_for_stderr("the server").contains("does not respond"));
        gateway.restore();
        assert!(worker.wait_for_stderr("the server").contains("responds again"));
        let id = server.submit(&["-t", "a"]);
        assert!(worker.wait_for_stdout("completed").contains(&id));
    }
    worker.signal(Signal::TERM);
    assert_eq!(worker.wait().code(), Some(0));
}

/// No claim is in flight: only heartbeats detect the outage.
#[test]
fn a_worker_without_free_slots_reports_an_outage() {
    let server = Server::in_memory();
    let gateway = Gateway::to(&server);
    server.submit(&["-t", "a", "--lease", "9s"]);
    let worker = gateway.worker(&["--json", "work", "--max-jobs", "1", "--exec", "echo started >&2; exec sleep 600"]);
    crate::support::eventually("the program runs", || server.json(&["workers", "list"])["workers"][0]["running"] == 1);
    gateway.cut();
    // With `--json` the warning is an object.
    let line: serde_json::Value = serde_json::from_str(&worker.wait_for_stderr("does not respond")).unwrap();
    assert!(line["warning"].as_str().unwrap().contains("retrying"), "{line}");
    assert!(worker.wait_for_stdout("lost").contains("\"outcome\":\"lost\""));
}
