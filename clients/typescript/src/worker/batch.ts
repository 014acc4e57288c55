import { Failed, Released, outcomeOfError, outcomeOfResult } from "../outcome.js";
import type { Outcome } from "../outcome.js";
import type { JobContext } from "./context.js";
import { outcomeOfRefusedPayload, outcomeOfThrown, runMiddleware } from "./handlers.js";
import type { BatchRegistration, Middleware, OnSync } from "./handlers.js";
import type { HeldJob } from "./held-job.js";

/** One job of a batch that runs. */
export interface RunningItem {
  job: HeldJob;
  context: JobContext;
  payload: unknown;
}

/** How a batch runs. */
export interface BatchRun {
  registration: BatchRegistration;
  state: unknown;
  middleware: readonly Middleware<any>[];
  onSync: OnSync;
  /** Called once for each job: one whose payload its schema refuses ends at once. */
  end: (job: HeldJob, outcome: Outcome) => void;
}

/** Runs a batch. Each job passes the middleware; the handler runs once all of them have reached it. */
export async function runBatch(run: BatchRun, items: RunningItem[]): Promise<void> {
  const { registration, middleware, end } = run;
  const gate = new Gate(run, items.length);
  const runItem = async (item: RunningItem): Promise<void> => {
    let hasEntered = false;
    const outcome = await runMiddleware(middleware, item.context, async () => {
      if (hasEntered) return outcomeOfError(new Error("middleware called next twice"));
      hasEntered = true;
      try {
        const payload = await registration.definition.parsePayload(item.payload);
        return await gate.enter({ ...item, payload });
      } catch (error) {
        gate.leave();
        return outcomeOfRefusedPayload(error);
      }
    });
    // A job whose middleware did not call `next`.
    if (!hasEntered) gate.leave();
    end(item.job, outcome);
  };
  await Promise.all(items.map(runItem));
}

/** Collects the jobs that have passed the middleware, and calls the handler after the last one. */
class Gate {
  private readonly entered: { item: RunningItem; resolve: (outcome: Outcome) => void }[] = [];

  constructor(
    private readonly run: BatchRun,
    private missing: number,
  ) {}

  /** Resolves with the outcome of a job. Never rejects. */
  enter(item: RunningItem): Promise<Outcome> {
    return new Promise((resolve) => {
      this.entered.push({ item, resolve });
      this.leave();
    });
  }

  /** One job less to wait for. */
  leave(): void {
    this.missing -= 1;
    if (this.missing === 0) void this.call();
  }

  private async call(): Promise<void> {
    // A job that was released or lost meanwhile may run in another worker already.
    const wanted = this.entered.filter(({ item }) => item.job.state === "running" && !item.job.isLost);
    for (const { resolve } of this.entered.filter((one) => !wanted.includes(one))) resolve(new Released());
    if (wanted.length === 0) return;
    const { registration, state, onSync } = this.run;
    const members = wanted.map(({ item }) => item);
    const outcomes = await callHandler(registration, state, members, onSync);
    wanted.forEach(({ resolve }, index) => resolve(outcomes[index]!));
  }
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
    if (outcomes.length === items.length) {
      const { classify } = registration;
      return outcomes.map((one) => (one instanceof Error ? outcomeOfThrown(classify, one) : outcomeOfResult(one)));
    }
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
