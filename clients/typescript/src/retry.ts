import { setTimeout as sleep } from "node:timers/promises";

import { monotonicMs } from "./duration.js";
import { ProblemError, RequestError } from "./errors.js";

/** Limits of repeated requests. */
export interface RetryLimits {
  /** Time from the first request after which no other is sent. */
  withinMs: number;
  /** Whether a request that may have been applied can be repeated: it has a key or a lease token. */
  isRepeatable: boolean;
  signal?: AbortSignal | undefined;
}

/** Waits between attempts: exponential with full jitter. */
export class Backoff {
  private failures = 0;

  constructor(
    private readonly baseMs = 50,
    private readonly capMs = 5_000,
  ) {}

  /** Returns the next wait in milliseconds: at least the `Retry-After` of the error, up to `askedMaxMs`. */
  nextMs(error?: unknown, askedMaxMs = 60_000): number {
    const ceiling = Math.min(this.capMs, this.baseMs * 2 ** this.failures);
    this.failures = Math.min(this.failures + 1, 30);
    const asked = error instanceof ProblemError ? (error.retryAfterMs ?? 0) : 0;
    return Math.max(ceiling * (0.2 + 0.8 * Math.random()), Math.min(asked, askedMaxMs));
  }

  reset(): void {
    this.failures = 0;
  }
}

/** Whether the `retry` word of an error allows the same request again. */
export function canRetry(error: unknown, isRepeatable: boolean): boolean {
  if (!(error instanceof RequestError)) return false;
  return error.retry === "safe" || (error.retry === "unknown" && isRepeatable);
}

/** Calls `send` until it succeeds, fails with an error that forbids a retry, or time is up. */
export async function withRetries<T>(limits: RetryLimits, send: () => Promise<T>): Promise<T> {
  const giveUpAt = monotonicMs() + limits.withinMs;
  const backoff = new Backoff();
  for (;;) {
    try {
      return await send();
    } catch (error) {
      if (!canRetry(error, limits.isRepeatable)) throw error;
      const wait = backoff.nextMs(error, Infinity);
      if (monotonicMs() + wait > giveUpAt) throw error;
      await sleep(wait, undefined, { signal: limits.signal });
    }
  }
}
