/**
 * The heartbeat thread. It has a connection of its own and shares nothing with the event loop of
 * the handlers, so a handler that blocks the loop keeps its lease.
 */

import { writeSync } from "node:fs";
import { parentPort, workerData } from "node:worker_threads";

import { monotonicMs } from "../duration.js";
import { ProblemError } from "../errors.js";
import { Backoff } from "../retry.js";
import { Transport } from "../transport.js";
import type { Directive } from "./claimed.js";
import type { FromThread, KeptLease, ThreadOptions, ToThread } from "./thread-messages.js";

const BATCH_MAX = 1_000;
/** Characters of one request; the server takes 32 MiB, and a character may take three bytes. */
const BATCH_CHARS = 8 * 1024 * 1024;
/** Longest interval of heartbeats: cancels and directives arrive with their answers. */
const INTERVAL_MAX_MS = 10_000;
/** Longest wait for an answer. */
const CALL_MAX_MS = 3_000;
/** A loop that is blocked for this long is reported while it is blocked. */
const BLOCKED_REPORT_MS = 5_000;

interface Lease {
  id: string;
  token: string;
  intervalMs: number;
  nextAt: number;
  progress: string | undefined;
  checkpoint: string | undefined;
  requests: number[];
}

interface HeartbeatAnswer {
  now: string;
  directive?: Directive;
  results: { id: string; code?: string; detail?: string; expires_at?: string | null; cancel_requested?: boolean }[];
}

const options = workerData as ThreadOptions;
const transport = new Transport(options.endpoint);
/** By token: a job may have an old and a new run in this worker. */
const leases = new Map<string, Lease>();
const backoff = new Backoff(100, 2_000);
const loopState = new Float64Array(options.loopState);
let timer: NodeJS.Timeout | undefined;
let timerAt = Infinity;
let isSending = false;
let lastError: unknown;
let isUrgent = false;
let watchdog: NodeJS.Timeout | undefined;

function post(message: FromThread): void {
  parentPort?.postMessage(message);
}

parentPort?.on("message", (message: ToThread) => {
  switch (message.kind) {
    case "track":
      for (const [id, token, leaseMs, claimedAt] of message.leases) {
        const intervalMs = Math.min(INTERVAL_MAX_MS, leaseMs / 3);
        const nextAt = claimedAt + intervalMs;
        leases.set(token, { id, token, intervalMs, nextAt, progress: undefined, checkpoint: undefined, requests: [] });
        wakeAt(nextAt);
      }
      break;
    case "untrack":
      for (const token of message.tokens) untrack(token);
      break;
    case "progress": {
      const lease = leases.get(message.token);
      if (lease !== undefined) lease.progress = message.text;
      break;
    }
    case "checkpoint":
      saveCheckpoint(message.token, message.text, message.request);
      break;
    case "watchdog":
      clearTimeout(watchdog);
      if (message.at !== null) watchdog = setTimeout(() => void endProcess(), message.at - monotonicMs());
      break;
  }
});

function untrack(token: string): void {
  for (const request of leases.get(token)?.requests ?? []) {
    post({ kind: "saved", request, error: "the job has ended" });
  }
  leases.delete(token);
}

function saveCheckpoint(token: string, text: string, request: number): void {
  const lease = leases.get(token);
  if (lease === undefined) {
    post({ kind: "saved", request, error: "the job is not held any more" });
    return;
  }
  lease.checkpoint = text;
  lease.requests.push(request);
  lease.nextAt = 0;
  isUrgent = true;
  wakeAt(0);
}

function wakeAt(at: number): void {
  if (isSending || at >= timerAt) return;
  clearTimeout(timer);
  timerAt = at;
  timer = setTimeout(() => void sendDue(), Math.max(0, at - monotonicMs()));
}

/** Sends the heartbeats that are due, together with those that are due soon. */
async function sendDue(): Promise<void> {
  timerAt = Infinity;
  isSending = true;
  isUrgent = false;
  let retryAt = Infinity;
  const now = monotonicMs();
  const due = [...leases.values()].filter((lease) => lease.nextAt <= now + lease.intervalMs / 2);
  const calls = batchesOf(due.map(beatOf)).map(sendBatch);
  const outcomes = await Promise.all(calls);
  const shortest = Math.min(Infinity, ...due.map((lease) => lease.intervalMs));
  // The wait that the server asks for is kept as long as the leases allow more tries.
  if (outcomes.includes(false)) retryAt = monotonicMs() + backoff.nextMs(lastError, shortest / 2);
  else if (due.length > 0) backoff.reset();
  isSending = false;
  if (isUrgent && retryAt === Infinity) {
    wakeAt(0);
    return;
  }
  let next = Infinity;
  for (const lease of leases.values()) next = Math.min(next, lease.nextAt);
  if (next !== Infinity) wakeAt(retryAt === Infinity ? next : Math.max(next, retryAt));
}

/** One heartbeat on its way, with the data that it carries. */
interface Beat {
  lease: Lease;
  progress: string | undefined;
  checkpoint: string | undefined;
  requests: number[];
  text: string;
}

function beatOf(lease: Lease): Beat {
  const { progress, checkpoint } = lease;
  const text = memberText(lease, progress, checkpoint);
  return { lease, progress, checkpoint, requests: lease.requests.splice(0), text };
}

/** Divides heartbeats between requests, by number and by size. */
function batchesOf(beats: Beat[]): Beat[][] {
  const batches: Beat[][] = [];
  let size = Infinity;
  for (const beat of beats) {
    const last = batches.at(-1);
    size += beat.text.length;
    if (last === undefined || last.length >= BATCH_MAX || size > BATCH_CHARS) {
      batches.push([beat]);
      size = beat.text.length;
    } else {
      last.push(beat);
    }
  }
  return batches;
}

