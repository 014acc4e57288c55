import type { Endpoint } from "../transport.js";
import type { Directive } from "./claimed.js";

/** What the heartbeat thread starts with. */
export interface ThreadOptions {
  endpoint: Endpoint;
  worker: string;
  /** Monotonic milliseconds of the main thread's last turn of its loop; then the running handler. */
  loopState: SharedArrayBuffer;
  /** Types of the handlers: `loopState` refers to them by position, from 1. */
  types: string[];
}

/** A lease to keep: id, token, lease in milliseconds, monotonic instant of the claim. */
export type TrackedLease = [id: string, token: string, leaseMs: number, claimedAt: number];

/** From the main thread to the heartbeat thread. Tokens name leases: a job may have two runs here. */
export type ToThread =
  | { kind: "track"; leases: TrackedLease[] }
  | { kind: "untrack"; tokens: string[] }
  | { kind: "progress"; token: string; text: string }
  | { kind: "checkpoint"; token: string; text: string; request: number }
  | { kind: "watchdog"; at: number | null };

/** One kept lease: its new expiry in monotonic milliseconds, and whether a cancel is requested. */
export type KeptLease = [token: string, expiry: number, isCancelRequested: boolean];

/** From the heartbeat thread to the main thread. */
export type FromThread =
  | { kind: "ready" }
  | { kind: "kept"; leases: KeptLease[]; directive: Directive | undefined }
  | { kind: "lost"; leases: [token: string, code: string][] }
  | { kind: "saved"; request: number; error: string | null }
  | { kind: "failed"; message: string };
