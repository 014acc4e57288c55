//! Tests of the example in virtual time.

use std::sync::Arc;
use std::time::Duration;

use longshore::JobOutcome;
use longshore::testing::{AttemptNumber, TestQueue, run_once};
use longshore_example::{Mail, MailServer, Publish, publish, send};

async fn queue_with(server: &Arc<MailServer>) -> TestQueue {
    let mut queue = TestQueue::new().await;
    queue.on(publish).on(send).state(Arc::clone(server));
    queue
}

/// The retries take hours of virtual time, and milliseconds of real time.
#[tokio::test]
async fn a_mail_is_retried_until_the_server_accepts_it() {
    let server = Arc::new(MailServer::failing(2));
    let queue = queue_with(&server).await;
    let job = queue.client().submit(Mail { issue: 1, to: "ada@example.com".into() }).await.unwrap();
    for _ in 0..2 {
        assert_eq!(queue.drain().await.failed, 1);
        assert_eq!(server.sent(), Vec::<String>::new());
        queue.advance(Duration::from_secs(3_600)).await;
    }
    assert_eq!(queue.drain().await.completed, 1);
    assert_eq!(job.wait().await.unwrap(), 3, "the third attempt succeeded");
    assert_eq!(server.sent(), ["ada@example.com"]);
}

#[tokio::test]
async fn an_issue_fans_out_once_per_subscriber() {
    let server = Arc::new(MailServer::default());
    let queue = queue_with(&server).await;
    let subscribers = vec!["ada@example.com".to_owned(), "alan@example.com".to_owned()];
    for _ in 0..2 {
        // The same issue twice: its mails have keys.
        queue.client().submit(Publish { issue: 7, subscribers: subscribers.clone() }).await.unwrap();
    }
    queue.drain().await;
    queue.assert_submitted::<Mail>(|mail| mail.to == "alan@example.com" && mail.issue == 7).await;
    assert_eq!(queue.submitted::<Mail>().await.len(), 2);
    assert_eq!(server.sent().len(), 2);
}

#[tokio::test]
async fn one_handler_runs_without_a_queue() {
    let publish = |_: longshore::JobContext, mail: Mail| async move {
        if mail.to.is_empty() {
            Err(longshore::HandlerError::permanent("bad_address", "empty"))
        } else {
            Ok(mail.issue)
        }
    };
    let outcome = run_once(&publish, Mail { issue: 3, to: String::new() }, AttemptNumber::nth(3)).await;
    assert!(matches!(outcome, JobOutcome::Fail(error) if error.code.as_deref() == Some("bad_address")));
    let outcome = run_once(&publish, Mail { issue: 3, to: "a@b".into() }, AttemptNumber::last(3)).await;
    assert!(matches!(outcome, JobOutcome::Complete(Some(_))));
}
