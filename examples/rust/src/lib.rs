//! A newsletter: one job fans out into a mail per subscriber, and each mail is retried alone.

use std::sync::Mutex;

use longshore::{HandlerError, Job, JobContext, JobRequest, State};
use serde::{Deserialize, Serialize};

/// Sends an issue to all subscribers.
#[derive(Debug, Serialize, Deserialize, Job)]
#[job(type = "newsletter.publish", queue = "newsletter")]
pub struct Publish {
    pub issue: u32,
    pub subscribers: Vec<String>,
}

/// Sends an issue to one subscriber.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize, Job)]
#[job(type = "newsletter.mail", queue = "newsletter", output = u32)]
pub struct Mail {
    pub issue: u32,
    pub to: String,
}

/// The mail server. This one accepts mails after some failures, as real ones do.
#[derive(Debug, Default)]
pub struct MailServer {
    failures_left: Mutex<u32>,
    sent: Mutex<Vec<String>>,
}

impl MailServer {
    pub fn failing(times: u32) -> Self {
        Self { failures_left: Mutex::new(times), sent: Mutex::default() }
    }

    /// Addresses in the order of delivery.
    pub fn sent(&self) -> Vec<String> {
        self.sent.lock().map(|sent| sent.clone()).unwrap_or_default()
    }

    fn deliver(&self, to: &str) -> Result<(), std::io::Error> {
        let lost = |_| std::io::Error::other("the mail server has ended");
        let mut failures_left = self.failures_left.lock().map_err(lost)?;
        if *failures_left > 0 {
            *failures_left -= 1;
            return Err(std::io::Error::other("421 try again later"));
        }
        self.sent.lock().map_err(|_| std::io::Error::other("the mail server has ended"))?.push(to.to_owned());
        Ok(())
    }
}

/// Submits one job per subscriber. The keys make a second run of this handler harmless.
pub async fn publish(context: JobContext, job: Publish) -> Result<usize, HandlerError> {
    let mails = job.subscribers.iter().map(|to| {
        let mail = Mail { issue: job.issue, to: to.clone() };
        JobRequest::new(&mail).key(format!("issue {} to {to}", job.issue))
    });
    Ok(context.client().submit_all(mails).await?.len())
}

/// Sends one mail. Returns the attempt that succeeded.
pub async fn send(
    context: JobContext,
    mail: Mail,
    server: State<std::sync::Arc<MailServer>>,
) -> Result<u32, HandlerError> {
    if !mail.to.contains('@') {
        return Err(HandlerError::permanent("bad_address", format!("{:?} is not an address", mail.to)));
    }
    server.deliver(&mail.to)?;
    Ok(context.attempt())
}
