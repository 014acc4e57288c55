import { setTimeout as sleep } from "node:timers/promises";

import { monotonicMs } from "../duration.js";
import { ProblemError, StuckHandlersError } from "../errors.js";
import { Released } from "../outcome.js";
import type { Outcome } from "../outcome.js";
import { Backoff, canRetry } from "../retry.js";
import type { Directive, Verdict } from "./claimed.js";
import { Claimer } from "./claimer.js";
import type { Claimed } from "./claimer.js";
import { JobContext } from "./context.js";
import type { AbortCode, ContextHost } from "./context.js";
import { outcomeAfterAbort, runHandler } from "./handlers.js";
import type { BatchRegistration } from "./handlers.js";
import { runBatch } from "./batch.js";
import { margin } from "./held-job.js";
import type { HeldJob } from "./held-job.js";
import type { LeaseEvents } from "./lease-keeper.js";
import { LoopWatch } from "./loop-watch.js";
import { Monitor } from "./monitor.js";
import { BatchPool, SlotPool } from "./pool.js";
import type { Pool } from "./pool.js";
import { emptyReport } from "./report.js";
import type { Report } from "./report.js";
import type { WorkerSetup } from "./setup.js";
import { Settler } from "./settler.js";
import type { PendingSettlement, SettlementTarget } from "./settler.js";
import type { KeptLease } from "./thread-messages.js";

/** Part of the grace period after which handlers that still run are aborted. */
const ABORT_AT = 0.75;
/** Time between abort and release after a second signal. */
const RELEASE_AFTER_MS = 500;
/** Wait between claims of a quiet worker. */
const QUIET_POLL_MS = 1_000;
/** Time to send the last outcomes after the grace period. */
const LAST_SETTLE_MS = 5_000;
/** Codes after which claims cannot succeed without a change of the worker or its token. */
const FATAL_CODES: ReadonlySet<string> = new Set(["unauthorized", "forbidden", "validation", "bad_request"]);

/** One run of a worker, from its first claim to its report. */
export class WorkerRun implements LeaseEvents, SettlementTarget, ContextHost<unknown> {
  readonly client;
  readonly state;
  readonly logger;
  private readonly held = new Map<string, HeldJob>();
  private readonly pools: Pool[] = [];
  private readonly poolOf = new Map<string, Pool>();
  private readonly claimer: Claimer;
  private readonly settler = new Settler(this);
  private readonly monitor: Monitor;
  private readonly loopWatch: LoopWatch;
  private readonly report: Report = emptyReport();
  private readonly startedAt = monotonicMs();
  private readonly stopClaims = new AbortController();
  private readonly stuckTypes: string[] = [];
  private readonly timers: NodeJS.Timeout[] = [];
  private capacityWaiters: (() => void)[] = [];
  private isDraining = false;
  private isQuiet = false;
  private isReachable = true;
  private areHeartbeatsSent = true;
  private areOutcomesSent = true;
  private fatal: unknown;
  private activeLoops = 0;
  private resolveEnd: () => void = () => {};
  private readonly ended = new Promise<void>((resolve) => (this.resolveEnd = resolve));

  constructor(private readonly setup: WorkerSetup) {
    this.client = setup.client;
    this.state = setup.state;
    this.logger = setup.logger;
    this.claimer = new Claimer(setup.client.transport, setup);
    this.monitor = new Monitor(
      () => this.held.values(),
      setup.abandonAfterMs,
      (job, now) => this.check(job, now),
    );
    this.loopWatch = new LoopWatch(setup.keeper, setup.lagWarningMs, (...lag) => this.warnAboutLag(...lag));
    setup.keeper.events = this;
    this.addPools();
  }

  private addPools(): void {
    const { registrations, batchRegistrations, queues, slots, prefetch } = this.setup;
    const definitions = [...registrations.values()].map((registration) => registration.definition);
    if (definitions.length > 0) {
      const own = [...new Set(definitions.map((definition) => definition.queue))];
      const types = definitions.map((definition) => definition.type);
      this.pools.push(new SlotPool(queues ?? own, types, slots, prefetch, (job) => void this.runJob(job)));
    }
    for (const registration of batchRegistrations.values()) {
      this.pools.push(new BatchPool(registration, queues, (batch, jobs) => void this.runBatchJobs(batch, jobs)));
    }
    for (const pool of this.pools) for (const type of pool.types) this.poolOf.set(type, pool);
  }

  /** Works until it is drained. Throws what ended it, if that was not a drain. */
  async run(): Promise<Report> {
    this.loopWatch.start();
    try {
      await this.setup.keeper.ready();
    } catch (error) {
      this.fatal = error;
      return this.finish();
    }
    for (const pool of this.pools) void this.claimLoop(pool);
    void this.putSchedules();
    if (this.isDraining) this.signalChange();
    await this.ended;
    return this.finish();
  }

