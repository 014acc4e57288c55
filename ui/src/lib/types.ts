// The wire types of the API that the dashboard reads. Times are RFC 3339 strings.

export const STATES = ["pending", "scheduled", "delayed", "running", "retrying", "completed", "failed", "dead_letter", "cancelled"] as const;
export type State = (typeof STATES)[number];
export type Counts = Partial<Record<State, number>>;
export type Action = "submit" | "cancel" | "force_cancel" | "run_now" | "requeue" | "dead_letter" | "delete" | "edit";
export const PRIORITIES = ["critical", "high", "normal", "low", "bulk"] as const;
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

export interface ErrorView { category: string; code: string | null; message: string; cause: string | null; at: string }
export interface Job {
  id: string; seq: number; queue: string; type: string; state: State; priority: string; effective_priority: string; attempt: number;
  counters: { starts: number; failures: number; retries_scheduled: number; requeues: number; reclaims: number };
  policy: Settings; tags: Record<string, string | null>; correlation_id: string | null; callback_url: string | null;
  idempotency_key: string | null; external_id: string | null; created_at: string; updated_at: string; run_at: string | null;
  scheduled_at: string | null; started_at: string | null; first_started_at: string | null; last_heartbeat_at: string | null;
  attempt_ended_at: string | null; completed_at: string | null;
  lease: null | { version: number; expires_at: string | null; deadline_at?: string | null; worker: string | null };
  progress: Json; checkpoint: Json; result: Json; error: ErrorView | null; after: string[]; after_any: string[]; waiting_on: number;
  workflow: string | null; parent: string | null; requeued_from: string | null; requeued_as: string | null; cancel_requested: boolean;
  schedule?: null | { name: string; due_at: string | null }; actions: Action[];
}
export interface Jobs { jobs: Job[]; next: string | null }
export interface Attempt {
  id: string; previous_id: string | null; number: number; worker: string | null; lease_version: number; started_at: string;
  ended_at: string | null; outcome: string | null; error: ErrorView | null; next_delay: string | null;
}
export interface Transition { from: State | null; to: State; at: string; cause: string }
export interface Reason {
  code: string; text: string; queue?: string; count?: number; after?: string[]; after_any?: string[]; at?: string; failures?: number; ahead?: number;
  last_seen_at?: string | null; types?: string[]; limit?: number; worker?: string | null; started_at?: string | null; expires_at?: string | null;
}
export interface ServerAction { label: string; method: string; path: string; body?: Json }
export interface Why {
  state: State; summary: string; runnable: boolean; reasons: Reason[]; ahead: number | null; error?: ErrorView | null;
  action?: (ServerAction & { job?: string }) | null; requeued_as?: string | null;
}
export interface Settings {
  retry?: { limit?: number; counts?: string };
  execution_timeout?: string; lease?: string; wait_target?: string | null; manual_requeue?: string;
}
export interface Queue {
  name: string; profile: string; settings: Settings; overrides: { [key: string]: Json }; locked: string[]; paused: boolean; counts: Counts;
  oldest_scheduled_at: string | null;
}
/** Who calls, by its token. Without tokens on the server, the id is null and everything is allowed. */
export interface Self { id: string | null; name: string | null; actions: string[]; queues: string[]; expires_at: string | null }
export interface Rates { submitted: number; claimed: number; completed: number; failed: number }
export interface Quantile { p50: number; p95: number; p99: number }
export interface Point {
  at: string; submitted: number; completed: number; failed: number; depth: number; ready: number; slots: number; dead_letters: number;
  wait: Quantile | null; run: Quantile | null;
}
export interface QueueStats { counts: Counts; rates: Rates; since_start: Rates; series?: Point[] }
export interface Stats {
  now: string; totals: QueueStats; queues: Record<string, QueueStats>;
  series?: { window: string; step: string; since: string; queues_left_off: number; deploys?: Deploy[] };
}
/** A version that claimed from a queue for the first time. */
export interface Deploy { at: string; queue: string; version: string; worker: string }
export interface JobType {
  type: string; queues: string[]; submitted: number; completed: number; failed: number; wait: Quantile | null; run: Quantile | null;
}
export interface JobTypeDetail {
  stats: JobType; series: Pick<Point, "at" | "submitted" | "completed" | "failed" | "wait" | "run">[]; errors: { error: ErrorView; count: number; example: string }[];
  errors_of: number; workers: Worker[]; deploys: Deploy[]; window: string; step: string; since: string; now: string;
}
export interface Worker {
  name: string; directive: "run" | "quiet" | "stop"; version: string | null; types: string[]; queues: string[]; running: number;
  waiting?: number; last_seen_at: string;
}
export interface Info {
  name: string; version: string; api: string; now: string; virtual_clock: boolean; default_profile: string; auto_queues: boolean; uptime: string;
  store: { kind: string; durability: string; writable: boolean; refusing: string | null; reserve_bytes: number | null; free_bytes: number | null };
}
export interface Workflow {
  id: string; name: string | null; state: "running" | "completed" | "failed" | "cancelled"; open: boolean; created_at: string;
  counts: Counts; ended: number; total: number;
}
export interface Member { ref: string; id: string; state: State; queue: string; type: string; after: string[]; after_any: string[] }
export interface WorkflowWithJobs extends Workflow { jobs: Member[]; next: string | null }
export interface Tick { due_at: string; fired_at: string | null; outcome: string; job: string | null; detail: string | null }
export interface Schedule {
  name: string; cron?: string | null; every?: string | null; timezone: string; queue: string; job: { type?: string; [key: string]: Json | undefined };
  misfire: string; overlap: string; jitter?: string | null; paused: boolean; pause_note?: string | null; next: string[]; last: Tick | null;
  created_at: string; updated_at: string;
}
export interface Webhook {
  name: string; url?: string | null; events?: string[]; queues?: string[]; enabled?: boolean; secret?: string; created_at?: string;
  disabled_reason?: string | null;
}
export interface Delivery {
  id: string; job: string | null; url: string; event: string; state: "pending" | "delivered" | "failed";
  attempts: { at: string; status: number | null; error: string | null; duration_ms: number | null }[]; next_at: string | null;
}
export interface Token {
  id: string; name: string; actions: string[]; queues: string[]; expires_at?: string | null; created_at?: string; last_used_at?: string | null; token?: string;
}
export interface AuditEntry {
  at: string; token: string | null; name: string | null; action: string; target: string | null; outcome: string; address: string | null;
}
export interface AttentionItem {
  code: string; severity: "error" | "warning" | "info"; since: string | null; queue: string | null; type: string | null;
  facts: Record<string, Json>; action: ServerAction | null;
}
export interface Group {
  id: string; code: string | null; shape: string; count: number; last_hour: number; first_at: string; last_at: string; types: string[]; queues: string[];
  example: string;
}
export interface CanaryJob { id: string; state: State | null; error_code: string | null }
export interface Canary { size: number; jobs: CanaryJob[]; ended: number; outcomes: Record<string, number>; continued_at: string | null }
export interface Operation {
  id: string; action: "requeue" | "cancel" | "delete" | "run_now"; filter: Record<string, string>; rate: number | null; dry_run: boolean;
  state: "running" | "waiting" | "stopped" | "done"; matched: number; counted: boolean; changed: number; refused: number; remaining: number;
  refusals: Record<string, number>; canary: Canary | null; created_at: string; updated_at: string; ended_at: string | null; next_at: string | null;
  undo_until: string | null; undo: null | { state: "running" | "done"; at: string; undone: number; kept: number };
}
