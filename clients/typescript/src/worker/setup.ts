import type { Client } from "../client.js";
import type { Logger } from "../logger.js";
import type { PlannedSchedule } from "../schedule.js";
import type { ClaimOptions } from "./claimer.js";
import type { BatchRegistration, Middleware, Registration } from "./handlers.js";
import type { LeaseKeeper } from "./lease-keeper.js";

/** Everything that one run of a worker needs. */
export interface WorkerSetup extends ClaimOptions {
  client: Client;
  keeper: LeaseKeeper;
  state: unknown;
  logger: Logger;
  registrations: ReadonlyMap<string, Registration>;
  batchRegistrations: ReadonlyMap<string, BatchRegistration>;
  middleware: readonly Middleware<any>[];
  schedules: readonly PlannedSchedule[];
  /** Queues instead of those of the definitions. */
  queues: readonly string[] | undefined;
  slots: number;
  prefetch: number;
  waitMs: number;
  graceMs: number;
  abandonAfterMs: number;
  maxStuck: number;
  lagWarningMs: number;
  /** Outcomes on their way at which claims stop. */
  unsettledMax: number;
  /** Whether the worker handles signals, and so may end the process. */
  ownsProcess: boolean;
}
