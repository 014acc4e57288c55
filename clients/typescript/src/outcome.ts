import { fromMilliseconds, toMilliseconds } from "./duration.js";
import type { Duration } from "./duration.js";

/** Category of a failure that a worker reports. */
export type FailureCategory = "temporary" | "permanent" | "timeout" | "system";

/** What a failure says. */
export interface FailureDetails {
  category: FailureCategory;
  message: string;
  code?: string;
  /** Underlying cause, such as a stack trace. */
  cause?: string;
  /** Wait before the retry, in milliseconds. */
  retryAfterMs?: number;
  /** No retry, for any category. */
  final?: boolean;
}

/** How a run ends. A handler returns its result, or one of these. */
export type Outcome<Result = unknown> = Completed<Result> | Failed | Snoozed | Released;

/** The run succeeded. A handler returns its result instead. */
export class Completed<Result = unknown> {
  readonly kind = "complete";
  constructor(readonly result: Result) {}
}

/** The run failed. */
export class Failed {
  readonly kind = "fail";
  constructor(readonly error: FailureDetails) {}
}

/** The job returns to its queue after a delay; no attempt is counted. */
export class Snoozed {
  readonly kind = "snooze";
  constructor(readonly delayMs: number) {}
}

/** The job returns to its queue at once; no attempt is counted. */
export class Released {
  readonly kind = "release";
}

/** Options of `temporary`. */
export interface TemporaryOptions {
  /** Wait before the retry, instead of the backoff of the queue. */
  retryAfter?: Duration;
  code?: string;
  cause?: unknown;
}

/** A failure that a later attempt may not have. A thrown error means the same. */
export function temporary(message: string, options: TemporaryOptions = {}): Failed {
  const error: FailureDetails = { category: "temporary", message };
  if (options.code !== undefined) error.code = options.code;
  if (options.cause !== undefined) error.cause = describeCause(options.cause);
  if (options.retryAfter !== undefined) error.retryAfterMs = toMilliseconds(options.retryAfter);
  return new Failed(error);
}

/** A failure that every attempt would have: the job is not retried. */
export function permanent(code: string, message = code, cause?: unknown): Failed {
  const error: FailureDetails = { category: "permanent", code, message };
  if (cause !== undefined) error.cause = describeCause(cause);
  return new Failed(error);
}

/** Runs the job again after a delay, without counting this attempt. */
export function snooze(delay: Duration): Snoozed {
  return new Snoozed(toMilliseconds(delay));
}

/** Returns the job to its queue at once, without counting this attempt. */
export function release(): Released {
  return new Released();
}

/** Whether a value is an outcome and not a result. */
export function isOutcome(value: unknown): value is Outcome {
  return value instanceof Failed || value instanceof Snoozed || value instanceof Released || value instanceof Completed;
}

/** Returns the outcome of what a handler returned. An error is one that it threw: it is no result. */
export function outcomeOfResult(value: unknown): Outcome {
  if (value instanceof Error) return outcomeOfError(value);
  return isOutcome(value) ? value : new Completed(value);
}

/** Returns the outcome of what a handler threw: temporary, unless it is an outcome itself. */
export function outcomeOfError(thrown: unknown): Outcome {
  try {
    return describeThrown(thrown);
  } catch {
    // A value without a text, or an error whose parts throw.
    return new Failed({ category: "temporary", message: "the handler threw a value that has no text" });
  }
}

function describeThrown(thrown: unknown): Outcome {
  if (isOutcome(thrown)) return thrown;
  if (!(thrown instanceof Error)) return new Failed({ category: "temporary", message: String(thrown) });
  const error: FailureDetails = { category: "temporary", message: thrown.message || thrown.name };
  const code = (thrown as { code?: unknown }).code;
  if (typeof code === "string" && code.length <= 128) error.code = code;
  error.cause = describeCause(thrown);
  return new Failed(error);
}

const CAUSE_LENGTH = 8_000;

function describeCause(cause: unknown): string {
  const text = cause instanceof Error ? describeError(cause) : typeof cause === "string" ? cause : String(cause);
  return text.slice(0, CAUSE_LENGTH);
}

function describeError(error: Error): string {
  const stack = error.stack ?? String(error);
  return error.cause instanceof Error ? `${stack}\ncaused by: ${describeError(error.cause)}` : stack;
}

/** Returns the fields of a settlement besides `id` and `lease`, in wire form. */
export function toWire(outcome: Outcome): Record<string, unknown> {
  switch (outcome.kind) {
    case "complete":
      return outcome.result === undefined ? { outcome: "complete" } : { outcome: "complete", result: outcome.result };
    case "fail":
      return { outcome: "fail", error: errorToWire(outcome.error) };
    case "snooze":
      return { outcome: "snooze", delay: fromMilliseconds(outcome.delayMs) };
    case "release":
      return { outcome: "release" };
  }
}

function errorToWire(error: FailureDetails): Record<string, unknown> {
  const { retryAfterMs, ...rest } = error;
  // The server refuses half of a surrogate pair, and with it the whole outcome.
  rest.message = wellFormed(rest.message);
  if (rest.code !== undefined) rest.code = wellFormed(rest.code);
  if (rest.cause !== undefined) rest.cause = wellFormed(rest.cause);
  return retryAfterMs === undefined ? rest : { ...rest, retry_after: fromMilliseconds(retryAfterMs) };
}

function wellFormed(text: string): string {
  return String(text).replace(/\p{Surrogate}/gu, "\u{fffd}");
}
