//! Encrypted connections to a real PostgreSQL, with an authority made for the test.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "these are tests, helpers included"
)]

mod common;

use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use common::{Cluster, Durability, new_schema, runtime, shared_url};
use longshore_core::id::{JobType, QueueName};
use longshore_core::submit::{NewJob, Payload};
use longshore_engine::{Submission, SubmitRequest};
use longshore_store::Store as _;
use longshore_store_postgres::{PostgresOptions, PostgresStore, migrate};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio::runtime::Handle;

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A cluster that refuses connections without TLS. Its certificate is for `localhost`.
struct TlsCluster {
    cluster: Cluster,
    ca: PathBuf,
    foreign_ca: PathBuf,
}

/// Writes a file that the server may read: a key must belong to its user.
fn write(path: &Path, text: &str, owner: u32) -> PathBuf {
    let mut file = std::fs::OpenOptions::new();
    let mut file = file.create(true).write(true).truncate(true).mode(0o600).open(path).unwrap();
    std::io::Write::write_all(&mut file, text.as_bytes()).unwrap();
    std::os::unix::fs::chown(path, Some(owner), None).unwrap();
    path.to_owned()
}

impl TlsCluster {
    fn start() -> Self {
        let cluster = Cluster::start(Durability::Off);
        let (directory, data) = (cluster.directory.path(), cluster.data());
        let owner = std::fs::metadata(&data).unwrap().uid();
        let (authority, key) = (authority(), KeyPair::generate().unwrap());
        let names = vec!["localhost".to_owned()];
        let signed = CertificateParams::new(names).unwrap().signed_by(&key, &authority).unwrap();
        write(&data.join("server.crt"), &signed.pem(), owner);
        write(&data.join("server.key"), &key.serialize_pem(), owner);
        write(&data.join("pg_hba.conf"), "hostssl all all 127.0.0.1/32 trust\n", owner);
        let mut settings = std::fs::OpenOptions::new().append(true).open(data.join("postgresql.conf")).unwrap();
        std::io::Write::write_all(&mut settings, b"ssl = on\n").unwrap();
        let ca = write(&directory.join("ca.pem"), &authority.pem(), owner);
        let foreign_ca = write(&directory.join("foreign.pem"), &foreign_pem(), owner);
        cluster.down("fast");
        cluster.up();
        Self { cluster, ca, foreign_ca }
    }

    fn url(&self, host: &str, parameters: &str) -> String {
        let port = self.cluster.port;
        let parameters =
            parameters.replace("FOREIGN", self.foreign_ca.to_str().unwrap()).replace("CA", self.ca.to_str().unwrap());
        format!("postgres://postgres@{host}:{port}/postgres?{parameters}")
    }
}

fn foreign_pem() -> String {
    authority().pem()
}

/// Opens a store and puts a job through it. Returns the error of the start.
async fn use_store(url: &str) -> Result<PostgresStore, String> {
    let mut options = PostgresOptions::from_url(url).map_err(|error| error.cause())?;
    options.schema = new_schema();
    let store = PostgresStore::start(options, Handle::current()).await;
    let store = store.map_err(|error| error.cause())?;
    let job = NewJob::new(JobType::new("t").unwrap(), Payload::Json("1".into()));
    let request = SubmitRequest::new(vec![Submission { queue: QueueName::new("q").unwrap(), job }]);
    store.submit(request).await.unwrap().unwrap();
    Ok(store)
}

#[test]
fn the_mode_decides_what_is_checked() {
    let cluster = TlsCluster::start();
    runtime().block_on(async {
        let accepted = [
            ("localhost", "sslmode=verify-full&sslrootcert=CA"),
            // The certificate is not for the address.
            ("127.0.0.1", "sslmode=verify-ca&sslrootcert=CA"),
            ("127.0.0.1", "sslmode=require&sslrootcert=CA"),
            ("127.0.0.1", "sslmode=require"),
            ("127.0.0.1", "sslmode=prefer"),
            ("127.0.0.1", ""),
        ];
        for (host, parameters) in accepted {
            let url = cluster.url(host, parameters);
            drop(use_store(&url).await.unwrap_or_else(|error| panic!("{parameters}: {error}")));
        }
        let refused = [
            ("127.0.0.1", "sslmode=verify-full&sslrootcert=CA", "not valid for"),
            ("localhost", "sslmode=verify-full&sslrootcert=FOREIGN", "certificate"),
            ("localhost", "sslmode=verify-ca&sslrootcert=FOREIGN", "certificate"),
            ("localhost", "sslmode=require&sslrootcert=FOREIGN", "certificate"),
            // The system does not know the authority.
            ("localhost", "sslmode=verify-full", "certificate"),
            ("localhost", "sslmode=verify-full&sslrootcert=/nowhere.pem", "/nowhere.pem"),
            ("localhost", "sslmode=disable", "no encryption"),
        ];
        for (host, parameters, expected) in refused {
            let error = use_store(&cluster.url(host, parameters)).await.map(drop).unwrap_err();
            assert!(error.contains(expected), "{parameters}: {error}");
        }
    });
}

/// The pool, migrations and the LISTEN connection.
#[test]
fn every_connection_is_encrypted() {
    let cluster = TlsCluster::start();
    let url = cluster.url("localhost", "sslmode=verify-full&sslrootcert=CA");
    runtime().block_on(async {
        let migrations = migrate::status(&url, "longshore").await.unwrap();
        assert!(migrations.iter().all(|migration| !migration.applied));
        let store = use_store(&url).await.unwrap();
        // The cluster admits no other connection.
        let failed = tokio_postgres::connect(&cluster.cluster.url(), tokio_postgres::NoTls).await.map(drop);
        assert!(failed.unwrap_err().as_db_error().unwrap().message().contains("no encryption"));
        let listening = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'";
        while cluster.cluster.psql(listening) != "1" {
            tokio::task::yield_now().await;
        }
        let unencrypted = "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE NOT ssl";
        assert_eq!(cluster.cluster.psql(unencrypted), "0");
        drop(store);
    });
}

#[test]
fn a_server_without_tls_is_used_only_if_tls_is_not_required() {
    let url = shared_url();
    runtime().block_on(async {
        for parameters in ["", "?sslmode=prefer", "?sslmode=disable"] {
            drop(use_store(&format!("{url}{parameters}")).await.unwrap());
        }
        for parameters in ["?sslmode=require", "?sslmode=verify-ca", "?sslmode=verify-full"] {
            let error = use_store(&format!("{url}{parameters}")).await.map(drop).unwrap_err();
            assert!(error.contains("does not support TLS"), "{error}");
        }
    });
}
