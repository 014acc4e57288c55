// Every text of the dashboard. Texts with values are functions.

import { count, duration, shortDuration } from "./lib/format";

const plural = (amount: number, one: string, many = `${one}s`): string => `${count(amount)} ${amount === 1 ? one : many}`;
const waits = (amount: number): string => `${plural(amount, "job")} ${amount === 1 ? "is" : "are"}`;
const jobs = (amount: number): string => plural(amount, "job");

/** The commands that empty pages teach. A test gives each of them to the program. */
export const COMMANDS = {
  submit: `longshore submit -t email.send -p '{"to":"ann"}'`,
  work: (queue: string) => `longshore work -q ${queue} --exec ./handler.sh`,
  submitTo: (queue: string) => `longshore submit -q ${queue} -t email.send -p '{"to":"ann"}'`,
  workflow: "longshore workflows submit workflow.json",
  deadLetters: "longshore dead-letters list",
  operation: "longshore operations start requeue -q mail --state dead_letter --canary 5",
  schedule: "longshore schedules put nightly --cron '0 3 * * *' --queue reports --type report.build",
  webhook: "longshore webhooks put alerts https://example.com/hook --event job.dead_letter",
  token: "longshore tokens create --data longshore-data --name me --actions read,operate,admin --queues '*'",
} as const;

export const PROFILES = ["standard", "gopherqueue", "taskharbor", "ocypod", "weave", "document"];

