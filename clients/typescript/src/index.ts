export { Client } from "./client.js";
export type { CallOptions, ClientOptions, WaitOptions } from "./client.js";
export type { Duration } from "./duration.js";
export {
  ConnectionError,
  JobEndedError,
  LongshoreError,
  PayloadError,
  ProblemError,
  RequestError,
  StuckHandlersError,
  WaitTimeoutError,
} from "./errors.js";
export type { MemberError, PayloadIssue, RetryAdvice } from "./errors.js";
export type { Event, EventFilter, JobEvent, QueueEvent, ScheduleEvent } from "./events.js";
export { JobHandle } from "./handle.js";
export { JobDefinition, NewJob, job } from "./job.js";
export type { JobOptions } from "./job.js";
export { RawJson, parseJson, stringifyJson } from "./json.js";
export { silentLogger, stderrLogger } from "./logger.js";
export type { LogFields, LogLevel, Logger } from "./logger.js";
export { Completed, Failed, Released, Snoozed, permanent, release, snooze, temporary } from "./outcome.js";
export type { FailureCategory, FailureDetails, Outcome, TemporaryOptions } from "./outcome.js";
export type {
  AttemptRecord,
  DeliveryRecord,
  HistoryRecord,
  JobError,
  JobRecord,
  JobState,
  Priority,
  RetrySettings,
  SubmitOptions,
  Tags,
  WebhookRecord,
  WhyRecord,
  WorkerRecord,
} from "./records.js";
export type { ScheduleOptions, ScheduleRecord, TickRecord } from "./schedule.js";
export type { SchemaInput, SchemaOutput, StandardSchema } from "./schema.js";
export { traceJobs } from "./tracing.js";
export type { SpanIdentity, TracedSpan, TracingApi } from "./tracing.js";
export { Worker } from "./worker.js";
export type { BatchOptions, RunOptions, WorkerOptions } from "./worker.js";
export { JobAborted, JobContext } from "./worker/context.js";
export type { AbortCode, JobInput } from "./worker/context.js";
export type {
  BatchContext,
  BatchHandler,
  BatchReturn,
  BatchItem,
  Classify,
  Handler,
  HandlerReturn,
  Middleware,
} from "./worker/handlers.js";
export type { Report } from "./worker/report.js";
export type { WorkflowChord, WorkflowCreated, WorkflowForm, WorkflowNode, WorkflowRecord } from "./workflow.js";
