import { monotonicMs } from "../duration.js";
import type { HeldJob } from "./held-job.js";

/** Calls `check` for every held job at the earliest instant that one of them has. One timer serves all. */
export class Monitor {
  private timer: NodeJS.Timeout | undefined;
  private timerAt = Infinity;

  constructor(
    private readonly jobs: () => Iterable<HeldJob>,
    private readonly abandonAfterMs: number,
    private readonly check: (job: HeldJob, now: number) => void,
  ) {}

  /** Takes the instants of a job into account. */
  watch(job: HeldJob): void {
    this.wakeAt(job.nextCheck(this.abandonAfterMs));
  }

  stop(): void {
    clearTimeout(this.timer);
    this.timerAt = Infinity;
  }

  private wakeAt(at: number): void {
    if (at >= this.timerAt) return;
    clearTimeout(this.timer);
    this.timerAt = at;
    const wait = Math.min(Math.max(0, at - monotonicMs()), 60_000);
    // Reports of the heartbeat thread that arrived while the loop was blocked come first.
    this.timer = setTimeout(() => setImmediate(() => this.sweep()), wait).unref();
  }

  private sweep(): void {
    this.timerAt = Infinity;
    const now = monotonicMs();
    for (const job of [...this.jobs()]) {
      if (job.nextCheck(this.abandonAfterMs) <= now) this.check(job, now);
      this.wakeAt(job.nextCheck(this.abandonAfterMs));
    }
  }
}
