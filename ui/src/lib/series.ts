// Series for the charts. The server's own are used where it offers them; otherwise the page keeps
// what it has read since it was opened, and says so.

import { signal } from "@preact/signals";
import { ApiError, get, query } from "./api";
import type { Json, Queue, Stats } from "./types";

/** Columns over time; `at` is in milliseconds. A missing value is `null`. */
export interface Series {
  at: number[];
  submitted: (number | null)[];
  completed: (number | null)[];
  failed: (number | null)[];
  /** Failed attempts as a share of all that ended, in percent. */
  failedShare: (number | null)[];
  /** Waiting jobs of each queue. */
  depth: Record<string, (number | null)[]>;
  /** Age of the oldest ready job, in seconds. */
  oldest: (number | null)[];
  /** Quantiles of the wait before the start, in seconds; only from the server. */
  wait: { p50: (number | null)[]; p95: (number | null)[]; p99: (number | null)[] } | null;
  source: "server" | "page";
}

interface Sample {
  at: number;
  totals: { submitted: number; completed: number; failed: number };
  queues: Record<string, { completed: number; failed: number; depth: number }>;
  oldest: number | null;
}

const SAMPLES_MAX = 3_600;
const samples: Sample[] = [];
/** Grows with every sample. */
export const sampleCount = signal(0);

/** Keeps one reading of the figures. */
export function recordSample(at: number, stats: Stats, queues: Queue[]): void {
  const of: Sample["queues"] = {};
  for (const [name, queue] of Object.entries(stats.queues)) {
    const depth = (queue.counts.scheduled ?? 0) + (queue.counts.delayed ?? 0) + (queue.counts.pending ?? 0) + (queue.counts.retrying ?? 0);
    of[name] = { completed: queue.since_start.completed, failed: queue.since_start.failed, depth };
  }
  const now = Date.parse(stats.now);
  const ages = queues.flatMap((queue) => (queue.oldest_scheduled_at ? [(now - Date.parse(queue.oldest_scheduled_at)) / 1000] : []));
  const { submitted, completed, failed } = stats.totals.since_start;
  samples.push({ at, totals: { submitted, completed, failed }, queues: of, oldest: ages.length ? Math.max(0, ...ages) : 0 });
  if (samples.length > SAMPLES_MAX) samples.splice(0, samples.length - SAMPLES_MAX);
  sampleCount.value += 1;
}

/** Rate between two readings of a counter; `null` after a restart of the server. */
export function rate(before: number, after: number, milliseconds: number): number | null {
  return after < before || milliseconds <= 0 ? null : ((after - before) * 1000) / milliseconds;
}

/** Failed attempts in percent of all ended attempts; `null` if none ended. */
export function share(failed: number | null, completed: number | null): number | null {
  if (failed === null || completed === null) return null;
  return failed + completed > 0 ? (100 * failed) / (failed + completed) : 0;
}

/** Readings at least `step` apart, so that rates are not of single moments. */
function thin(step: number): Sample[] {
  const kept: Sample[] = [];
  for (const sample of samples) if (!kept.length || sample.at - kept[kept.length - 1]!.at >= step) kept.push(sample);
  const last = samples[samples.length - 1];
  if (last && kept[kept.length - 1] !== last && kept.length > 1) kept[kept.length - 1] = last;
  return kept;
}

/** Series of the readings of this page. */
export function pageSeries(): Series {
  const span = samples.length ? samples[samples.length - 1]!.at - samples[0]!.at : 0;
  const kept = thin(Math.max(1_900, span / 150));
  const names = new Set(kept.flatMap((sample) => Object.keys(sample.queues)));
  const series: Series = { at: [], submitted: [], completed: [], failed: [], failedShare: [], depth: {}, oldest: [], wait: null, source: "page" };
  for (const name of names) series.depth[name] = [];
  kept.forEach((sample, index) => {
    const before = kept[index - 1];
    const delta = (key: "submitted" | "completed" | "failed") => (before ? rate(before.totals[key], sample.totals[key], sample.at - before.at) : null);
    series.at.push(sample.at);
    const [submitted, completed, failed] = [delta("submitted"), delta("completed"), delta("failed")];
    series.submitted.push(submitted);
    series.completed.push(completed);
    series.failed.push(failed);
    series.failedShare.push(share(failed, completed));
    series.oldest.push(sample.oldest);
    for (const name of names) series.depth[name]!.push(sample.queues[name]?.depth ?? null);
  });
  return series;
}

