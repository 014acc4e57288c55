// What every page needs: figures of all queues, workers and the server, read once for the tab.

import { computed, effect, signal } from "@preact/signals";
import { ApiError, get, self, token, tokenWanted } from "./api";
import { clockOffset, revision } from "./live";
import type { Info, Queue, Self, Stats, Worker } from "./types";

export const stats = signal<Stats | null>(null);
export const queues = signal<Queue[] | null>(null);
export const workers = signal<Worker[] | null>(null);
export const info = signal<Info | null>(null);
/** Failure of the last read of the figures. */
export const figuresError = signal<ApiError | null>(null);

/** Time of the server minus time of this browser. */
const offset = clockOffset;
/** Grows every second, for ages and countdowns. */
const second = signal(0);

/** Time of the server in milliseconds. A virtual clock stands still between two readings. */
export const now = computed<number>(() => {
  void second.value;
  if (info.value?.virtual_clock) return Date.parse((stats.value ?? info.value).now);
  return Date.now() + offset.value;
});

const INFO_MS = 10_000;
let isReading = false;
let readAgain = false;
let infoReadAt = 0;

async function optional<T>(read: Promise<T>): Promise<T | null> {
  try {
    return await read;
  } catch (error) {
    if (error instanceof ApiError && (error.status === 403 || error.status === 404)) return null;
    throw error;
  }
}

async function read(): Promise<void> {
  if (isReading) {
    readAgain = true;
    return;
  }
  isReading = true;
  try {
    const [newStats, newQueues, newWorkers] = await Promise.all([optional(get<Stats>("v1/stats")), optional(get<{ queues: Queue[] }>("v1/queues")), optional(get<{ workers: Worker[] }>("v1/workers"))]);
    if (newStats) {
      stats.value = newStats;
      offset.value = Date.parse(newStats.now) - Date.now();
    }
    if (newQueues) queues.value = newQueues.queues;
    if (newWorkers) workers.value = newWorkers.workers;
    if (!self.value) self.value = await optional(get<Self>("v1/tokens/self"));
    if (Date.now() - infoReadAt >= INFO_MS || !info.value) {
      infoReadAt = Date.now();
      info.value = (await optional(get<Info>("v1/info"))) ?? info.value;
    }
    figuresError.value = null;
  } catch (error) {
    figuresError.value = error instanceof ApiError ? error : new ApiError(0, "page_error", String(error));
  } finally {
    isReading = false;
    if (readAgain) {
      readAgain = false;
      void read();
    }
  }
}

/** Reads the figures again at every live update. Call once. */
export function startApp(): void {
  setInterval(() => {
    second.value += 1;
  }, 1_000);
  effect(() => {
    void revision.value;
    void token.value;
    if (!tokenWanted.value) void read();
  });
}

/** Forgets when the facts of the server were read: the next update reads them. */
export function expireFigures(): void {
  infoReadAt = 0;
}

/** Time since an instant of the server, in milliseconds. */
export function age(at: string): number {
  return now.value - Date.parse(at);
}
