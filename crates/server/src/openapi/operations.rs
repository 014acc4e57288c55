//! The operations of the description: one entry per route.

use longshore_api::access::{AuditPage, CallerPermissions, CreatedToken, NewToken, Tokens};
use longshore_api::admin::{Bulk, BulkResult, Cancel, DeadLetter, Patch, Requeue};
use longshore_api::attention::Attention;
use longshore_api::dead_letters::DeadLetterGroups;
use longshore_api::events::{JobEvent, QueueEvent, ScheduleEvent};
use longshore_api::job::{Attempts, History, Job, Jobs, NewJob, Submitted, SubmittedBatch};
use longshore_api::job_type::{JobTypeDetail, JobTypes};
use longshore_api::operation::{BulkOperation, NewOperation, OperationStarted, Operations};
use longshore_api::queue::{PutQueue, Queue, Queues};
use longshore_api::schedule::{PauseSchedule, PutSchedule, Schedule, Schedules, Ticks};
use longshore_api::system::{Advance, Clock, Health, Info, Stats, Why, Worker, Workers};
use longshore_api::webhook::{PutWebhook, Webhook, WebhookDeliveries, WebhookDelivery, WebhookList};
use longshore_api::work::{
    BatchHeartbeat, Children, ChildrenCreated, Claim, Claimed, Complete, Extended, Fail, Heartbeat, Heartbeats,
    JobState, Release, Results, Settlement, Settlements, Snooze,
};
use longshore_api::workflow::{
    Chord, Inputs, NewWorkflow, Workflow, WorkflowCreated, WorkflowNode, WorkflowWithJobs, Workflows,
};
use utoipa::openapi::path::HttpMethod;
use utoipa::openapi::{OneOfBuilder, RefOr, Schema};

use super::{Content, SpecBuilder};

/// Adds all operations.
pub(super) fn describe(spec: &mut SpecBuilder) {
    queues(spec);
    jobs(spec);
    job_commands(spec);
    leases(spec);
    workflows(spec);
    access(spec);
    schedules(spec);
    webhooks(spec);
    bulk_operations(spec);
    system(spec);
}

fn access(spec: &mut SpecBuilder) {
    use HttpMethod::{Delete, Get, Post};
    let create = spec.route(Post, "/v1/tokens", "Creates a token").request::<NewToken>();
    create.response::<CreatedToken>("201", "Created; only this response has the token").add();
    spec.route(Get, "/v1/tokens", "All tokens, without their secrets").response::<Tokens>("200", "Oldest first").add();
    spec.route(Get, "/v1/tokens/self", "What the caller may do; every token may ask")
        .response::<CallerPermissions>("200", "Its actions and queues; all of them on a server without tokens")
        .add();
    spec.route(Delete, "/v1/tokens/{id}", "Revokes a token: within 5 s on every node, also for open requests")
        .query(&[("keep_last", "true: refuse the last token, without which the server trusts its own machine")])
        .response_with("204", "Revoked", Content::Empty)
        .add();
    spec.route(Get, "/v1/audit", "Calls of operators and administrators, also refused ones")
        .query(&[
            ("limit", "1-1000, default 100"),
            ("cursor", "`next` of the previous page"),
            ("before", "only entries before this time"),
        ])
        .response::<AuditPage>("200", "Newest first; kept for 90 days")
        .add();
}

fn queues(spec: &mut SpecBuilder) {
    use HttpMethod::{Delete, Get, Post, Put};
    spec.route(Get, "/v1/queues", "All queues").response::<Queues>("200", "By name").add();
    spec.route(Get, "/v1/queues/{queue}", "One queue").response::<Queue>("200", "The queue").add();
    let put = spec.route(Put, "/v1/queues/{queue}", "Creates or changes a queue").request::<PutQueue>();
    put.response::<Queue>("201", "Created").response::<Queue>("200", "Changed").add();
    spec.route(Delete, "/v1/queues/{queue}", "Deletes a queue")
        .query(&[("force", "true: cancels its jobs first")])
        .response_with("204", "Deleted", Content::Empty)
        .add();
    let pause = spec.route(Post, "/v1/queues/{queue}/pause", "Pauses a queue: claims get no jobs from it");
    pause.response::<Queue>("200", "Paused").add();
    let resume = spec.route(Post, "/v1/queues/{queue}/resume", "Resumes a paused queue");
    resume.response::<Queue>("200", "Resumed").add();
}

