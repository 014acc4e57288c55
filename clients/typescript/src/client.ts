import { randomUUID } from "node:crypto";

import { fromMilliseconds, monotonicMs, toMilliseconds } from "./duration.js";
import type { Duration } from "./duration.js";
import { JobEndedError, ProblemError, WaitTimeoutError } from "./errors.js";
import { followEvents } from "./events.js";
import type { Event, EventFilter } from "./events.js";
import { JobHandle } from "./handle.js";
import type { Submitted } from "./handle.js";
import type { JobDefinition, NewJob } from "./job.js";
import { parseJson, stringifyJson } from "./json.js";
import { Operations } from "./operations.js";
import type { CallOptions } from "./operations.js";
import type { JobRecord, JobState, SubmitOptions } from "./records.js";
import { toCamelCase, toSnakeCase } from "./records.js";
import { withRetries } from "./retry.js";
import { currentTraceparent } from "./tracing.js";
import { Transport } from "./transport.js";
import type { Endpoint, HttpRequest } from "./transport.js";
import type { WorkflowCreated, WorkflowForm, WorkflowRecord } from "./workflow.js";
import { checkForm, formToWire, mapForm } from "./workflow.js";

/** Options of a client. */
export interface ClientOptions {
  /** URL of the server. Absent: `LONGSHORE_SERVER`, then `http://127.0.0.1:7070`. */
  url?: string;
  /** Access token. Absent: `LONGSHORE_TOKEN`. */
  token?: string;
  /** Certificates of authorities in PEM form, instead of those of Node.js, for a server with https. */
  ca?: string | Buffer | (string | Buffer)[];
  /** Longest time of one request. Absent: 30 s. */
  timeout?: Duration;
  /** How long failed requests are repeated, where the error allows it. Absent: 30 s. */
  retryFor?: Duration;
  /**
   * Called with each new job before it is sent, also in workflows, children and schedules. Returns the
   * job to send, with tags for example: `(job) => job.withFields({ tags: { team: "mail" } })`.
   */
  beforeSubmit?: (job: NewJob) => NewJob;
}

/** Options of `wait`. */
export interface WaitOptions {
  /** Absent: no limit. */
  timeout?: Duration;
  signal?: AbortSignal;
}

export type { CallOptions };

const BATCH_MAX = 1_000;
const POLL_MS = 30_000;
const ENDED: ReadonlySet<string> = new Set(["completed", "failed", "dead_letter", "cancelled"]);

/** Submits, reads and controls jobs. Safe to share; one client per process is enough. */
export class Client extends Operations {
  /** Where the server is; workers use it for connections of their own. */
  readonly endpoint: Endpoint;
  readonly transport: Transport;
  private readonly timeoutMs: number;
  private readonly retryForMs: number;
  private readonly beforeSubmit: (job: NewJob) => NewJob;
  /** Queues that refuse idempotency keys. */
  private readonly keylessQueues = new Set<string>();

  constructor(options: ClientOptions | string = {}) {
    super();
    const given = typeof options === "string" ? { url: options } : options;
    const url = given.url ?? (process.env["LONGSHORE_SERVER"] || "http://127.0.0.1:7070");
    const token = given.token ?? (process.env["LONGSHORE_TOKEN"] || undefined);
    this.endpoint = { url };
    if (token !== undefined) this.endpoint.token = token;
    if (given.ca !== undefined) this.endpoint.ca = [given.ca].flat().map(String);
    this.transport = new Transport(this.endpoint);
    this.timeoutMs = toMilliseconds(given.timeout ?? "30s");
    this.retryForMs = toMilliseconds(given.retryFor ?? "30s");
    this.beforeSubmit = given.beforeSubmit ?? ((job) => job);
  }

  /** Returns the job to send for a new job: what `beforeSubmit` makes of it. */
  prepare<R>(job: NewJob<R>): NewJob<R> {
    return this.beforeSubmit(job as NewJob) as NewJob<R>;
  }

  /** As `prepare`, with the trace context of the active span if the job has none. */
  prepareTraced<R>(job: NewJob<R>): NewJob<R> {
    const prepared = this.prepare(job);
    if (prepared.fields["traceparent"] !== undefined) return prepared;
    const traceparent = currentTraceparent();
    return traceparent === undefined ? prepared : prepared.withFields({ traceparent });
  }

