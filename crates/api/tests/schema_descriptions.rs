//! Every property and every type of the OpenAPI schemas has a description.
#![cfg(feature = "schema")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use longshore_api::Problem;
use longshore_api::admin::{Bulk, BulkResult, Cancel, DeadLetter, Patch, Requeue};
use longshore_api::events::{JobEvent, QueueEvent, ScheduleEvent};
use longshore_api::job::{Attempts, History, Jobs, NewJob, SubmittedBatch};
use longshore_api::queue::{PutQueue, Queues};
use longshore_api::system::{Advance, Clock, Health, Info, Stats, Why, Workers};
use longshore_api::work::{
    BatchHeartbeat, Children, ChildrenCreated, Claim, Claimed, Complete, Extended, Fail, Heartbeat, Heartbeats,
    JobState, Release, Results, Settlement, Settlements, Snooze,
};
use longshore_api::workflow::{Inputs, NewWorkflow, WorkflowCreated, WorkflowNode, WorkflowWithJobs, Workflows};
use serde_json::Value;
use utoipa::ToSchema;

type Schemas = BTreeMap<String, Value>;

fn add<T: ToSchema>(schemas: &mut Schemas) {
    let mut all = vec![(T::name().into_owned(), T::schema())];
    T::schemas(&mut all);
    schemas.extend(all.into_iter().map(|(name, schema)| (name, serde_json::to_value(schema).unwrap())));
}

macro_rules! schemas {
    ($($name:ty),+ $(,)?) => {{
        let mut schemas = Schemas::new();
        $(add::<$name>(&mut schemas);)+
        schemas
    }};
}

fn schemas() -> Schemas {
    schemas!(
        Problem,
        JobEvent,
        QueueEvent,
        ScheduleEvent,
        Bulk,
        BulkResult,
        Cancel,
        DeadLetter,
        Patch,
        Requeue,
        Attempts,
        History,
        Jobs,
        NewJob,
        SubmittedBatch,
        PutQueue,
        Queues,
        Advance,
        Clock,
        Health,
        Info,
        Stats,
        Why,
        Workers,
        Children<NewJob>,
        ChildrenCreated,
        Claim,
        Claimed,
        Complete,
        Fail,
        Heartbeat,
        Heartbeats<BatchHeartbeat>,
        Release,
        Results<JobState>,
        Results<Extended>,
        Settlements<Settlement>,
        Snooze,
        Inputs,
        NewWorkflow<WorkflowNode>,
        WorkflowCreated,
        WorkflowWithJobs,
        Workflows,
    )
}

/// Returns the description of a property. That of an optional object is beside the reference to it.
fn description(property: &Value) -> Option<&str> {
    let options = property.get("oneOf").and_then(Value::as_array).into_iter().flatten();
    std::iter::once(property).chain(options).find_map(|schema| schema.get("description")?.as_str())
}

/// Adds the path of every property without a description.
fn undescribed(path: &str, schema: &Value, found: &mut Vec<String>) {
    if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
        for (name, property) in properties {
            // The tag of an enum is described by its variants.
            if description(property).is_none() && property.get("enum").is_none() {
                found.push(format!("{path}.{name}"));
            }
        }
    }
    match schema {
        Value::Object(map) => map.iter().for_each(|(key, value)| undescribed(&format!("{path}/{key}"), value, found)),
        Value::Array(list) => list.iter().for_each(|value| undescribed(path, value, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn every_property_has_a_description() {
    let mut found = Vec::new();
    for (name, schema) in schemas() {
        undescribed(&name, &schema, &mut found);
    }
    assert!(found.is_empty(), "properties without a description:\n  {}", found.join("\n  "));
}

#[test]
fn names_of_shared_types_stay() {
    let schemas = schemas();
    for name in ["State", "Duration", "OnFailure", "RetryLimitUnit", "Transition", "LeaseView", "ErrorView", "Priority"]
    {
        assert!(schemas.contains_key(name), "{name} is missing: {:?}", schemas.keys());
    }
    assert_eq!(schemas["State"]["enum"][0], "pending");
    let timeout = &schemas["Settings"]["properties"]["execution_timeout"];
    let description = description(timeout).unwrap();
    assert!(description.contains("`0s`: no limit") && description.contains("Absent: inherited"), "{timeout}");
}