fn jobs(spec: &mut SpecBuilder) {
    use HttpMethod::{Get, Post};
    let one_or_many = {
        let job = spec.schema::<NewJob>();
        let many = utoipa::openapi::schema::ArrayBuilder::new().items(job.clone()).max_items(Some(1_000));
        RefOr::T(Schema::from(OneOfBuilder::new().item(job).item(many).build()))
    };
    let submitted = {
        let (one, many) = (spec.schema::<Submitted>(), spec.schema::<SubmittedBatch>());
        RefOr::T(Schema::from(OneOfBuilder::new().item(one).item(many).build()))
    };
    spec.route(Post, "/v1/queues/{queue}/jobs", "Submits a job, or an array of up to 1,000 jobs, all or none")
        .header("Idempotency-Key", "the `idempotency_key` of a single job; not for an array")
        .request_schema(one_or_many)
        .response_with("201", "Stored durably; at least one job is new", Content::Json(Box::new(submitted.clone())))
        .response_with("200", "Every job is a duplicate: nothing changed", Content::Json(Box::new(submitted)))
        .add();
    spec.route(Get, "/v1/jobs", "Jobs, newest first")
        .query(&[
            ("queue", "of this queue"),
            ("state", "in this state; several are separated by commas, as in `failed,dead_letter`"),
            ("type", "of this type"),
            ("tag", "`alice`: with this key; `tenant:acme`: with this key and value"),
            ("priority", "a name or 0-4"),
            ("workflow", "of this workflow"),
            ("external_id", "with this external id: at most one job of each queue"),
            ("idempotency_key", "created with this key, in any scope, also after its window has ended"),
            ("correlation_id", "with this correlation id"),
            ("error_code", "whose error has this code"),
            ("created_after", "created at this time or later"),
            ("created_before", "created before this time"),
            ("fields", "fields of a row, separated by commas; default: all"),
            ("limit", "1-1000, default 100"),
            ("cursor", "`next` of the previous page"),
        ])
        .response::<Jobs>("200", "A page; it may be short or empty while `next` is set")
        .add();
    spec.route(Get, "/v1/dead-letters/groups", "Dead letters by error code and message shape")
        .query(&[("queue", "of this queue")])
        .response::<DeadLetterGroups>("200", "The 200 largest groups, largest first")
        .add();
    spec.route(Get, "/v1/jobs/{id}", "One job")
        .query(&[
            ("include", "`payload`"),
            ("view", "gopherqueue, taskharbor, ocypod, weave or document: the fields of that specification"),
        ])
        .response::<Job>("200", "The record, or the requested view")
        .add();
    spec.route(Get, "/v1/jobs/{id}/payload", "The payload, byte for byte")
        .response_with("200", "application/json, or application/octet-stream for binary", Content::Other("*/*"))
        .add();
    spec.route(Get, "/v1/jobs/{id}/attempts", "The attempts of a job")
        .response::<Attempts>("200", "Oldest first")
        .add();
    spec.route(Get, "/v1/jobs/{id}/history", "The state transitions of a job")
        .response::<History>("200", "Oldest first")
        .add();
    spec.route(Get, "/v1/jobs/{id}/inputs", "The results of its dependencies")
        .query(&[("limit", "1-1000"), ("cursor", "`next` of the previous page")])
        .response::<Inputs>("200", "Id, ref, state and result of each")
        .add();
    spec.route(Get, "/v1/jobs/{id}/why", "Why a job is not running").response::<Why>("200", "The reasons").add();
    spec.route(Get, "/v1/jobs/{id}/wait", "Waits for the end of a job")
        .query(&[("timeout", "at most 60s, default 30s")])
        .response::<Job>("200", "The job has ended")
        .response::<Job>("202", "Timeout: the present state")
        .add();
}

