//! The description of the wire that the server serves itself. Types describe themselves; here is what each route does.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use longshore_api::admin::{Bulk, BulkResult, Cancel, DeadLetter, Patch, Requeue};
use longshore_api::error::PROBLEM_JSON;
use longshore_api::job::{Attempts, History, Job, Jobs, NewJob, Submitted, SubmittedBatch};
use longshore_api::queue::{PutQueue, Queue, Queues};
use longshore_api::system::{Advance, Clock, Health, Info, Stats, Why, Workers};
use longshore_api::work::{
    BatchHeartbeat, Children, ChildrenCreated, Claim, Claimed, Complete, Extended, Fail, Heartbeat, Heartbeats,
    JobState, Release, Results, Settlement, Settlements, Snooze,
};
use longshore_api::workflow::{
    Chord, Inputs, NewWorkflow, Workflow, WorkflowCreated, WorkflowNode, WorkflowWithJobs, Workflows,
};
use longshore_api::{ErrorCode, Problem};
use utoipa::ToSchema;
use utoipa::openapi::path::{HttpMethod, OperationBuilder, ParameterBuilder, ParameterIn, PathsBuilder};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::schema::{ComponentsBuilder, ObjectBuilder, Type};
use utoipa::openapi::{
    ContentBuilder, InfoBuilder, OneOfBuilder, OpenApi, OpenApiBuilder, PathItem, Ref, RefOr, Required,
    ResponseBuilder, Schema,
};

use crate::routes::system::info::VERSION;

/// Written once.
pub(crate) fn json() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| serde_json::to_string(&document()).unwrap_or_default())
}

pub(crate) fn document() -> OpenApi {
    let mut book = SpecBuilder::default();
    queues(&mut book);
    jobs(&mut book);
    operate(&mut book);
    work(&mut book);
    workflows(&mut book);
    watch(&mut book);
    book.finish()
}

/// Everything that was described so far.
#[derive(Default)]
struct SpecBuilder {
    schemas: BTreeMap<String, RefOr<Schema>>,
    operations: Vec<(&'static str, HttpMethod, OperationBuilder)>,
}

/// What a request or an answer carries.
enum Content {
    Nothing,
    Json(Box<RefOr<Schema>>),
    /// Bytes that are not ours to describe.
    Other(&'static str),
}

impl SpecBuilder {
    /// A type of the wire, by its name.
    fn of<T: ToSchema>(&mut self) -> RefOr<Schema> {
        self.named::<T>(&T::name())
    }

    fn named<T: ToSchema>(&mut self, name: &str) -> RefOr<Schema> {
        let mut others = Vec::new();
        T::schemas(&mut others);
        self.schemas.extend(others);
        self.schemas.insert(name.to_owned(), T::schema());
        Ref::from_schema_name(name).into()
    }

    fn json<T: ToSchema>(&mut self) -> Content {
        Content::Json(Box::new(self.of::<T>()))
    }

    fn route(&mut self, method: HttpMethod, path: &'static str, summary: &str) -> Route<'_> {
        let mut operation = OperationBuilder::new().summary(Some(summary)).operation_id(Some(name_of(&method, path)));
        for name in path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')) {
            let parameter = ParameterBuilder::new().name(name).parameter_in(ParameterIn::Path).required(Required::True);
            operation = operation.parameter(parameter.schema(Some(text())));
        }
        Route { book: self, method, path, operation }
    }

