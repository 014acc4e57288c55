// Live updates: one stream of events per visible tab. An event makes the page list again what it
// shows, at most every 0.7 seconds: a change is on the page within a second. Without a stream the page polls every two seconds. A hidden tab
// closes its stream: over HTTP/1.1 a browser has six connections to a server, for all its tabs.

import { computed, signal } from "@preact/signals";
import { ApiError, authorization, connection, send, tokenWanted, url } from "./api";
import { EventParser } from "./sse";

export type Mode = "connecting" | "stream" | "busy" | "polling" | "lost";

export const mode = signal<Mode>("connecting");
export const paused = signal(false);
/** Changes that were held back while paused. */
export const heldBack = signal(0);
/** Grows whenever pages must list again. */
export const revision = signal(0);
/** Delay of the last event in milliseconds, by the clock of the server. */
export const lag = signal<number | null>(null);
/** Time of the server minus time of this browser. */
export const clockOffset = signal(0);
export const isLive = computed(() => !paused.value && mode.value !== "lost");

/** Least time between two readings of a page. */
export const REFRESH_MS = 700;
const POLL_MS = 2_000;
const RETRY_MS = 2_000;
const BUSY_PER_SECOND = 200;
const BUSY_REST_MS = 15_000;

let lastRefresh = 0;
let timer: ReturnType<typeof setTimeout> | undefined;

/** Makes the pages list again, now or as soon as `REFRESH_MS` have passed since the last time. */
export function touch(): void {
  if (paused.value) {
    heldBack.value += 1;
    return;
  }
  if (timer !== undefined) return;
  const wait = Math.max(30, lastRefresh + REFRESH_MS - Date.now());
  timer = setTimeout(() => {
    timer = undefined;
    if (!paused.value) refresh();
  }, wait);
}

/** Makes the pages list again at once, also while paused: after an action of this page. */
export function refresh(): void {
  lastRefresh = Date.now();
  revision.value += 1;
}

/** Pauses or resumes the page. */
export function setPaused(value: boolean): void {
  paused.value = value;
  if (!value) {
    heldBack.value = 0;
    refresh();
  }
}

let cursor: string | null = null;
let abort: AbortController | null = null;
let wake: (() => void) | null = null;

/** Waits, or returns early when `retryNow` is called. */
function rest(milliseconds: number): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(handle);
      wake = null;
      resolve();
    };
    const handle = setTimeout(done, milliseconds);
    wake = done;
  });
}

/** Tries the connection at once. */
export function retryNow(): void {
  wake?.();
  refresh();
}

/** Opens the stream again, after the token has changed. */
export function reconnect(): void {
  cursor = null;
  abort?.abort();
  retryNow();
}

/** Follows the server for as long as the page is open. Call once. */
export async function startLive(): Promise<never> {
  setInterval(() => {
    // Figures such as rates and ages move without events.
    if (mode.value === "stream" && !document.hidden) touch();
  }, 5_000);
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) abort?.abort();
    else (wake?.(), touch());
  });
  for (;;) await follow();
}

async function follow(): Promise<void> {
  if (tokenWanted.value || document.hidden) {
    await rest(500);
    return;
  }
  try {
    abort = new AbortController();
    const response = await openStream(abort);
    if (cursor === null || mode.value !== "stream") touch();
    mode.value = "stream";
    const isBusy = await readStream(response, abort);
    if (isBusy) await pollFor(BUSY_REST_MS, REFRESH_MS, "busy");
    else await rest(250);
  } catch (error) {
    if (error instanceof ApiError && error.status >= 400 && error.status < 500) {
      // No stream here: 404 on an older server, 403 for this token.
      if (error.status === 400) cursor = null;
      await pollFor(error.isAbsent ? 60_000 : 10_000, POLL_MS, "polling");
    } else if (!document.hidden) {
      if (connection.value.lostAt !== null) mode.value = "lost";
      await rest(RETRY_MS);
      refresh();
    }
  } finally {
    abort?.abort();
  }
}

async function openStream(controller: AbortController): Promise<Response> {
  if (cursor === null) return send("GET", "v1/events", { signal: controller.signal });
  const headers = { ...authorization(), accept: "text/event-stream", "last-event-id": cursor };
  const response = await fetch(url("v1/events"), { headers, signal: controller.signal, cache: "no-store", credentials: "omit" });
  if (!response.ok) throw new ApiError(response.status, response.status === 404 ? "not_found" : "stream", "");
  connection.value = { answeredAt: Date.now(), lostAt: null };
  return response;
}

/** Reads until the stream ends. Returns whether it was left because of too many events. */
async function readStream(response: Response, controller: AbortController): Promise<boolean> {
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  if (!reader) return false;
  const parser = new EventParser();
  let second = 0;
  let inSecond = 0;
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return false;
    for (const event of parser.push(value)) {
      cursor = event.id ?? cursor;
      if (event.event === "closed") return true;
      measureLag(event.data);
      touch();
      const now = Math.floor(Date.now() / 1000);
      if (now !== second) (second = now), (inSecond = 0);
      inSecond += 1;
    }
    if (inSecond > BUSY_PER_SECOND) {
      cursor = null;
      controller.abort();
      return true;
    }
  }
}

function measureLag(data: string): void {
  const at = /"at":"([^"]+)"/.exec(data)?.[1];
  if (at) lag.value = Math.max(0, Date.now() + clockOffset.value - Date.parse(at));
}

async function pollFor(milliseconds: number, every: number, name: Mode): Promise<void> {
  const end = Date.now() + milliseconds;
  mode.value = name;
  while (Date.now() < end && !tokenWanted.value) {
    if (!document.hidden) touch();
    await rest(every);
    mode.value = connection.value.lostAt !== null ? "lost" : name;
  }
}
