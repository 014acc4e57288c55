//! A PostgreSQL server for tests, started on a free port by an unprivileged user.

use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Whether a cluster syncs its writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Faster, for tests that do not depend on the disk.
    Off,
    On,
}

/// A cluster that is stopped when the value is dropped.
#[derive(Debug)]
pub struct Cluster {
    pub directory: tempfile::TempDir,
    pub port: u16,
}

/// Returns the directory of the PostgreSQL programs.
pub fn programs() -> PathBuf {
    if let Ok(given) = std::env::var("LONGSHORE_PG_BIN") {
        return given.into();
    }
    let mut found: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .map(|entries| {
            entries.flatten().map(|entry| entry.path().join("bin")).filter(|bin| bin.join("initdb").is_file()).collect()
        })
        .unwrap_or_default();
    found.sort();
    found.pop().expect("PostgreSQL 14 or later is not installed: apt-get install postgresql (or set LONGSHORE_PG_BIN to its bin directory)")
}

/// Returns a command that runs as `postgres` if this process is root, because PostgreSQL refuses to
/// run as root.
pub fn as_user(program: &Path) -> Command {
    let root = std::fs::metadata("/proc/self").is_ok_and(|meta| std::os::unix::fs::MetadataExt::uid(&meta) == 0);
    if !root {
        return Command::new(program);
    }
    let mut command = Command::new("runuser");
    command.args(["-u", "postgres", "--"]).arg(program);
    command
}

fn run(mut command: Command) {
    let output = command.stdin(Stdio::null()).output().expect("the program runs");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

pub fn spare_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr()).expect("a spare port").port()
}

impl Cluster {
    pub fn start(durability: Durability) -> Self {
        Self::start_with(durability, "")
    }

    pub fn start_with(durability: Durability, settings: &str) -> Self {
        let directory =
            tempfile::Builder::new().prefix("longshore-pg-").tempdir_in(quick_place(durability)).expect("a directory");
        open_to_all(directory.path());
        let data = directory.path().join("data");
        let mut initdb = as_user(&programs().join("initdb"));
        initdb.args(["-A", "trust", "-U", "postgres", "-E", "UTF8", "--no-locale", "-N", "-D"]).arg(&data);
        run(initdb);
        let cluster = Self { directory, port: spare_port() };
        let quick = match durability {
            Durability::Off => "fsync = off\nsynchronous_commit = off\nfull_page_writes = off\n",
            Durability::On => "",
        };
        let port = cluster.port;
        let all = format!(
            "listen_addresses = '127.0.0.1'\nport = {port}\nunix_socket_directories = ''\nmax_connections = 200\nshared_buffers = 128MB\n{quick}{settings}"
        );
        let mut file =
            std::fs::OpenOptions::new().append(true).open(data.join("postgresql.conf")).expect("the settings");
        file.write_all(all.as_bytes()).expect("the settings are written");
        cluster.up();
        cluster
    }

    pub fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    fn pg_ctl(&self, arguments: &[&str]) -> Command {
        let mut command = as_user(&programs().join("pg_ctl"));
        command.arg("-D").arg(self.data()).arg("-l").arg(self.directory.path().join("log")).args(arguments);
        command
    }

    pub fn up(&self) {
        run(self.pg_ctl(&["-w", "start"]));
    }

    pub fn down(&self, mode: &str) {
        run(self.pg_ctl(&["-m", mode, "-w", "stop"]));
    }

    pub fn promote(&self) {
        run(self.pg_ctl(&["-w", "promote"]));
    }

    /// Kills the server without a shutdown.
    pub fn kill(&self) {
        signal("-9", &[self.pid()]);
    }

    fn pid(&self) -> String {
        let pid = std::fs::read_to_string(self.data().join("postmaster.pid")).expect("the server runs");
        pid.lines().next().expect("its number").to_owned()
    }

