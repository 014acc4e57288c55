// What needs attention. `GET /v1/attention` decides where the server has it. Elsewhere the items
// follow exactly from other answers: the queue's pause, counts, `why` of a waiting job, the store's health.

import { ApiError, get, query } from "./api";
import type { AttentionItem, Info, Job, Queue, Why } from "./types";

export interface Attention { items: AttentionItem[]; source: "server" | "page" }

const QUEUES_MAX = 12;
const TYPES_MAX = 4;
let isOffered: boolean | null = null;

/** Loads the list, most severe first. */
export async function loadAttention(queues: Queue[], info: Info | null): Promise<Attention> {
  if (isOffered !== false) {
    try {
      const { items } = await get<{ items: AttentionItem[] }>("v1/attention");
      isOffered = true;
      return { items, source: "server" };
    } catch (error) {
      if (!(error instanceof ApiError) || !error.isAbsent) throw error;
      isOffered = false;
    }
  }
  return { items: sort([...fromStore(info), ...fromQueues(queues), ...(await fromWhy(queues))]), source: "page" };
}

const RANK = { error: 0, warning: 1, info: 2 };

/** Most severe first, then the oldest. */
export function sort(items: AttentionItem[]): AttentionItem[] {
  return items.sort((a, b) => RANK[a.severity] - RANK[b.severity] || (a.since ?? "9").localeCompare(b.since ?? "9"));
}

/** Items of the store's health. */
export function fromStore(info: Info | null): AttentionItem[] {
  if (!info || info.store.writable) return [];
  return [{ code: "store_refuses", severity: "error", since: null, queue: null, type: null, facts: { detail: info.store.refusing ?? "" }, action: null }];
}

/** Items that follow from the record of a queue. */
export function fromQueues(queues: Queue[]): AttentionItem[] {
  const items: AttentionItem[] = [];
  for (const queue of queues) {
    const waiting = queue.counts.scheduled ?? 0;
    const dead = queue.counts.dead_letter ?? 0;
    if (queue.paused && waiting > 0) {
      const action = { label: "resume", method: "POST", path: `/v1/queues/${encodeURIComponent(queue.name)}/resume`, body: {} };
      items.push({ code: "paused_with_work", severity: "warning", since: queue.oldest_scheduled_at, queue: queue.name, type: null, facts: { waiting }, action });
    }
    if (dead > 0) items.push({ code: "dead_letters", severity: "info", since: null, queue: queue.name, type: null, facts: { count: dead }, action: null });
  }
  return items;
}

/** Asks the server why the newest ready jobs of each queue do not run, one of each type. */
async function fromWhy(queues: Queue[]): Promise<AttentionItem[]> {
  const waiting = queues.filter((queue) => (queue.counts.scheduled ?? 0) > 0 && !queue.paused);
  const found = await Promise.all(waiting.slice(0, QUEUES_MAX).map(async (queue) => {
    try {
      const { jobs } = await get<{ jobs: Pick<Job, "id" | "type">[] }>(`v1/jobs${query({ queue: queue.name, state: "scheduled", limit: 100, fields: "id,type" })}`);
      const ofType = new Map(jobs.map((job) => [job.type, job.id]));
      const answers = await Promise.all([...ofType.values()].slice(0, TYPES_MAX).map((id) => get<Why>(`v1/jobs/${id}/why`)));
      const items = answers.flatMap((why) => noWorker(queue, why));
      return items.filter((item, index) => items.findIndex((other) => other.type === item.type) === index);
    } catch {
      return [];
    }
  }));
  return found.flat();
}

/** Items of the reason `no_worker`: one for each type that no worker takes. */
export function noWorker(queue: Queue, why: Why): AttentionItem[] {
  return why.reasons.filter((reason) => reason.code === "no_worker").flatMap((reason) => {
    const types = reason.types?.length ? reason.types : [null];
    const facts = { queue: queue.name, last_seen_at: reason.last_seen_at ?? null };
    return types.map((type) => ({ code: "no_worker", severity: "error" as const, since: null, queue: queue.name, type, facts, action: null }));
  });
}
