"""The worker against the real server: handlers, outcomes, batches, middleware."""

from __future__ import annotations

import asyncio
import logging
import threading
from dataclasses import dataclass
from typing import Any, Optional

import pytest

from longshore import (
    Client,
    ConfigurationError,
    Context,
    Done,
    Fail,
    Item,
    JobType,
    Outcome,
    Refused,
    Release,
    Report,
    Snooze,
    SyncClient,
    Worker,
    batch_job,
    job,
)
from longshore.testing import TestServer


@dataclass
class Number:
    n: int


def run_until_idle(server: TestServer, name: str, *jobs: JobType[Any, Any], **options: Any) -> Report:
    return Worker(Client(server.url), jobs, queues=[name], **options).run(until_idle=True)


def test_async_and_plain_handlers(server: TestServer, client: SyncClient, name: str) -> None:
    threads: set[str] = set()

    @job("async")
    async def on_loop(ctx: Context, number: Number) -> int:
        threads.add(threading.current_thread().name)
        return number.n + 1

    @job("plain")
    def in_thread(ctx: Context, number: Number) -> int:
        threads.add(threading.current_thread().name)
        # Coroutines run on the loop of the worker.
        return int(ctx.run(ctx.client.get(ctx.id))["attempt"]) + number.n

    handles = [on_loop.submit(client, Number(1), queue=name), in_thread.submit(client, Number(5), queue=name)]
    report = run_until_idle(server, name, on_loop, in_thread)
    assert [handle.wait(5) for handle in handles] == [2, 6]
    assert threads == {"MainThread", "longshore-handler"}
    assert (report.completed, report.handled) == (2, {"async": 1, "plain": 1})


@pytest.mark.parametrize(
    ("returned", "state", "code"),
    [
        (Fail.temporary("busy", code="busy"), "retrying", "busy"),
        (Fail.permanent("no_address", "unknown address"), "dead_letter", "no_address"),
        (ValueError("bad luck"), "retrying", "ValueError"),
        (SystemExit(3), "retrying", "SystemExit"),
        (Snooze(hours=1), "delayed", None),
        ({"not", object()}, "dead_letter", "bad_result"),
        ("x" * 1_100_000, "dead_letter", "bad_result"),
    ],
)
def test_outcomes(
    server: TestServer, client: SyncClient, name: str, returned: Any, state: str, code: Optional[str]
) -> None:
    @job("outcome")
    async def handler(ctx: Context, payload: None) -> Any:
        if isinstance(returned, BaseException):
            raise returned
        return returned

    other = client.submit("outcome.other", None, queue=name)

    @job("outcome.other")
    async def ok(ctx: Context, payload: None) -> None:
        return None

    handle = handler.submit(client, None, queue=name)
    run_until_idle(server, name, handler, ok)
    record = handle.get()
    assert record["state"] in ({state} if state != "dead_letter" else {"dead_letter", "failed"})
    assert (record["error"] or {}).get("code") == code
    if isinstance(returned, ValueError):
        assert record["error"]["message"] == "ValueError: bad luck"
    if isinstance(returned, SystemExit):
        assert record["error"]["category"] == "system"
    assert other.get()["state"] == "completed"


def test_release_counts_no_attempt(server: TestServer, client: SyncClient, name: str) -> None:
    runs = []

    @job("release")
    async def handler(ctx: Context, payload: None) -> int | Release:
        runs.append(ctx.lease_version)
        return Release() if len(runs) == 1 else ctx.attempt

    handle = handler.submit(client, None, queue=name)
    report = run_until_idle(server, name, handler)
    assert handle.wait(5) == 1
    assert runs == [1, 2]
    assert (report.released, report.completed) == (1, 1)


def test_classify_decides_about_exceptions(server: TestServer, client: SyncClient, name: str) -> None:
    @job("classify")
    async def handler(ctx: Context, payload: None) -> None:
        raise KeyError("missing")

    def classify(error: BaseException) -> Outcome | None:
        return Fail.permanent("no_such_key") if isinstance(error, KeyError) else None

    handle = handler.submit(client, None, queue=name)
    run_until_idle(server, name, handler, classify=classify)
    assert handle.get()["error"]["code"] == "no_such_key"