  /** Works until no job is ready. In virtual time leases are safe before the thread has started. */
  async runUntilIdle(isVirtualTime: boolean): Promise<Report> {
    this.loopWatch.start();
    if (!isVirtualTime) await this.setup.keeper.ready();
    await this.putSchedules();
    const backoff = new Backoff();
    for (;;) {
      const before = this.report.claimed;
      for (const pool of this.pools) if (!this.isDraining) await this.claimOnce(pool, 0, backoff);
      while (this.held.size > 0 || this.settler.size > 0) await this.nextChange();
      if (this.isDraining || (this.report.claimed === before && this.isReachable)) break;
    }
    return this.finish();
  }

  private finish(): Report {
    this.loopWatch.stop();
    this.monitor.stop();
    for (const timer of this.timers) clearTimeout(timer);
    this.setup.keeper.setWatchdog(null);
    this.settler.stop();
    this.report.durationMs = Math.round(monotonicMs() - this.startedAt);
    if (this.fatal !== undefined) throw this.fatal;
    return this.report;
  }

  // Claims

  /** Creates the schedules of the worker. It claims meanwhile, and survives an outage. */
  private async putSchedules(): Promise<void> {
    const backoff = new Backoff();
    for (const { name, options, job } of this.setup.schedules) {
      while (!this.isDraining) {
        try {
          await this.client.putSchedule(name, options, job);
          break;
        } catch (error) {
          if (!canRetry(error, true)) {
            this.fatal = error;
            this.drain();
            return;
          }
          this.logger.warn("cannot create a schedule, trying again", { schedule: name, error });
          await this.pause(backoff.nextMs(error));
        }
      }
    }
  }

  private async claimLoop(pool: Pool): Promise<void> {
    this.activeLoops += 1;
    const backoff = new Backoff();
    let waitMs = 0; // The first claim does not wait: it finds out about the server and its clock.
    while (!this.isDraining) {
      if (pool.free() <= 0 || this.settler.size >= this.setup.unsettledMax) {
        await this.nextChange();
        continue;
      }
      // Outcomes on their way claim jobs with the same request.
      if (this.settler.size > 0) {
        await Promise.race([this.settler.nextFlush(), sleep(20)]);
        if (pool.free() <= 0 || this.isDraining) continue;
      }
      await this.claimOnce(pool, waitMs, backoff);
      waitMs = this.setup.waitMs;
      if (this.isQuiet && !this.isDraining) await this.pause(QUIET_POLL_MS);
    }
    this.activeLoops -= 1;
    this.signalChange();
  }

  private async claimOnce(pool: Pool, waitMs: number, backoff: Backoff): Promise<void> {
    try {
      this.receive(pool, await this.claimer.claim(pool, waitMs, this.stopClaims.signal));
      backoff.reset();
    } catch (error) {
      if (this.isDraining) return;
      if (error instanceof ProblemError && FATAL_CODES.has(error.code)) {
        this.fatal = error;
        this.drain();
        return;
      }
      this.reportOutage(error);
      await this.pause(backoff.nextMs(error));
    }
  }

  private reportOutage(error: unknown): void {
    if (this.isReachable) this.logger.warn("cannot claim jobs, trying again", { worker: this.setup.worker, error });
    this.isReachable = false;
  }

  private receive(pool: Pool, { jobs, answer }: Claimed): void {
    if (!this.isReachable) this.logger.info("claims work again", { worker: this.setup.worker });
    this.isReachable = true;
    this.report.claimed += jobs.length;
    for (const job of jobs) this.held.set(job.token, job);
    this.setup.keeper.track(jobs);
    this.obey(answer.directive);
    if (this.isDraining || this.isQuiet) {
      for (const job of jobs) this.settle(job, new Released());
      return;
    }
    for (const job of jobs) this.monitor.watch(job);
    pool.accept(jobs);
  }

  private obey(directive: Directive | undefined): void {
    if (directive === undefined) return;
    const wasQuiet = this.isQuiet;
    this.isQuiet = directive !== "run";
    if (this.isQuiet && !wasQuiet) {
      this.logger.info("the server has asked for no more claims", { worker: this.setup.worker, directive });
      this.releaseWaiting();
    }
    if (directive === "stop") this.drain();
  }

  private async pause(ms: number): Promise<void> {
    await sleep(ms, undefined, { signal: this.stopClaims.signal }).catch(() => {});
  }

  // Runs

  private makeContext(job: HeldJob): JobContext {
    const deadline = job.deadline === Infinity ? undefined : new Date(Date.now() + job.deadline - monotonicMs());
    const context = new JobContext<unknown>(job.job, this, () => job.answer.payloadText(job.index), deadline);
    job.context = context;
    return context;
  }