fn job_commands(spec: &mut SpecBuilder) {
    use HttpMethod::{Delete, Patch as PatchMethod, Post};
    let patch = spec.route(PatchMethod, "/v1/jobs/{id}", "Changes fields of a job").request::<Patch>();
    patch.response::<Job>("200", "The new state").add();
    spec.route(Delete, "/v1/jobs/{id}", "Deletes an ended job").response_with("204", "Deleted", Content::Empty).add();
    let submit = spec.route(Post, "/v1/jobs/{id}/submit", "Submits a held job");
    submit.response::<JobState>("200", "Submitted").add();
    let cancel = spec.route(Post, "/v1/jobs/{id}/cancel", "Cancels a job").request::<Cancel>();
    let cancel = cancel.response::<JobState>("200", "Cancelled");
    cancel.response::<JobState>("202", "Requested: its worker is notified at the next heartbeat").add();
    let requeue = spec.route(Post, "/v1/jobs/{id}/requeue", "Runs an ended job again, in place or as a clone");
    requeue.request::<Requeue>().response::<JobState>("200", "The job that will run").add();
    let dead = spec.route(Post, "/v1/jobs/{id}/dead-letter", "Moves a job to dead_letter").request::<DeadLetter>();
    dead.response::<JobState>("200", "In dead_letter").add();
    let now = spec.route(Post, "/v1/jobs/{id}/run-now", "Schedules a delayed or retrying job now");
    now.response::<JobState>("200", "Scheduled").add();
    let bulk = spec.route(Post, "/v1/jobs/bulk", "Requeues, cancels or deletes many jobs").request::<Bulk>();
    bulk.response::<BulkResult>("200", "The number of changed jobs").add();
}

fn leases(spec: &mut SpecBuilder) {
    use HttpMethod::Post;
    let claim = spec.route(Post, "/v1/claims", "Leases jobs, with an optional long poll").request::<Claim>();
    claim.response::<Claimed>("200", "The jobs; empty after `wait`").add();
    let complete = spec.route(Post, "/v1/jobs/{id}/complete", "Completes a job").request::<Complete>();
    complete.response::<JobState>("200", "The new state").add();
    let fail = spec.route(Post, "/v1/jobs/{id}/fail", "Reports a failed attempt").request::<Fail>();
    fail.response::<JobState>("200", "The new state").add();
    let heartbeat = spec.route(Post, "/v1/jobs/{id}/heartbeat", "Renews the lease").request::<Heartbeat>();
    heartbeat.response::<Extended>("200", "The new expiry, and whether to stop").add();
    let snooze = spec.route(Post, "/v1/jobs/{id}/snooze", "Returns a job with a delay").request::<Snooze>();
    snooze.response::<JobState>("200", "Delayed").add();
    let release = spec.route(Post, "/v1/jobs/{id}/release", "Returns a job at once").request::<Release>();
    release.response::<JobState>("200", "Scheduled").add();
    // Items of generic lists are not found through their list.
    drop((spec.schema::<Settlement>(), spec.schema::<BatchHeartbeat>()));
    let children = spec.schema_named::<Children>("Children");
    let operation =
        spec.route(Post, "/v1/jobs/{id}/children", "Submits children of a running job").request_schema(children);
    operation.response::<ChildrenCreated>("201", "Ids of the children").add();
    let (settlements, settled) =
        (spec.schema_named::<Settlements>("Settlements"), spec.schema_named::<Results<JobState>>("SettlementResults"));
    spec.route(Post, "/v1/settlements", "Settles up to 1,000 leases")
        .request_schema(settlements)
        .response_with("200", "One verdict each, in the same order", Content::Json(Box::new(settled)))
        .add();
    let (heartbeats, extended) =
        (spec.schema_named::<Heartbeats>("Heartbeats"), spec.schema_named::<Results<Extended>>("HeartbeatResults"));
    spec.route(Post, "/v1/heartbeats", "Renews up to 1,000 leases")
        .request_schema(heartbeats)
        .response_with("200", "One verdict each, in the same order", Content::Json(Box::new(extended)))
        .add();
}