  /** Submits one job. Resolves once it is durable. */
  async submit<I, P, R>(
    definition: JobDefinition<I, P, R>,
    payload: I,
    options?: SubmitOptions,
  ): Promise<JobHandle<R>> {
    const [handle] = await this.submitMany([definition.with(payload, options)]);
    if (handle === undefined) throw new Error("the server answered a submission without a job");
    return handle;
  }

  /**
   * Submits jobs, in the order given. Each 1,000 jobs of a queue are stored together or not at all.
   * Throws the first error; earlier batches stay submitted.
   */
  async submitMany<R>(jobs: readonly NewJob<R>[]): Promise<JobHandle<R>[]> {
    const prepared = jobs.map((job) => this.prepareTraced(job));
    await Promise.all(prepared.map((job) => job.check()));
    const handles = new Array<JobHandle<R>>(jobs.length);
    for (const [queue, positions] of groupByQueue(prepared)) {
      for (let start = 0; start < positions.length; start += BATCH_MAX) {
        const batch = positions.slice(start, start + BATCH_MAX);
        const submitted = await this.submitBatch(
          queue,
          batch.map((at) => prepared[at]!),
        );
        batch.forEach((at, index) => {
          handles[at] = new JobHandle<R>(this, prepared[at]!.definition, submitted[index]!);
        });
      }
    }
    return handles;
  }

  /** Keys of our own make a submission safe to repeat after a lost answer. */
  private async submitBatch(queue: string, jobs: NewJob[]): Promise<Submitted[]> {
    const path = `/v1/queues/${encodeURIComponent(queue)}/jobs`;
    const isKeyless = this.keylessQueues.has(queue);
    const addKey = (fields: Record<string, unknown>) =>
      "idempotency_key" in fields || isKeyless ? fields : { ...fields, idempotency_key: `auto:${randomUUID()}` };
    const bodies = jobs.map((job) => addKey(job.fields));
    const hasKeys = bodies.every((fields) => "idempotency_key" in fields);
    try {
      const body = bodies.length === 1 ? bodies[0] : bodies;
      const answer = await this.call("POST", path, { body, isRepeatable: hasKeys });
      return bodies.length === 1 ? [answer as Submitted] : (answer as { jobs: Submitted[] }).jobs;
    } catch (error) {
      const isKeyRefused =
        error instanceof ProblemError && error.code === "validation" && error.field?.endsWith("idempotency_key");
      const isOurs = jobs.some((job) => !("idempotency_key" in job.fields));
      if (!isKeyRefused || !isOurs || isKeyless) throw error;
      // The queue's idempotency scope is `off`.
      this.keylessQueues.add(queue);
      return this.submitBatch(queue, jobs);
    }
  }

  /** Submits a chain, group, chord or graph: all of its jobs, or none. */
  async submitWorkflow(form: WorkflowForm, options: { name?: string; open?: boolean } = {}): Promise<WorkflowCreated> {
    const prepared = mapForm(form, (job) => this.prepareTraced(job));
    await checkForm(prepared);
    const body = { ...options, ...formToWire(prepared) };
    return (await this.call("POST", "/v1/workflows", { body })) as WorkflowCreated;
  }

  /** Reads a workflow: its state, its counts and its members. */
  async getWorkflow(id: string): Promise<WorkflowRecord> {
    return toCamelCase(await this.call("GET", `/v1/workflows/${encodeURIComponent(id)}`));
  }

  /** Cancels all members that have not ended. */
  async cancelWorkflow(id: string): Promise<void> {
    await this.call("POST", `/v1/workflows/${encodeURIComponent(id)}/cancel`, { body: {} });
  }

  /** Reads a job. */
  async get(id: string, options: { include?: "payload" } = {}): Promise<JobRecord> {
    const query = options.include === undefined ? "" : `?include=${options.include}`;
    return toCamelCase(await this.call("GET", `/v1/jobs/${encodeURIComponent(id)}${query}`));
  }

