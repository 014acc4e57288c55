import { Client } from "../client.js";
import type { JobDefinition } from "../job.js";
import { stringifyJson } from "../json.js";
import { silentLogger } from "../logger.js";
import type { Outcome } from "../outcome.js";
import type { Tags } from "../records.js";
import type { Worker } from "../worker.js";
import { JobContext } from "../worker/context.js";
import type { AbortCode } from "../worker/context.js";
import { outcomeAfterAbort, runHandler } from "../worker/handlers.js";

/** What the run of `perform` has. */
export interface PerformOptions {
  /** Number of the attempt. Absent: 1. */
  attempt?: number;
  isLastAttempt?: boolean;
  checkpoint?: unknown;
  tags?: Tags;
  idempotencyKey?: string;
  traceparent?: string;
  /** Aborts the run before it starts. */
  abort?: AbortCode;
  client?: Client;
}

/** Outcome of `perform`, and what the handler saved. */
export interface Performed<Result> {
  outcome: Outcome<Result>;
  /** Result of a completed run. */
  result: Result | undefined;
  checkpoints: unknown[];
  progress: unknown[];
}

/** Runs one handler of a worker, with its schema and middleware, without a server. */
export async function perform<I, P, R>(
  worker: Worker<any>,
  definition: JobDefinition<I, P, R>,
  payload: I,
  options: PerformOptions = {},
): Promise<Performed<R>> {
  const found = worker.handlerOf(definition.type);
  if (found === undefined) throw new Error(`the worker has no handler of ${definition.type}`);
  const performed: Performed<R> = { outcome: { kind: "release" }, result: undefined, checkpoints: [], progress: [] };
  const host = {
    client: options.client ?? new Client(),
    state: found.state as unknown,
    logger: silentLogger,
    saveProgress: (_: string, text: string) => void performed.progress.push(JSON.parse(text)),
    saveCheckpoint: async (_: string, text: string) => void performed.checkpoints.push(JSON.parse(text)),
  };
  const isBinary = payload instanceof Uint8Array;
  const text = isBinary ? undefined : stringifyJson(payload);
  const context = new JobContext<unknown>(claimedJob(definition, options), host, () => text, undefined);
  if (options.abort !== undefined) context.abort(options.abort);
  const outcome = await runHandler(found.registration, found.middleware, context, payload);
  performed.outcome = (outcomeAfterAbort(context, outcome) ?? outcome) as Outcome<R>;
  if (performed.outcome.kind === "complete") performed.result = performed.outcome.result;
  return performed;
}

function claimedJob(definition: JobDefinition<any, any, any>, options: PerformOptions) {
  const attempt = options.attempt ?? 1;
  return {
    id: "00000000-0000-4000-8000-000000000000",
    seq: 1,
    queue: definition.queue,
    type: definition.type,
    priority: "normal" as const,
    attempt,
    created_at: new Date().toISOString(),
    ...(attempt === 1 ? {} : { previous_attempt_id: "00000000-0000-4000-8000-000000000001" }),
    lease: { token: "test", version: attempt, expires_at: null },
    last_attempt: options.isLastAttempt ?? false,
    ...(options.checkpoint === undefined ? {} : { checkpoint: options.checkpoint }),
    ...(options.tags === undefined ? {} : { tags: options.tags }),
    ...(options.traceparent === undefined ? {} : { traceparent: options.traceparent }),
    ...(options.idempotencyKey === undefined ? {} : { idempotency_key: options.idempotencyKey }),
  };
}