fn workflows(spec: &mut SpecBuilder) {
    use HttpMethod::{Get, Post};
    drop((spec.schema::<WorkflowNode>(), spec.schema_named::<Chord>("Chord")));
    let body = spec.schema_named::<NewWorkflow>("NewWorkflow");
    spec.route(Post, "/v1/workflows", "Submits jobs as a workflow: with refs, or as a nested chain, group or chord")
        .request_schema(body.clone())
        .response::<WorkflowCreated>("201", "Stored durably, with all jobs")
        .response::<WorkflowCreated>("200", "Every job is a duplicate of this workflow")
        .add();
    spec.route(Get, "/v1/workflows", "Workflows, newest first")
        .query(&[
            ("state", "running, completed, failed or cancelled"),
            ("limit", "1-1000, default 100"),
            ("cursor", "`next` of the previous page"),
        ])
        .response::<Workflows>("200", "A page; it may be short or empty while `next` is set")
        .add();
    spec.route(Get, "/v1/workflows/{id}", "One workflow")
        .query(&[
            ("limit", "members of one page, 0-1000; without it up to 10,000"),
            ("cursor", "`next` of the previous page"),
        ])
        .response::<WorkflowWithJobs>("200", "State, counts, and members, oldest first")
        .add();
    spec.route(
        Post,
        "/v1/workflows/{id}/jobs",
        "Adds up to 1,000 jobs to an open workflow, in any form or as an array",
    )
    .request_schema(body)
    .response::<WorkflowCreated>("201", "Ids of the new jobs")
    .add();
    let close = spec.route(Post, "/v1/workflows/{id}/close", "Closes a workflow: it accepts no more jobs");
    close.response::<Workflow>("200", "The new state").add();
    let cancel =
        spec.route(Post, "/v1/workflows/{id}/cancel", "Cancels all jobs that have not ended, and closes the workflow");
    let cancel = cancel.request::<Cancel>().response::<Workflow>("200", "All jobs have ended");
    cancel.response::<Workflow>("202", "Some jobs still run: their workers are notified at the next heartbeat").add();
    let retry = spec.route(Post, "/v1/workflows/{id}/retry", "Requeues failed members and revives their dependents");
    retry.response::<Workflow>("200", "The new state").add();
}

fn schedules(spec: &mut SpecBuilder) {
    use HttpMethod::{Delete, Get, Post, Put};
    spec.route(Get, "/v1/schedules", "Schedules, by name")
        .query(&[("limit", "1-1000, default 100"), ("cursor", "`next` of the previous page")])
        .response::<Schedules>("200", "A page")
        .add();
    let path = "/v1/schedules/{name}";
    spec.route(Get, path, "One schedule").response::<Schedule>("200", "The schedule with its next due times").add();
    let put = spec.route(Put, path, "Creates or replaces a schedule").request::<PutSchedule>();
    put.response::<Schedule>("201", "Created").response::<Schedule>("200", "Replaced").add();
    let delete = spec.route(Delete, path, "Deletes a schedule with its ticks; its jobs stay");
    delete.response_with("204", "Deleted", Content::Empty).add();
    let pause = spec.route(Post, "/v1/schedules/{name}/pause", "Pauses a schedule: its ticks are dropped");
    pause.request::<PauseSchedule>().response::<Schedule>("200", "Paused").add();
    let resume = spec.route(Post, "/v1/schedules/{name}/resume", "Resumes a paused schedule");
    resume.response::<Schedule>("200", "Resumed").add();
    let trigger = spec.route(Post, "/v1/schedules/{name}/trigger", "Submits the job of a schedule now");
    trigger.response::<Submitted>("201", "Stored durably").add();
    let ticks = spec.route(Get, "/v1/schedules/{name}/ticks", "The last 100 ticks of a schedule");
    ticks.response::<Ticks>("200", "Newest first, skipped ones included").add();
}

