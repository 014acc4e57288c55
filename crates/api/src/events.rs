//! The event stream: `GET /v1/events`.

use serde::{Deserialize, Serialize};

use crate::enums::{Cause, QueueChange, ScheduleChange, State};
use crate::time::Time;

/// A transition of a job: `event: job`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct JobEvent {
    /// Id of the job.
    pub id: String,
    /// Queue of the job.
    pub queue: String,
    /// Type of the job.
    #[serde(rename = "type")]
    pub job_type: String,
    /// Workflow of the job; `null` if it has none.
    pub workflow: Option<String>,
    /// State before; `null` for a new job.
    pub from: Option<State>,
    /// State entered.
    pub to: State,
    /// Time of the transition.
    pub at: Time,
    /// Cause of the transition.
    pub cause: Cause,
}

/// A change of a queue: `event: queue`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct QueueEvent {
    /// Name of the queue.
    pub name: String,
    /// What changed.
    pub change: QueueChange,
    /// Time of the change.
    pub at: Time,
}

/// A change or a tick of a schedule: `event: schedule`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ScheduleEvent {
    /// Name of the schedule.
    pub name: String,
    /// What changed.
    pub change: ScheduleChange,
    /// Time of the change.
    pub at: Time,
}

/// The server ends the stream: `event: closed`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClosedEvent {
    /// Why; `slow`: the client has not read fast enough.
    pub reason: String,
}

/// One event of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerEvent {
    Job(JobEvent),
    Queue(QueueEvent),
    Schedule(ScheduleEvent),
    /// Events are missing here. A client that follows jobs lists them again.
    Gap,
    Closed(ClosedEvent),
}

impl ServerEvent {
    /// Parses the name and the data of an event. `None`: an event of a newer server.
    pub fn parse(name: &str, data: &str) -> Result<Option<Self>, serde_json::Error> {
        Ok(Some(match name {
            "job" => Self::Job(serde_json::from_str(data)?),
            "queue" => Self::Queue(serde_json::from_str(data)?),
            "schedule" => Self::Schedule(serde_json::from_str(data)?),
            "gap" => Self::Gap,
            "closed" => Self::Closed(serde_json::from_str(data)?),
            _ => return Ok(None),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_newer_servers_are_skipped() {
        assert_eq!(ServerEvent::parse("gap", "{}").unwrap(), Some(ServerEvent::Gap));
        assert_eq!(ServerEvent::parse("weather", "?").unwrap(), None);
        assert!(ServerEvent::parse("job", "{}").is_err());
    }
}