/** Returns whether the server has answered. A failure leaves the leases due, for the next call. */
async function sendBatch(batch: Beat[]): Promise<boolean> {
  const sentAt = monotonicMs();
  const shortest = Math.min(...batch.map(({ lease }) => lease.intervalMs));
  const body = `{"heartbeats":[${batch.map((beat) => beat.text).join(",")}]}`;
  try {
    // A call that hangs must not keep the next one of a shorter lease waiting.
    const timeoutMs = Math.max(500, Math.min(CALL_MAX_MS, shortest));
    const answer = await transport.send({ method: "POST", path: "/v1/heartbeats", body, timeoutMs });
    apply(batch, JSON.parse(answer.text) as HeartbeatAnswer, sentAt);
    return true;
  } catch (error) {
    if (error instanceof ProblemError && (error.status === 400 || error.status === 413)) {
      return sendRefused(batch, error);
    }
    for (const beat of batch) beat.lease.requests.unshift(...beat.requests);
    lastError = error;
    post({ kind: "failed", message: error instanceof Error ? error.message : String(error) });
    return false;
  }
}

/** Finds the member that spoils a request, and keeps its lease without its progress and checkpoint. */
async function sendRefused(batch: Beat[], error: ProblemError): Promise<boolean> {
  const [beat] = batch;
  if (beat === undefined) return true;
  if (batch.length > 1) {
    const middle = Math.floor(batch.length / 2);
    const first = await sendBatch(batch.slice(0, middle));
    return (await sendBatch(batch.slice(middle))) && first;
  }
  for (const request of beat.requests.splice(0)) post({ kind: "saved", request, error: error.message });
  post({ kind: "failed", message: error.message });
  const { lease } = beat;
  if (lease.progress === beat.progress) lease.progress = undefined;
  if (lease.checkpoint === beat.checkpoint) lease.checkpoint = undefined;
  const bare = memberText(lease, undefined, undefined);
  if (beat.text === bare) return false;
  return sendBatch([{ lease, progress: undefined, checkpoint: undefined, requests: [], text: bare }]);
}

/** Takes the verdicts of a batch. */
function apply(batch: Beat[], answer: HeartbeatAnswer, sentAt: number): void {
  const serverNow = Date.parse(answer.now);
  const kept: KeptLease[] = [];
  const lost: [string, string][] = [];
  answer.results.forEach((result, index) => {
    const beat = batch[index];
    if (beat === undefined) return;
    const { lease } = beat;
    const error = result.code === undefined ? null : `${result.code}: ${result.detail ?? ""}`;
    for (const request of beat.requests) post({ kind: "saved", request, error });
    if (result.code === "stale_lease" || result.code === "job_not_found") {
      lost.push([lease.token, result.code]);
      untrack(lease.token);
      return;
    }
    lease.nextAt = sentAt + lease.intervalMs;
    if (lease.progress === beat.progress) lease.progress = undefined;
    if (lease.checkpoint === beat.checkpoint) lease.checkpoint = undefined;
    if (result.code !== undefined) {
      if (beat.progress === undefined && beat.checkpoint === undefined) return;
      // The data was refused, and so was the heartbeat: it is sent again without the data.
      lease.nextAt = 0;
      isUrgent = true;
      return;
    }
    const remaining = result.expires_at == null ? Infinity : Date.parse(result.expires_at) - serverNow;
    kept.push([lease.token, sentAt + remaining, result.cancel_requested === true]);
  });
  post({ kind: "kept", leases: kept, directive: answer.directive });
  if (lost.length > 0) post({ kind: "lost", leases: lost });
}

function memberText(
  { id, token }: Lease,
  progress: string | undefined,
  checkpoint: string | undefined,
): string {
  let text = `{"id":${JSON.stringify(id)},"lease":${JSON.stringify(token)}`;
  if (progress !== undefined) text += `,"progress":${progress}`;
  if (checkpoint !== undefined) text += `,"checkpoint":${checkpoint}`;
  return `${text}}`;
}

/** Ends a process whose loop did not finish its drain: releases all leases, then kills it. */
async function endProcess(): Promise<void> {
  const text = `longshore worker ${options.worker}: the event loop did not finish its drain: ending the process, releasing ${leases.size} jobs\n`;
  writeSync(2, text);
  const settlements = [...leases.values()].map(({ id, token }) => ({ id, lease: token, outcome: "release" }));
  const calls = [];
  for (let at = 0; at < settlements.length; at += BATCH_MAX) {
    const body = JSON.stringify({ settlements: settlements.slice(at, at + BATCH_MAX) });
    calls.push(transport.send({ method: "POST", path: "/v1/settlements", body, timeoutMs: 3_000 }));
  }
  await Promise.allSettled(calls);
  process.kill(process.pid, "SIGKILL");
}

let isBlockReported = false;

/** Reports a loop that stays blocked; shorter blocks are reported by the loop itself. */
setInterval(() => {
  const lastTurn = loopState[0] ?? 0;
  const blockedMs = monotonicMs() - lastTurn;
  if (lastTurn === 0 || blockedMs < BLOCKED_REPORT_MS) {
    isBlockReported = false;
  } else if (!isBlockReported) {
    isBlockReported = true;
    const type = options.types[(loopState[1] ?? 0) - 1];
    const handler = type === undefined ? "a handler" : `handler ${type}`;
    const seconds = Math.round(blockedMs / 1_000);
    writeSync(
      2,
      `longshore worker ${options.worker}: ${handler} has blocked the event loop for ${seconds} s; heartbeats go on\n`,
    );
  }
}, 500).unref();

post({ kind: "ready" });