fn bulk_operations(spec: &mut SpecBuilder) {
    use HttpMethod::{Get, Post};
    let start = spec.route(
        Post,
        "/v1/operations",
        "Starts a durable operation on all jobs that match a filter now; it goes on after a restart",
    );
    let start = start.request::<NewOperation>();
    start.response::<OperationStarted>("202", "Stored; `matched` grows until `counted` is true").add();
    spec.route(Get, "/v1/operations", "Durable operations; ended ones are listed for 30 days")
        .query(&[("limit", "1-1000, default 100"), ("cursor", "`next` of the previous page")])
        .response::<Operations>("200", "Newest first")
        .add();
    let get = spec.route(Get, "/v1/operations/{id}", "One operation, with the states of its canary jobs");
    get.response::<BulkOperation>("200", "The operation").add();
    let resume = spec.route(Post, "/v1/operations/{id}/continue", "Treats the rest after the canary");
    resume.response::<BulkOperation>("200", "It runs again").add();
    let stop = spec.route(Post, "/v1/operations/{id}/stop", "Stops an operation after its present slice");
    stop.response::<BulkOperation>("200", "Stopped").add();
    let undo = spec.route(
        Post,
        "/v1/operations/{id}/undo",
        "Takes back what a cancel or requeue has changed in the last 5 minutes, except jobs that have run since",
    );
    undo.response::<BulkOperation>("202", "The undo was started; see `undo`").add();
}

fn webhooks(spec: &mut SpecBuilder) {
    use HttpMethod::{Delete, Get, Post, Put};
    let list = spec.route(Get, "/v1/webhooks", "All endpoints of webhooks");
    list.response::<WebhookList>("200", "By name, without `callbacks`").add();
    let get = spec.route(Get, "/v1/webhooks/{name}", "One endpoint, without its secret");
    get.response::<Webhook>("200", "The endpoint").add();
    let put = spec.route(Put, "/v1/webhooks/{name}", "Creates or replaces an endpoint").request::<PutWebhook>();
    put.response::<Webhook>("201", "Created, with its secret").response::<Webhook>("200", "Replaced").add();
    spec.route(Delete, "/v1/webhooks/{name}", "Deletes an endpoint; its pending deliveries fail")
        .response_with("204", "Deleted", Content::Empty)
        .add();
    let rotate = spec.route(Post, "/v1/webhooks/{name}/rotate", "New secret; the old one signs too for 24 hours");
    rotate.response::<Webhook>("200", "The endpoint with its new secret").add();
    let test = spec.route(Post, "/v1/webhooks/{name}/test", "Sends `webhook.test` to an endpoint, once");
    test.response::<WebhookDelivery>("202", "The delivery").add();
    spec.route(Get, "/v1/webhooks/{name}/deliveries", "Deliveries to an endpoint")
        .query(&[("limit", "1-1000, default 100"), ("cursor", "`next` of the previous page")])
        .response::<WebhookDeliveries>("200", "Newest first")
        .add();
    let of_job = spec.route(Get, "/v1/jobs/{id}/deliveries", "Deliveries about a job");
    of_job.response::<WebhookDeliveries>("200", "Oldest first").add();
    let redeliver = spec.route(Post, "/v1/deliveries/{id}/redeliver", "Attempts a delivery again, with a new plan");
    redeliver.response::<WebhookDelivery>("202", "The delivery, due now").add();
}

