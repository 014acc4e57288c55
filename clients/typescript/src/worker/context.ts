import type { Client } from "../client.js";
import { LongshoreError } from "../errors.js";
import type { NewJob } from "../job.js";
import { parseJson, stringifyJson } from "../json.js";
import { withFields } from "../logger.js";
import type { Logger } from "../logger.js";
import { toCamelCase } from "../records.js";
import type { JobState, Tags } from "../records.js";
import { formToWire } from "../workflow.js";
import type { ClaimedJob } from "./claimed.js";

/** Why a handler should stop. */
export type AbortCode = "cancelled" | "deadline" | "drain" | "lease_lost";

const ABORT_TEXT: Record<AbortCode, string> = {
  cancelled: "the job is being cancelled",
  deadline: "the execution timeout is reached",
  drain: "the worker is shutting down",
  lease_lost: "the lease is lost: another worker may run the job",
};

/** Reason of `ctx.signal`. `code` says why. */
export class JobAborted extends LongshoreError {
  override name = "AbortError";

  constructor(readonly code: AbortCode) {
    super(ABORT_TEXT[code]);
  }
}

/** Result of a dependency. */
export interface JobInput {
  id: string;
  ref: string | null;
  state: JobState | null;
  result: unknown;
}

/** What a context needs from its worker. */
export interface ContextHost<State> {
  readonly client: Client;
  readonly state: State;
  readonly logger: Logger;
  /** Stores progress with the next heartbeat, or data for a later attempt at once. */
  saveProgress(token: string, text: string): void;
  saveCheckpoint(token: string, text: string): Promise<void>;
}

const STEPS = "$steps";

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function stepsOf(checkpoint: unknown): Record<string, unknown> {
  const steps = isRecord(checkpoint) ? checkpoint[STEPS] : undefined;
  return isRecord(steps) ? steps : {};
}

/** One run of a job, as its handler sees it. */
export class JobContext<State = unknown> {
  private controller: AbortController | undefined;
  private code: AbortCode | undefined;
  private savedCheckpoint: unknown;
  private currentProgress: string | undefined;
  private stepSaves: Promise<void> = Promise.resolve();

  constructor(
    private readonly job: ClaimedJob,
    private readonly host: ContextHost<State>,
    private readonly rawPayload: () => string | undefined,
    /** Instant at which the execution timeout ends the run, on this machine's clock. */
    readonly deadline: Date | undefined,
  ) {
    this.savedCheckpoint = job.checkpoint;
  }

  get id(): string {
    return this.job.id;
  }
  get type(): string {
    return this.job.type;
  }
  get queue(): string {
    return this.job.queue;
  }
  /** Number of this attempt, from 1. */
  get attempt(): number {
    return this.job.attempt;
  }
  /** Whether a failure of this attempt ends the job. */
  get isLastAttempt(): boolean {
    return this.job.last_attempt === true;
  }
  get attemptId(): string | undefined {
    return this.job.attempt_id;
  }
  get previousAttemptId(): string | undefined {
    return this.job.previous_attempt_id;
  }
  /** Grows with every claim of the job: other systems refuse writes with an older version. */
  get leaseVersion(): number {
    return this.job.lease.version;
  }
  get idempotencyKey(): string | undefined {
    return this.job.idempotency_key;
  }
  get correlationId(): string | undefined {
    return this.job.correlation_id;
  }
  get workflow(): string | undefined {
    return this.job.workflow;
  }
  /** W3C trace context of the submission. */
  get traceparent(): string | undefined {
    return this.job.traceparent;
  }
  get tags(): Tags {
    return this.job.tags ?? {};
  }
  get createdAt(): Date {
    return new Date(this.job.created_at);
  }
  /** Shared objects of the worker. */
  get state(): State {
    return this.host.state;
  }
  get client(): Client {
    return this.host.client;
  }
  /** Logger whose lines have the id, type and attempt of the job. */
  get log(): Logger {
    return withFields(this.host.logger, { job: this.id, type: this.type, attempt: this.attempt });
  }

  /** The payload as the submitter wrote it; undefined for a binary payload. */
  get payloadText(): string | undefined {
    return this.rawPayload();
  }

  /** Aborts when the handler should stop; the reason is a `JobAborted` with a code. */
  get signal(): AbortSignal {
    if (this.controller === undefined) {
      this.controller = new AbortController();
      if (this.code !== undefined) this.controller.abort(new JobAborted(this.code));
    }
    return this.controller.signal;
  }

  /** Why the handler should stop; undefined while it should go on. */
  get abortCode(): AbortCode | undefined {
    return this.code;
  }

  /** Data of an earlier attempt, or of this one; undefined if there is none. */
  get checkpoint(): unknown {
    return this.savedCheckpoint;
  }

  /** Progress for readers, as JSON text. */
  get progressText(): string | undefined {
    return this.currentProgress;
  }

  /** Stores data for a later attempt. Resolves once it is durable. */
  async saveCheckpoint(value: unknown): Promise<void> {
    await this.host.saveCheckpoint(this.job.lease.token, stringifyJson(value));
    this.savedCheckpoint = value;
  }

  /**
   * Runs a part of the handler once over all attempts, and returns its result, which is kept in the
   * checkpoint under `$steps`. Results are JSON: undefined becomes null.
   */
  async step<T>(name: string, work: () => T | Promise<T>): Promise<T> {
    const known = stepsOf(this.savedCheckpoint);
    if (Object.hasOwn(known, name)) return known[name] as T;
    const text = stringifyJson((await work()) ?? null);
    // One save after the other: each has the results of the steps before it.
    const save = this.stepSaves.then(() => {
      const other = isRecord(this.savedCheckpoint) ? this.savedCheckpoint : {};
      const steps = { ...stepsOf(this.savedCheckpoint), [name]: parseJson(text) };
      return this.saveCheckpoint({ ...other, [STEPS]: steps });
    });
    this.stepSaves = save.catch(() => {});
    await save;
    return parseJson(text) as T;
  }

  /** Stores progress for readers. It is sent with the next heartbeat or the end of the run. */
  progress(value: unknown): void {
    this.currentProgress = stringifyJson(value);
    this.host.saveProgress(this.job.lease.token, this.currentProgress);
  }

  /** Reads the results of the jobs that this one came after. */
  async inputs(): Promise<JobInput[]> {
    const answer = await this.client.call("GET", `/v1/jobs/${this.id}/inputs`);
    return toCamelCase<{ inputs: JobInput[] }>(answer).inputs;
  }

  /** Creates jobs below this one; `options.finally` runs after all of them have completed. */
  async createChildren(
    jobs: NewJob<any>[],
    options: { finally?: NewJob<any> } = {},
  ): Promise<{ jobs: string[]; finally: string | null }> {
    const toWire = (job: NewJob<any>) => formToWire(this.client.prepareTraced(job));
    const body: Record<string, unknown> = { lease: this.job.lease.token, jobs: jobs.map(toWire) };
    if (options.finally !== undefined) body["finally"] = toWire(options.finally);
    const answer = await this.client.call("POST", `/v1/jobs/${this.id}/children`, { body });
    return answer as { jobs: string[]; finally: string | null };
  }

  /** Aborts the run; the first reason stays. For the worker, and for tests of handlers. */
  abort(code: AbortCode): void {
    if (this.code !== undefined) return;
    this.code = code;
    this.controller?.abort(new JobAborted(code));
  }
}