    /// Suspends the server until the value is dropped. Connections stay open without a response.
    pub fn silenced(&self) -> PausedServer {
        let of_sessions = self.psql("SELECT pid FROM pg_stat_activity WHERE application_name = 'longshore'");
        let pids: Vec<String> = std::iter::once(self.pid()).chain(of_sessions.lines().map(str::to_owned)).collect();
        signal("-STOP", &pids);
        PausedServer(pids)
    }

    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    pub fn psql(&self, text: &str) -> String {
        let mut psql = Command::new(programs().join("psql"));
        psql.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", &self.url(), "-c", text]);
        // Works also if the default is read-only.
        psql.env("PGOPTIONS", "-c default_transaction_read_only=off");
        let output = psql.stdin(Stdio::null()).output().expect("psql runs");
        assert!(output.status.success(), "{text}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }
}

/// Suspended processes.
#[derive(Debug)]
pub struct PausedServer(Vec<String>);

impl Drop for PausedServer {
    fn drop(&mut self) {
        signal("-CONT", &self.0);
    }
}

fn signal(which: &str, pids: &[String]) {
    let mut kill = Command::new("kill");
    kill.arg(which).args(pids);
    run(kill);
}

impl Drop for Cluster {
    fn drop(&mut self) {
        drop(self.pg_ctl(&["-m", "immediate", "-w", "stop"]).stdin(Stdio::null()).output());
    }
}

/// Returns a directory in memory, if there is one and the tests do not need a disk.
fn quick_place(durability: Durability) -> PathBuf {
    let memory = Path::new("/dev/shm");
    if durability == Durability::Off && memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() }
}

pub fn open_to_all(directory: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o777)).expect("others may write here");
}

static SCHEMAS: AtomicU64 = AtomicU64::new(0);

/// Returns a schema name that is unused in this cluster.
pub fn new_schema() -> String {
    use std::hash::BuildHasher;
    let chance = std::hash::RandomState::new().hash_one(std::process::id());
    format!("t{chance:016x}_{}", SCHEMAS.fetch_add(1, Ordering::Relaxed))
}

/// Returns the URL of the cluster of this test run. The first test starts it; a watcher stops it
/// after the last test.
pub fn shared_url() -> String {
    if let Ok(given) = std::env::var("LONGSHORE_TEST_POSTGRES") {
        return given;
    }
    static IN_USE: OnceLock<(std::fs::File, String)> = OnceLock::new();
    IN_USE.get_or_init(join_or_start).1.clone()
}

/// Every test process holds a shared lock on the directory while it runs.
fn join_or_start() -> (std::fs::File, String) {
    let place = quick_place(Durability::Off).join("longshore-tests-postgres");
    std::fs::create_dir_all(&place).expect("a directory");
    open_to_all(&place);
    let open = |name: &str| {
        let mut options = std::fs::OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).open(place.join(name)).expect("a file")
    };
    let in_use = open("in-use");
    in_use.lock_shared().expect("the lock");
    let starting = open("starting");
    starting.lock().expect("the lock");
    let known = std::fs::read_to_string(place.join("url")).unwrap_or_default();
    let answers = !known.is_empty() && answers(&known);
    if answers {
        return (in_use, known);
    }
    let cluster = Cluster::start(Durability::Off);
    let url = cluster.url();
    std::fs::write(place.join("url"), &url).expect("the address is written");
    watch_over(&place, cluster);
    (in_use, url)
}

fn answers(url: &str) -> bool {
    let ready = Command::new(programs().join("pg_isready")).args(["-q", "-d", url]).status();
    ready.is_ok_and(|status| status.success())
}

/// Stops the cluster when no process has held the lock for a while.
fn watch_over(place: &Path, cluster: Cluster) {
    let (data, in_use) = (cluster.data(), place.join("in-use"));
    let stop = format!(
        "{stop} && rm -rf {directory} {url}",
        stop = shell(
            &as_user(&programs().join("pg_ctl")),
            &["-D", &data.display().to_string(), "-m", "immediate", "-w", "stop"]
        ),
        directory = cluster.directory.path().display(),
        url = place.join("url").display(),
    );
    let watch = format!("while sleep 3; do flock -n -x {} -c '{stop}' && exit; done", in_use.display());
    let mut watcher = Command::new("setsid");
    watcher.args(["sh", "-c", &watch]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // The watcher outlives this process and owns the cluster from here on.
    std::mem::forget(watcher.spawn().expect("the watcher starts"));
    std::mem::forget(cluster);
}

fn shell(command: &Command, arguments: &[&str]) -> String {
    let program = std::iter::once(command.get_program()).chain(command.get_args());
    let words =
        program.map(|word| word.to_string_lossy().into_owned()).chain(arguments.iter().map(|word| (*word).to_owned()));
    words.collect::<Vec<_>>().join(" ")
}
