// Acting on many jobs: durable operations of the server for everything that matches, single calls
// for a selection.

import { ApiError, call, get, post } from "./api";
import type { Json, Operation } from "./types";

export type BulkAction = "requeue" | "cancel" | "delete";
export type Filter = Record<string, string>;

/** Filters that an operation knows. */
const FILTERS = ["queue", "state", "type", "tag", "error_code"];

/** Whether everything that matches can be treated: an operation knows each filter, and there is one. */
export function canOperate(filter: Filter): boolean {
  const keys = Object.keys(filter);
  return keys.length > 0 && keys.every((key) => FILTERS.includes(key));
}

/** States that an operation may be asked for; the server decides about each job. */
const STATES_OF: Record<BulkAction, string[]> = {
  requeue: ["failed", "dead_letter", "cancelled"], cancel: ["pending", "scheduled", "delayed", "running", "retrying"], delete: ["completed", "failed", "dead_letter", "cancelled"],
};

/** Narrows a filter to the states of an action; `null` if none is left. */
export function narrow(action: BulkAction, filter: Filter): Filter | null {
  const wanted = filter.state ? filter.state.split(",") : STATES_OF[action];
  const states = wanted.filter((state) => STATES_OF[action].includes(state));
  return states.length ? { ...filter, state: states.join(",") } : null;
}

export const isActive = (operation: Operation): boolean => operation.state === "running" || operation.state === "waiting";

/** Whether an operation can be taken back now. */
export function canUndo(operation: Operation, now: number): boolean {
  return operation.undo === null && operation.undo_until !== null && Date.parse(operation.undo_until) > now && operation.changed > 0;
}

/** How long a paced operation takes for what remains, in milliseconds; `null` if it is not paced. */
export function timeLeft(operation: Pick<Operation, "rate" | "remaining">): number | null {
  return operation.rate ? (operation.remaining * 1000) / operation.rate : null;
}

const pause = (milliseconds: number) => new Promise((resolve) => setTimeout(resolve, milliseconds));

/** Starts an operation and returns it. */
export async function startOperation(body: { [key: string]: Json }): Promise<Operation> {
  const { id } = await post<{ id: string }>("v1/operations", body);
  return get<Operation>(`v1/operations/${id}`);
}

/** Counts what an action would treat, without a change. */
export async function dryRun(action: BulkAction, filter: Filter): Promise<Operation> {
  let operation = await startOperation({ action, filter, dry_run: true });
  while (isActive(operation) || !operation.counted) {
    await pause(300);
    operation = await get<Operation>(`v1/operations/${operation.id}`);
  }
  return operation;
}

/** Follows an operation until it ends or waits for a decision. */
export async function followOperation(id: string, report: (operation: Operation) => void): Promise<Operation> {
  for (;;) {
    const operation = await get<Operation>(`v1/operations/${id}`);
    report(operation);
    if (operation.state !== "running") return operation;
    await pause(400);
  }
}

export const stopOperation = (id: string): Promise<Operation> => post<Operation>(`v1/operations/${id}/stop`);
export const continueOperation = (id: string): Promise<Operation> => post<Operation>(`v1/operations/${id}/continue`);
export const undoOperation = (id: string): Promise<Operation> => post<Operation>(`v1/operations/${id}/undo`);

const CALLS: Record<BulkAction, (id: string) => [method: string, path: string, body: Json | undefined]> = {
  requeue: (id) => ["POST", `v1/jobs/${id}/requeue`, {}],
  cancel: (id) => ["POST", `v1/jobs/${id}/cancel`, {}],
  delete: (id) => ["DELETE", `v1/jobs/${id}`, undefined],
};
const PARALLEL = 4;
export interface Progress { done: number; refused: number; total: number }

/** Treats the selected jobs of a page one by one, a few at a time. */
export async function runOnSelection(action: BulkAction, ids: string[], report: (progress: Progress) => void, isStopped: () => boolean): Promise<Progress> {
  const progress: Progress = { done: 0, refused: 0, total: ids.length };
  const waiting = [...ids];
  const worker = async () => {
    for (let id = waiting.shift(); id !== undefined && !isStopped(); id = waiting.shift()) {
      const [method, path, body] = CALLS[action](id);
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
  return progress;
}