export const t = {
  product: "Longshore",
  skip: "Skip to content",
  jobs,
  plural,
  nav: {
    label: "Main", administration: "Administration", overview: "Overview", queues: "Queues", jobs: "Jobs", deadLetters: "Dead letters",
    workflows: "Workflows", schedules: "Schedules", workers: "Workers", types: "Types", webhooks: "Webhooks", tokens: "Tokens and audit", system: "System", operations: "Operations",
    more: "More", phone: "Places",
  },
  foot: { store: "Store", disk: "Disk", version: "Version", uptime: "Up for", embedded: "embedded", postgres: "PostgreSQL", memory: "memory", free: (amount: string) => `${amount} free` },
  bar: {
    search: "Search jobs, queues, actions", live: "Live", paused: "Paused", polling: "Polling", lost: "Offline", connecting: "Connecting",
    pause: "Pause live updates", resume: "Resume live updates", theme: "Switch between light and dark", noToken: "no token", tokenSet: "token",
    held: (amount: number) => `${plural(amount, "update")} held back`,
    modeTitle: {
      connecting: "The stream of events is being opened", stream: "Updated by the server's stream of events", busy: "Many events: updated once per second",
      polling: "This server has no stream of events: asked every 2 s", lost: "The server does not answer",
    },
    lag: "Delay of the last event",
  },
  state: {
    pending: "Pending", scheduled: "Scheduled", delayed: "Delayed", running: "Running", retrying: "Retrying", completed: "Completed", failed: "Failed",
    dead_letter: "Dead letter", cancelled: "Cancelled",
  } as Record<string, string>,
  outcome: {
    completed: "completed", failed: "failed", timed_out: "timed out", lease_expired: "lease expired", snoozed: "snoozed", released: "released", cancelled: "cancelled",
  } as Record<string, string>,
  time: { now: "now", never: "never", none: "–", utc: "times in UTC" },
  common: {
    copy: "Copy", copied: "Copied", copyFailed: "The browser refused the clipboard", close: "Close", cancel: "Keep it as it is", save: "Save", retry: "Try now",
    older: "Older", newest: "Newest", first: "First", next: "Next", all: "All", any: "any", none: "none", yes: "yes", no: "no", loading: "Loading", open: "Open", clear: "Clear", undo: "Undo", more: "More",
    name: "Name", queue: "Queue", type: "Type", state: "State", delete: "Delete…", edit: "Edit", required: "required",
  },
  failure: {
    title: "This could not be loaded", safe: "Nothing was applied; it is safe to try again.", unknown: "It may have been applied: check before you try again.",
    never: "The same call will be refused again.", request: (id: string) => `request ${id}`, forbidden: "Your token may not see this.",
    absent: "This server does not offer it", absentText: (what: string) => `${what} need a newer version of Longshore. Nothing is wrong with your jobs.`,
    lost: "Connection lost.", lostText: (at: string) => `Figures are from ${at}.`,
  },
  token: {
    title: "This server wants a token", refused: "The server does not know this token", body: "It is kept in this tab only and is sent to this server only.",
    label: "Token", placeholder: "lsk_…", use: "Use this token", forget: "Forget the token", create: "A first token is made on the server:", change: "Token of this tab",
  },
  clock: {
    title: "Virtual time.", stands: "The clock stands at", minute: "+1 min", hour: "+1 h", other: "Advance…", by: "Advance by", hint: "Such as 90s, 1h15m or 2d", act: "Advance",
    advanced: (at: string) => `The clock stands at ${at}`,
  },
  palette: {
    label: "Search and commands", placeholder: "Search jobs, queues, actions", actions: "Actions", go: "Go to", views: "Saved views", jobsGroup: "Jobs", move: "move", openKey: "open",
    paste: "paste a job id to jump to it", openJob: (id: string) => `Open job ${id}`, byTag: (text: string) => `Jobs with the tag ${text}`, byType: (text: string) => `Jobs of type ${text}`,
    nothing: "Nothing matches. Paste a job id, or type the name of a queue.", pauseQueue: "Pause queue", resumeQueue: "Resume queue", queue: "Queue", worker: "Worker",
    waiting: (amount: number) => `${count(amount)} waiting`,
  },
  keys: {
    title: "Keyboard", search: "Search", help: "These keys", submit: "Submit a job", pause: "Pause or resume live updates", go: "Go to a page", next: "Next row", previous: "Previous row",
    select: "Select the row", open: "Open the row", close: "Close", theme: "Light or dark",
  },
  overview: {
    title: "Overview", key: "Key figures", completed: "Completed", failedAttempts: "Failed attempts", waiting: "Waiting", running: "Running", dead: "Dead letters", oldest: "Oldest ready",
    waitP95: "Wait, p95", perSecond: "/s", lastMinute: "over the last minute", ofEnded: "of those that ended", submitted: (value: string) => `${value} /s submitted`,
    inRetry: (amount: number) => `and ${count(amount)} in retry`, inOthers: (amount: number) => `and ${count(amount)} not due yet`, workers: (amount: number) => `on ${plural(amount, "worker")}`,
    kept: "kept until you act", noDead: "none", inQueue: (queue: string) => `in ${queue}`, noneWaits: "nothing waits",
    throughput: "Throughput", jobsPerSecond: "jobs/s", depth: "Depth", waitingUnit: "waiting", failedShare: "Failed attempts", shareUnit: "share of all", wait: "Wait before start",
    oldestChart: "Oldest ready job", oldestUnit: "age", completedL: "completed", submittedL: "submitted", failedL: "failed", allQueues: "all queues", oldestL: "oldest", nMore: (n: number) => `${n} more`,
    inRange: (name: string) => `in ${name}`, steady: (name: string) => `steady in ${name}`, target: (value: string) => `target ${value}`, noStart: "nothing has started", beforeStart: "before the start", series: "Series",
    attention: "Needs attention", nothing: "Nothing needs attention", checked: "Checked: workers, wait targets, pauses, dead letters, failures, schedules, webhooks, disk, nodes.",
    acted: (label: string) => `Done: ${label}`, fewer: "Show fewer", queues: "Queues", allOfQueues: "All queues", range: "Time range",
    severity: { error: "Critical", warning: "Warning", info: "Note" } as Record<string, string>,
  },
  attention: {
    noWorker: "No worker takes", noWorkerCause: (ready: number | null, queue: string, last: string | null, isBusy: boolean) => `${typeof ready === "number" ? `${count(ready)} ready ` : ""}in ${queue}; ${isBusy ? "its workers take other types" : last ? `last claim ${last}` : "no claim seen"}`,
    overTarget: ": oldest job over its target", overTargetCause: (age: string, target: string, ready: number) => `waits ${age}, target ${target}; ${count(ready)} ready`,
    deadGrow: "Dead letters grow in", deadGrowCause: (growth: number, window: string, total: number) => `${count(growth)} more in ${window}, ${count(total)} in all`,
    paused: "is paused", pausedCause: (waiting: number, since: string | null) => `${waits(waiting)} ready${since ? `, oldest ${since.replace(" ago", "")}` : ""}`,
    schedule: "Schedule", missed: "missed a tick", missedCause: (outcome: string, due: string | null) => `${outcome}${due ? `, due ${due}` : ""}`,
    diskFull: "The store refuses new jobs", diskLow: "The disk is almost full", diskCause: (free: string, reserve: string) => `${free} free, ${reserve} are kept in reserve`,
    node: "Node", behind: (by: string) => `is ${by} behind`, ahead: (by: string) => `is ${by} ahead`, clockCause: "its clock differs from that of the store", commitsCause: "its commits wait",
    burst: (share: string) => `: ${share} % of attempts fail`, burstCause: (failed: number, window: string) => `${plural(failed, "attempt")} failed in ${window}`,
    webhook: "Webhook", fails: "fails", isDisabled: "is disabled", webhookCause: (amount: number) => `${plural(amount, "message")} undelivered`,
    seeJobs: "See jobs", openGroups: "Open groups", openQueue: "Open queue", openSchedule: "Open schedule", openSystem: "Open system", openWebhook: "Open webhook", other: "See more",
  },
  queues: {
    title: "Queues", waiting: "Waiting", running: "Running", retrying: "Retrying", failed: "Failed", dead: "Dead", oldest: "Oldest", target: "Target", completedRate: "Completed/s", failedRate: "Failed share",
    workers: "Workers", profile: "Profile", paused: "paused", pause: "Pause", resume: "Resume", create: "New queue", createTitle: "New queue", createAct: "Create queue", name: "Name of the queue",
    nameHint: "1 to 128 characters of A-Z a-z 0-9 _ . - :", empty: "No queue yet", emptyText: "A queue appears with its first job.", jobs: "List the jobs", settings: "Settings", counts: "Jobs by state",
    deleteTitle: (name: string) => `Delete queue ${name}?`, deleteText: "Ended jobs stay readable until their retention ends.", deleteForce: (amount: number) => `${jobs(amount)} that have not ended are cancelled first.`,
    deleteAct: "Delete queue", deleted: (name: string) => `Queue ${name} deleted`, pausedDone: (name: string) => `Queue ${name} paused`, resumedDone: (name: string) => `Queue ${name} resumed`,
    saved: (name: string) => `Queue ${name} saved`, edit: "Edit settings", profileHint: "A new profile drops all overrides that are not repeated.", overrides: "Settings of this queue",
    overridesHint: (n: number) => (n ? `${plural(n, "setting")} of this queue; the rest comes from the profile.` : "All values come from the profile."), changed: (amount: number) => plural(amount, "change"), locked: "locked by the profile", reset: "Undo changes",
    groups: { queue: "Queue", retry: "Retry", running: "While a job runs", identity: "Identity", keeping: "Lifetime and retention" }, useProfile: "use the profile's", ofProfile: "from the profile", noWorkers: "none",
    refused: "The server refused this value", jobsKeep: "Jobs that exist keep the settings that they were created with.", notFound: "There is no such queue",
  },
  jobsPage: {
    title: "Jobs", submit: "Submit a job", all: "All", filterLabel: "Filter", filterShort: "Add a filter", filterHint: "Add a filter: queue:mail  type:email.send  tag:tenant:acme  error:code, or a job id", save: "Save view", views: "Saved views",
    noViews: "No saved view yet. Set a filter, then save it.", viewName: "Name of the view", queuePaused: "its queue is paused", noWorker: "no worker takes it", copyView: "Copy the link to this view", saved: (name: string) => `View ${name} saved`, columns: "Columns", select: "Select", selectAll: "Select all listed jobs", created: "Created",
    job: "Job", priority: "Priority", attempt: "Attempt", ran: "Ran for", tags: "Tags", error: "Error", reason: "Error or next step", of: (a: number, b: number) => `${a} of ${b}`, nextAt: "next attempt", waitsFor: (n: number) => `waits for ${jobs(n)}`,
    emptyTitle: "No job matches", emptyFilter: (name: string) => `Drop the filter ${name} to see more.`, emptyTag: (tag: string) => `No job has the tag ${tag}. A tag matches as a whole, such as tag:tenant:acme; a type is type:email.send, a queue queue:mail.`, emptyNone: "No job yet", emptyNoneText: "Submit one from here, from code or from the command line.", newRows: (n: number) => `${count(n)} new: show ${n === 1 ? "it" : "them"}`,
    remove: (name: string) => `Remove the filter ${name}`, selected: (n: number) => `${jobs(n)} selected`, allListed: (n: number) => `All ${count(n)} listed jobs are selected.`, takeAll: "Select everything that matches", onlyThese: (n: number) => `Only these ${count(n)}`,
    allMatch: (n: number | null, listed: number) => (n === null ? "Everything that matches is selected." : `All ${count(n)} jobs that match are selected, not only the ${count(listed)} listed here.`), allMatching: (n: number) => `All ${count(n)} matching`, counting: "Counting what matches", rate: "at", rateCol: "Rate", unpaced: "full speed", takes: (time: string) => `about ${time}`, undoFor: "undo for 5 min", dryRun: "Dry run", dryResult: (n: string, action: string) => `${n} can be ${action}`, oneByOne: "One by one, from this page", refusedOf: (n: number) => `${count(n)} refused`,
    past: { requeue: "requeued", cancel: "cancelled", delete: "deleted", run_now: "run now" } as Record<string, string>, verb: { requeue: "Requeue", cancel: "Cancel", delete: "Delete", run_now: "Run now" } as Record<string, string>,
    gerund: { requeue: "Requeueing", cancel: "Cancelling", delete: "Deleting", run_now: "Releasing" } as Record<string, string>,
    cannotAll: "Operations know queue, state, type, tag and error; drop the other filters to act on everything.", onServer: "It runs on the server: you may close this page.",
    confirmTitle: (verb: string, n: string) => `${verb} ${n}?`, confirm: { requeue: "They run again with their counters at zero.", cancel: "They end as cancelled. Workers of running jobs get it with their next heartbeat.", delete: "Their records are gone for good." } as Record<string, string>,
    keep: "Keep them", typed: (n: string) => `Type ${n} to confirm`, progress: (done: string, total: string) => `${done} of ${total}`, stop: "Stop", stopped: (n: number, past: string) => `Stopped: ${jobs(n)} ${past}`,
    done: (n: number, past: string) => `${jobs(n)} ${past}`, refused: (n: number) => `, ${count(n)} refused`, keys: "move, select, open", countsOf: (queue: string) => `counts of the queue ${queue}`, short: "Fewer rows than usual: the server looked through a part.",
    none: "Nothing matches any more.", workflow: "workflow",
  },
  job: {
    why: "Why it is not running", whyRunning: "What it is doing", whyEnded: "How it ended", timeline: "Timeline", attempts: "Attempts", noAttempts: "Not started yet.", history: "Transitions", payload: "Payload", result: "Result", error: "Error",
    policy: "Policy", progress: "Progress", checkpoint: "Checkpoint", deliveries: "Deliveries", id: "Job id", nextAttempt: "Next attempt", started: "Started", ended: "Ended", created: "Created", dueAt: "Due", readySince: "Ready since", workflow: "Workflow",
    queue: "Queue", priority: "Priority", effective: (name: string) => `raised to ${name}`, attempt: "Attempt", then: "Then waits", tags: "Tags", more: "More about this job", of: (n: number, limit: number) => `${n} of ${limit}`, counts: "counted by", key: "Idempotency key", external: "External id",
    correlation: "Correlation id", callback: "Callback", parent: "Parent", seq: "Sequence", requeuedFrom: "Clone of", requeuedAs: "Runs again as", schedule: "Schedule", after: "After", afterAny: "After any of", lease: "Lease until", worker: "Worker", updated: "State since", lanes: { state: "State", attempts: "Attempts", operator: "Events", deliveries: "Deliveries" },
    all: "All", sinceRequeue: "Since requeue", outcome: "Outcome", ran: "Ran for", endedAt: "Ended", running: "running",
    noResult: "No result: the job has not completed with one.", noError: "No failure recorded.", noProgress: "No progress note.", noCheckpoint: "No checkpoint.", bytes: (n: string) => n, exact: "Shown exactly: more digits than a double keeps", binary: "Binary payload", hex: "Hex", text: "Text", tree: "Formatted", raw: "As sent", download: "Download",
    tooLarge: (size: string) => `${size}: shown in part; copy or download gives all of it.`, digits: "numbers keep all their digits", hiddenValue: "hidden", hiddenWhy: "The name of the field says that its value is secret. Every token that may read the job may show it.", secretsHidden: (n: number) => `${plural(n, "value")} hidden`, secretsShown: (n: number) => `${plural(n, "secret value")} shown`, show: "Show", hide: "Hide", by: (text: string, name: string) => `${text} by ${name}`, local: "this machine",
    actions: { submit: "Submit", cancel: "Cancel…", force_cancel: "Cancel by force…", run_now: "Run now", requeue: "Requeue", dead_letter: "Dead letter…", delete: "Delete…", edit: "Edit" } as Record<string, string>,
    done: { submit: "Submitted", cancel: "Cancelled", force_cancel: "Cancelled", run_now: "Ready now", requeue: "Requeued", dead_letter: "Moved to the dead letters", delete: "Deleted", edit: "Saved" } as Record<string, string>,
    cancelAsked: "The worker gets it with its next heartbeat", duplicate: "Duplicate…", editRequeue: "Edit and requeue…", curl: "Copy as curl", cli: "Copy as command", more2: "More actions", clone: (id: string) => `Requeued as ${id}`,
    ask: {
      cancel: ["Cancel this job?", "It ends as cancelled. Jobs that wait for it end too.", "Cancel job"], force_cancel: ["Cancel this job by force?", "It ends at once and its lease is revoked; the worker may still be at work.", "Cancel by force"],
      dead_letter: ["Move this job to the dead letters?", "It ends at once and is kept until you act.", "Move to dead letters"], delete: ["Delete this job?", "Its record, payload and history are gone for good.", "Delete job"],
    } as Record<string, [string, string, string]>,
    reason: "Reason (optional)", notFound: "There is no such job", notFoundText: "Its retention may have ended, or the id is of another server.", cancelRequested: "cancel requested",
    cause: {
      create: "created", submit: "submitted", dependencies: "its dependencies ended", due: "its time came", claim: "claimed", complete: "completed", fail: "attempt failed", timeout: "timed out", lease_expired: "lease expired", snooze: "snoozed", release: "released",
      run_now: "run now", cancel: "cancelled", dead_letter: "moved to the dead letters", lifetime: "lifetime ended", exhausted: "retries used up", dependency_failed: "a dependency failed", resource_exhausted: "queue full", queue_deleted: "queue deleted", requeue: "requeued", revive: "revived",
    } as Record<string, string>,
  },
  why: { noWorker: "No worker takes it now.", resume: "Resume queue", workers: "Workers", see: "See them", startCommand: "Start one:", lease: "lease ends" },
  submit: {
    title: "Submit a job", duplicate: "Duplicate the job", replace: "Edit and requeue the job", deleteOld: "Delete the job that this one replaces", policy: "Policy (JSON)", policyHint: "Fields that differ from the queue's settings", queue: "Queue", type: "Type", payload: "Payload (JSON)", payloadHint: "Sent byte for byte as you typed it.", priority: "Priority", when: "When", now: "at once", delay: "after a delay", at: "at a time", delayHint: "Such as 10m or 1h30m", atHint: "Such as 2026-11-18T18:00:00Z",
    tags: "Tags", tagsHint: "tenant=acme, batch-7", key: "Idempotency key", correlation: "Correlation id", callback: "Callback URL", limit: "Retry limit", hold: "Hold it until it is submitted", more: "More fields", act: "Submit job", done: (id: string) => `Submitted ${id}`, same: "The key is known: this is the existing job", notJson: (text: string) => `Not JSON: ${text}`, binary: "Binary payload of the original job, sent unchanged", curl: "Copy as curl", cli: "Copy as command",
  },
  edit: { title: "Edit the job", act: "Save changes", note: "The payload never changes; duplicate the job to run it with another one.", unchanged: "Nothing was changed" },
  dead: {
    title: "Dead letters", summary: (n: number, groups: number) => `${jobs(n)} in ${plural(groups, "group")}`, groups: "Groups", same: "same code and same message, with the varying parts taken out", jobsCol: "Jobs", error: "Error", last: "Last seen", first: (age: string) => `first ${age}`,
    lastHour: (n: number) => `+${count(n)}`, lastHourCol: "Last hour", kept: "Dead letters", lastRange: (name: string) => `last ${name}`, what: "Groups of dead letters", gone: "deleted", emptied: "no dead letter left", times: (n: number) => plural(n, "time"), anyway: (n: number) => `Requeue ${count(n)} anyway`, restAt: (n: number, rate: number) => `${count(n)} at ${count(rate)} /s`, empty: "No dead letters", emptyText: "Jobs that use up their retries are kept here until you act. Nothing to do.", list: "List the jobs", one: "One of them", openJob: "Open job", category: "Category", permanent: "so it was not retried", canary: "Requeue with a canary", canaryText: "Run a few of them first. The rest follows when they have completed.", sample: "Sample", canaryStep: "Canary", rest: "The rest", sampleText: (k: number, n: number) => `${k} of ${count(n)}`, canaryDone: (k: number, n: number) => `${k} of ${n} completed`, restText: (n: number) => `${count(n)} wait`, start: (k: number) => `Requeue ${k} as a canary`, requeueAll: (n: string) => `Requeue all ${n}`, requeueRest: (n: number) => `Requeue the other ${count(n)}`, after: (n: number) => `Requeue ${count(n)} after it`, stop: "Stop and keep the rest", canaryFailed: (k: number) => `${plural(k, "canary job")} failed again: the cause is not fixed.`, canaryGood: "The canary completed. The rest can follow.", delete: "Delete all…", startedAgo: (age: string) => `started ${age}`, allQueues: "All queues", requeuedBefore: "Requeued before", noCode: "no code", needsWorker: "waits for a worker", approximate: "counted in part", waiting: "The server waits for you.",
  },
  operations: {
    title: "Operations", what: "Operation", jobs: "Jobs", refused: "Refused", started: "Started", empty: "No operation yet", emptyText: "Select everything that matches on the page of jobs, or a group of dead letters.", group: "a group of dead letters",
    state: { running: "running", waiting: "waits for you", stopped: "stopped", done: "done" } as Record<string, string>, undo: (state: string) => (state === "running" ? "being undone" : "undone"), undone: (n: number, kept: number) => `${count(n)} put back${kept ? `, ${count(kept)} kept` : ""}`,
    goOn: "Continue", left: (time: string) => `${time} left`, undoing: "They are put back where they were",
  },
  workflows: {
    title: "Workflows", name: "Workflow", progress: "Progress", members: "Jobs", created: "Created", empty: "No workflow yet", emptyText: "Jobs that are submitted together, with their order, are a workflow.", state: { running: "Running", completed: "Completed", failed: "Failed", cancelled: "Cancelled" } as Record<string, string>, open: "open",
    failedPath: "Failed path", follow: "Follow running", fold: "Fold groups", fit: "Fit", zoomIn: "Zoom in", zoomOut: "Zoom out", started: (age: string) => `started ${age}`, cancel: "Cancel…", cancelTitle: "Cancel this workflow?", cancelText: (n: number) => `${jobs(n)} that have not ended end as cancelled.`, cancelAct: "Cancel workflow", retry: (n: number) => `Retry what failed (${count(n)})`, retried: "What failed runs again", cancelled: "The workflow is being cancelled", pick: "Select a job to see it here.", byDependency: "by dependency", waits: (n: number) => `waits for ${count(n)}`, openJob: "Open job", endedHere: "What it ended", endedText: (n: number) => `${jobs(n)} ended by dependency.`, nextStep: "Next step", nextText: (n: number) => `Retry runs this job again${n ? ` and revives the ${count(n)} that ended with it` : ""}. Nothing that has completed runs twice.`, retryThese: (n: number) => (n === 1 ? "Retry it" : `Retry these ${count(n)}`), runsFor: (time: string) => `for ${time}`, path: "Failed path", group: (n: number) => `${count(n)} jobs`, groupDone: (a: number, b: number) => `${count(a)} of ${count(b)}`, list: "List them", partial: (n: number, total: number) => `The first ${count(n)} of ${count(total)} jobs`, graph: "Graph of the jobs", layout: "The graph is being laid out", unnamed: "unnamed", close: "Close", closed: "No more jobs can be added",
  },
  schedules: {
    title: "Schedules", missed: "Missed ticks", selectAll: "Select all schedules", name: "Schedule", when: "When", zone: "Zone", next: "Next", last: "Last ticks", paused: "paused", pause: "Pause", resume: "Resume", trigger: "Run now", triggered: "Submitted", empty: "No schedule yet", emptyText: "A schedule submits a job by a cron expression or every few minutes.", what: "Schedules", create: "New schedule", every: (d: string) => `every ${d}`, nextTen: "Next ten", local: "Your time", inZone: "Schedule's time", ticks: "Ticks", due: "Due", fired: "Fired", outcome: "Outcome", job: "Job", detail: "Detail", note: "Note (optional)", pauseTitle: (n: string) => `Pause ${n}?`, pauseText: "Ticks that fall due while it is paused are dropped, not missed.", pauseAct: "Pause schedule", edit: "Edit", save: "Save schedule", cron: "Cron expression", everyField: "or every", misfire: "Missed ticks", overlap: "Overlap", jitter: "Jitter", payload: "Payload (JSON)", deleteTitle: (n: string) => `Delete schedule ${n}?`, deleteText: "Jobs that it submitted stay.", deleteAct: "Delete schedule", selected: (n: number) => `${plural(n, "schedule")} selected`, pauseAll: (n: number) => `Pause ${n}`, resumeAll: (n: number) => `Resume ${n}`, outcomes: { fired: "fired", skipped_overlap: "skipped, still running", skipped_misfire: "skipped, missed", refused: "refused" } as Record<string, string>, noTicks: "No tick yet.", saved: (n: string) => `Schedule ${n} saved`, notFound: "There is no such schedule",
  },
  workers: {
    title: "Workers", name: "Worker", directive: "Directive", version: "Version", types: "Types", queues: "Queues", running: "Running", waiting: "Waiting claims", seen: "Last seen", allTypes: "all types", quiet: "Quiet", stop: "Stop…", resume: "Resume", directives: { run: "runs", quiet: "quiet", stop: "stops" } as Record<string, string>, empty: "No worker seen in 24 hours", emptyText: "A worker appears with its first claim.", stopTitle: (n: string) => `Stop ${n}?`, stopText: "It finishes its jobs, claims no more and exits.", stopAct: "Stop worker", quietDone: (n: string) => `${n} claims no more jobs`, stopDone: (n: string) => `${n} gets the directive to stop`, resumeDone: (n: string) => `${n} claims again`, gone: "not seen lately", actions: "Actions",
  },
  charts: { queues: (n: number) => `${n} queues` },
  types: {
    title: "Types", name: "Type", queues: "Queues", submitted: "Submitted", completed: "Completed", failed: "Failed share", waitP50: "Wait p50", waitP95: "Wait p95", runP50: "Run p50", runP95: "Run p95", empty: "No job ran in this range", emptyText: "A type appears with its first job. Figures start with the server.", what: "Figures of types",
    wait: "Wait before start", run: "Run time", errors: "Errors", errorsOf: (n: number) => (n ? `of the newest ${plural(n, "job")} with a failure` : "none"), noErrors: "No job of this type has failed lately.", example: "newest", workers: "Workers", noWorkers: "No worker takes this type.", version: "Version", seen: "Last seen", list: "List the jobs", inWindow: (name: string) => `in ${name}`, quantiles: "p50 and p95", noDeploy: "No new version in this range.", deploys: "New versions", first: "first claim by",
    shares: (completed: string, failed: string) => `${completed} completed, ${failed} failed`,
  },
  webhooks: {
    title: "Webhooks", what: "Webhooks", name: "Endpoint", url: "URL", events: "Events", queues: "Queues", enabled: "enabled", disabled: "disabled", empty: "No endpoint yet", emptyText: "An endpoint receives a signed POST when jobs end.", create: "New endpoint", save: "Save endpoint", test: "Send a test", tested: "Test event queued", rotate: "Rotate the secret…", rotateTitle: "Rotate the secret?", rotateText: "Both secrets sign for 24 hours.", rotateAct: "Rotate secret", secret: "Secret, shown once", secretText: "Keep it now: it is not shown again.", deliveries: "Deliveries", noDeliveries: "No delivery yet.", redeliver: "Redeliver", redelivered: "Queued for delivery", event: "Event", job: "Job", attempts: "Attempts", nextAt: "Next attempt", deleteTitle: (n: string) => `Delete ${n}?`, deleteText: "Its deliveries stop. Nothing is sent any more.", deleteAct: "Delete endpoint", allEvents: "all four events", state: { pending: "pending", delivered: "delivered", failed: "failed" } as Record<string, string>, last: "Last attempt", saved: (n: string) => `Endpoint ${n} saved`,
  },
  tokens: {
    title: "Tokens and audit", what: "Tokens and audit", tokens: "Tokens", audit: "Audit", name: "Token", actions: "May", queues: "Queues", used: "Last used", expires: "Expires", create: "New token", createAct: "Create token", revoke: "Revoke…", revokeTitle: (n: string) => `Revoke ${n}?`, revokeText: "Clients that use it are refused within 5 seconds.", revokeAct: "Revoke token", revoked: (n: string) => `${n} revoked`, shown: "Token, shown once", shownText: "Copy it now: it is not shown again.", empty: "No token: only this machine may connect", emptyText: "As soon as a token exists, every request needs one.", at: "When", who: "Who", action: "Action", target: "Target", outcome: "Outcome", address: "Address", noAudit: "Nothing recorded yet.", expiresHint: "Empty: never. Such as 2027-01-01T00:00:00Z", queuesHint: "Such as mail, reports.*, or * for all", actionNames: ["submit", "work", "read", "operate", "admin"],
  },
  system: {
    metrics_of: { store_commit_duration_seconds: "Commit", store_call_duration_seconds: "Call", store_sync_duration_seconds: "Sync", http_request_duration_seconds: "Request" } as Record<string, string>, title: "System", server: "Server", store: "Store", version: "Version", api: "API", uptime: "Up for", kind: "Kind", durability: "Durability", accepts: "New jobs", accepted: "accepted", refused: "refused", reserve: "Disk reserve", free: "Free disk", profile: "Default profile", auto: "Queues by submission", autoYes: "created by their first job", autoNo: "must exist", clock: "Clock", virtual: "virtual", real: "real time", commit: "Commits", commitText: "Since the start of the server", requests: "Requests", since: "Since the start", submitted: "Submitted", claimed: "Claimed", completed: "Completed", failed: "Failed attempts", links: "More", openapi: "OpenAPI description", metrics: "Metrics for Prometheus", latency: "Latency", p50: "p50", p99: "p99", count: "Count", mean: "Mean", metric: "Metric", what: "Figures of the store", none: "This server publishes no latency of commits.",
  },
  error: { page: "There is no such page", pageText: "The link may be of another version.", home: "Go to the overview", crashed: "This page failed to draw", crashedText: "The rest of the dashboard still works." },
};

/** The age of a duration, for sentences. */
export const ageText = (milliseconds: number): string => `${shortDuration(milliseconds)} ago`;
export const spanText = duration;
