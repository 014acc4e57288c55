import type { Outcome } from "./outcome.js";
import type { JobContext } from "./worker/context.js";
import type { Middleware } from "./worker/handlers.js";

/** Identity of a span, as OpenTelemetry has it. */
export interface SpanIdentity {
  traceId: string;
  spanId: string;
  traceFlags: number;
}

interface ActiveSpan {
  spanContext(): SpanIdentity;
}

/** What the packages of OpenTelemetry share in a process, as far as it is read here. */
interface SharedApi {
  context?: { active?: () => { getValue(key: symbol): unknown } };
}

const SHARED_API = Symbol.for("opentelemetry.js.api.1");
const SPAN_KEY = Symbol.for("OpenTelemetry Context Key SPAN");

/** Returns the W3C `traceparent` of OpenTelemetry's active span; undefined without one. */
export function currentTraceparent(): string | undefined {
  const api = (globalThis as Record<symbol, unknown>)[SHARED_API] as SharedApi | undefined;
  const span = api?.context?.active?.().getValue(SPAN_KEY) as ActiveSpan | undefined;
  const identity = span?.spanContext();
  if (identity === undefined || /^0*$/.test(identity.traceId) || /^0*$/.test(identity.spanId)) return undefined;
  const flags = (identity.traceFlags & 0xff).toString(16).padStart(2, "0");
  return `00-${identity.traceId}-${identity.spanId}-${flags}`;
}

/** The part of the module `@opentelemetry/api` that `traceJobs` uses. */
export interface TracingApi {
  readonly ROOT_CONTEXT: unknown;
  readonly trace: {
    getTracer(name: string): { startSpan(name: string, options: object, context: any): TracedSpan };
    setSpan(context: any, span: any): unknown;
    setSpanContext(context: any, identity: any): unknown;
  };
  readonly context: { with<T>(context: any, work: () => T): T };
}

/** A span of one run. */
export interface TracedSpan {
  setStatus(status: { code: number; message?: string }): unknown;
  end(): void;
}

const KIND_CONSUMER = 4;
const STATUS_ERROR = 2;

/**
 * Middleware that runs each handler in a span: `worker.use(traceJobs(await import("@opentelemetry/api")))`.
 * The span of a first attempt is a child of the submission's. A retry may come much later: its span
 * begins a new trace, with a link to the submission's.
 */
export function traceJobs(api: TracingApi): Middleware<any> {
  return async (ctx, next) => {
    const submission = identityOf(ctx.traceparent);
    const isRetry = ctx.previousAttemptId !== undefined;
    const isChild = submission !== undefined && !isRetry;
    const parent = isChild ? api.trace.setSpanContext(api.ROOT_CONTEXT, submission) : api.ROOT_CONTEXT;
    const links = submission !== undefined && isRetry ? [{ context: submission }] : [];
    const options = { kind: KIND_CONSUMER, links, root: !isChild, attributes: attributesOf(ctx) };
    const span = api.trace.getTracer("longshore").startSpan(`process ${ctx.type}`, options, parent);
    try {
      const outcome: Outcome = await api.context.with(api.trace.setSpan(parent, span), next);
      if (outcome.kind === "fail") {
        span.setStatus({ code: STATUS_ERROR, message: outcome.error.code ?? outcome.error.category });
      }
      return outcome;
    } finally {
      span.end();
    }
  };
}

function attributesOf(ctx: JobContext<any>): Record<string, string | number> {
  return {
    "messaging.system": "longshore",
    "messaging.operation.type": "process",
    "messaging.destination.name": ctx.queue,
    "messaging.message.id": ctx.id,
    "longshore.job.type": ctx.type,
    "longshore.job.attempt": ctx.attempt,
  };
}

function identityOf(traceparent: string | undefined): (SpanIdentity & { isRemote: true }) | undefined {
  const [, traceId, spanId, flags] = traceparent?.split("-") ?? [];
  if (traceId === undefined || spanId === undefined || flags === undefined) return undefined;
  return { traceId, spanId, traceFlags: Number.parseInt(flags, 16), isRemote: true };
}