  private readonly onSync = (number: number, jobs: number): void => {
    this.loopWatch.onSync(number);
    const type = this.setup.keeper.typeOf(number);
    if (type !== undefined) this.report.handled[type] = (this.report.handled[type] ?? 0) + jobs;
  };

  private async runJob(job: HeldJob): Promise<void> {
    const registration = this.setup.registrations.get(job.job.type);
    if (registration === undefined) return this.endRun(job, new Released());
    const context = this.makeContext(job);
    const { middleware } = this.setup;
    const outcome = await runHandler(registration, middleware, context, payloadOf(job), this.onSync);
    this.endRun(job, outcome);
  }

  private async runBatchJobs(registration: BatchRegistration, jobs: HeldJob[]): Promise<void> {
    const items = jobs.map((job) => ({ job, context: this.makeContext(job), payload: payloadOf(job) }));
    const { middleware } = this.setup;
    const end = (job: HeldJob, outcome: Outcome) => this.endRun(job, outcome);
    await runBatch({ registration, state: this.state, middleware, onSync: this.onSync, end }, items);
  }

  /** Ends a run with what its handler said. A run that was abandoned has ended before. */
  private endRun(job: HeldJob, said: Outcome): void {
    if (job.state !== "running") return;
    this.loopWatch.recordEnd(job.job.type);
    const outcome = job.context === undefined ? said : outcomeAfterAbort(job.context, said);
    if (job.isLost || outcome === undefined) {
      this.report.lost += 1;
      this.drop(job);
    } else {
      this.settle(job, outcome);
    }
    this.poolOf.get(job.job.type)?.onEnd(job);
    this.signalChange();
  }

  private settle(job: HeldJob, outcome: Outcome): void {
    job.state = "settling";
    this.settler.add(job, outcome);
  }

  private drop(job: HeldJob): void {
    this.held.delete(job.token);
    this.setup.keeper.untrack(job.token);
    this.signalChange();
  }

  // Settlements

  async sendSettlements(texts: string[]): Promise<Verdict[]> {
    const canClaim = !this.isDraining && !this.isQuiet && this.settler.size < this.setup.unsettledMax;
    const [pool] = canClaim ? [...this.pools].sort((a, b) => b.free() - a.free()) : [];
    const target = pool !== undefined && pool.free() > 0 ? pool : undefined;
    const verdicts = await this.claimer.settle(texts, target, (claimed) => target && this.receive(target, claimed));
    this.areOutcomesSent = true;
    return verdicts;
  }

  onSettled({ job, outcome }: PendingSettlement, verdict: Verdict | undefined): void {
    if (verdict === undefined) {
      this.report.unsettled += 1;
    } else if ("code" in verdict) {
      this.report.lost += 1;
      this.logger.warn("the outcome was refused", { job: job.id, type: job.job.type, code: verdict.code });
    } else {
      const counter = ({ complete: "completed", fail: "failed", snooze: "snoozed", release: "released" } as const)[
        outcome.kind
      ];
      this.report[counter] += 1;
    }
    this.drop(job);
  }

  onSettleError(error: unknown, count: number): void {
    if (this.areOutcomesSent) this.logger.warn("cannot send outcomes", { worker: this.setup.worker, count, error });
    this.areOutcomesSent = false;
  }

  // Leases

  onKept(leases: KeptLease[], directive: Directive | undefined): void {
    this.areHeartbeatsSent = true;
    for (const [token, expiry, isCancelRequested] of leases) {
      const job = this.held.get(token);
      if (job === undefined) continue;
      job.leaseExpiry = expiry - margin(job.leaseMs);
      if (isCancelRequested) this.cancel(job);
    }
    this.obey(directive);
  }

  private cancel(job: HeldJob): void {
    if (job.state === "running") this.abort(job, "cancelled");
    else if (job.state === "waiting") this.releaseWaitingJob(job); // The server ends a released job as cancelled.
  }

  onLost(token: string, code: string): void {
    const job = this.held.get(token);
    // The answer of a settlement is on its way if the job is being settled.
    if (job === undefined || job.state === "settling") return;
    this.logger.warn("the lease is lost", { job: job.id, type: job.job.type, code });
    job.isLost = true;
    if (job.state === "running") {
      this.abort(job, "lease_lost");
      return;
    }
    this.poolOf.get(job.job.type)?.removeWaiting(job);
    this.report.lost += 1;
    this.drop(job);
  }

  onFailed(message: string): void {
    if (this.areHeartbeatsSent)
      this.logger.warn("heartbeats fail, trying again", { worker: this.setup.worker, error: message });
    this.areHeartbeatsSent = false;
  }

