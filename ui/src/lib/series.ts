// Series for charts, from `GET /v1/stats?window=`: counted by the server, kept by it for a day.

import { get, query } from "./api";
import { useResource, type Resource } from "./resource";
import { parseDuration } from "./format";
import { t } from "../strings";
import type { Deploy, Info, Point, Stats } from "./types";

type Column = (number | null)[];

/** Columns over time. A missing value is `null`. */
export interface Columns {
  /** Per second. */
  submitted: Column;
  completed: Column;
  failed: Column;
  /** Failed attempts as a share of all that ended, in percent. */
  failedShare: Column;
  /** Waiting jobs, running jobs and dead letters. */
  depth: Column;
  slots: Column;
  deadLetters: Column;
  /** Quantiles in seconds. */
  wait: Quantiles;
  run: Quantiles;
}
export interface Quantiles { p50: Column; p95: Column; p99: Column }
export interface Series { at: number[]; window: number; totals: Columns; queues: Record<string, Columns>; since: number; leftOff: number; deploys: DeployMark[]; /** Seconds of a step. */ step: number }

/** A new version of workers, as a mark of charts. */
export interface DeployMark { at: number; label: string }

/** A range of the charts: its name, window and step. */
export interface Range { name: string; window: string; step: string; seconds: number }
export const RANGES: Range[] = [
  { name: "5 min", window: "5m", step: "5s", seconds: 5 }, { name: "15 min", window: "15m", step: "30s", seconds: 30 }, { name: "1 h", window: "1h", step: "30s", seconds: 30 },
  { name: "6 h", window: "6h", step: "3m", seconds: 180 }, { name: "24 h", window: "24h", step: "10m", seconds: 600 },
];
export const HOUR = RANGES[2]!;
export const DAY = RANGES.at(-1)!;

/** The smallest range that shows all that a server has counted, at most `largest`. */
export function rangeOf(info: Info | null, largest: Range): Range {
  const uptime = info ? parseDuration(info.uptime) : null;
  if (uptime === null) return largest;
  return RANGES.slice(0, RANGES.indexOf(largest)).find((range) => parseDuration(range.window)! >= uptime) ?? largest;
}

/** Failed attempts in percent of all ended attempts; `null` if none ended. */
export function share(failed: number | null, completed: number | null): number | null {
  if (failed === null || completed === null) return null;
  return failed + completed > 0 ? (100 * failed) / (failed + completed) : 0;
}

/**
 * Values of points as columns at the instants `at`. Counts become rates; an interval that has
 * not ended, or if it is long has hardly begun, has none.
 */
export function columns(points: Partial<Point>[], at: number[], step: number, now: number): Columns {
  const byTime = new Map(points.map((point) => [Date.parse(point.at!), point]));
  const found = at.map((time) => byTime.get(time) ?? null);
  const seconds = at.map((time) => Math.min(step, Math.max(0, (now - time) / 1000)));
  const least = step <= 30 ? step : step / 3;
  const rate = (name: "submitted" | "completed" | "failed"): Column => found.map((point, index) => (point && seconds[index]! >= least ? (point[name] ?? 0) / seconds[index]! : null));
  const level = (name: "depth" | "slots" | "dead_letters"): Column => found.map((point) => point?.[name] ?? null);
  const quantile = (name: "wait" | "run", of: "p50" | "p95" | "p99"): Column => found.map((point) => point?.[name]?.[of] ?? null);
  const quantiles = (name: "wait" | "run"): Quantiles => ({ p50: quantile(name, "p50"), p95: quantile(name, "p95"), p99: quantile(name, "p99") });
  return {
    submitted: rate("submitted"), completed: rate("completed"), failed: rate("failed"), failedShare: found.map((point) => (point ? share(point.failed ?? 0, point.completed ?? 0) : null)),
    depth: level("depth"), slots: level("slots"), deadLetters: level("dead_letters"), wait: quantiles("wait"), run: quantiles("run"),
  };
}

/** Marks of new versions: those of one version within a minute are one deploy. */
export function deployMarks(deploys: Deploy[]): DeployMark[] {
  const marks: (DeployMark & { version: string; queues: string[] })[] = [];
  for (const { at, queue, version } of deploys) {
    const time = Date.parse(at);
    const same = marks.find((mark) => mark.version === version && time - mark.at < 60_000);
    if (same) same.queues.push(queue);
    else marks.push({ at: time, label: "", version, queues: [queue] });
  }
  return marks.map(({ at, version, queues }) => ({ at, label: `${queues.length === 1 ? queues[0]! : t.charts.queues(queues.length)} ${version}` }));
}

/** Reads the answer of the server. With a queue, the totals are those of the queue. */
export function readSeries(stats: Stats, range: Range, queue: string | null): Series {
  const now = Date.parse(stats.now);
  const points = (queue === null ? stats.totals : stats.queues[queue])?.series ?? [];
  const at = points.map((point) => Date.parse(point.at));
  const queues: Series["queues"] = {};
  for (const [name, queue] of Object.entries(stats.queues)) if (queue.series?.length) queues[name] = columns(queue.series, at, range.seconds, now);
  return { at, window: range.seconds * at.length, totals: columns(points, at, range.seconds, now), queues, since: Date.parse(stats.series?.since ?? stats.now), leftOff: stats.series?.queues_left_off ?? 0, deploys: deployMarks(stats.series?.deploys ?? []), step: range.seconds };
}

/** The last known value of a column. */
export function last(column: Column): number | null {
  return column.findLast((value) => value !== null) ?? null;
}

/** The rate of about the last minute: the mean of the newest known points; `null` if steps are longer. */
export function lately(series: Series | null, column: (columns: Columns) => Column, queue?: string): number | null {
  const columns = queue === undefined ? series?.totals : series?.queues[queue];
  if (!series || !columns || series.step > 30) return null;
  const known = column(columns).filter((value): value is number => value !== null).slice(-Math.max(1, 60 / series.step));
  return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : null;
}

/** The mean of the known values in a part of a column; `null` if there are none. */
function mean(column: Column, from: number, to: number): number | null {
  const known = column.slice(Math.floor(column.length * from), Math.ceil(column.length * to)).filter((value): value is number => value !== null);
  return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : null;
}

/** First and last level of a column, each as the mean of a sixth of it; `null` for short columns. */
export function trend(column: Column): { before: number; after: number } | null {
  if (column.length < 12) return null;
  const [before, after] = [mean(column, 0, 1 / 6), mean(column, 5 / 6, 1)];
  return before === null || after === null ? null : { before, after };
}

/** How often a range is read again: its points move slowly, and its answer is large. */
function every(range: Range): number {
  return Math.min(30_000, Math.max(2_500, range.seconds * 500));
}

const known = new Map<string, Series>();

/** The series of a range, of one queue or of all. The last answer is shown while a page loads. */
export function useSeries(range: Range, queue: string | null): Resource<Series> {
  const key = `${range.window} ${queue ?? ""}`;
  const load = async () => {
    const series = readSeries(await get<Stats>(`v1/stats${query({ window: range.window, step: range.step, queue })}`), range, queue);
    known.set(key, series);
    return series;
  };
  const resource = useResource<Series>(key, load, every(range));
  return { ...resource, data: resource.data ?? known.get(key) ?? null };
}
