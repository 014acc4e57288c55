// Groups of dead letters: those of the server, or groups of the newest ones made by this page.

import { ApiError, get, query } from "./api";
import type { Group, Job, Jobs } from "./types";

export interface Groups { groups: Group[]; source: "server" | "page"; read: number; isComplete: boolean; jobs: Map<string, Job> }

const READ_MAX = 1_000;
let isOffered: boolean | null = null;

/** The shape of a message: numbers, ids and quoted text are replaced. */
export function shapeOf(message: string): string {
  return message
    .replace(/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/gi, "‹id›")
    .replace(/"[^"]*"|'[^']*'|`[^`]*`|“[^”]*”/g, "‹text›")
    .replace(/\b(?=[0-9a-z_]*\d)[0-9a-z]+(?:[_-][0-9a-z]+)+\b/gi, "‹id›")
    .replace(/\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{8,}\b/gi, "‹id›")
    .replace(/\d+(?:[.,]\d+)*/g, "‹n›")
    .slice(0, 300);
}

/** Groups jobs by queue-independent code and shape, largest first. */
export function groupJobs(jobs: Job[]): Group[] {
  const found = new Map<string, Group & { ids: string[]; queues: string[] }>();
  for (const job of jobs) {
    const code = job.error?.code ?? null;
    const shape = shapeOf(job.error?.message ?? "");
    const id = `${code ?? ""}\n${shape}`;
    const at = job.completed_at ?? job.updated_at;
    const group = found.get(id) ?? { id, code, shape, count: 0, first_at: at, last_at: at, types: [], queues: [], example: job.id, ids: [] };
    group.count += 1;
    group.ids.push(job.id);
    if (at < group.first_at) group.first_at = at;
    if (at > group.last_at) (group.last_at = at), (group.example = job.id);
    if (!group.types.includes(job.type)) group.types.push(job.type);
    if (!group.queues.includes(job.queue)) group.queues.push(job.queue);
    found.set(id, group);
  }
  return [...found.values()].sort((a, b) => b.count - a.count || b.last_at.localeCompare(a.last_at));
}

export async function loadGroups(queue: string | null): Promise<Groups> {
  if (isOffered !== false) {
    try {
      const { groups } = await get<{ groups: Group[] }>(`v1/dead-letters/groups${query({ queue })}`);
      isOffered = true;
      return { groups, source: "server", read: groups.reduce((sum, group) => sum + group.count, 0), isComplete: true, jobs: new Map() };
    } catch (error) {
      if (!(error instanceof ApiError) || !error.isAbsent) throw error;
      isOffered = false;
    }
  }
  const page = await get<Jobs>(`v1/jobs${query({ queue, state: "dead_letter", limit: READ_MAX, fields: "id,queue,type,error,completed_at,updated_at,counters,attempt,actions,requeued_as" })}`);
  return { groups: groupJobs(page.jobs), source: "page", read: page.jobs.length, isComplete: page.next === null, jobs: new Map(page.jobs.map((job) => [job.id, job])) };
}

/** A few ids spread over a list. */
export function sampleOf(ids: string[], amount: number): string[] {
  const step = Math.max(1, Math.floor(ids.length / amount));
  return ids.filter((_, index) => index % step === 0).slice(0, amount);
}
