// The timeline of a job: history, attempts, deliveries and plans as lanes on one axis.

import type { Attempt, Delivery, Job, State, Transition } from "./types";

export interface Span { state: State; from: number; to: number; isOpen: boolean }
export interface Run { number: number; from: number; to: number; outcome: string | null; code: string | null; worker: string | null }
export interface Mark { at: number; state: string; text: string }
export interface Timeline { from: number; to: number; now: number; spans: Span[]; runs: Run[]; events: Mark[]; deliveries: Mark[]; plan: { at: number; state: State } | null }

const EVENTS = new Set(["create", "run_now", "cancel", "dead_letter", "requeue", "revive", "submit", "lifetime", "queue_deleted"]);

/** The glyph of an attempt's end. */
export function outcomeState(outcome: string | null): string {
  switch (outcome) {
    case null: return "running";
    case "completed": return "completed";
    case "cancelled": return "cancelled";
    case "lease_expired": case "snoozed": case "released": return "retrying";
    default: return "failed";
  }
}

const ATTEMPTS_KEPT = 100;

/** The name of an attempt: its place among all. The server's number starts again after a requeue. */
export function attemptName(attempts: Attempt[], index: number): number {
  return attempts.length < ATTEMPTS_KEPT ? index + 1 : attempts[index]!.number;
}

/** The instant of the last requeue, or `null`. */
export function lastRequeue(history: Transition[]): number | null {
  const found = history.filter((entry) => entry.cause === "requeue").at(-1);
  return found ? Date.parse(found.at) : null;
}

/** Builds the lanes. `since` leaves out what ended before it. */
export function buildTimeline(job: Job, history: Transition[], attempts: Attempt[], deliveries: Delivery[], now: number, since: number | null, word: (entry: Transition) => string): Timeline {
  const isEnded = job.completed_at !== null;
  const last = history.at(-1);
  const end = isEnded && last ? Date.parse(last.at) : now;
  const spans: Span[] = history.map((entry, index) => {
    const next = history[index + 1];
    return { state: entry.to, from: Date.parse(entry.at), to: next ? Date.parse(next.at) : end, isOpen: !next && !isEnded };
  }).filter((span) => (since === null || span.to >= since) && (span.to > span.from || span.isOpen));
  const runs: Run[] = attempts.map((attempt, index) => ({
    number: attemptName(attempts, index), from: Date.parse(attempt.started_at), to: attempt.ended_at ? Date.parse(attempt.ended_at) : now, outcome: attempt.outcome, code: attempt.error?.code ?? attempt.error?.category ?? null, worker: attempt.worker,
  })).filter((run) => since === null || run.to >= since);
  const events: Mark[] = history.filter((entry, index) => EVENTS.has(entry.cause) && !(entry.cause === "submit" && index <= 1)).map((entry) => ({ at: Date.parse(entry.at), state: entry.to, text: word(entry) })).filter((mark) => since === null || mark.at >= since);
  const sent: Mark[] = deliveries.flatMap((delivery) => delivery.attempts.map((attempt, index) => {
    const isDone = delivery.state === "delivered" && index === delivery.attempts.length - 1;
    return { at: Date.parse(attempt.at), state: isDone ? "completed" : "failed", text: index === delivery.attempts.length - 1 ? delivery.event : "" };
  })).filter((mark) => since === null || mark.at >= since);
  const plan = job.run_at && Date.parse(job.run_at) > now ? { at: Date.parse(job.run_at), state: job.state } : null;
  const instants = [...spans.flatMap((span) => [span.from, span.to]), ...runs.map((run) => run.to), ...events.map((mark) => mark.at), ...sent.map((mark) => mark.at), ...(plan ? [plan.at] : []), ...(isEnded ? [] : [now])];
  const from = since ?? Math.min(...instants, Date.parse(job.created_at));
  const until = Math.max(...instants, from + 1_000);
  const margin = (until - from) * 0.04;
  return { from: from - margin * 0.3, to: until + margin, now, spans, runs, events, deliveries: sent, plan };
}

const STEPS = [0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 604800, 2592000].map((seconds) => seconds * 1000);

/** Instants of the grid: about `wanted` of them at round times. */
export function gridTimes(from: number, to: number, wanted: number): number[] {
  const step = STEPS.find((size) => (to - from) / size <= wanted) ?? (to - from) / wanted;
  const times: number[] = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) times.push(at);
  return times;
}
