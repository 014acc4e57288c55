//! TLS: a server with a certificate, and the command line as its client.

use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustix::process::Signal;

use crate::support::{Running, Server, longshore, run};

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// Writes a certificate for these names, its key and its authority.
fn write(directory: &Path, authority: &Authority, names: &[&str]) {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let key = KeyPair::generate().unwrap();
    let signed = CertificateParams::new(names).unwrap().signed_by(&key, authority).unwrap();
    std::fs::write(directory.join("ca.pem"), authority.pem()).unwrap();
    std::fs::write(directory.join("server.key"), key.serialize_pem()).unwrap();
    std::fs::write(directory.join("server.pem"), signed.pem()).unwrap();
}

fn file(directory: &Path, name: &str) -> String {
    PathBuf::from(directory).join(name).to_str().unwrap().to_owned()
}

fn serve_flags(directory: &Path) -> [String; 6] {
    let [certificate, key] = ["server.pem", "server.key"].map(|name| file(directory, name));
    ["--store", "memory:", "--tls-cert", &certificate, "--tls-key", &key].map(str::to_owned)
}

#[test]
fn a_client_needs_the_authority_of_the_server() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), &authority(), &["127.0.0.1"]);
    let flags = serve_flags(directory.path());
    let server = Server::start(&flags.each_ref().map(String::as_str));
    assert!(server.url.starts_with("https://127.0.0.1:"), "{}", server.url);
    let ca = file(directory.path(), "ca.pem");
    for arguments in [&["health"][..], &["submit", "-t", "hello"], &["queues", "list"]] {
        server.run(&[&["--ca-file", &ca], arguments].concat()).expect(0);
        let mut by_variable = server.command(arguments);
        by_variable.env("LONGSHORE_CA_FILE", &ca);
        run(by_variable, b"").expect(0);
        server.run(arguments).expect(if arguments == ["health"] { 1 } else { 2 });
    }
    server.run(&["--ca-file", &ca, "work", "--until-empty", "--exec", "true"]).expect(0);
    let plain = server.url.replace("https", "http");
    let done = server.run(&["--server", &plain, "queues", "list"]);
    assert!(done.stderr.contains("use https instead of http"), "{done:?}");
    let missing = server.run(&["--ca-file", "/nowhere.pem", "queues", "list"]).expect(2);
    assert!(missing.stderr.contains("/nowhere.pem"), "{missing:?}");
}

#[test]
fn a_context_keeps_the_authority() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), &authority(), &["127.0.0.1"]);
    let flags = serve_flags(directory.path());
    let server = Server::start(&flags.each_ref().map(String::as_str));
    let call = |arguments: &[&str]| {
        let mut command = longshore();
        command.env("XDG_CONFIG_HOME", directory.path()).current_dir(directory.path()).args(arguments);
        run(command, b"")
    };
    call(&["context", "add", "lab", &server.url, "--ca-file", "ca.pem"]).expect(0);
    call(&["--context", "lab", "queues", "list"]).expect(0);
    let mut elsewhere = longshore();
    elsewhere.env("XDG_CONFIG_HOME", directory.path()).current_dir("/").args(["queues", "list"]);
    run(elsewhere, b"").expect(0);
}

#[test]
fn a_hangup_replaces_the_certificate() {
    let directory = tempfile::tempdir().unwrap();
    let authority = authority();
    write(directory.path(), &authority, &["127.0.0.1"]);
    let mut command = longshore();
    command.args(["serve", "--listen", "127.0.0.1:0", "--log", "info"]).args(serve_flags(directory.path()));
    let server = Running::start(command);
    let banner = server.wait_for_stdout("listens on");
    let url = banner.split_whitespace().last().unwrap().to_owned();
    let ca = file(directory.path(), "ca.pem");
    let list = || {
        let mut command = longshore();
        command.args(["--server", &url, "--ca-file", &ca, "queues", "list"]);
        run(command, b"")
    };
    list().expect(0);
    std::fs::write(directory.path().join("server.pem"), "nonsense").unwrap();
    server.signal(Signal::HUP);
    assert!(server.wait_for_stderr("keeps the old one").contains("server.pem"));
    list().expect(0);
    // A certificate for another name: the client notices that it is the new one.
    write(directory.path(), &authority, &["other.example"]);
    server.signal(Signal::HUP);
    server.wait_for_stderr("as it is now");
    let refused = list().expect(2);
    assert!(refused.stderr.contains("certificate"), "{refused:?}");
    server.signal(Signal::TERM);
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn a_hangup_does_not_end_a_server_without_tls() {
    let mut command = longshore();
    command.args(["serve", "--listen", "127.0.0.1:0", "--store", "memory:", "--log", "info"]);
    let server = Running::start(command);
    server.wait_for_stdout("listens on");
    server.signal(Signal::HUP);
    server.wait_for_stderr("there is no certificate");
    server.signal(Signal::TERM);
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn a_server_that_cannot_listen_does_not_touch_the_store() {
    let directory = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let data = directory.path().join("data");
    let mut command = longshore();
    command.args(["serve", "--listen", &address, "--data"]).arg(&data);
    let failed = run(command, b"").expect(2);
    assert!(failed.stderr.contains("cannot listen"), "{failed:?}");
    assert!(!data.exists());
}

#[test]
fn wrong_files_end_the_start() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), &authority(), &["127.0.0.1"]);
    let other = KeyPair::generate().unwrap();
    std::fs::write(directory.path().join("server.key"), other.serialize_pem()).unwrap();
    let mut command = longshore();
    command.args(["serve", "--listen", "127.0.0.1:0"]).args(serve_flags(directory.path()));
    let failed = run(command, b"").expect(2);
    assert!(failed.stderr.contains("server.key") && failed.stderr.contains("not the key"), "{failed:?}");
    let mut command = longshore();
    command.args(["serve", "--tls-cert", "a.pem"]);
    assert!(run(command, b"").expect(1).stderr.contains("--tls-cert needs --tls-key"));
}
