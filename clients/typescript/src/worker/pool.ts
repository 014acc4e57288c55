import { monotonicMs } from "../duration.js";
import type { HeldJob } from "./held-job.js";
import type { BatchRegistration } from "./handlers.js";

/** Time in which a prefetched job should start. */
const PREFETCH_MS = 1_000;
/** Weight of the latest run in the average duration. */
const WEIGHT = 0.1;

/** Claimed jobs of some handlers: those that wait for a slot, and those that run. */
export interface Pool {
  readonly queues: readonly string[];
  readonly types: readonly string[];
  /** Jobs that requests in flight may still bring. */
  reserved: number;
  /** Jobs that may be claimed now, besides those in flight. */
  free(): number;
  /** Adds claimed jobs and starts what has a slot. */
  accept(jobs: HeldJob[]): void;
  /** Removes and returns the jobs that have not started. */
  takeWaiting(): HeldJob[];
  /** Removes a job that has not started. */
  removeWaiting(job: HeldJob): void;
  /** Frees the slot of a job that ended or was abandoned. */
  onEnd(job: HeldJob): void;
}

/** One job per slot. */
export class SlotPool implements Pool {
  reserved = 0;
  private waiting: HeldJob[] = [];
  private running = 0;
  private averageMs: number | undefined;

  constructor(
    readonly queues: readonly string[],
    readonly types: readonly string[],
    private readonly slots: number,
    private readonly prefetch: number,
    private readonly start: (job: HeldJob) => void,
  ) {}

  /**
   * Prefetch is bounded by the slots, and by the average run: a prefetched job should start within
   * a second, or else another worker could have started it.
   */
  private prefetchLimit(): number {
    if (this.averageMs === undefined) return 0;
    const factor = Math.min(this.prefetch - 1, PREFETCH_MS / Math.max(0.01, this.averageMs));
    return Math.floor(this.slots * factor);
  }

  free(): number {
    return this.slots + this.prefetchLimit() - this.running - this.waiting.length - this.reserved;
  }

  accept(jobs: HeldJob[]): void {
    this.waiting.push(...jobs);
    this.startWaiting();
  }

  private startWaiting(): void {
    let started = 0;
    while (this.running < this.slots && started < this.waiting.length) {
      const job = this.waiting[started]!;
      started += 1;
      this.running += 1;
      job.state = "running";
      job.startedAt = monotonicMs();
      this.start(job);
    }
    this.waiting.splice(0, started);
  }

  takeWaiting(): HeldJob[] {
    return this.waiting.splice(0);
  }

  removeWaiting(job: HeldJob): void {
    this.waiting = this.waiting.filter((other) => other !== job);
  }

  onEnd(job: HeldJob): void {
    this.running -= 1;
    const lasted = monotonicMs() - job.startedAt;
    this.averageMs = this.averageMs === undefined ? lasted : this.averageMs + WEIGHT * (lasted - this.averageMs);
    this.startWaiting();
  }
}

/** Collects jobs of one type until a batch is full or its wait is over. One batch runs at a time. */
export class BatchPool implements Pool {
  reserved = 0;
  readonly queues: readonly string[];
  readonly types: readonly string[];
  private waiting: HeldJob[] = [];
  private readonly running = new Set<HeldJob>();
  private timer: NodeJS.Timeout | undefined;
  private isDue = false;

  constructor(
    private readonly registration: BatchRegistration,
    queues: readonly string[] | undefined,
    private readonly start: (registration: BatchRegistration, jobs: HeldJob[]) => void,
  ) {
    this.queues = queues ?? [registration.definition.queue];
    this.types = [registration.definition.type];
  }

  /** One batch may collect while another one runs. */
  free(): number {
    const size = Math.max(0, this.registration.size - this.waiting.length - this.reserved);
    return this.running.size === 0 || this.waiting.length < this.registration.size ? size : 0;
  }

  accept(jobs: HeldJob[]): void {
    this.waiting.push(...jobs);
    this.startBatch();
    if (this.waiting.length > 0 && this.timer === undefined && !this.isDue) {
      this.timer = setTimeout(() => {
        this.timer = undefined;
        this.isDue = true;
        this.startBatch();
      }, this.registration.waitMs);
    }
  }

  private startBatch(): void {
    const isReady = this.isDue || this.waiting.length >= this.registration.size;
    if (!isReady || this.waiting.length === 0 || this.running.size > 0) return;
    clearTimeout(this.timer);
    this.timer = undefined;
    this.isDue = false;
    const jobs = this.waiting.splice(0, this.registration.size);
    for (const job of jobs) {
      job.state = "running";
      job.startedAt = monotonicMs();
      this.running.add(job);
    }
    this.start(this.registration, jobs);
  }

  takeWaiting(): HeldJob[] {
    clearTimeout(this.timer);
    this.timer = undefined;
    return this.waiting.splice(0);
  }

  removeWaiting(job: HeldJob): void {
    this.waiting = this.waiting.filter((other) => other !== job);
  }

  onEnd(job: HeldJob): void {
    this.running.delete(job);
    if (this.running.size === 0) this.accept([]);
  }
}
