"""What the client adds to submissions: `before_submit` and trace context; and calls of operators."""

from __future__ import annotations

import threading
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from longshore import Client, Context, Fail, NewJob, SyncClient, Worker, chain, chord, graph, job, trace_jobs
from longshore.testing import TestServer, perform
from longshore.tracing import current_traceparent

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@job("plain")
async def plain(ctx: Context, payload: Any) -> None:
    return None


def tag(new: NewJob[Any]) -> NewJob[Any]:
    return new.with_options(tags={"team": "mail"})


def test_before_submit_sees_every_new_job(server: TestServer, name: str) -> None:
    @job("parent", queue=name)
    async def parent(ctx: Context, payload: None) -> None:
        await ctx.submit_children([plain.new(1, queue=name)], finally_=plain.new(2, queue=name))

    client = SyncClient(server.url, before_submit=tag)
    client.submit(plain, 0, queue=name)
    client.submit_many([plain.new(n, queue=name) for n in range(2)])
    first, second, third = (plain.new(n, queue=name) for n in range(3))
    client.submit_workflow(chain(first, chord(second, finally_=third)))
    client.submit_workflow(graph({"a": first, "b": plain.new(1, queue=name, after=["#a"])}))
    parent.submit(client, None)
    Worker(Client(server.url, before_submit=tag), [parent], queues=[name]).run(until_idle=True)
    traced = SyncClient(server.url, before_submit=lambda new: tag(new).with_options(traceparent=TRACE))
    traced.put_schedule(f"s-{name}", plain.new(0, queue=name), cron="@yearly")
    client.trigger_schedule(f"s-{name}")
    jobs = client.list_jobs(queue=name)
    assert len(jobs) == 12
    assert all(each["tags"] == {"team": "mail"} for each in jobs)
    assert len(client.list_jobs(queue=name, limit=5)) == 5


def test_traceparent_of_the_present_span() -> None:
    assert current_traceparent() is None
    client = Client("http://127.0.0.1:1")
    assert "traceparent" not in client.prepare_traced(plain.new(1)).to_wire()
    identity = trace.SpanContext(int(TRACE[3:35], 16), int(TRACE[36:52], 16), False, trace.TraceFlags(1))
    with trace.use_span(trace.NonRecordingSpan(identity)):
        assert client.prepare_traced(plain.new(1)).to_wire()["traceparent"] == TRACE
        given = plain.new(1, traceparent="00-1-2-00")
        assert client.prepare_traced(given).to_wire()["traceparent"] == "00-1-2-00"


def test_a_first_attempt_continues_the_trace_and_a_retry_links_to_it() -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    seen: list[Any] = []

    @job("traced", queue="mail")
    async def traced(ctx: Context, payload: None) -> Fail:
        seen.append((ctx.traceparent, current_traceparent()))
        return Fail.temporary("no", code="smtp")

    perform(traced, None, traceparent=TRACE, middleware=[trace_jobs])
    perform(traced, None, traceparent=TRACE, attempt=2, middleware=[trace_jobs])
    perform(traced, None, middleware=[trace_jobs])
    first, retry, alone = exporter.get_finished_spans()
    submission = int(TRACE[3:35], 16)
    assert first.context is not None
    assert retry.context is not None
    assert (first.name, first.kind, first.status.description) == ("process traced", trace.SpanKind.CONSUMER, "smtp")
    assert first.context.trace_id == submission
    assert first.parent is not None
    assert f"{first.parent.span_id:016x}" == TRACE[36:52]
    # The handler's own submissions continue the span of the run.
    assert seen[0] == (TRACE, f"00-{submission:032x}-{first.context.span_id:016x}-01")
    assert retry.parent is None
    assert retry.context.trace_id != submission
    assert [link.context.trace_id for link in retry.links] == [submission]
    assert (alone.parent, len(alone.links)) == (None, 0)


def test_calls_of_operators(server: TestServer, client: SyncClient, name: str) -> None:
    handle = plain.submit(client, 1, queue=name)
    client.pause_queue(name)
    assert client.why(handle.id)["reasons"][0]["code"] == "queue_paused"
    client.resume_queue(name)
    later = plain.submit(client, 2, queue=name, delay="1d")
    client.run_now(later.id)
    dead = plain.submit(client, 3, queue=name)
    assert client.dead_letter(dead.id, reason="by hand")["state"] == "dead_letter"
    Worker(Client(server.url), [plain], queues=[name], name=f"w-{name}").run(until_idle=True)
    assert [each["outcome"] for each in client.attempts(handle.id)] == ["completed"]
    assert client.history(later.id)[-1]["to"] == "completed"
    assert f"w-{name}" in [each["name"] for each in client.list_workers()]
    assert client.direct_worker(f"w-{name}", "quiet")["name"] == f"w-{name}"
    assert client.inputs(handle.id)["inputs"] == []
    flow = client.submit_workflow(chain(plain.new(1, queue=name)))
    assert client.cancel_workflow(flow.id)


def test_events_without_an_event_loop(client: SyncClient, name: str) -> None:
    """The stream opens with the first `next`: submissions go on until one of them is seen."""
    is_seen = threading.Event()

    def submit() -> None:
        while not is_seen.wait(0.05):
            plain.submit(client, 1, queue=name)

    thread = threading.Thread(target=submit, daemon=True)
    client.put_queue(name)
    stream = client.events(queue=name, state="scheduled")
    thread.start()
    event = next(stream)
    is_seen.set()
    assert (event.kind, event.data["queue"], event.data["to"]) == ("job", name, "scheduled")
    stream.close()
    thread.join(10)
