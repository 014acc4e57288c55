/** Whether a failed request may be sent again; the server's word, or the client's for lost answers. */
export type RetryAdvice = "never" | "safe" | "unknown";

/** One member of a batch that was refused. */
export interface MemberError {
  index: number;
  code: string;
  detail: string;
}

/** A problem document of the server (`application/problem+json`). */
export interface Problem {
  status: number;
  code: string;
  title?: string;
  detail?: string;
  retry?: RetryAdvice;
  field?: string;
  allowed?: string[];
  errors?: MemberError[];
  request_id?: string;
}

/** Base of all errors of this package. */
export class LongshoreError extends Error {
  override name = "LongshoreError";
}

/** A request that failed. `retry` says whether the same request may be sent again. */
export class RequestError extends LongshoreError {
  override name = "RequestError";

  constructor(
    message: string,
    readonly retry: RetryAdvice,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

/** No answer: the connection failed, or ended before the answer. */
export class ConnectionError extends RequestError {
  override name = "ConnectionError";
}

/** The server refused a request. */
export class ProblemError extends RequestError {
  override name = "ProblemError";
  /** Stable code, such as `queue_full`. */
  readonly code: string;
  readonly status: number;
  /** Path of the field at fault. */
  readonly field: string | undefined;
  /** Values of a closed set. */
  readonly allowed: string[] | undefined;
  readonly errors: MemberError[] | undefined;
  readonly requestId: string | undefined;

  constructor(
    problem: Problem,
    /** Wait of the header `Retry-After`, in milliseconds. */
    readonly retryAfterMs: number | undefined,
  ) {
    super(`${problem.code}: ${problem.detail ?? problem.title ?? "request refused"}`, problem.retry ?? "never");
    this.code = problem.code;
    this.status = problem.status;
    this.field = problem.field;
    this.allowed = problem.allowed;
    this.errors = problem.errors;
    this.requestId = problem.request_id;
  }
}

/** One fault that a schema found. */
export interface PayloadIssue {
  message: string;
  path?: readonly PropertyKey[];
}

/** A payload that its schema refuses. */
export class PayloadError extends LongshoreError {
  override name = "PayloadError";

  constructor(
    type: string,
    readonly issues: readonly PayloadIssue[],
  ) {
    super(`invalid payload of ${type}: ${issues.map(describeIssue).join("; ")}`);
  }
}

function describeIssue(issue: PayloadIssue): string {
  const path = issue.path?.map(String).join(".");
  return path ? `${path}: ${issue.message}` : issue.message;
}

/** A job that ended without completing. */
export class JobEndedError extends LongshoreError {
  override name = "JobEndedError";

  constructor(
    readonly jobId: string,
    readonly state: string,
    /** Category of the last failure. */
    readonly category: string | undefined,
    /** Code of the last failure. */
    readonly code: string | undefined,
    detail: string | undefined,
  ) {
    super(`job ${jobId} ended as ${state}: ${detail || code || "no error was recorded"}`);
  }
}

/** A wait that ended before the job did. */
export class WaitTimeoutError extends LongshoreError {
  override name = "WaitTimeoutError";

  constructor(
    readonly jobId: string,
    readonly state: string,
  ) {
    super(`job ${jobId} has not ended in time: it is ${state} (wait again, or pass a longer timeout)`);
  }
}

/** Handlers that ignored their abort signal; `Worker.run` rejects with it at `maxStuck`. */
export class StuckHandlersError extends LongshoreError {
  override name = "StuckHandlersError";

  constructor(readonly types: readonly string[]) {
    super(`${types.length} handlers did not stop after their signal: ${types.join(", ")} (pass ctx.signal on)`);
  }
}
