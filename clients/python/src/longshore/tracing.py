"""W3C trace context of submissions and runs, through OpenTelemetry's API if the application uses it."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from .outcomes import Fail, Outcome

if TYPE_CHECKING:
    from .context import Context


def current_traceparent() -> str | None:
    """Returns the `traceparent` of the current span, or None without OpenTelemetry or without a span."""
    # An application that has a span has imported the API.
    api: Any = sys.modules.get("opentelemetry.trace")
    if api is None:
        return None
    span = api.get_current_span().get_span_context()
    if not span.is_valid:
        return None
    return f"00-{span.trace_id:032x}-{span.span_id:016x}-{int(span.trace_flags):02x}"


async def trace_jobs(ctx: Context, call: Callable[[], Awaitable[Outcome]]) -> Outcome:
    """Middleware: runs each handler in a span of OpenTelemetry, `process TYPE`.

    The span of a first attempt is a child of the submission's. A retry may come much later: its span
    begins a new trace, with a link to the submission's.
    """
    from opentelemetry import context, trace

    parent = _span_context(trace, ctx.traceparent)
    links = [trace.Link(parent)] if parent is not None and ctx.previous_attempt_id else []
    base = context.Context()
    if parent is not None and not links:
        base = trace.set_span_in_context(trace.NonRecordingSpan(parent), base)
    attributes: dict[str, str | int] = {
        "messaging.system": "longshore",
        "messaging.operation.type": "process",
        "messaging.destination.name": ctx.queue,
        "messaging.message.id": ctx.id,
        "longshore.job.type": ctx.type,
        "longshore.job.attempt": ctx.attempt,
    }
    tracer = trace.get_tracer("longshore")
    with tracer.start_as_current_span(
        f"process {ctx.type}", context=base, kind=trace.SpanKind.CONSUMER, links=links, attributes=attributes
    ) as span:
        outcome = await call()
        if isinstance(outcome, Fail):
            span.set_status(trace.StatusCode.ERROR, outcome.code or outcome.category)
        return outcome


def _span_context(trace: Any, traceparent: str | None) -> Any:
    parts = (traceparent or "").split("-")
    if len(parts) < 4:
        return None
    flags = trace.TraceFlags(int(parts[3], 16))
    return trace.SpanContext(int(parts[1], 16), int(parts[2], 16), is_remote=True, trace_flags=flags)