    fn finish(mut self) -> OpenApi {
        let problem = self.of::<Problem>();
        let codes: Vec<&str> = ErrorCode::ALL.iter().map(|code| code.code()).collect();
        let mut paths: BTreeMap<&str, PathItem> = BTreeMap::new();
        for (path, method, operation) in self.operations {
            let refused = ResponseBuilder::new()
                .description(format!("An error; `code` is one of: {}", codes.join(", ")))
                .content(PROBLEM_JSON, ContentBuilder::new().schema(Some(problem.clone())).build());
            let operation = operation.response("default", refused).build();
            let item = PathItem::new(method, operation);
            match paths.get_mut(path) {
                Some(known) => known.merge_operations(item),
                None => drop(paths.insert(path, item)),
            }
        }
        let builder = paths.into_iter().fold(PathsBuilder::new(), |paths, (path, item)| paths.path(path, item));
        let components =
            self.schemas.into_iter().fold(ComponentsBuilder::new(), |all, (name, schema)| all.schema(name, schema));
        OpenApiBuilder::new()
            .info(InfoBuilder::new().title("Longshore").version(VERSION).description(Some(ABOUT)))
            .paths(builder)
            .components(Some(components.build()))
            .build()
    }
}

const ABOUT: &str = "A durable job queue. JSON in and out; a request with a body needs `Content-Type: application/json`. \
Times are RFC 3339 in UTC, durations are text such as `1h15m` or a number of seconds; absent means inherit, `0s` means off. \
Unknown fields and parameters are refused. A 2xx answer to a change means that it is durable. Errors are problem+json: `field` is the path \
of the field at fault (positions count from 0; the jobs of an array are `jobs[0]`, `jobs[1]`, …), `allowed` lists the values of a closed set. \
Every answer has the header `x-request-id`, which is that of the request if it sent 1-128 characters of visible ASCII; \
an error repeats it as `request_id`.";

fn name_of(method: &HttpMethod, path: &str) -> String {
    let method = serde_json::to_string(method).unwrap_or_default();
    let words = path.split('/').filter(|part| !part.is_empty() && *part != "v1");
    let words: Vec<&str> = words.map(|part| part.trim_matches(['{', '}'])).collect();
    format!("{}_{}", method.trim_matches('"'), words.join("_")).replace(['-', '.'], "_")
}

fn text() -> Schema {
    ObjectBuilder::new().schema_type(Type::String).build().into()
}

/// One operation under construction.
struct Route<'a> {
    book: &'a mut SpecBuilder,
    method: HttpMethod,
    path: &'static str,
    operation: OperationBuilder,
}

impl Route<'_> {
    fn query(self, parameters: &[(&str, &str)]) -> Self {
        self.parameters(&ParameterIn::Query, parameters)
    }

    fn header(self, name: &str, about: &str) -> Self {
        self.parameters(&ParameterIn::Header, &[(name, about)])
    }

    fn parameters(mut self, place: &ParameterIn, parameters: &[(&str, &str)]) -> Self {
        for (name, about) in parameters {
            let parameter = ParameterBuilder::new().name(*name).parameter_in(place.clone()).description(Some(*about));
            self.operation = self.operation.parameter(parameter.required(Required::False).schema(Some(text())));
        }
        self
    }

    fn takes<T: ToSchema>(mut self) -> Self {
        let schema = self.book.of::<T>();
        self.operation = self.operation.request_body(Some(body(schema)));
        self
    }

    fn takes_schema(mut self, schema: RefOr<Schema>) -> Self {
        self.operation = self.operation.request_body(Some(body(schema)));
        self
    }

    fn answers<T: ToSchema>(self, status: &str, about: &str) -> Self {
        let content = self.book.json::<T>();
        self.answers_with(status, about, content)
    }

    fn answers_with(mut self, status: &str, about: &str, content: Content) -> Self {
        let response = ResponseBuilder::new().description(about);
        let response = match content {
            Content::Nothing => response,
            Content::Json(schema) => {
                response.content("application/json", ContentBuilder::new().schema(Some(*schema)).build())
            }
            Content::Other(kind) => response.content(kind, ContentBuilder::new().build()),
        };
        self.operation = self.operation.response(status, response);
        self
    }

    fn done(self) {
        self.book.operations.push((self.path, self.method, self.operation));
    }
}

fn body(schema: RefOr<Schema>) -> utoipa::openapi::request_body::RequestBody {
    RequestBodyBuilder::new().content("application/json", ContentBuilder::new().schema(Some(schema)).build()).build()
}

fn queues(book: &mut SpecBuilder) {
    use HttpMethod::{Delete, Get, Post, Put};
    book.route(Get, "/v1/queues", "All queues").answers::<Queues>("200", "By name").done();
    book.route(Get, "/v1/queues/{queue}", "One queue").answers::<Queue>("200", "The queue").done();
    let put = book.route(Put, "/v1/queues/{queue}", "Creates or changes a queue").takes::<PutQueue>();
    put.answers::<Queue>("201", "Created").answers::<Queue>("200", "Changed").done();
    book.route(Delete, "/v1/queues/{queue}", "Deletes a queue")
        .query(&[("force", "true: cancels its living jobs first")])
        .answers_with("204", "Deleted", Content::Nothing)
        .done();
    let pause = book.route(Post, "/v1/queues/{queue}/pause", "Claims get nothing from it until it is resumed");
    pause.answers::<Queue>("200", "Paused").done();
    let resume = book.route(Post, "/v1/queues/{queue}/resume", "Lets claims have its jobs again");
    resume.answers::<Queue>("200", "Resumed").done();
}

