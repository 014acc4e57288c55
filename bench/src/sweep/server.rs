//! Our server as a child process with its own data.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::host::{process_cpu_seconds, process_resident_mib, process_written_bytes};

/// A running server. It is killed and its data is deleted when the value is dropped.
pub struct BenchServer {
    child: Child,
    pub address: SocketAddr,
    directory: tempfile::TempDir,
}

/// Where a server keeps its jobs.
#[derive(Clone, Copy, Debug)]
pub enum StoreChoice<'a> {
    Embedded,
    /// A PostgreSQL URL. Jobs of earlier rounds stay in other queues.
    Postgres(&'a str),
}

impl BenchServer {
    pub fn start(binary: &Path, store: StoreChoice<'_>, parent: &Path) -> Self {
        let directory = tempfile::Builder::new().prefix("longshore-sweep-").tempdir_in(parent).expect("a directory");
        let port = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr()).expect("a port");
        let mut command = Command::new(binary);
        command.args(["serve", "--log", "warn", "--listen", &port.to_string()]);
        match store {
            StoreChoice::Embedded => command.arg("--data").arg(directory.path().join("data")),
            StoreChoice::Postgres(url) => command.args(["--store", url]),
        };
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn().unwrap_or_else(|error| panic!("cannot start {}: {error}", binary.display()));
        let mut server = Self { child, address: port, directory };
        server.wait_until_ready();
        server
    }

    fn wait_until_ready(&mut self) {
        for _ in 0..300 {
            if TcpStream::connect(self.address).is_ok() {
                return;
            }
            if let Some(status) = self.child.try_wait().expect("a child") {
                panic!("the server ended with {status}");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("the server does not listen on {} after 15 s", self.address);
    }

    /// CPU time so far, in seconds.
    pub fn cpu_seconds(&self) -> f64 {
        process_cpu_seconds(self.child.id())
    }

    pub fn resident_mib(&self) -> f64 {
        process_resident_mib(self.child.id())
    }

    /// Bytes that the server has sent to the disk so far.
    pub fn written_bytes(&self) -> f64 {
        process_written_bytes(self.child.id())
    }

    /// The data directory of the embedded store.
    pub fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }
}

impl Drop for BenchServer {
    fn drop(&mut self) {
        // The child may have ended; nothing depends on its data.
        if self.child.kill().is_ok() {
            let _ = self.child.wait();
        }
    }
}
