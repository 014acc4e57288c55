import { setTimeout as sleep } from "node:timers/promises";

import { monotonicMs } from "../duration.js";
import { ProblemError } from "../errors.js";
import { stringifyJson } from "../json.js";
import { Failed, toWire } from "../outcome.js";
import type { Outcome } from "../outcome.js";
import { Backoff, canRetry } from "../retry.js";
import type { Verdict } from "./claimed.js";
import type { HeldJob } from "./held-job.js";

const BATCH_MAX = 1_000;
/** Bytes of one request; the server accepts 32 MiB. */
const BATCH_BYTES = 8 * 1024 * 1024;
/** Time for which an outcome is sent again: a server that was down keeps its leases. */
const SEND_FOR_MS = 15 * 60_000;
/** Longest wait that `Retry-After` adds: an outcome must not outlast its lease. */
const ASKED_MAX_MS = 5_000;

/** One outcome on its way to the server. */
export interface PendingSettlement {
  job: HeldJob;
  outcome: Outcome;
  /** The settlement in wire form, as JSON text. */
  text: string;
  since: number;
  /** Whether an earlier outcome was refused, so that this one replaces it. */
  isReplacement: boolean;
  /** Whether the progress of the run goes with it. */
  hasProgress: boolean;
}

/** What the settler needs from its worker. */
export interface SettlementTarget {
  /** Sends settlements and returns one verdict for each; may claim jobs in the same request. */
  sendSettlements(texts: string[]): Promise<Verdict[]>;
  /** Called once for each settlement, with its verdict; undefined if it was given up. */
  onSettled(settlement: PendingSettlement, verdict: Verdict | undefined): void;
  onSettleError(error: unknown, count: number): void;
}

/** Sends outcomes in batches: one request in flight, and meanwhile the next batch collects. */
export class Settler {
  private pending: PendingSettlement[] = [];
  private isScheduled = false;
  private isSending = false;
  private isStopped = false;
  private waiters: (() => void)[] = [];
  private readonly backoff = new Backoff(50, 2_000);
  private readonly stopSleep = new AbortController();

  constructor(private readonly target: SettlementTarget) {}

  /** Outcomes that the server has not answered. */
  get size(): number {
    return this.pending.length + this.inFlight;
  }

  private inFlight = 0;

  /** Queues an outcome. A result that is no JSON becomes a permanent failure. */
  add(job: HeldJob, outcome: Outcome, options: { isReplacement?: boolean; withoutProgress?: boolean } = {}): void {
    const progress = outcome.kind === "complete" && !options.withoutProgress ? job.context?.progressText : undefined;
    let text: string;
    try {
      text = settlementText(job, outcome, progress);
    } catch (error) {
      outcome = new Failed({
        category: "permanent",
        code: "bad_result",
        message: `result is not JSON: ${String(error)}`,
      });
      text = settlementText(job, outcome);
    }
    const isReplacement = options.isReplacement ?? false;
    this.pending.push({ job, outcome, text, since: monotonicMs(), isReplacement, hasProgress: progress !== undefined });
    this.schedule();
  }

  /** Resolves after the next answer, or at once if nothing is pending. */
  nextFlush(): Promise<void> {
    if (this.size === 0) return Promise.resolve();
    return new Promise((resolve) => this.waiters.push(resolve));
  }

  /** Gives up everything that is not sent. */
  stop(): void {
    this.isStopped = true;
    this.stopSleep.abort();
  }

  /** Outcomes of the same turn of the loop share a request. */
  private schedule(): void {
    if (this.isScheduled || this.isSending) return;
    this.isScheduled = true;
    setImmediate(() => {
      this.isScheduled = false;
      void this.sendAll();
    });
  }

