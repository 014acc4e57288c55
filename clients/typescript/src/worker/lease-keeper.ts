import { Worker as Thread } from "node:worker_threads";

import { monotonicMs } from "../duration.js";
import { LongshoreError } from "../errors.js";
import type { Endpoint } from "../transport.js";
import type { Directive } from "./claimed.js";
import type { HeldJob } from "./held-job.js";
import type { FromThread, KeptLease, ThreadOptions, ToThread } from "./thread-messages.js";

/** What a worker does with the reports of the heartbeat thread. */
export interface LeaseEvents {
  onKept(leases: KeptLease[], directive: Directive | undefined): void;
  onLost(token: string, code: string): void;
  onFailed(message: string): void;
  /** The thread has ended by itself: its leases need a new one. */
  onThreadEnded(error: Error): void;
}

/** The main thread's side of the heartbeat thread, which starts with the first lease. */
export class LeaseKeeper {
  private thread: Thread | undefined;
  private readonly loopState = new SharedArrayBuffer(16);
  private readonly loopView = new Float64Array(this.loopState);
  private readonly saves = new Map<number, { resolve: () => void; reject: (error: Error) => void }>();
  private nextSave = 1;
  private readonly readyWaiters: { resolve: () => void; reject: (error: Error) => void }[] = [];
  private isReady = false;
  private untracked: string[] = [];
  events: LeaseEvents | undefined;

  constructor(
    private readonly client: { readonly endpoint: Endpoint },
    private readonly worker: string,
    private readonly types: string[],
  ) {}

  /** Records that the loop turns. */
  recordTurn(): void {
    this.loopView[0] = monotonicMs();
  }

  /** Records that no run needs the loop any more. */
  recordEnd(): void {
    this.loopView.fill(0);
  }

  /** Records the handler whose synchronous part runs; 0 for none. */
  recordHandler(number: number): void {
    this.loopView[1] = number;
  }

  /** Returns the type of a handler by its number. */
  typeOf(number: number): string | undefined {
    return this.types[number - 1];
  }

  /** Starts heartbeats of jobs. */
  track(jobs: HeldJob[]): void {
    if (jobs.length === 0) return;
    this.start();
    this.post({ kind: "track", leases: jobs.map((job) => [job.id, job.token, job.leaseMs, job.claimedAt]) });
  }

  /** Ends heartbeats of a job; sent together with others of the same turn of the loop. */
  untrack(token: string): void {
    if (this.untracked.push(token) > 1) return;
    setImmediate(() => {
      const tokens = this.untracked;
      this.untracked = [];
      this.post({ kind: "untrack", tokens });
    });
  }

  saveProgress(token: string, text: string): void {
    this.post({ kind: "progress", token, text });
  }

  /** Resolves once the checkpoint is durable. */
  saveCheckpoint(token: string, text: string): Promise<void> {
    const request = this.nextSave++;
    if (this.thread === undefined)
      return Promise.reject(new LongshoreError("checkpoint not saved: the worker has ended"));
    return new Promise((resolve, reject) => {
      this.saves.set(request, { resolve, reject });
      this.post({ kind: "checkpoint", token, text, request });
    });
  }

  /** Lets the thread end the process at a monotonic instant, unless this is taken back with null. */
  setWatchdog(at: number | null): void {
    this.post({ kind: "watchdog", at });
  }

  /** Resolves once heartbeats can be sent: a lease that is claimed then is kept. */
  ready(): Promise<void> {
    this.start();
    if (this.isReady) return Promise.resolve();
    return new Promise((resolve, reject) => this.readyWaiters.push({ resolve, reject }));
  }

  /** Starts the thread. */
  private start(): void {
    if (this.thread !== undefined) return;
    const options: ThreadOptions = {
      endpoint: this.client.endpoint,
      worker: this.worker,
      loopState: this.loopState,
      types: this.types,
    };
    const file = new URL("./lease-thread.js", import.meta.url);
    const thread = new Thread(file, { workerData: options, name: "longshore-heartbeats", execArgv: [] });
    thread.on("message", (message: FromThread) => this.receive(message));
    thread.on("error", (error) => this.endThread(thread, error));
    // After the listeners: adding one makes the thread keep the process alive again.
    thread.unref();
    this.thread = thread;
  }

  /** Ends the thread. */
  async close(): Promise<void> {
    const thread = this.thread;
    this.thread = undefined;
    this.isReady = false;
    this.recordEnd();
    await thread?.terminate();
    for (const save of this.saves.values())
      save.reject(new LongshoreError("checkpoint not saved: the worker has ended"));
    this.saves.clear();
  }

  /** Only `track` and `ready` start the thread: a handler that outlived its worker does not. */
  private post(message: ToThread): void {
    this.thread?.postMessage(message);
  }

  private endThread(thread: Thread, error: Error): void {
    if (this.thread !== thread) return;
    this.thread = undefined;
    this.isReady = false;
    for (const waiter of this.readyWaiters.splice(0)) waiter.reject(error);
    for (const save of this.saves.values()) save.reject(error);
    this.saves.clear();
    this.events?.onThreadEnded(error);
  }

  private receive(message: FromThread): void {
    switch (message.kind) {
      case "ready":
        this.isReady = true;
        for (const waiter of this.readyWaiters.splice(0)) waiter.resolve();
        break;
      case "kept":
        this.events?.onKept(message.leases, message.directive);
        break;
      case "lost":
        for (const [token, code] of message.leases) this.events?.onLost(token, code);
        break;
      case "saved": {
        const save = this.saves.get(message.request);
        this.saves.delete(message.request);
        if (message.error === null) save?.resolve();
        else save?.reject(new LongshoreError(`checkpoint not saved: ${message.error}`));
        break;
      }
      case "failed":
        this.events?.onFailed(message.message);
        break;
    }
  }
}
