//! The event stream: `GET /v1/events`, with reconnects.

mod parser;

use std::time::Duration;

use bytes::Bytes;
use form_urlencoded::Serializer;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use longshore_api::RetryAdvice;
use longshore_api::enums::State;
use longshore_api::events::ServerEvent;
use longshore_api::states::States;

use self::parser::{EventBlock, EventParser};
use crate::client::Client;
use crate::clock::monotonic;
use crate::error::{Error, TimeoutError};

/// Longest time without a byte. The server sends a comment every 15 s.
const SILENCE_MAX: Duration = Duration::from_secs(45);
/// Delays between two attempts to connect again.
const DELAY_FIRST: Duration = Duration::from_millis(50);
const DELAY_MAX: Duration = Duration::from_secs(2);

/// Which events a stream has. An event matches if all given fields match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventQuery {
    /// Of jobs in this queue, and of the queue itself.
    pub queue: Option<String>,
    pub job_type: Option<String>,
    /// Id of a job.
    pub job: Option<String>,
    /// Id of a workflow.
    pub workflow: Option<String>,
    /// Transitions to any of these states; empty means all.
    pub states: Vec<State>,
    /// Cursor of the last event that the caller has. `None`: only new events.
    pub after: Option<String>,
}

impl EventQuery {
    fn path(&self) -> String {
        let mut query = Serializer::new(String::new());
        let states = (!self.states.is_empty()).then(|| States(self.states.clone()).to_string());
        let pairs = [
            ("queue", self.queue.as_deref()),
            ("type", self.job_type.as_deref()),
            ("job", self.job.as_deref()),
            ("workflow", self.workflow.as_deref()),
            ("state", states.as_deref()),
        ];
        for (name, value) in pairs {
            if let Some(value) = value {
                query.append_pair(name, value);
            }
        }
        let query = query.finish();
        if query.is_empty() { "/v1/events".to_owned() } else { format!("/v1/events?{query}") }
    }
}

/// An event with the position after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedEvent {
    /// For [`EventQuery::after`], also of a later process.
    pub cursor: Option<String>,
    pub event: ServerEvent,
}

/// An open event stream. After a lost connection it resumes where it was.
#[derive(Debug)]
pub struct EventStream {
    client: Client,
    path: String,
    cursor: Option<String>,
    /// `None` after a lost connection.
    body: Option<Incoming>,
    parser: EventParser,
    reconnects: u64,
}

impl Client {
    /// Opens the event stream. Once it is open, it has every later change.
    ///
    /// ```no_run
    /// use longshore::api::events::ServerEvent;
    /// use longshore::{Client, EventQuery};
    ///
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let client = Client::new("http://127.0.0.1:7070")?;
    /// let query = EventQuery { queue: Some("mail".to_owned()), ..EventQuery::default() };
    /// let mut events = client.events(&query).await?;
    /// loop {
    ///     match events.next().await?.event {
    ///         ServerEvent::Job(job) => println!("{} is {}", job.id, job.to),
    ///         ServerEvent::Gap => println!("events are missing: list the jobs again"),
    ///         ServerEvent::Queue(_) | ServerEvent::Schedule(_) | ServerEvent::Closed(_) => {}
    ///     }
    /// }
    /// # }
    /// ```
    pub async fn events(&self, query: &EventQuery) -> Result<EventStream, Error> {
        let mut stream = EventStream {
            // A stream occupies its connection for as long as it lives.
            client: self.clone(),
            path: query.path(),
            cursor: query.after.clone(),
            body: None,
            parser: EventParser::default(),
            reconnects: 0,
        };
        stream.connect().await?;
        Ok(stream)
    }
}

impl EventStream {
    /// Returns the next event. Connects again after a lost connection, for as long as the client
    /// retries submissions; then returns the error. A later call tries again.
    pub async fn next(&mut self) -> Result<ReceivedEvent, Error> {
        let mut lost_since = None;
        let mut delay = DELAY_FIRST;
        loop {
            while let Some(block) = self.parser.next_block() {
                if let Some(event) = self.read_block(block)? {
                    return Ok(event);
                }
            }
            let error = if self.body.is_some() {
                match self.read_bytes().await {
                    Ok(bytes) => {
                        self.parser.push(&bytes);
                        continue;
                    }
                    Err(_) => {
                        self.body = None;
                        continue;
                    }
                }
            } else {
                match self.connect().await {
                    Ok(()) => {
                        self.reconnects += 1;
                        (lost_since, delay) = (None, DELAY_FIRST);
                        continue;
                    }
                    Err(error) => error,
                }
            };
            let since = *lost_since.get_or_insert_with(monotonic);
            let is_over = monotonic().saturating_sub(since) >= self.client.retry_time();
            if error.retry() == RetryAdvice::Never || is_over {
                return Err(error);
            }
            tokio::time::sleep(delay).await;
            delay = (delay * 2).min(DELAY_MAX);
        }
    }

    /// Position after the last event or comment, for [`EventQuery::after`].
    pub fn cursor(&self) -> Option<&str> {
        self.cursor.as_deref()
    }

    /// How often the stream was lost and resumed.
    pub fn reconnects(&self) -> u64 {
        self.reconnects
    }

    async fn connect(&mut self) -> Result<(), Error> {
        self.parser = EventParser::default();
        self.body = Some(self.client.open_stream(&self.path, self.cursor.as_deref()).await?);
        Ok(())
    }

    async fn read_bytes(&mut self) -> Result<Bytes, Error> {
        let ended = || Error::ResponseLost { cause: "the stream ended".into() };
        let body = self.body.as_mut().ok_or_else(ended)?;
        let frame = tokio::time::timeout(SILENCE_MAX, body.frame()).await;
        let frame = frame.map_err(|_| Error::ResponseLost { cause: Box::new(TimeoutError(SILENCE_MAX)) })?;
        let frame = frame.ok_or_else(ended)?.map_err(|cause| Error::ResponseLost { cause: Box::new(cause) })?;
        Ok(frame.into_data().unwrap_or_default())
    }

    fn read_block(&mut self, block: EventBlock) -> Result<Option<ReceivedEvent>, Error> {
        if block.cursor.is_some() {
            self.cursor.clone_from(&block.cursor);
        }
        let Some((name, data)) = block.event else { return Ok(None) };
        let event = ServerEvent::parse(&name, &data).map_err(|error| Error::UnexpectedResponse {
            status: 200,
            detail: format!("the event has another form (column {})", error.column()),
        })?;
        if matches!(event, Some(ServerEvent::Closed(_))) {
            self.body = None;
        }
        Ok(event.map(|event| ReceivedEvent { cursor: block.cursor, event }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_has_only_the_given_fields() {
        assert_eq!(EventQuery::default().path(), "/v1/events");
        let query = EventQuery {
            queue: Some("a b".to_owned()),
            states: vec![State::Failed, State::DeadLetter],
            ..EventQuery::default()
        };
        assert_eq!(query.path(), "/v1/events?queue=a+b&state=failed%2Cdead_letter");
    }
}
