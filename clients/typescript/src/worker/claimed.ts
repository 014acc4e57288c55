import type { Priority, Tags } from "../records.js";

/** A claimed job, in wire form. */
export interface ClaimedJob {
  id: string;
  seq: number;
  queue: string;
  type: string;
  priority: Priority;
  attempt: number;
  attempt_id?: string;
  previous_attempt_id?: string;
  tags?: Tags;
  correlation_id?: string;
  idempotency_key?: string;
  created_at: string;
  deadline_at?: string | null;
  checkpoint?: unknown;
  workflow?: string;
  traceparent?: string;
  payload?: unknown;
  payload_base64?: string;
  lease: { token: string; version: number; expires_at: string | null; duration?: string };
  last_attempt?: boolean;
}

/** What the server wants of a worker. */
export type Directive = "run" | "quiet" | "stop";

/** Result of one settlement. */
export type Verdict = { id: string; state: string } | { id: string | null; code: string; detail: string };

/** Answer to a claim. */
export interface ClaimAnswer {
  jobs: ClaimedJob[];
  now: string;
  directive?: Directive;
  results?: Verdict[];
}