fn system(spec: &mut SpecBuilder) {
    use HttpMethod::{Get, Post};
    spec.route(Get, "/v1/stats", "Counts and rates; with a parameter also series")
        .query(&[
            ("window", "length of the series, up to 1d; default 1h"),
            ("step", "length of a point: a multiple of 30s, or of 1s for a window up to 5m"),
            ("queue", "only this queue"),
        ])
        .response::<Stats>("200", "Rates over the last minute")
        .add();
    spec.route(Get, "/v1/types", "Figures of the job types with an event in the window")
        .query(&[("window", "30s to 1d; default 1h")])
        .response::<JobTypes>("200", "Those with the most ended attempts first")
        .add();
    spec.route(Get, "/v1/types/{type}", "One job type: series, errors, workers, new versions of them")
        .query(&[("window", "30s to 1d; default 1h"), ("step", "length of a point: a multiple of 30s")])
        .response::<JobTypeDetail>("200", "Figures of a type without events are zero")
        .add();
    spec.route(Get, "/v1/attention", "What needs attention, from counters")
        .response::<Attention>("200", "Most severe first")
        .add();
    drop((spec.schema::<JobEvent>(), spec.schema::<QueueEvent>(), spec.schema::<ScheduleEvent>()));
    spec.route(Get, "/v1/events", "Changes as they happen, as server-sent events")
        .query(&[
            ("queue", "of jobs in this queue, and of the queue itself"),
            ("type", "of jobs of this type"),
            ("job", "of this job"),
            ("workflow", "of jobs of this workflow"),
            ("state", "transitions to this state; several are separated by commas"),
            ("after", "`id` of the last event that the client has; `Last-Event-ID` replaces it"),
        ])
        .header("Last-Event-ID", "`id` of the last event that the client has")
        .response_with(
            "200",
            "Events `job`, `queue`, `schedule`, `gap` and `closed`",
            Content::Other("text/event-stream"),
        )
        .add();
    spec.route(Get, "/v1/workers", "Workers that were seen within 24 hours")
        .response::<Workers>("200", "The workers of all servers on this store")
        .add();
    let directives = [
        ("/v1/workers/{worker}/quiet", "Asks a worker to finish its jobs and claim no more"),
        ("/v1/workers/{worker}/stop", "Asks a worker to finish or release its jobs and exit"),
        ("/v1/workers/{worker}/resume", "Lets a worker claim jobs again"),
    ];
    for (path, summary) in directives {
        spec.route(Post, path, summary).response::<Worker>("200", "The worker with its new directive").add();
    }
    spec.route(Get, "/v1/info", "The server itself")
        .response::<Info>("200", "Version, store, durability, whether the store accepts new jobs")
        .add();
    spec.route(Get, "/metrics", "Metrics")
        .response_with("200", "Text format of Prometheus", Content::Other("text/plain"))
        .add();
    spec.route(Get, "/livez", "Liveness").response::<Health>("200", "Healthy").add();
    let ready = spec.route(Get, "/readyz", "Readiness: 503 names the reason why new jobs are rejected");
    ready.response::<Health>("200", "Healthy").add();
    let openapi = Content::Other("application/json");
    spec.route(Get, "/openapi.json", "This description").response_with("200", "OpenAPI", openapi).add();
    spec.route(Get, "/", "Dashboard").response_with("200", "HTML", Content::Other("text/html")).add();
    let clock = spec.route(Get, "/v1/clock", "Virtual time; only with --virtual-clock");
    clock.response::<Clock>("200", "Now").add();
    let advance = spec.route(Post, "/v1/clock/advance", "Advances virtual time; only with --virtual-clock");
    advance.request::<Advance>().response::<Clock>("200", "The new time; all due work is done").add();
}
