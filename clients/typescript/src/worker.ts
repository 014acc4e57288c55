import { randomBytes } from "node:crypto";
import { hostname } from "node:os";

import type { Client } from "./client.js";
import { fromMilliseconds, toMilliseconds } from "./duration.js";
import type { Duration } from "./duration.js";
import type { AnyJob, JobDefinition, NewJob } from "./job.js";
import { stderrLogger } from "./logger.js";
import type { Logger } from "./logger.js";
import { scheduleToWire } from "./schedule.js";
import type { PlannedSchedule, ScheduleOptions } from "./schedule.js";
import type {
  BatchHandler,
  BatchRegistration,
  Classify,
  Handler,
  Middleware,
  Registration,
} from "./worker/handlers.js";
import { LeaseKeeper } from "./worker/lease-keeper.js";
import type { Report } from "./worker/report.js";
import { WorkerRun } from "./worker/run.js";
import type { WorkerSetup } from "./worker/setup.js";
import { handleSignals } from "./worker/signals.js";

/** Options of a worker. */
export interface WorkerOptions<State = unknown> {
  /** Handlers that run at the same time. Absent: 10. */
  slots?: number;
  /** Queues to claim from, in this order. Absent: the queues of the jobs. */
  queues?: string[];
  /** Name of the worker, for people. Absent: host name, process id and a random part. */
  name?: string;
  /** Version of your program, for people. */
  version?: string;
  /** Shared objects for handlers: `ctx.state`. */
  state?: State;
  /** Jobs claimed at the same time, as a multiple of `slots`; at least 1. Absent: 2. */
  prefetch?: number;
  /** Lease instead of the setting of the jobs. */
  lease?: Duration;
  /** Time that a drain gives to running handlers. Absent: 25 s. */
  grace?: Duration;
  /** Time after its signal at which a handler is abandoned. Absent: 10 s. */
  abandonAfter?: Duration;
  /** Abandoned handlers at which the worker drains and `run` rejects. Absent: no limit. */
  maxStuck?: number;
  /** Blocking of the event loop that is logged. Absent: 1 s. */
  lagWarning?: Duration;
  /** Longest wait of one claim for a job. Absent: 20 s. */
  wait?: Duration;
  /** Outcome of an error that a handler throws. Absent or undefined: temporary. */
  classify?: Classify;
  /** Absent: standard error, from level info. */
  logger?: Logger;
}

/** Options of a run. */
export interface RunOptions {
  /** SIGTERM and SIGINT: the first drains, the second releases all jobs, the third exits. */
  signals?: boolean;
  /** Drains when it aborts. */
  signal?: AbortSignal;
}

/** Options of a batch handler. */
export interface BatchOptions {
  /** Most jobs of a batch: 1 to 1,000. */
  size: number;
  /** How long the first job waits for others. Absent: 200 ms. */
  wait?: Duration;
}

const BATCH_SIZE_MAX = 1_000;
const TYPES_MAX = 100;

/** Claims jobs and runs their handlers. It claims only the types that it has handlers for. */
export class Worker<State = unknown> {
  readonly name: string;
  private readonly registrations = new Map<string, Registration>();
  private readonly batchRegistrations = new Map<string, BatchRegistration>();
  private readonly middleware: Middleware<State>[] = [];
  private readonly types: string[] = [];
  private readonly schedules: PlannedSchedule[] = [];
  private readonly keeper: LeaseKeeper;
  private current: { run: WorkerRun; done: Promise<Report> } | undefined;

  constructor(
    private readonly client: Client,
    private readonly options: WorkerOptions<State> = {},
  ) {
    if (typeof client?.endpoint?.url !== "string") throw new TypeError("a worker needs a client: new Worker(new Client())");
    this.name = options.name ?? `${hostname()}-${process.pid}-${randomBytes(3).toString("hex")}`;
    this.keeper = new LeaseKeeper(client, this.name, this.types);
    checkPositive("slots", options.slots ?? 10);
    checkPositive("prefetch", options.prefetch ?? 2);
  }

  /** Adds the handler of a type of jobs. */
  on<I, P, R>(definition: JobDefinition<I, P, R>, handler: Handler<P, R, State>): this {
    const { classify } = this.options;
    this.registrations.set(definition.type, { definition, handler, number: this.addType(definition, handler), classify });
    return this;
  }

  /** Adds a handler that gets several jobs at once. Each of them passes the middleware. */
  onBatch<I, P, R>(
    definition: JobDefinition<I, P, R>,
    options: BatchOptions,
    handler: BatchHandler<P, R, State>,
  ): this {
    const { size } = options;
    if (!Number.isInteger(size) || size < 1 || size > BATCH_SIZE_MAX) {
      throw new RangeError(`invalid batch size ${size}: expected 1 to ${BATCH_SIZE_MAX}`);
    }
    const waitMs = toMilliseconds(options.wait ?? "200ms");
    const { classify } = this.options;
    const number = this.addType(definition, handler);
    this.batchRegistrations.set(definition.type, { definition, handler, size, waitMs, number, classify });
    return this;
  }

