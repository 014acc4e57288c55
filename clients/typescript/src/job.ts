import type { Client } from "./client.js";
import type { JobHandle } from "./handle.js";
import { RawJson, parseJson } from "./json.js";
import type { SubmitOptions } from "./records.js";
import { toSnakeCase } from "./records.js";
import type { SchemaInput, SchemaOutput, StandardSchema } from "./schema.js";
import { validate } from "./schema.js";

/** Defaults of a type of jobs. A submission may override all but the schemas. */
export interface JobOptions extends Omit<SubmitOptions, "key" | "runAt" | "externalId" | "after" | "afterAny" | "ref" | "traceparent"> {
  /** Checks payloads when they are submitted, and again before the handler runs. */
  payload?: StandardSchema;
  /** Checks results that `wait` returns. */
  result?: StandardSchema;
}

/** One job to submit: its queue, its fields in wire form, and its definition. */
export class NewJob<Result = unknown> {
  constructor(
    readonly queue: string,
    readonly fields: Record<string, unknown>,
    readonly definition: JobDefinition<never, unknown, Result>,
  ) {}

  /** Returns this job with other fields in wire form, for `beforeSubmit`. */
  withFields(fields: Record<string, unknown>): NewJob<Result> {
    return new NewJob(this.queue, { ...this.fields, ...fields }, this.definition);
  }

  /** Throws a PayloadError if the schema of the definition refuses the payload. */
  async check(): Promise<void> {
    const base64 = this.fields["payload_base64"];
    const given = this.fields["payload"];
    const json = given instanceof RawJson ? parseJson(given.text) : given;
    await this.definition.parsePayload(typeof base64 === "string" ? Buffer.from(base64, "base64") : json);
  }
}

/** A type of jobs, shared by the code that submits them and the code that runs them. */
export class JobDefinition<Input, Payload = Input, Result = unknown> {
  readonly queue: string;
  readonly payloadSchema: StandardSchema | undefined;
  readonly resultSchema: StandardSchema | undefined;
  private readonly defaults: SubmitOptions;

  constructor(
    readonly type: string,
    options: JobOptions = {},
  ) {
    const { payload, result, ...defaults } = options;
    this.queue = options.queue ?? "default";
    this.payloadSchema = payload;
    this.resultSchema = result;
    this.defaults = defaults;
  }

  /** Submits one job. */
  submit(client: Client, payload: Input, options?: SubmitOptions): Promise<JobHandle<Result>> {
    return client.submit(this, payload, options);
  }

  /** Returns a job for `Client.submitMany` and `Client.submitWorkflow`; nothing is checked or sent. */
  with(payload: Input, options: SubmitOptions = {}): NewJob<Result> {
    const { queue, key, runAt, ...rest } = { ...this.defaults, ...options };
    const { tags, ...settings } = rest;
    const fields = toSnakeCase(settings) as Record<string, unknown>;
    fields["type"] = this.type;
    if (payload instanceof Uint8Array) fields["payload_base64"] = Buffer.from(payload).toString("base64");
    else if (payload !== undefined) fields["payload"] = payload;
    if (tags !== undefined) fields["tags"] = tags;
    if (key !== undefined) fields["idempotency_key"] = key;
    if (runAt !== undefined) fields["run_at"] = runAt instanceof Date ? runAt.toISOString() : runAt;
    return new NewJob(queue ?? this.queue, fields, this as unknown as JobDefinition<never, unknown, Result>);
  }

  /** Returns the payload that a handler gets. Throws a PayloadError if the schema refuses it. */
  parsePayload(payload: unknown): Payload | Promise<Payload> {
    if (this.payloadSchema === undefined) return payload as Payload;
    return validate(this.payloadSchema, this.type, payload) as Payload | Promise<Payload>;
  }

  /** Returns the result that `wait` gives. */
  async parseResult(result: unknown): Promise<Result> {
    if (this.resultSchema === undefined) return result as Result;
    try {
      return (await validate(this.resultSchema, this.type, result)) as Result;
    } catch (error) {
      if (result !== null) throw error;
      // JSON has no undefined: null is also the result of a handler that returns nothing.
      return (await validate(this.resultSchema, this.type, undefined)) as Result;
    }
  }
}

/** A definition of any type. */
export type AnyJob = JobDefinition<any, any, any>;

/**
 * Defines a type of jobs: `job("email.send", { payload: schema })` with a schema, or
 * `job<SendEmail>("email.send")` with a type that is not checked at run time.
 */
export function job<P extends StandardSchema, R extends StandardSchema>(
  type: string,
  options: JobOptions & { payload: P; result: R },
): JobDefinition<SchemaInput<P>, SchemaOutput<P>, SchemaOutput<R>>;
export function job<P extends StandardSchema>(
  type: string,
  options: JobOptions & { payload: P },
): JobDefinition<SchemaInput<P>, SchemaOutput<P>, unknown>;
export function job<Payload = unknown, Result = unknown>(
  type: string,
  options?: Omit<JobOptions, "payload">,
): JobDefinition<Payload, Payload, Result>;
export function job(type: string, options?: JobOptions): JobDefinition<unknown> {
  return new JobDefinition(type, options);
}
