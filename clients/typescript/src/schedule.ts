import { fromMilliseconds, toMilliseconds } from "./duration.js";
import type { Duration } from "./duration.js";
import type { NewJob } from "./job.js";

/** When a schedule is due: `cron` or `every`. Absent options have the server's defaults. */
export interface ScheduleOptions {
  /** Five fields, six with seconds first, or `@hourly`, `@daily`, `@weekly`, `@monthly`, `@yearly`. */
  cron?: string;
  /** Interval of at least a second, counted from the creation. */
  every?: Duration;
  /** Time zone of `cron`: a name of the IANA database. Absent: UTC. */
  timezone?: string;
  /** Which missed ticks fire. Absent: `one`. */
  misfire?: "skip" | "one" | "all";
  /** Whether a tick fires while the job of the last one has not ended. Absent: `allow`. */
  overlap?: "allow" | "skip";
  /** Longest delay of a job after its tick. Absent: none. */
  jitter?: Duration;
  /** Whether ticks are dropped. Absent: the present pause stays. */
  paused?: boolean;
}

/** A schedule as the server has it. */
export interface ScheduleRecord {
  name: string;
  cron: string | null;
  every: string | null;
  timezone: string;
  queue: string;
  job: Record<string, unknown>;
  misfire: "skip" | "one" | "all";
  overlap: "allow" | "skip";
  jitter: string;
  paused: boolean;
  pauseNote: string | null;
  /** The next ten times at which it is due. */
  next: string[];
  last: TickRecord | null;
  createdAt: string;
  updatedAt: string;
}

/** One due time of a schedule. */
export interface TickRecord {
  dueAt: string;
  firedAt: string | null;
  outcome: "fired" | "skipped_overlap" | "skipped_misfire" | "refused";
  job: string | null;
  detail: string | null;
}

/** A schedule that a worker creates at its start, or brings up to date. */
export interface PlannedSchedule {
  name: string;
  options: ScheduleOptions;
  job: NewJob<any>;
}

/** Returns the body of the request; throws if there is not one of `cron` and `every`. */
export function scheduleToWire(name: string, options: ScheduleOptions, job: NewJob<any>): Record<string, unknown> {
  if ((options.cron === undefined) === (options.every === undefined)) {
    throw new Error(`the schedule ${name} needs one of cron and every`);
  }
  const { every, jitter, ...rest } = options;
  const wire: Record<string, unknown> = { ...rest, queue: job.queue, job: job.fields };
  if (every !== undefined) wire["every"] = fromMilliseconds(toMilliseconds(every));
  if (jitter !== undefined) wire["jitter"] = fromMilliseconds(toMilliseconds(jitter));
  return wire;
}