fn jobs(book: &mut SpecBuilder) {
    use HttpMethod::{Get, Post};
    let one_or_many = {
        let job = book.of::<NewJob>();
        let many = utoipa::openapi::schema::ArrayBuilder::new().items(job.clone()).max_items(Some(1_000));
        RefOr::T(Schema::from(OneOfBuilder::new().item(job).item(many).build()))
    };
    let told = {
        let (one, many) = (book.of::<Submitted>(), book.of::<SubmittedBatch>());
        RefOr::T(Schema::from(OneOfBuilder::new().item(one).item(many).build()))
    };
    book.route(Post, "/v1/queues/{queue}/jobs", "Submits a job, or up to 1,000: all of them or none")
        .header("Idempotency-Key", "the `idempotency_key` of a single job; not for an array")
        .takes_schema(one_or_many)
        .answers_with("201", "Durable; at least one is new", Content::Json(Box::new(told.clone())))
        .answers_with("200", "Every idempotency key was known: nothing has changed", Content::Json(Box::new(told)))
        .done();
    book.route(Get, "/v1/jobs", "Jobs, newest first")
        .query(&[
            ("queue", "of this queue"),
            ("state", "in this state; several are separated by commas, as in `failed,dead_letter`"),
            ("type", "of this type"),
            ("tag", "`alice`: with this key; `tenant:acme`: with this key and value"),
            ("priority", "a name or 0-4"),
            ("workflow", "of this workflow"),
            ("external_id", "with this external id: at most one job of each queue"),
            ("idempotency_key", "created with this key, in any scope, also after its window has lapsed"),
            ("correlation_id", "with this correlation id"),
            ("error_code", "whose error has this code"),
            ("created_after", "created at this time or later"),
            ("created_before", "created before this time"),
            ("fields", "what a row shows: names of fields of a job, separated by commas; all unless given"),
            ("limit", "1-1000, 100 unless given"),
            ("cursor", "`next` of the page before"),
        ])
        .answers::<Jobs>("200", "A page; it may be short or empty while `next` is set")
        .done();
    book.route(Get, "/v1/jobs/{id}", "One job")
        .query(&[
            ("include", "`payload`"),
            ("view", "in the words of gopherqueue, taskharbor, ocypod, weave or document, with its fields only"),
        ])
        .answers::<Job>("200", "The record, or the view that was asked for")
        .done();
    book.route(Get, "/v1/jobs/{id}/payload", "The payload, byte for byte")
        .answers_with("200", "application/json, or application/octet-stream for binary", Content::Other("*/*"))
        .done();
    book.route(Get, "/v1/jobs/{id}/attempts", "Its runs").answers::<Attempts>("200", "Oldest first").done();
    book.route(Get, "/v1/jobs/{id}/history", "Its states").answers::<History>("200", "Oldest first").done();
    book.route(Get, "/v1/jobs/{id}/inputs", "What its dependencies have to give it")
        .query(&[("limit", "1-1000"), ("cursor", "`next` of the page before")])
        .answers::<Inputs>("200", "Id, ref, state and result of each")
        .done();
    book.route(Get, "/v1/jobs/{id}/why", "Why it is not running").answers::<Why>("200", "Reasons with facts").done();
    book.route(Get, "/v1/jobs/{id}/wait", "Waits for its end")
        .query(&[("timeout", "at most 60s, 30s unless given")])
        .answers::<Job>("200", "It has ended")
        .answers::<Job>("202", "It has not; as it is now")
        .done();
}

fn operate(book: &mut SpecBuilder) {
    use HttpMethod::{Delete, Patch as PatchMethod, Post};
    let patch = book.route(PatchMethod, "/v1/jobs/{id}", "Changes what a job says about itself").takes::<Patch>();
    patch.answers::<Job>("200", "As it is now").done();
    book.route(Delete, "/v1/jobs/{id}", "Deletes an ended job").answers_with("204", "Deleted", Content::Nothing).done();
    let submit = book.route(Post, "/v1/jobs/{id}/submit", "Releases a held job");
    submit.answers::<JobState>("200", "Submitted").done();
    let cancel = book.route(Post, "/v1/jobs/{id}/cancel", "Cancels a job").takes::<Cancel>();
    let cancel = cancel.answers::<JobState>("200", "Cancelled");
    cancel.answers::<JobState>("202", "Its worker is told at the next heartbeat").done();
    let requeue = book.route(Post, "/v1/jobs/{id}/requeue", "Runs an ended job again, in place or as a clone");
    requeue.takes::<Requeue>().answers::<JobState>("200", "The job that will run").done();
    let dead = book.route(Post, "/v1/jobs/{id}/dead-letter", "Gives a job up").takes::<DeadLetter>();
    dead.answers::<JobState>("200", "In dead_letter").done();
    let now = book.route(Post, "/v1/jobs/{id}/run-now", "Ends the wait of a delayed or retrying job");
    now.answers::<JobState>("200", "In line").done();
    let bulk = book.route(Post, "/v1/jobs/bulk", "Requeues, cancels or deletes many jobs").takes::<Bulk>();
    bulk.answers::<BulkResult>("200", "Each job has its own verdict").done();
}

