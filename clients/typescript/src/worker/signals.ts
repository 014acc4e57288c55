import { constants } from "node:os";

import type { Logger } from "../logger.js";

const SIGNALS = ["SIGTERM", "SIGINT"] as const;

/** What the three signals do. */
export interface SignalTarget {
  drain(): void;
  releaseAll(): void;
}

/**
 * First signal: drain. Second: release all jobs. Third: exit with 128 + the signal's number.
 * Returns a function that removes the handlers.
 */
export function handleSignals(target: SignalTarget, logger: Logger): () => void {
  let received = 0;
  const onSignal = (signal: NodeJS.Signals) => {
    received += 1;
    logger.info("signal received", { signal, received });
    if (received === 1) target.drain();
    else if (received === 2) target.releaseAll();
    else process.exit(128 + constants.signals[signal]);
  };
  for (const signal of SIGNALS) process.on(signal, onSignal);
  return () => {
    for (const signal of SIGNALS) process.off(signal, onSignal);
  };
}
