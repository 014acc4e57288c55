import { PayloadError } from "../errors.js";
import { Failed, outcomeOfError, outcomeOfResult, permanent } from "../outcome.js";
import type { Outcome } from "../outcome.js";
import type { JobContext } from "./context.js";
import { outcomeOfThrown } from "./handlers.js";
import type { BatchRegistration, OnSync } from "./handlers.js";
import type { HeldJob } from "./held-job.js";

/** One job of a batch that runs. */
export interface RunningItem {
  job: HeldJob;
  context: JobContext;
  payload: unknown;
}

/** Runs a batch. Calls `end` once for each job: a payload that its schema refuses ends at once. */
export async function runBatch(
  registration: BatchRegistration,
  state: unknown,
  items: RunningItem[],
  onSync: OnSync,
  end: (job: HeldJob, outcome: Outcome) => void,
): Promise<void> {
  const accepted: RunningItem[] = [];
  for (const item of items) {
    try {
      accepted.push({ ...item, payload: await registration.definition.parsePayload(item.payload) });
    } catch (error) {
      end(item.job, error instanceof PayloadError ? permanent("bad_payload", error.message) : outcomeOfError(error));
    }
  }
  if (accepted.length === 0) return;
  const outcomes = await callHandler(registration, state, accepted, onSync);
  accepted.forEach((item, index) => end(item.job, outcomes[index]!));
}

async function callHandler(
  registration: BatchRegistration,
  state: unknown,
  items: RunningItem[],
  onSync: OnSync,
): Promise<Outcome[]> {
  const context = { signal: batchSignal(items), state };
  const members = items.map((item) => ({ ctx: item.context, payload: item.payload }));
  try {
    onSync(registration.number, items.length);
    const returned = registration.handler(context, members);
    onSync(0, 0);
    const outcomes = await returned;
    if (outcomes === undefined) return items.map(() => outcomeOfResult(undefined));
    if (outcomes.length === items.length) return outcomes.map(outcomeOfResult);
    const message = `the batch handler returned ${outcomes.length} outcomes for ${items.length} jobs`;
    return items.map(() => new Failed({ category: "system", code: "batch_outcomes", message }));
  } catch (error) {
    onSync(0, 0);
    return items.map(() => outcomeOfThrown(registration.classify, error));
  }
}

/** Aborts for a drain, for the first deadline, or once all jobs are aborted. */
function batchSignal(items: RunningItem[]): AbortSignal {
  const controller = new AbortController();
  let left = items.length;
  for (const { context } of items) {
    const onAbort = () => {
      left -= 1;
      const isShared = context.abortCode === "drain" || context.abortCode === "deadline";
      if (isShared || left === 0) controller.abort(context.signal.reason);
    };
    if (context.signal.aborted) onAbort();
    else context.signal.addEventListener("abort", onAbort, { once: true });
  }
  return controller.signal;
}