  /** Reads jobs, newest first. */
  async list(filter: Record<string, string | number> = {}): Promise<{ jobs: JobRecord[]; next: string | null }> {
    const pairs = Object.entries(toSnakeCase(filter) as object).map(([key, value]): [string, string] => [
      key,
      String(value),
    ]);
    return toCamelCase(await this.call("GET", `/v1/jobs?${new URLSearchParams(pairs)}`));
  }

  /** Waits until a job has ended and returns its result. */
  async wait(id: string, options: WaitOptions = {}): Promise<unknown> {
    const limit = options.timeout === undefined ? Infinity : toMilliseconds(options.timeout);
    const giveUpAt = monotonicMs() + limit;
    for (;;) {
      const left = Math.max(0, Math.min(POLL_MS, giveUpAt - monotonicMs()));
      const path = `/v1/jobs/${encodeURIComponent(id)}/wait?timeout=${fromMilliseconds(left)}`;
      const call = { timeoutMs: left + this.timeoutMs, signal: options.signal };
      const job = toCamelCase<JobRecord>(await this.call("GET", path, call));
      if (job.state === "completed") return job.result ?? null;
      if (ENDED.has(job.state)) {
        const { category, code, message } = job.error ?? {};
        throw new JobEndedError(id, job.state, category, code ?? undefined, message);
      }
      if (monotonicMs() >= giveUpAt) throw new WaitTimeoutError(id, job.state);
    }
  }

  /** Cancels a job and returns its state: `running` while its worker has yet to stop. */
  async cancel(id: string, options: { reason?: string; force?: boolean } = {}): Promise<JobState> {
    return this.command(id, "cancel", options);
  }

  /** Runs an ended job again. Returns the state of the job that will run. */
  async requeue(id: string, options: { reset?: boolean; runAt?: Date | string } = {}): Promise<JobState> {
    return this.command(id, "requeue", options);
  }

  /** Makes a delayed or retrying job ready now. */
  async runNow(id: string): Promise<JobState> {
    return this.command(id, "run-now");
  }

  private async command(id: string, verb: string, body: object = {}): Promise<JobState> {
    const answer = await this.call("POST", `/v1/jobs/${encodeURIComponent(id)}/${verb}`, { body: toSnakeCase(body) });
    return (answer as { state: JobState }).state;
  }

  /**
   * Changes of jobs, queues and schedules as they happen, without end. Resumes after a lost
   * connection. An event `gap` means that events are missing: list again what you follow.
   */
  events(filter: EventFilter = {}, options: { signal?: AbortSignal } = {}): AsyncGenerator<Event, never> {
    const limits = { timeoutMs: this.timeoutMs, retryForMs: this.retryForMs, signal: options.signal };
    return followEvents(this.transport, filter, limits);
  }

  /** Sends one request of the HTTP API and returns the parsed answer. Repeats it where that is safe. */
  async call(method: HttpRequest["method"], path: string, options: CallOptions = {}): Promise<unknown> {
    const text = await this.callForText(method, path, options);
    return text === "" ? undefined : parseJson(text);
  }

  /** The same, with the text of the answer. */
  async callForText(method: HttpRequest["method"], path: string, options: CallOptions = {}): Promise<string> {
    const request: HttpRequest = {
      method,
      path,
      timeoutMs: options.timeoutMs ?? this.timeoutMs,
      signal: options.signal,
    };
    if (options.body !== undefined) request.body = stringifyJson(options.body);
    const isRepeatable = options.isRepeatable ?? (method === "GET" || method === "PUT" || method === "DELETE");
    const limits = { withinMs: options.retryForMs ?? this.retryForMs, isRepeatable, signal: options.signal };
    const answer = await withRetries(limits, () => this.transport.send(request));
    return answer.text;
  }

  /** Closes idle connections. */
  close(): void {
    this.transport.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

/** Returns the positions of the jobs of each queue. */
function groupByQueue(jobs: readonly NewJob[]): Map<string, number[]> {
  const groups = new Map<string, number[]>();
  jobs.forEach((job, index) => {
    const positions = groups.get(job.queue);
    if (positions === undefined) groups.set(job.queue, [index]);
    else positions.push(index);
  });
  return groups;
}
