//! A worker whose server goes away and comes back.

use std::io::copy;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use rustix::process::Signal;

use crate::support::{Running, Server, longshore};

/// A port in front of a server that can be cut off, and let through again.
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
    fn before(server: &Server) -> Self {
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

    fn let_through(&self) {
        self.state.lock().unwrap().cut = false;
    }

    fn worker(&self, arguments: &[&str]) -> Running {
        let mut command = longshore();
        command.env("LONGSHORE_SERVER", &self.url).args(arguments);
        Running::start(command)
    }
}

#[test]
fn a_worker_says_once_that_its_server_is_away_and_once_that_it_is_back() {
    let server = Server::in_memory();
    let gateway = Gateway::before(&server);
    let worker = gateway.worker(&["work", "--exec", "true"]);
    worker.notes("serves default");
    for _ in 0..2 {
        gateway.cut();
        // The next line about the server after this one is that it is back, however often it was tried.
        assert!(worker.notes("the server").contains("is away"));
        gateway.let_through();
        assert!(worker.notes("the server").contains("answers again"));
        let id = server.submit(&["-t", "a"]);
        assert!(worker.says("completed").contains(&id));
    }
    worker.signal(Signal::TERM);
    assert_eq!(worker.wait().code(), Some(0));
}

/// No claim is under way: only heartbeats can notice it.
#[test]
fn a_worker_with_all_slots_taken_notices_too() {
    let server = Server::in_memory();
    let gateway = Gateway::before(&server);
    server.submit(&["-t", "a", "--lease", "9s"]);
    let worker = gateway.worker(&["--json", "work", "--max-jobs", "1", "--exec", "echo started >&2; exec sleep 600"]);
    crate::support::eventually("the program runs", || server.json(&["workers", "list"])["workers"][0]["running"] == 1);
    gateway.cut();
    // Programs that read JSON are told in JSON.
    let line: serde_json::Value = serde_json::from_str(&worker.notes("is away")).unwrap();
    assert!(line["warning"].as_str().unwrap().contains("trying again"), "{line}");
    assert!(worker.says("lost").contains("\"outcome\":\"lost\""));
}