fn work(book: &mut SpecBuilder) {
    use HttpMethod::Post;
    let claim = book.route(Post, "/v1/claims", "Takes jobs under leases, or waits for some").takes::<Claim>();
    claim.answers::<Claimed>("200", "Empty when nothing came within `wait`").done();
    let complete = book.route(Post, "/v1/jobs/{id}/complete", "The work is done").takes::<Complete>();
    complete.answers::<JobState>("200", "The state it is in now").done();
    let fail = book.route(Post, "/v1/jobs/{id}/fail", "The work failed").takes::<Fail>();
    fail.answers::<JobState>("200", "The state it is in now").done();
    let heartbeat = book.route(Post, "/v1/jobs/{id}/heartbeat", "Keeps the lease").takes::<Heartbeat>();
    heartbeat.answers::<Extended>("200", "The new expiry, and whether to stop").done();
    let snooze = book.route(Post, "/v1/jobs/{id}/snooze", "Hands a job back for later").takes::<Snooze>();
    snooze.answers::<JobState>("200", "Delayed").done();
    let release = book.route(Post, "/v1/jobs/{id}/release", "Hands a job back").takes::<Release>();
    release.answers::<JobState>("200", "In line").done();
    // Members of generic lists are not found by themselves.
    drop((book.of::<Settlement>(), book.of::<BatchHeartbeat>()));
    let children = book.named::<Children>("Children");
    let fan_out = book.route(Post, "/v1/jobs/{id}/children", "A running job fans out").takes_schema(children);
    fan_out.answers::<ChildrenCreated>("201", "Ids of the children").done();
    let (settlements, settled) =
        (book.named::<Settlements>("Settlements"), book.named::<Results<JobState>>("SettlementResults"));
    book.route(Post, "/v1/settlements", "Ends up to 1,000 leases")
        .takes_schema(settlements)
        .answers_with("200", "One verdict each, in the same order", Content::Json(Box::new(settled)))
        .done();
    let (heartbeats, extended) =
        (book.named::<Heartbeats>("Heartbeats"), book.named::<Results<Extended>>("HeartbeatResults"));
    book.route(Post, "/v1/heartbeats", "Keeps up to 1,000 leases")
        .takes_schema(heartbeats)
        .answers_with("200", "One verdict each, in the same order", Content::Json(Box::new(extended)))
        .done();
}

fn workflows(book: &mut SpecBuilder) {
    use HttpMethod::{Get, Post};
    drop((book.of::<WorkflowNode>(), book.named::<Chord>("Chord")));
    let given = book.named::<NewWorkflow>("NewWorkflow");
    book.route(
        Post,
        "/v1/workflows",
        "Submits jobs as one workflow: free by `ref`, as a chain, a group or a chord, nested",
    )
    .takes_schema(given.clone())
    .answers::<WorkflowCreated>("201", "Durable, with all of its jobs")
    .answers::<WorkflowCreated>("200", "Every job was known by its idempotency key, as one of this workflow's")
    .done();
    book.route(Get, "/v1/workflows", "Workflows, newest first")
        .query(&[
            ("state", "running, completed, failed or cancelled"),
            ("limit", "1-1000, 100 unless given"),
            ("cursor", "`next` of the page before"),
        ])
        .answers::<Workflows>("200", "A page; it may be short or empty while `next` is set")
        .done();
    book.route(Get, "/v1/workflows/{id}", "One workflow")
        .query(&[
            ("limit", "members of one page, 0-1000; without it up to 10,000"),
            ("cursor", "`next` of the page before"),
        ])
        .answers::<WorkflowWithJobs>("200", "Its state, its counts, and its members, oldest first")
        .done();
    book.route(
        Post,
        "/v1/workflows/{id}/jobs",
        "Adds up to 1,000 jobs to an open workflow, in any of its forms or as an array",
    )
    .takes_schema(given)
    .answers::<WorkflowCreated>("201", "Ids of the new jobs")
    .done();
    let close = book.route(Post, "/v1/workflows/{id}/close", "No more jobs will come");
    close.answers::<Workflow>("200", "As it is now").done();
    let cancel =
        book.route(Post, "/v1/workflows/{id}/cancel", "Cancels all of its jobs that have not ended, and closes it");
    let cancel = cancel.takes::<Cancel>().answers::<Workflow>("200", "All have ended");
    cancel.answers::<Workflow>("202", "Some are still to end: workers are told at their next heartbeat").done();
    let retry = book.route(Post, "/v1/workflows/{id}/retry", "Runs again what failed, and returns what waited on it");
    retry.answers::<Workflow>("200", "As it is now").done();
}