/** Series of one queue for a sparkline. */
export function queueSpark(name: string): { completed: (number | null)[]; share: (number | null)[] } {
  const span = samples.length ? samples[samples.length - 1]!.at - samples[0]!.at : 0;
  const kept = thin(Math.max(1_900, span / 40));
  const completed: (number | null)[] = [];
  const shares: (number | null)[] = [];
  kept.forEach((sample, index) => {
    const before = kept[index - 1]?.queues[name];
    const after = sample.queues[name];
    if (!before || !after) return;
    const time = sample.at - kept[index - 1]!.at;
    const [done, failed] = [rate(before.completed, after.completed, time), rate(before.failed, after.failed, time)];
    completed.push(done);
    shares.push(share(failed, done));
  });
  return { completed, share: shares };
}

type Point = { [key: string]: Json };

/** Points of a series of the server, given as points or as columns. */
function points(series: Json | undefined): Point[] | null {
  if (Array.isArray(series)) return series as Point[];
  if (!series || typeof series !== "object") return null;
  if (Array.isArray(series.points)) return series.points as Point[];
  const at = series.at;
  if (!Array.isArray(at)) return null;
  return at.map((time, index) => Object.fromEntries(Object.entries(series).map(([key, column]) => [key, key === "at" ? time : Array.isArray(column) ? column[index]! : null])));
}

const numeric = (value: Json | undefined): number | null => (typeof value === "number" ? value : null);

function quantile(point: Point, name: string): number | null {
  const wait = point.wait;
  const nested = wait && typeof wait === "object" && !Array.isArray(wait) ? numeric(wait[name]) : null;
  return nested ?? numeric(point[`wait_${name}`]);
}

/** Reads the answer of `GET /v1/stats?window=`; `null` if it has no series. */
export function serverSeries(stats: Stats): Series | null {
  const totals = points(stats.totals.series ?? (stats.series && typeof stats.series === "object" && !Array.isArray(stats.series) ? stats.series.totals : stats.series));
  if (!totals?.length) return null;
  const column = (name: string) => totals.map((point) => numeric(point[name]));
  const depth: Series["depth"] = {};
  for (const [name, queue] of Object.entries(stats.queues)) {
    const own = points(queue.series);
    if (own) depth[name] = totals.map((_, index) => numeric(own[index]?.depth));
  }
  if (!Object.keys(depth).length) depth[""] = column("depth");
  const [completed, failed] = [column("completed"), column("failed").some((value) => value !== null) ? column("failed") : column("failed_attempts")];
  return {
    at: totals.map((point) => Date.parse(String(point.at))),
    submitted: column("submitted"),
    completed,
    failed,
    failedShare: completed.map((value, index) => share(failed[index] ?? null, value)),
    depth,
    oldest: column("oldest"),
    wait: { p50: totals.map((point) => quantile(point, "p50")), p95: totals.map((point) => quantile(point, "p95")), p99: totals.map((point) => quantile(point, "p99")) },
    source: "server",
  };
}

let isOffered: boolean | null = null;

/** Loads the series of the server; `null` where it has none. */
export async function loadSeries(window: string, step: string, queue: string | null): Promise<Series | null> {
  if (isOffered === false) return null;
  try {
    const found = serverSeries(await get<Stats>(`v1/stats${query({ window, step, queue })}`));
    isOffered = found !== null;
    return found;
  } catch (error) {
    if (error instanceof ApiError && (error.status === 400 || error.status === 404)) isOffered = false;
    return null;
  }
}
