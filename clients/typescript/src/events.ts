import { setTimeout as sleep } from "node:timers/promises";

import { monotonicMs } from "./duration.js";
import { ConnectionError, ProblemError } from "./errors.js";
import type { JobState } from "./records.js";
import type { Transport } from "./transport.js";

/** Which events a stream has. All given fields must match. */
export interface EventFilter {
  /** Of jobs in this queue, and of the queue itself. */
  queue?: string;
  type?: string;
  /** Id of a job. */
  job?: string;
  /** Id of a workflow. */
  workflow?: string;
  /** Transitions to this state, or to one of these. */
  state?: JobState | JobState[];
  /** Cursor of the last event that the caller has. Absent: only new events. */
  after?: string;
}

/** A transition of a job. */
export interface JobEvent {
  id: string;
  queue: string;
  type: string;
  workflow: string | null;
  from: JobState | null;
  to: JobState;
  at: string;
  cause: string;
}

/** A change of a queue. */
export interface QueueEvent {
  name: string;
  change: "created" | "changed" | "paused" | "resumed" | "deleted";
  at: string;
}

/** A change or a tick of a schedule. */
export interface ScheduleEvent {
  name: string;
  change: "created" | "changed" | "paused" | "resumed" | "deleted" | "fired" | "skipped";
  at: string;
}

/** One event, with the position after it for `after` of a later stream. */
export type Event = { cursor: string | undefined } & (
  | { kind: "job"; data: JobEvent }
  | { kind: "queue"; data: QueueEvent }
  | { kind: "schedule"; data: ScheduleEvent }
  /** Events are missing before this one: list again what you follow. */
  | { kind: "gap"; data: object }
  | { kind: "closed"; data: { reason: string } }
);

const KINDS: ReadonlySet<string> = new Set(["job", "queue", "schedule", "gap", "closed"]);
/** The server sends a comment every 15 s. */
const SILENCE_MS = 45_000;
const DELAY_FIRST_MS = 50;
const DELAY_MAX_MS = 2_000;

/** Collects text until it is whole events. */
export class EventParser {
  /** The last known position. */
  cursor: string | undefined;
  private line = "";
  private id: string | undefined;
  private kind = "message";
  private data: string[] = [];

  constructor(cursor?: string) {
    this.cursor = cursor;
  }

  /** Returns the events that are complete now. */
  push(text: string): Event[] {
    const lines = (this.line + text).split("\n");
    this.line = lines.pop() ?? "";
    return lines.flatMap((line) => this.endLine(line.replace(/\r$/, "")) ?? []);
  }

  private endLine(line: string): Event | undefined {
    if (line === "") return this.endBlock();
    // The server names its position in comments, so that a client can resume without an event.
    if (line.startsWith(": cursor ")) {
      this.cursor = line.slice(": cursor ".length);
      return undefined;
    }
    const [, name, value] = /^([^:]*)(?:: ?(.*))?$/s.exec(line) ?? [];
    if (name === "id") this.id = value ?? "";
    else if (name === "event") this.kind = value ?? "";
    else if (name === "data") this.data.push(value ?? "");
    return undefined;
  }

  private endBlock(): Event | undefined {
    const { kind, data, id } = this;
    [this.kind, this.data, this.id] = ["message", [], undefined];
    if (id !== undefined) this.cursor = id;
    // An event of another kind comes from a newer server.
    if (data.length === 0 || !KINDS.has(kind)) return undefined;
    return { kind, data: JSON.parse(data.join("\n")), cursor: id } as Event;
  }
}

/** Returns the path of a stream. */
export function eventPath(filter: EventFilter): string {
  const { after: _, state, ...names } = filter;
  const pairs = Object.entries({ ...names, state: Array.isArray(state) ? state.join(",") : state });
  const given = pairs.filter((pair): pair is [string, string] => pair[1] !== undefined && pair[1] !== "");
  return given.length === 0 ? "/v1/events" : `/v1/events?${new URLSearchParams(given)}`;
}

interface FollowLimits {
  timeoutMs: number;
  /** How long a lost stream is resumed. */
  retryForMs: number;
  signal: AbortSignal | undefined;
}

/** Yields events without end. Throws when the stream cannot be resumed in time, or on abort. */
export async function* followEvents(
  transport: Transport,
  filter: EventFilter,
  limits: FollowLimits,
): AsyncGenerator<Event, never> {
  const path = eventPath(filter);
  let cursor = filter.after;
  let delay = DELAY_FIRST_MS;
  let lostAt: number | undefined;
  for (;;) {
    const parser = new EventParser(cursor);
    try {
      for await (const text of readStream(transport, path, cursor, limits)) {
        [delay, lostAt] = [DELAY_FIRST_MS, undefined];
        for (const event of parser.push(text)) yield event;
        cursor = parser.cursor;
      }
    } catch (error) {
      cursor = parser.cursor;
      lostAt ??= monotonicMs();
      const isLost = error instanceof ConnectionError || (error instanceof ProblemError && error.retry !== "never");
      if (!isLost || limits.signal?.aborted || monotonicMs() - lostAt >= limits.retryForMs) throw error;
    }
    await sleep(delay, undefined, limits.signal === undefined ? {} : { signal: limits.signal });
    delay = Math.min(2 * delay, DELAY_MAX_MS);
  }
}

async function* readStream(
  transport: Transport,
  path: string,
  cursor: string | undefined,
  limits: FollowLimits,
): AsyncGenerator<string> {
  const headers: Record<string, string> = { accept: "text/event-stream" };
  if (cursor !== undefined) headers["last-event-id"] = cursor;
  const { timeoutMs, signal } = limits;
  const body = await transport.open({ method: "GET", path, headers, timeoutMs, signal });
  const silent = () => body.destroy(new Error(`no byte within ${SILENCE_MS} ms`));
  let timer = setTimeout(silent, SILENCE_MS);
  body.setEncoding("utf8");
  try {
    for await (const text of body) {
      clearTimeout(timer);
      timer = setTimeout(silent, SILENCE_MS);
      yield text as string;
    }
  } catch (error) {
    if (signal?.aborted) throw signal.reason;
    throw new ConnectionError(`GET ${path} was interrupted: ${(error as Error).message}`, "safe", { cause: error });
  } finally {
    clearTimeout(timer);
    body.destroy();
  }
}
