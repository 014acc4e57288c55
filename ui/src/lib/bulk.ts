// Acting on many jobs. Where the server has durable operations they are used; elsewhere the page
// repeats bulk calls of up to 1,000 jobs, or calls each selected job, and shows its progress.

import { ApiError, call, mayOffer, post } from "./api";
import type { BulkResult, Json, Operation } from "./types";

export type BulkAction = "requeue" | "cancel" | "delete";
export interface Progress { done: number; refused: number; total: number | null; isOver: boolean; operation: Operation | null }
export type Filter = Record<string, string>;

/** Filters that a bulk call knows. */
const BULK_FILTERS = ["queue", "state", "type", "tag", "error_code"];

/** Whether everything that matches can be treated: a bulk call knows each filter, and there is one. */
export function canBulk(filter: Filter): boolean {
  const keys = Object.keys(filter);
  return keys.length > 0 && keys.every((key) => BULK_FILTERS.includes(key));
}

/** States from which an action is possible at all; the server decides about each job. */
const STATES_OF: Record<BulkAction, string[]> = {
  requeue: ["failed", "dead_letter", "cancelled"], cancel: ["pending", "scheduled", "delayed", "running", "retrying"], delete: ["completed", "failed", "dead_letter", "cancelled"],
};

/** Narrows a filter to the states of an action; `null` if none is left. */
export function narrow(action: BulkAction, filter: Filter): Filter | null {
  const wanted = filter.state ? filter.state.split(",") : STATES_OF[action];
  const states = wanted.filter((state) => STATES_OF[action].includes(state));
  return states.length ? { ...filter, state: states.join(",") } : null;
}

/** Counts what an action would treat. */
export async function dryRun(action: BulkAction, filter: Filter): Promise<{ matched: number; more: boolean }> {
  if (mayOffer("POST", "v1/operations")) {
    try {
      const { matched } = await post<{ matched: number }>("v1/operations", { action, filter, dry_run: true });
      return { matched, more: false };
    } catch (error) {
      if (!(error instanceof ApiError) || !error.isAbsent) throw error;
    }
  }
  return post<BulkResult>("v1/jobs/bulk", { action, filter, dry_run: true });
}

const PATHS: Record<BulkAction, (id: string) => [method: string, path: string, body: Json | undefined]> = {
  requeue: (id) => ["POST", `v1/jobs/${id}/requeue`, {}],
  cancel: (id) => ["POST", `v1/jobs/${id}/cancel`, {}],
  delete: (id) => ["DELETE", `v1/jobs/${id}`, undefined],
};
const PARALLEL = 4;

/** Treats selected jobs one by one, a few at a time. */
export async function runOnIds(action: BulkAction, ids: string[], report: (progress: Progress) => void, isStopped: () => boolean): Promise<Progress> {
  const progress: Progress = { done: 0, refused: 0, total: ids.length, isOver: false, operation: null };
  const waiting = [...ids];
  const worker = async () => {
    for (let id = waiting.shift(); id !== undefined && !isStopped(); id = waiting.shift()) {
      const [method, path, body] = PATHS[action](id);
      try {
        await call(method, path, body === undefined ? {} : { body });
        progress.done += 1;
      } catch (error) {
        if (error instanceof ApiError && (error.status === 0 || error.status === 401 || error.status === 403)) throw error;
        progress.refused += 1;
      }
      report({ ...progress });
    }
  };
  await Promise.all(Array.from({ length: PARALLEL }, worker));
  return { ...progress, isOver: true };
}

/** Repeats bulk calls until nothing more matches, the user stops, or a call changes nothing. */
export async function runOnFilter(action: BulkAction, filter: Filter, total: number | null, report: (progress: Progress) => void, isStopped: () => boolean): Promise<Progress> {
  if (mayOffer("POST", "v1/operations")) {
    try {
      return await runOperation({ action, filter }, report, isStopped);
    } catch (error) {
      if (!(error instanceof ApiError) || !error.isAbsent) throw error;
    }
  }
  const progress: Progress = { done: 0, refused: 0, total, isOver: false, operation: null };
  while (!isStopped()) {
    const result = await post<BulkResult>("v1/jobs/bulk", { action, filter, limit: 250 });
    progress.done += result.changed;
    progress.refused += result.matched - result.changed;
    report({ ...progress });
    if (!result.more || result.changed === 0) break;
  }
  return { ...progress, isOver: true };
}

const pause = (milliseconds: number) => new Promise((resolve) => setTimeout(resolve, milliseconds));

/** Starts a durable operation and follows it until it ends or waits for its canary. */
export async function runOperation(body: { [key: string]: Json }, report: (progress: Progress) => void, isStopped: () => boolean): Promise<Progress> {
  const { id } = await post<{ id: string }>("v1/operations", body);
  return followOperation(id, report, isStopped);
}

export async function followOperation(id: string, report: (progress: Progress) => void, isStopped: () => boolean): Promise<Progress> {
  let isStopSent = false;
  for (;;) {
    const operation = await call<Operation>("GET", `v1/operations/${id}`);
    const progress: Progress = { done: operation.changed, refused: operation.refused, total: operation.matched, isOver: operation.state !== "running", operation };
    report(progress);
    if (progress.isOver) return progress;
    if (isStopped() && !isStopSent) {
      isStopSent = true;
      await post(`v1/operations/${id}/stop`);
    }
    await pause(400);
  }
}