  onThreadEnded(error: Error): void {
    this.logger.error("the heartbeat thread has ended: starting another one", { worker: this.setup.worker, error });
    this.setup.keeper.track([...this.held.values()]);
  }

  saveProgress(token: string, text: string): void {
    this.setup.keeper.saveProgress(token, text);
  }

  saveCheckpoint(token: string, text: string): Promise<void> {
    return this.setup.keeper.saveCheckpoint(token, text);
  }

  private abort(job: HeldJob, code: AbortCode): void {
    if (job.abortedAt !== Infinity) {
      // A lease that is lost during a drain: from now on the handler has `abandonAfter`.
      if (job.isLost) this.monitor.watch(job);
      return;
    }
    job.abortedAt = monotonicMs();
    job.context?.abort(code);
    this.monitor.watch(job);
  }

  /** Acts on a job whose next instant has come. */
  private check(job: HeldJob, now: number): void {
    if (job.state === "waiting") {
      this.releaseWaitingJob(job);
    } else if (job.abortedAt !== Infinity) {
      this.abandon(job);
    } else {
      this.abort(job, now >= job.deadline ? "deadline" : "lease_lost");
    }
  }

  private releaseWaitingJob(job: HeldJob): void {
    this.poolOf.get(job.job.type)?.removeWaiting(job);
    this.settle(job, new Released());
  }

  private releaseWaiting(): void {
    for (const pool of this.pools) for (const job of pool.takeWaiting()) this.settle(job, new Released());
  }

  /** Frees the slot of a handler that ignored its signal. The lease ends by itself. */
  private abandon(job: HeldJob): void {
    const { type } = job.job;
    job.state = "abandoned";
    this.report.abandoned += 1;
    this.stuckTypes.push(type);
    this.logger.error("a handler ignored its signal: its slot is freed", {
      job: job.id,
      type,
      reason: job.context?.abortCode,
    });
    this.drop(job);
    this.poolOf.get(type)?.onEnd(job);
    if (this.stuckTypes.length >= this.setup.maxStuck && !this.isDraining) {
      this.fatal = new StuckHandlersError(this.stuckTypes);
      this.drain();
    }
  }

  // Shutdown

  /** Claims nothing more, returns what has not started, and lets handlers finish within the grace period. */
  drain(): void {
    if (this.isDraining) return;
    this.isDraining = true;
    const { graceMs, ownsProcess, keeper } = this.setup;
    this.logger.info("draining", { worker: this.setup.worker, running: this.held.size });
    this.stopClaims.abort();
    this.releaseWaiting();
    if (ownsProcess) keeper.setWatchdog(monotonicMs() + graceMs + 2 * LAST_SETTLE_MS);
    this.timers.push(
      setTimeout(() => this.abortAll(), graceMs * ABORT_AT),
      setTimeout(() => this.releaseRunning(), graceMs),
    );
    this.signalChange();
  }

  private abortAll(): void {
    for (const job of this.held.values()) if (job.state === "running") this.abort(job, "drain");
  }

  /** Aborts all handlers, and shortly after returns the jobs of those that still run. */
  releaseAll(): void {
    this.drain();
    this.abortAll();
    this.timers.push(setTimeout(() => this.releaseRunning(), RELEASE_AFTER_MS));
  }

  /** Returns all jobs; handlers that still run are not waited for. */
  private releaseRunning(): void {
    for (const job of [...this.held.values()]) {
      if (job.state !== "running") continue;
      job.state = "settling";
      if (job.isLost) this.drop(job);
      else this.settler.add(job, new Released());
    }
    this.timers.push(setTimeout(() => this.giveUp(), LAST_SETTLE_MS));
    this.signalChange();
  }

  /** Ends although outcomes could not be sent: their leases expire. */
  private giveUp(): void {
    this.report.unsettled += this.held.size;
    this.held.clear();
    this.resolveEnd();
  }

  // Waiting

  private nextChange(): Promise<void> {
    return new Promise((resolve) => this.capacityWaiters.push(resolve));
  }

  private signalChange(): void {
    for (const wake of this.capacityWaiters.splice(0)) wake();
    if (this.isDraining && this.activeLoops === 0 && this.held.size === 0 && this.settler.size === 0) this.resolveEnd();
  }

  private warnAboutLag(ms: number, type: string | undefined, endedTypes: string[]): void {
    const running = [...this.held.values()].filter((job) => job.state === "running").map((job) => job.job.type);
    const handler = type ?? ([...new Set([...endedTypes, ...running])].slice(0, 3).join(", ") || "none");
    this.logger.warn("a handler blocked the event loop (move the work to a thread)", { handler, ms: Math.round(ms) });
  }
}

function payloadOf({ job }: HeldJob): unknown {
  return job.payload_base64 === undefined ? job.payload : Buffer.from(job.payload_base64, "base64");
}