fn watch(book: &mut SpecBuilder) {
    use HttpMethod::{Get, Post};
    book.route(Get, "/v1/stats", "Counts and rates").answers::<Stats>("200", "Rates over the last minute").done();
    book.route(Get, "/v1/workers", "Who asks for work").answers::<Workers>("200", "As seen by this server").done();
    book.route(Get, "/v1/info", "The server itself")
        .answers::<Info>("200", "Version, store, durability, whether new jobs are taken")
        .done();
    book.route(Get, "/metrics", "Metrics").answers_with("200", "For Prometheus", Content::Other("text/plain")).done();
    book.route(Get, "/livez", "Whether the process answers").answers::<Health>("200", "It does").done();
    let ready = book.route(Get, "/readyz", "Whether it takes new jobs; 503 names the cause while it does not");
    ready.answers::<Health>("200", "It does").done();
    let itself = Content::Other("application/json");
    book.route(Get, "/openapi.json", "This description").answers_with("200", "OpenAPI", itself).done();
    book.route(Get, "/", "A page for people").answers_with("200", "HTML", Content::Other("text/html")).done();
    let clock = book.route(Get, "/v1/clock", "The time of the store; only with --virtual-clock");
    clock.answers::<Clock>("200", "Now").done();
    let advance = book.route(Post, "/v1/clock/advance", "Moves virtual time on; only with --virtual-clock");
    advance.takes::<Advance>().answers::<Clock>("200", "All that fell due on the way has happened").done();
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::routes::{ROUTES, VIRTUAL_ROUTES};

    /// What is described and what is routed are the same.
    #[test]
    fn the_description_and_the_routes_agree() {
        let document = serde_json::to_value(document()).unwrap();
        let mut described = BTreeSet::new();
        for (path, item) in document["paths"].as_object().unwrap() {
            for method in item.as_object().unwrap().keys() {
                described.insert((method.clone(), path.clone()));
            }
        }
        let routed = ROUTES.iter().chain(VIRTUAL_ROUTES).map(|(method, path)| (method.to_string(), path.to_string()));
        assert_eq!(described, routed.collect());
    }

    /// Every type that is mentioned is described.
    #[test]
    fn every_reference_leads_somewhere() {
        let text = json();
        let document: serde_json::Value = serde_json::from_str(text).unwrap();
        let known = document["components"]["schemas"].as_object().unwrap();
        let mentioned: BTreeSet<&str> =
            text.split("\"#/components/schemas/").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        assert!(mentioned.len() > 50, "only {} types are mentioned", mentioned.len());
        let missing: Vec<_> = mentioned.into_iter().filter(|name| !known.contains_key(*name)).collect();
        assert!(missing.is_empty(), "{missing:?}");
        assert_eq!(known["NewJob"]["required"], serde_json::json!(["type"]));
        // The words of the wire, not those of the code.
        let states = [
            "pending",
            "scheduled",
            "delayed",
            "running",
            "retrying",
            "completed",
            "failed",
            "dead_letter",
            "cancelled",
        ];
        let described: BTreeSet<&str> =
            known["State"]["enum"].as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
        assert_eq!(described, BTreeSet::from(states));
        for (name, schema) in known {
            let words = schema["enum"].as_array().into_iter().flatten().filter_map(|word| word.as_str());
            let odd: Vec<&str> = words.filter(|word| word.chars().any(char::is_uppercase)).collect();
            assert!(odd.is_empty(), "{name}: {odd:?}");
        }
    }

    #[test]
    fn every_operation_has_a_name_of_its_own() {
        let document: serde_json::Value = serde_json::from_str(json()).unwrap();
        let paths = document["paths"].as_object().unwrap();
        let all = paths.values().flat_map(|item| item.as_object().unwrap().values());
        let names: Vec<&str> = all.map(|operation| operation["operationId"].as_str().unwrap()).collect();
        let different: BTreeSet<_> = names.iter().collect();
        assert_eq!(different.len(), names.len(), "{names:?}");
    }
}
