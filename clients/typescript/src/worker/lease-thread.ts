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
/** Longest interval of heartbeats: cancels and directives arrive with their answers. */
const INTERVAL_MAX_MS = 10_000;
/** Longest wait for an answer. */
const CALL_MAX_MS = 3_000;
/** A loop that is blocked for this long is reported while it is blocked. */
const BLOCKED_REPORT_MS = 5_000;

interface Lease {
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
const leases = new Map<string, Lease>();
const backoff = new Backoff(100, 2_000);
const loopState = new Float64Array(options.loopState);
let timer: NodeJS.Timeout | undefined;
let timerAt = Infinity;
let isSending = false;
let isUrgent = false;
let canNameWorker = true;
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
        leases.set(id, { token, intervalMs, nextAt, progress: undefined, checkpoint: undefined, requests: [] });
        wakeAt(nextAt);
      }
      break;
    case "untrack":
      for (const id of message.ids) untrack(id);
      break;
    case "progress": {
      const lease = leases.get(message.id);
      if (lease !== undefined) lease.progress = message.text;
      break;
    }
    case "checkpoint":
      saveCheckpoint(message.id, message.text, message.request);
      break;
    case "watchdog":
      clearTimeout(watchdog);
      if (message.at !== null) watchdog = setTimeout(() => void endProcess(), message.at - monotonicMs());
      break;
  }
});

function untrack(id: string): void {
  for (const request of leases.get(id)?.requests ?? []) {
    post({ kind: "saved", request, error: "the job has ended" });
  }
  leases.delete(id);
}

function saveCheckpoint(id: string, text: string, request: number): void {
  const lease = leases.get(id);
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
  const due = [...leases].filter(([, lease]) => lease.nextAt <= now + lease.intervalMs / 2);
  const calls = [];
  for (let at = 0; at < due.length; at += BATCH_MAX) calls.push(sendBatch(due.slice(at, at + BATCH_MAX)));
  const outcomes = await Promise.all(calls);
  if (outcomes.includes(false)) retryAt = monotonicMs() + backoff.nextMs();
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

/** Returns whether the server has answered. A failure leaves the leases due, for the next call. */
async function sendBatch(batch: [string, Lease][]): Promise<boolean> {
  const sentAt = monotonicMs();
  const shortest = Math.min(...batch.map(([, lease]) => lease.intervalMs));
  const sent = batch.map(([id, lease]) => ({
    id,
    lease,
    progress: lease.progress,
    checkpoint: lease.checkpoint,
    requests: lease.requests.splice(0),
  }));
  const members = sent.map((one) => memberText(one.id, one.lease.token, one.progress, one.checkpoint));
  const worker = canNameWorker ? `,"worker":${JSON.stringify(options.worker)}` : "";
  const body = `{"heartbeats":[${members.join(",")}]${worker}}`;
  try {
    // A call that hangs must not keep the next one of a shorter lease waiting.
    const timeoutMs = Math.max(500, Math.min(CALL_MAX_MS, shortest));
    const answer = await transport.send({ method: "POST", path: "/v1/heartbeats", body, timeoutMs });
    const parsed = JSON.parse(answer.text) as HeartbeatAnswer;
    const serverNow = Date.parse(parsed.now);
    const kept: KeptLease[] = [];
    const lost: [string, string][] = [];
    parsed.results.forEach((result, index) => {
      const one = sent[index];
      if (one === undefined) return;
      const error = result.code === undefined ? null : `${result.code}: ${result.detail ?? ""}`;
      for (const request of one.requests) post({ kind: "saved", request, error });
      if (result.code === "stale_lease" || result.code === "job_not_found") {
        lost.push([one.id, result.code]);
        leases.delete(one.id);
        return;
      }
      one.lease.nextAt = sentAt + one.lease.intervalMs;
      if (one.lease.progress === one.progress) one.lease.progress = undefined;
      if (one.lease.checkpoint === one.checkpoint) one.lease.checkpoint = undefined;
      if (result.code !== undefined) {
        if (one.progress === undefined && one.checkpoint === undefined) return;
        // The data was refused, and so was the heartbeat: it is sent again without the data.
        one.lease.nextAt = 0;
        isUrgent = true;
        return;
      }
      const remaining = result.expires_at == null ? Infinity : Date.parse(result.expires_at) - serverNow;
      kept.push([one.id, sentAt + remaining, result.cancel_requested === true]);
    });
    post({ kind: "kept", leases: kept, directive: parsed.directive });
    if (lost.length > 0) post({ kind: "lost", leases: lost });
    return true;
  } catch (error) {
    for (const one of sent) one.lease.requests.unshift(...one.requests);
    if (error instanceof ProblemError && error.field === "worker") canNameWorker = false;
    else post({ kind: "failed", message: error instanceof Error ? error.message : String(error) });
    return false;
  }
}

function memberText(id: string, token: string, progress: string | undefined, checkpoint: string | undefined): string {
  let text = `{"id":${JSON.stringify(id)},"lease":${JSON.stringify(token)}`;
  if (progress !== undefined) text += `,"progress":${progress}`;
  if (checkpoint !== undefined) text += `,"checkpoint":${checkpoint}`;
  return `${text}}`;
}

/** Ends a process whose loop did not finish its drain: releases all leases, then kills it. */
async function endProcess(): Promise<void> {
  const ids = [...leases.keys()];
  const text = `longshore worker ${options.worker}: the event loop did not finish its drain: ending the process, releasing ${ids.length} jobs\n`;
  writeSync(2, text);
  const settlements = [...leases].map(([id, lease]) => ({ id, lease: lease.token, outcome: "release" }));
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
