import { Client } from "../client.js";
import { fromMilliseconds, toMilliseconds } from "../duration.js";
import type { Duration } from "../duration.js";
import type { JobDefinition } from "../job.js";
import type { JobRecord } from "../records.js";
import type { Worker } from "../worker.js";
import { addReport } from "../worker/report.js";
import type { Report } from "../worker/report.js";
import { TestServer } from "./server.js";
import type { TestServerOptions } from "./server.js";

/** Options of `drain`. */
export interface DrainOptions {
  /** Virtual time that may be skipped, so that retries and delayed jobs run too. Absent: none. */
  upTo?: Duration;
}

/** A submitted job with its payload, as a test checks it. */
export type SubmittedJob<Payload> = JobRecord & { payload: Payload };

/** A server of its own, in memory, whose time only the test moves. */
export class TestQueue {
  readonly client: Client;

  private constructor(
    readonly server: TestServer,
    private readonly isVirtualTime: boolean,
  ) {
    this.client = new Client({ url: server.url });
  }

  /** Starts a server on a free port. `await using queue = await TestQueue.start()` ends it too. */
  static async start(options: TestServerOptions = {}): Promise<TestQueue> {
    return new TestQueue(await TestServer.start(options), options.virtualClock ?? true);
  }

  get url(): string {
    return this.server.url;
  }

  /** Returns the server's time. */
  async now(): Promise<Date> {
    const { now } = (await this.client.call("GET", "/v1/clock")) as { now: string };
    return new Date(now);
  }

  /** Moves time. Everything that falls due on the way happens at its own instant. */
  async advance(by: Duration): Promise<Date> {
    const body = { by: fromMilliseconds(toMilliseconds(by)) };
    const { now } = (await this.client.call("POST", "/v1/clock/advance", { body })) as { now: string };
    return new Date(now);
  }

  /** Lets a worker run everything that is ready. With `upTo`, also what becomes ready in that time. */
  async drain(worker: Worker<any>, options: DrainOptions = {}): Promise<Report> {
    let leftMs = toMilliseconds(options.upTo ?? 0);
    const total = await worker.runUntilIdle({ isVirtualTime: this.isVirtualTime });
    while (leftMs > 0) {
      const wait = await this.nextDueMs();
      if (wait === undefined || wait > leftMs) break;
      leftMs -= wait;
      await this.advance(fromMilliseconds(wait));
      addReport(total, await worker.runUntilIdle({ isVirtualTime: this.isVirtualTime }));
    }
    return total;
  }

  /** Returns the time until the next delayed or retrying job is due. */
  private async nextDueMs(): Promise<number | undefined> {
    const now = (await this.now()).getTime();
    const { jobs } = await this.client.list({ state: "delayed,retrying", limit: 1_000 });
    const waits = jobs.flatMap((job) => (job.runAt === null ? [] : [Date.parse(job.runAt) - now]));
    return waits.length === 0 ? undefined : Math.max(1, Math.min(...waits));
  }

  /** Returns the jobs of a definition that were submitted, oldest first, with their payloads. */
  async submitted<I, P, R>(definition: JobDefinition<I, P, R>): Promise<SubmittedJob<I>[]> {
    const { jobs } = await this.client.list({ type: definition.type, limit: 1_000 });
    const full = await Promise.all(jobs.map((job) => this.client.get(job.id, { include: "payload" })));
    return full.reverse() as SubmittedJob<I>[];
  }

  /** Ends the server. */
  async close(): Promise<void> {
    this.client.close();
    await this.server.stop();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}