def test_middleware_surrounds_the_handler(server: TestServer, client: SyncClient, name: str) -> None:
    events: list[str] = []

    async def outer(ctx: Context, call: Any) -> Outcome:
        events.append(f"before {ctx.type}")
        outcome: Outcome = await call()
        events.append(f"after {outcome}")
        return outcome

    async def inner(ctx: Context, call: Any) -> Outcome:
        await call()
        return Done("replaced")

    @job("wrapped")
    async def handler(ctx: Context, payload: None) -> str:
        events.append(f"handler {ctx.state}")
        return "own"

    handle = handler.submit(client, None, queue=name)
    run_until_idle(server, name, handler, middleware=[outer, inner], state="shared")
    assert handle.wait(5) == "replaced"
    assert events == ["before wrapped", "handler shared", "after Done(result='replaced')"]


def test_batch_handler(server: TestServer, client: SyncClient, name: str) -> None:
    sizes: list[int] = []

    @batch_job("index", size=4, wait="100ms")
    async def index(items: list[Item[Number]]) -> list[int | Fail | Exception]:
        sizes.append(len(items))
        values: list[int | Fail | Exception] = []
        for item in items:
            if item.payload.n == 3:
                values.append(Fail.permanent("three"))
            elif item.payload.n == 5:
                values.append(ValueError("five"))
            else:
                values.append(item.payload.n)
        return values

    handles = client.submit_many([index.new(Number(n), queue=name) for n in range(10)])
    broken = client.submit("index", {"n": "x"}, queue=name)
    report = run_until_idle(server, name, index)
    assert (report.completed, report.failed) == (8, 3)
    assert sum(sizes) == 10
    assert max(sizes) == 4
    assert handles[7].wait(5) == 7
    assert [handles[n].get()["error"]["code"] for n in (3, 5)] == ["three", "ValueError"]
    assert broken.get()["error"]["code"] == "bad_payload"


def test_batch_of_the_wrong_length_fails_all(server: TestServer, client: SyncClient, name: str) -> None:
    @batch_job("short", size=2, wait=0.05)
    async def short(items: list[Item[Number]]) -> list[int]:
        return [1]

    handles = client.submit_many([short.new(Number(n), queue=name) for n in range(2)])
    run_until_idle(server, name, short)
    assert all("returned 1 values for 2 jobs" in handle.get()["error"]["message"] for handle in handles)


def test_steps_run_once_over_attempts(server: TestServer, client: SyncClient, name: str) -> None:
    calls: list[str] = []

    def compute(value: Optional[int]) -> Optional[int]:
        calls.append(f"compute {value}")
        return value

    @job("steps")
    async def handler(ctx: Context, payload: None) -> Any:
        first = await ctx.step("none", compute, None)
        second = await ctx.step("zero", compute, 0)
        if len(calls) == 2:
            calls.append("fail")
            return Fail.temporary(retry_after=0)
        return [first, second]

    handle = handler.submit(client, None, queue=name)
    run_until_idle(server, name, handler)
    for _ in range(50):
        if handle.get()["state"] != "completed":
            run_until_idle(server, name, handler)
    assert handle.wait(5) == [None, 0]
    assert calls == ["compute None", "compute 0", "fail"]


def test_steps_side_by_side_are_all_stored(server: TestServer, client: SyncClient, name: str) -> None:
    @job("side")
    async def handler(ctx: Context, payload: None) -> list[str]:
        async def part(text: str) -> str:
            return text

        return list(await asyncio.gather(*(ctx.step(each, part, each) for each in "abc")))

    handle = handler.submit(client, None, queue=name)
    run_until_idle(server, name, handler)
    assert handle.wait(5) == ["a", "b", "c"]
    assert handle.get()["checkpoint"] == {"$steps": {"a": "a", "b": "b", "c": "c"}}


def test_checkpoint_before_a_failure_is_stored(server: TestServer, client: SyncClient, name: str) -> None:
    @job("checkpoint")
    async def handler(ctx: Context, payload: None) -> None:
        ctx.set_checkpoint({"row": 7})
        raise ValueError("stop")

    handle = handler.submit(client, None, queue=name)
    run_until_idle(server, name, handler)
    assert handle.get()["checkpoint"] == {"row": 7}


