import type { Duration } from "./duration.js";

/** State of a job. */
export type JobState =
  "pending" | "scheduled" | "delayed" | "running" | "retrying" | "completed" | "failed" | "dead_letter" | "cancelled";

/** Priority of a job. */
export type Priority = "critical" | "high" | "normal" | "low" | "bulk";

/** Labels of a job; a label without a value is null. */
export type Tags = Record<string, string | null>;

/** Settings of retries that a job may override. */
export interface RetrySettings {
  limit?: number;
  counts?: "starts" | "failures" | "retries";
  backoff?: {
    kind?: "constant" | "linear" | "exponential" | "list";
    base?: Duration;
    multiplier?: number;
    cap?: Duration;
    delays?: Duration[];
  };
  jitter?: { kind?: "none" | "symmetric" | "full"; factor?: number };
  honourRetryAfter?: boolean;
  onPermanent?: "failed" | "dead_letter" | "retry";
  onExhausted?: "dead_letter" | "failed";
  onTimeout?: "retry" | "final";
  onSystem?: "retry" | "final";
}

/** Options of one submission. */
export interface SubmitOptions {
  /** Queue, instead of the queue of the job. */
  queue?: string;
  /** Idempotency key: a repeated submission returns the first job. */
  key?: string;
  /** Wait before the job may run. */
  delay?: Duration;
  /** Instant from which the job may run; not with `delay`. */
  runAt?: Date | string;
  priority?: Priority;
  tags?: Tags | string[];
  correlationId?: string;
  callbackUrl?: string;
  externalId?: string;
  /** Ids of jobs that must complete first, or `#ref` of the same batch or workflow. */
  after?: string[];
  /** Ids of jobs of which one must end first. */
  afterAny?: string[];
  /** Name of the job inside its batch or workflow. */
  ref?: string;
  /** Keeps the job pending until it is submitted. */
  hold?: boolean;
  retry?: RetrySettings;
  executionTimeout?: Duration;
  lease?: Duration;
  lifetime?: Duration;
  /** W3C trace context. Absent: that of OpenTelemetry's active span, if there is one. */
  traceparent?: string;
  retention?: { completed?: Duration; failed?: Duration; deadLetter?: Duration; cancelled?: Duration };
}

/** The last failure of a job. */
export interface JobError {
  category: "temporary" | "permanent" | "timeout" | "cancelled" | "system";
  code: string | null;
  message: string;
  cause: string | null;
  at: string;
}

/** A job as the server has it. Times are RFC 3339 strings. */
export interface JobRecord {
  id: string;
  seq: number;
  queue: string;
  type: string;
  state: JobState;
  priority: Priority;
  attempt: number;
  counters: { starts: number; failures: number; retriesScheduled: number; requeues: number; reclaims: number };
  tags: Tags;
  correlationId: string | null;
  idempotencyKey: string | null;
  externalId: string | null;
  createdAt: string;
  updatedAt: string;
  runAt: string | null;
  startedAt: string | null;
  completedAt: string | null;
  progress: unknown;
  checkpoint: unknown;
  result: unknown;
  error: JobError | null;
  after: string[];
  afterAny: string[];
  workflow: string | null;
  cancelRequested: boolean;
  /** Present with `include: "payload"`. */
  payload?: unknown;
  /** Further fields, with the names of the API in camel case. */
  [field: string]: unknown;
}

/** Fields with JSON of users, whose keys are never changed. */
const OPAQUE = new Set(["payload", "progress", "checkpoint", "result", "tags", "counts"]);

/** Converts names of the wire to camel case. */
export function toCamelCase<T>(value: unknown): T {
  return convert(value, (key) => key.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase())) as T;
}

/** Converts names to those of the wire. */
export function toSnakeCase(value: unknown): unknown {
  return convert(value, (key) => key.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`));
}

function convert(value: unknown, rename: (key: string) => string): unknown {
  if (Array.isArray(value)) return value.map((item) => convert(item, rename));
  if (value === null || typeof value !== "object" || value instanceof Date) return value;
  const pairs = Object.entries(value).filter(([, item]) => item !== undefined);
  return Object.fromEntries(pairs.map(([key, item]) => [rename(key), OPAQUE.has(key) ? item : convert(item, rename)]));
}

/** Why a job does not run. */
export interface WhyRecord {
  state: JobState;
  runnable: boolean;
  /** Each has a code, such as `queue_paused`, and its facts. */
  reasons: { code: string; [fact: string]: unknown }[];
  ahead: number | null;
}

/** One attempt of a job. */
export interface AttemptRecord {
  id: string;
  previousId: string | null;
  number: number;
  worker: string | null;
  leaseVersion: number;
  startedAt: string;
  endedAt: string | null;
  outcome: string | null;
  error: JobError | null;
  nextDelay: string | null;
}

/** One change of the state of a job. */
export interface HistoryRecord {
  from: JobState | null;
  to: JobState;
  at: string;
  cause: string;
}

/** A worker as the server sees it. */
export interface WorkerRecord {
  name: string;
  /** Further fields, with the names of the API in camel case. */
  [field: string]: unknown;
}

/** An endpoint of webhooks, with the names of the API. */
export interface WebhookRecord {
  name: string;
  url: string | null;
  events: string[];
  queues: string[];
  enabled: boolean;
  disabled_reason: string | null;
  created_at: string;
  updated_at: string;
  previous_secret_until: string | null;
  /** Only in the answer that creates the secret. */
  secret?: string;
}

/** One message to one receiver. */
export interface DeliveryRecord {
  id: string;
  job: string | null;
  webhook: string;
  url: string | null;
  event: string;
  state: "pending" | "delivered" | "failed";
  created_at: string;
  attempts: { at: string; status: number | null; error: string | null; duration_ms: number }[];
  next_at: string | null;
}
