//! Failover to a standby. A synchronous standby loses no acknowledged job. With an asynchronous one
//! the loss is bounded, and no lease version is issued twice.

#![expect(clippy::expect_used, reason = "a test says no by panicking")]

mod common;

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::load::{self, claim, submit};
use common::{Cluster, Durability, as_user, programs, spare_port};
use longshore_core::id::JobId;
use tokio::sync::watch;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().expect("a runtime")
}

/// A standby that follows this server.
fn standby_of(primary: &Cluster) -> Cluster {
    let directory = tempfile::Builder::new().prefix("longshore-pg-").tempdir().expect("a directory");
    common::open_to_all(directory.path());
    let standby = Cluster { directory, port: spare_port() };
    let mut copy = as_user(&programs().join("pg_basebackup"));
    let from = format!("host=127.0.0.1 port={} user=postgres application_name=standby", primary.port);
    copy.args(["-R", "-X", "stream", "-c", "fast", "-d", &from, "-D"]).arg(standby.data());
    let output = copy.stdin(Stdio::null()).output().expect("pg_basebackup runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let settings = format!("\nport = {}\n", standby.port);
    let file = standby.data().join("postgresql.conf");
    let text = std::fs::read_to_string(&file).expect("its settings");
    std::fs::write(&file, text + &settings).expect("its settings are written");
    standby.up();
    standby
}

fn both(primary: &Cluster, standby: &Cluster) -> String {
    format!(
        "postgres://postgres@127.0.0.1:{},127.0.0.1:{}/postgres?target_session_attrs=read-write",
        primary.port, standby.port
    )
}

/// Waits for fifty more acknowledgements.
async fn more_answers(answers: &watch::Sender<usize>) {
    let (mut answers, enough) = (answers.subscribe(), *answers.borrow() + 50);
    let come = tokio::time::timeout(Duration::from_secs(30), answers.wait_for(|answers| *answers >= enough)).await;
    come.expect("the submitters get answers").expect("they are at work");
}

/// Fails over under load. Returns the number of acknowledged jobs, and of those that remain.
async fn fail_over(primary: &Cluster, standby: &Cluster, pause: bool) -> (usize, usize) {
    let store = load::open(&both(primary, standby), "longshore").await;
    load::put_queue(&*store, longshore_core::Duration::from_mins(5)).await;
    submit(&*store, "first").await.expect("it is stored");
    let held = claim(&*store, 1).await.expect("it is claimed").remove(0);
    let (stop, answers) = (Arc::new(AtomicBool::new(false)), Arc::new(watch::Sender::new(0_usize)));
    let submitting: Vec<_> = (0..4)
        .map(|submitter| {
            let (store, stop, answers) = (Arc::clone(&store), Arc::clone(&stop), Arc::clone(&answers));
            tokio::spawn(async move {
                let mut answered: Vec<JobId> = Vec::new();
                for number in 0.. {
                    if stop.load(Ordering::SeqCst) {
                        break;
                    }
                    match submit(&*store, &format!("{submitter} {number}")).await {
                        Ok(job) => {
                            answered.push(job.id);
                            answers.send_modify(|answers| *answers += 1);
                        }
                        Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
                    }
                }
                answered
            })
        })
        .collect();
    more_answers(&answers).await;
    tokio::task::block_in_place(|| {
        if pause {
            standby.psql("SELECT pg_wal_replay_pause()");
        }
    });
    more_answers(&answers).await;
    tokio::task::block_in_place(|| {
        primary.kill();
        standby.promote();
    });
    let mut resumed = false;
    for number in 0..200 {
        if submit(&*store, &format!("after {number}")).await.is_ok() {
            resumed = true;
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(resumed, "no answer within 10 s of the promotion");
    stop.store(true, Ordering::SeqCst);
    let (mut answered, mut there) = (0, 0);
    for submitter in submitting {
        for id in submitter.await.expect("a submitter ends") {
            answered += 1;
            there += usize::from(load::state(&*store, id).await.is_some());
        }
    }
    // Lease versions after the failover are above all earlier ones.
    let next = claim(&*store, 1).await.expect("the store answers");
    assert!(
        next.first()
            .is_some_and(|next| next.claimed.version > held.claimed.version && next.claimed.version.0 > 1 << 32)
    );
    (answered, there)
}

/// F32.
#[test]
fn nothing_is_lost_with_a_synchronous_standby() {
    let primary = Cluster::start_with(Durability::On, "wal_level = replica\nmax_wal_senders = 5\nhot_standby = on\n");
    let standby = standby_of(&primary);
    primary.psql("ALTER SYSTEM SET synchronous_standby_names = 'standby'");
    primary.psql("SELECT pg_reload_conf()");
    let (answered, there) = runtime().block_on(fail_over(&primary, &standby, false));
    assert!(answered > 50, "only {answered} were answered");
    assert_eq!(there, answered, "acknowledged jobs were lost");
}

/// F33: only jobs are lost that were acknowledged after the standby had stopped following.
#[test]
fn loss_is_bounded_with_an_asynchronous_standby() {
    let primary = Cluster::start_with(Durability::On, "wal_level = replica\nmax_wal_senders = 5\nhot_standby = on\n");
    let standby = standby_of(&primary);
    let (answered, there) = runtime().block_on(fail_over(&primary, &standby, true));
    assert!(there * 3 > answered, "{there} of {answered} are left: more was lost than the lag");
    println!("{} of {answered} acknowledged jobs were lost with the asynchronous standby", answered - there);
}