def test_cancelled_error_of_the_handler_itself_is_a_failure(server: TestServer, client: SyncClient, name: str) -> None:
    @job("own")
    async def handler(ctx: Context, payload: None) -> None:
        raise asyncio.CancelledError

    handle = handler.submit(client, None, queue=name)
    run_until_idle(server, name, handler)
    record = handle.get()
    assert (record["state"], record["error"]["code"]) == ("retrying", "CancelledError")


def test_children(server: TestServer, client: SyncClient, name: str) -> None:
    @job("child")
    async def child(ctx: Context, n: int) -> int:
        return n

    @job("parent")
    async def parent(ctx: Context, payload: None) -> int:
        answer = await ctx.submit_children(
            [child.new(n, queue=name) for n in range(3)], finally_=child.new(9, queue=name)
        )
        return len(answer["jobs"])

    handle = parent.submit(client, None, queue=name)
    report = run_until_idle(server, name, parent, child)
    assert handle.wait(5) == 3
    assert report.handled == {"parent": 1, "child": 4}


def test_worker_beside_an_application(server: TestServer, name: str) -> None:
    @job("beside", queue=name)
    async def handler(ctx: Context, n: int) -> int:
        return n * 2

    async def application() -> int:
        client = Client(server.url)
        async with Worker(client, [handler]):
            handle = await handler.submit(client, 21)
            return await handle.wait(10)

    assert asyncio.run(application()) == 42


def test_cancelled_application_releases_its_jobs(server: TestServer, client: SyncClient, name: str) -> None:
    started = asyncio.Event()

    @job("interrupted", queue=name)
    async def handler(ctx: Context, payload: None) -> None:
        started.set()
        await asyncio.sleep(60)

    async def application() -> None:
        worker = asyncio.create_task(Worker(Client(server.url), [handler]).serve())
        await started.wait()
        worker.cancel()
        with pytest.raises(asyncio.CancelledError):
            await worker
        with pytest.raises(ConfigurationError, match="serve"):
            Worker(Client(server.url), [handler]).run()

    handle = handler.submit(client, None)
    asyncio.run(application())
    record = handle.get()
    assert (record["state"], record["counters"]["starts"]) == ("scheduled", 0)


def test_one_client_on_two_event_loops(server: TestServer, client: SyncClient, name: str) -> None:
    """The worker has a loop of its own, and the application goes on with the same client."""

    @job("shared", queue=name)
    async def handler(ctx: Context, n: int) -> int:
        return int((await ctx.client.get(ctx.id))["attempt"]) + n

    worker = Worker(client, [handler])
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    handles = [handler.submit(client, n) for n in range(50)]
    assert [handle.wait(20) for handle in handles] == list(range(1, 51))
    worker.drain()
    thread.join(20)
    assert not thread.is_alive()


def test_wrong_queue_ends_the_start(server: TestServer, caplog: pytest.LogCaptureFixture) -> None:
    @job("x")
    async def handler(ctx: Context, payload: None) -> None:
        return None

    with pytest.raises(Refused, match="validation"):
        Worker(Client(server.url), [handler], queues=["no such name"]).run(until_idle=True)

    async def application() -> None:
        async with Worker(Client(server.url), [handler], queues=["no such name"]) as worker:
            assert worker._task is not None
            await asyncio.wait({worker._task}, timeout=20)

    with caplog.at_level(logging.ERROR, "longshore.worker"), pytest.raises(Refused):
        asyncio.run(application())
    assert "failed: validation" in caplog.text


def test_ten_thousand_jobs_once(server: TestServer, client: SyncClient, name: str) -> None:
    seen: list[int] = []

    @job("count")
    async def count(ctx: Context, n: int) -> None:
        seen.append(n)

    client.submit_many([count.new(n, queue=name) for n in range(10_000)])
    report = run_until_idle(server, name, count, slots=64)
    assert sorted(seen) == list(range(10_000))
    assert (report.completed, report.lost) == (10_000, 0)