  private async sendAll(): Promise<void> {
    this.isSending = true;
    while (this.pending.length > 0) {
      const batch = this.takeBatch();
      this.inFlight = batch.length;
      const verdicts = await this.send(batch);
      this.inFlight = 0;
      batch.forEach((settlement, index) => this.conclude(settlement, verdicts?.[index]));
      for (const wake of this.waiters.splice(0)) wake();
      // Handlers of jobs that came with the answer may finish in this turn: they join the next batch.
      await new Promise((resolve) => setImmediate(resolve));
    }
    this.isSending = false;
  }

  private takeBatch(): PendingSettlement[] {
    let bytes = 0;
    let count = 0;
    for (const settlement of this.pending) {
      bytes += settlement.text.length;
      if (count > 0 && (bytes > BATCH_BYTES || count >= BATCH_MAX)) break;
      count += 1;
    }
    return this.pending.splice(0, count);
  }

  /** Returns the verdicts, or undefined if the settlements were given up. */
  private async send(batch: PendingSettlement[]): Promise<(Verdict | undefined)[] | undefined> {
    for (;;) {
      if (this.isStopped) return undefined;
      try {
        const verdicts = await this.target.sendSettlements(batch.map((settlement) => settlement.text));
        this.backoff.reset();
        return verdicts;
      } catch (error) {
        this.target.onSettleError(error, batch.length);
        if (!canRetry(error, true)) {
          if (batch.length > 1) return this.sendOneByOne(batch);
          return error instanceof ProblemError
            ? [{ id: batch[0]!.job.id, code: error.code, detail: error.message }]
            : undefined;
        }
        if (monotonicMs() - batch[0]!.since > SEND_FOR_MS) return undefined;
        await sleep(this.backoff.nextMs(error, ASKED_MAX_MS), undefined, { signal: this.stopSleep.signal }).catch(() => {});
      }
    }
  }

  /** One settlement of a refused request does not keep back the others. */
  private async sendOneByOne(batch: PendingSettlement[]): Promise<(Verdict | undefined)[]> {
    const verdicts = [];
    for (const settlement of batch) verdicts.push((await this.send([settlement]))?.[0]);
    return verdicts;
  }

  /** An outcome that the server refuses is replaced by a failure that says so. */
  private conclude(settlement: PendingSettlement, verdict: Verdict | undefined): void {
    const { job, outcome } = settlement;
    const refusal = verdict !== undefined && "code" in verdict && !FINAL_CODES.has(verdict.code) ? verdict : undefined;
    if (refusal !== undefined && settlement.hasProgress) {
      // The progress may be what is refused.
      this.add(job, outcome, { withoutProgress: true });
      return;
    }
    const replacement = refusal && replacementFor(settlement, refusal);
    if (replacement === undefined) this.target.onSettled(settlement, verdict);
    else this.add(job, replacement, { isReplacement: true });
  }
}

function settlementText(job: HeldJob, outcome: Outcome, progress?: string): string {
  const text = stringifyJson({ id: job.id, lease: job.token, ...toWire(outcome) });
  return progress === undefined ? text : `${text.slice(0, -1)},"progress":${progress}}`;
}

const FINAL_CODES: ReadonlySet<string> = new Set(["stale_lease", "job_not_found", "unauthorized", "forbidden"]);

function replacementFor(settlement: PendingSettlement, verdict: { code: string; detail: string }): Failed | undefined {
  if (settlement.isReplacement) return undefined;
  const message = `the server refused the outcome: ${verdict.detail}`;
  const { outcome } = settlement;
  switch (outcome.kind) {
    case "complete":
      return new Failed({ category: "permanent", code: verdict.code, message });
    case "fail":
      // The text of the error may be what is refused. Its category decides about retries.
      return new Failed({ category: outcome.error.category, code: verdict.code, message });
    case "snooze":
      return new Failed({ category: "temporary", code: verdict.code, message, retryAfterMs: outcome.delayMs });
    case "release":
      // Some profiles have no way back to the queue but a retry.
      return new Failed({ category: "temporary", code: verdict.code, message });
  }
}
