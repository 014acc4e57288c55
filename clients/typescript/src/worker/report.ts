/** What a worker did. */
export interface Report {
  /** Jobs claimed. */
  claimed: number;
  /** Jobs completed. */
  completed: number;
  /** Attempts that failed. */
  failed: number;
  /** Jobs snoozed. */
  snoozed: number;
  /** Jobs returned to their queue without a counted attempt. */
  released: number;
  /** Jobs whose lease was lost, so that their outcome was refused or not sent. */
  lost: number;
  /** Handlers that ignored their signal: their slot was freed, and nothing was settled. */
  abandoned: number;
  /** Outcomes that could not be sent before the worker ended. */
  unsettled: number;
  /** Time from start to end, in milliseconds. */
  durationMs: number;
  /** Runs of handlers, by type. */
  handled: Record<string, number>;
}

/** A report of nothing. */
export function emptyReport(): Report {
  const counters = {
    claimed: 0,
    completed: 0,
    failed: 0,
    snoozed: 0,
    released: 0,
    lost: 0,
    abandoned: 0,
    unsettled: 0,
  };
  return { ...counters, durationMs: 0, handled: {} };
}

/** Adds the counts of another report. */
export function addReport(total: Report, other: Report): void {
  const { handled, ...counters } = other;
  for (const [key, count] of Object.entries(counters)) total[key as keyof typeof counters] += count;
  for (const [type, runs] of Object.entries(handled)) total.handled[type] = (total.handled[type] ?? 0) + runs;
}
