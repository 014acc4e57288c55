import { toMilliseconds } from "../duration.js";
import { payloadTexts } from "../json.js";
import type { ClaimedJob } from "./claimed.js";
import type { JobContext } from "./context.js";

/** Where a held job is. An abandoned job keeps no slot, and its handler's outcome is ignored. */
export type HeldState = "waiting" | "running" | "settling" | "abandoned";

/** Longest margin by which the client stops before the server would. */
const MARGIN_MAX_MS = 1_000;

/** The text of a claim's answer; it is searched only if a handler reads `payloadText`. */
export class AnswerText {
  private texts: (string | undefined)[] | undefined;

  constructor(private readonly text: string) {}

  payloadText(index: number): string | undefined {
    this.texts ??= payloadTexts(this.text);
    return this.texts[index];
  }
}

/** A job whose lease this worker holds. Instants are monotonic milliseconds. */
export class HeldJob {
  state: HeldState = "waiting";
  context: JobContext | undefined;
  /** When the handler was aborted. */
  abortedAt = Infinity;
  /** Whether the server has said that the lease is not ours any more. */
  isLost = false;
  startedAt = 0;
  readonly leaseMs: number;
  /** Instant from which the lease may be void. Heartbeats move it. */
  leaseExpiry: number;
  /** Instant of the execution timeout, minus a margin. */
  readonly deadline: number;

  constructor(
    readonly job: ClaimedJob,
    /** Instant before which the claim was not made. */
    readonly claimedAt: number,
    serverNow: number,
    readonly answer: AnswerText,
    readonly index: number,
  ) {
    const { lease, deadline_at: deadlineAt } = job;
    this.leaseMs = lease.duration === undefined ? Infinity : toMilliseconds(lease.duration);
    const remaining = lease.expires_at === null ? Infinity : Date.parse(lease.expires_at) - serverNow;
    this.leaseExpiry = claimedAt + remaining - margin(remaining);
    const timeout = deadlineAt == null ? Infinity : Date.parse(deadlineAt) - serverNow;
    this.deadline = claimedAt + timeout - margin(timeout);
  }

  get id(): string {
    return this.job.id;
  }

  /** Names this run: a later run of the same job has another token. */
  get token(): string {
    return this.job.lease.token;
  }

  private get isDraining(): boolean {
    return this.context?.abortCode === "drain" && !this.isLost;
  }

  /** Next instant at which the monitor has to act on the job. */
  nextCheck(abandonAfterMs: number): number {
    if (this.state === "waiting") return Math.min(this.claimedAt + this.leaseMs / 2, this.leaseExpiry, this.deadline);
    if (this.state !== "running") return Infinity;
    // A drain ends by the grace period: until then a handler may finish.
    if (this.abortedAt !== Infinity) return this.isDraining ? Infinity : this.abortedAt + abandonAfterMs;
    return Math.min(this.leaseExpiry, this.deadline);
  }
}

/** Time by which the client is earlier than the server: a tenth, at most a second. */
export function margin(remainingMs: number): number {
  return remainingMs === Infinity ? 0 : Math.min(MARGIN_MAX_MS, Math.max(0, remainingMs) / 10);
}
