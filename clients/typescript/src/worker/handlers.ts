import { PayloadError } from "../errors.js";
import type { AnyJob } from "../job.js";
import { outcomeOfError, outcomeOfResult, permanent } from "../outcome.js";
import type { Outcome } from "../outcome.js";
import type { JobContext } from "./context.js";

/** What a handler may return. */
export type HandlerReturn<Result> = Result | Outcome<Result> | Promise<Result | Outcome<Result>>;

/** Runs one job. It returns the result or an outcome; an error that it throws is temporary. */
export type Handler<Payload, Result, State> = (ctx: JobContext<State>, payload: Payload) => HandlerReturn<Result>;

/** One job of a batch. */
export interface BatchItem<Payload, State> {
  ctx: JobContext<State>;
  payload: Payload;
}

/** A batch, as its handler sees it. */
export interface BatchContext<State> {
  /** Aborts for a drain, for the first deadline, or when all jobs of the batch are aborted. */
  readonly signal: AbortSignal;
  readonly state: State;
}

/** What a batch handler returns for one job. An error fails the job as if it were thrown. */
export type BatchReturn<Result> = Result | Outcome<Result> | Error;

/** Runs jobs together. It returns one result, outcome or error per job, or nothing: all completed. */
export type BatchHandler<Payload, Result, State> = (
  ctx: BatchContext<State>,
  items: BatchItem<Payload, State>[],
) => Promise<readonly BatchReturn<Result>[] | void> | readonly BatchReturn<Result>[] | void;

/** Wraps each run. `next` runs the rest and returns the outcome; it never throws. */
export type Middleware<State = unknown> = (
  ctx: JobContext<State>,
  next: () => Promise<Outcome>,
) => Promise<Outcome> | Outcome;

/** A handler and the definition of its jobs. */
export interface Registration {
  definition: AnyJob;
  handler: Handler<any, any, any>;
  /** Position among the types of the worker, from 1. */
  number: number;
  classify: Classify | undefined;
}

/** Returns the outcome of an error that a handler threw; undefined: temporary. */
export type Classify = (error: unknown) => Outcome | undefined;

/** Returns the outcome of what a handler threw. A `classify` that throws itself has no say. */
export function outcomeOfThrown(classify: Classify | undefined, thrown: unknown): Outcome {
  try {
    return classify?.(thrown) ?? outcomeOfError(thrown);
  } catch {
    return outcomeOfError(thrown);
  }
}

/** A batch handler and the definition of its jobs. */
export interface BatchRegistration {
  definition: AnyJob;
  handler: BatchHandler<any, any, any>;
  size: number;
  waitMs: number;
  number: number;
  classify: Classify | undefined;
}

/** Called before and, with 0, after the synchronous part of a handler, with the number of its jobs. */
export type OnSync = (number: number, jobs: number) => void;

/** Returns the outcome of a payload that its schema refuses, or whose check throws. */
export function outcomeOfRefusedPayload(error: unknown): Outcome {
  if (error instanceof PayloadError) return permanent("bad_payload", error.message);
  // The text of another error may quote the payload.
  return permanent("bad_payload", `its check threw ${error instanceof Error ? error.name : typeof error}`);
}

/** Runs a handler inside the middleware. Never throws. */
export async function runHandler(
  registration: Registration,
  middleware: readonly Middleware<any>[],
  ctx: JobContext<any>,
  payload: unknown,
  onSync: OnSync = () => {},
): Promise<Outcome> {
  const call = async (): Promise<Outcome> => {
    let parsed: unknown;
    try {
      const checked = registration.definition.parsePayload(payload);
      parsed = checked instanceof Promise ? await checked : checked;
    } catch (error) {
      return outcomeOfRefusedPayload(error);
    }
    try {
      onSync(registration.number, 1);
      const returned: unknown = registration.handler(ctx, parsed);
      onSync(0, 0);
      const result: unknown = await (returned as PromiseLike<unknown>);
      return result instanceof Error ? outcomeOfThrown(registration.classify, result) : outcomeOfResult(result);
    } catch (error) {
      onSync(0, 0);
      return outcomeOfThrown(registration.classify, error);
    }
  };
  return runMiddleware(middleware, ctx, call);
}

/** Runs `call` inside the middleware. Never throws if `call` does not. */
export function runMiddleware(
  middleware: readonly Middleware<any>[],
  ctx: JobContext<any>,
  call: () => Promise<Outcome>,
): Promise<Outcome> {
  const chain = middleware.reduceRight<() => Promise<Outcome>>(
    (next, layer) => async () => {
      try {
        return outcomeOfResult(await layer(ctx, next));
      } catch (error) {
        return outcomeOfError(error);
      }
    },
    call,
  );
  return chain();
}

/** Returns the outcome of a run that was aborted: what the handler threw is then no failure of its own. */
export function outcomeAfterAbort(ctx: JobContext<any>, outcome: Outcome): Outcome | undefined {
  const isFailure = outcome.kind === "fail" && outcome.error.category === "temporary";
  if (!isFailure || ctx.abortCode === undefined) return outcome;
  switch (ctx.abortCode) {
    case "drain":
      return { kind: "release" };
    case "deadline":
      return { kind: "fail", error: { ...outcome.error, category: "timeout", code: "execution_timeout" } };
    case "cancelled":
      return outcome;
    case "lease_lost":
      return undefined;
  }
}