  private addType(definition: AnyJob, handler: unknown): number {
    // Programs without types have no other check.
    if (typeof definition?.type !== "string") {
      throw new TypeError(`${String(definition)} is not a job: expected job("type"), and its handler`);
    }
    if (typeof handler !== "function") throw new TypeError(`the handler of ${definition.type} is not a function`);
    if (this.current !== undefined)
      throw new Error(`cannot add a handler of ${definition.type}: the worker is running`);
    if (this.types.includes(definition.type)) throw new Error(`a handler of ${definition.type} exists already`);
    return this.types.push(definition.type);
  }

  /**
   * Adds a schedule that the worker creates at its start, or brings up to date. An equal one stays as
   * it is, so any number of workers may have it. The worker's token needs the action `admin` for it.
   */
  schedule(name: string, when: string | ScheduleOptions, job: NewJob<any>): this {
    const options = typeof when === "string" ? { cron: when } : when;
    scheduleToWire(name, options, job);
    if (this.schedules.some((schedule) => schedule.name === name)) throw new Error(`a schedule ${name} exists already`);
    this.schedules.push({ name, options, job });
    return this;
  }

  /** Wraps the runs of all handlers; the first one added is the outermost. */
  use(middleware: Middleware<State>): this {
    this.middleware.push(middleware);
    return this;
  }

  /** Returns the handler of a type and the middleware around it, for tests. */
  handlerOf(
    type: string,
  ): { registration: Registration; middleware: readonly Middleware<State>[]; state: State } | undefined {
    const registration = this.registrations.get(type);
    return registration && { registration, middleware: this.middleware, state: this.options.state as State };
  }

  /** Works until it is drained, and returns a report. */
  async run(options: RunOptions = {}): Promise<Report> {
    const { run, done } = this.start(options);
    const removeSignals = options.signals ? handleSignals(run, this.logger) : () => {};
    const onAbort = () => run.drain();
    options.signal?.addEventListener("abort", onAbort, { once: true });
    if (options.signal?.aborted) run.drain();
    try {
      const report = await done;
      this.logger.info("worker ended", { worker: this.name, ...report });
      return report;
    } finally {
      removeSignals();
      options.signal?.removeEventListener("abort", onAbort);
    }
  }

  /** Works until no job is ready, and returns a report. */
  async runUntilIdle(options: { isVirtualTime?: boolean } = {}): Promise<Report> {
    const run = this.makeRun(false);
    const done = run.runUntilIdle(options.isVirtualTime ?? false).finally(() => (this.current = undefined));
    this.current = { run, done };
    return done;
  }

  /** Drains a running worker and returns its report; undefined if it does not run. */
  async stop(): Promise<Report | undefined> {
    this.current?.run.drain();
    return this.current?.done;
  }

  /** Drains the worker and ends its heartbeat thread. */
  async [Symbol.asyncDispose](): Promise<void> {
    try {
      await this.stop();
    } finally {
      await this.keeper.close();
    }
  }

  private get logger(): Logger {
    return (this.options.logger ??= stderrLogger());
  }

  private start(options: RunOptions): { run: WorkerRun; done: Promise<Report> } {
    const run = this.makeRun(options.signals === true);
    this.logger.info("worker started", { worker: this.name, types: this.types, slots: this.options.slots ?? 10 });
    const done = run.run().finally(async () => {
      this.current = undefined;
      await this.keeper.close();
    });
    this.current = { run, done };
    return this.current;
  }

  private makeRun(ownsProcess: boolean): WorkerRun {
    if (this.current !== undefined) throw new Error(`the worker ${this.name} is running already`);
    if (this.types.length === 0) throw new Error("the worker has no handlers (add one with .on)");
    if (this.types.length > TYPES_MAX) {
      const advice = `a claim takes ${TYPES_MAX}: divide them between workers`;
      throw new Error(`the worker ${this.name} has ${this.types.length} types (${advice})`);
    }
    const { options } = this;
    const slots = options.slots ?? 10;
    const setup: WorkerSetup = {
      client: this.client,
      keeper: this.keeper,
      worker: this.name,
      version: options.version,
      lease: options.lease === undefined ? undefined : fromMilliseconds(toMilliseconds(options.lease)),
      state: options.state,
      logger: this.logger,
      registrations: this.registrations,
      batchRegistrations: this.batchRegistrations,
      middleware: this.middleware,
      schedules: this.schedules,
      queues: options.queues,
      slots,
      prefetch: Math.max(1, options.prefetch ?? 2),
      waitMs: toMilliseconds(options.wait ?? "20s"),
      graceMs: toMilliseconds(options.grace ?? "25s"),
      abandonAfterMs: toMilliseconds(options.abandonAfter ?? "10s"),
      maxStuck: options.maxStuck ?? Infinity,
      lagWarningMs: toMilliseconds(options.lagWarning ?? "1s"),
      unsettledMax: Math.max(1_000, 4 * slots),
      ownsProcess,
    };
    return new WorkerRun(setup);
  }
}

function checkPositive(name: string, value: number): void {
  if (!Number.isFinite(value) || value < 1) throw new RangeError(`invalid ${name} ${value}: expected at least 1`);
}
