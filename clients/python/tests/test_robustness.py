"""What payloads, handlers and answers may do wrong: no slot, no lease and no other job is lost with it."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pydantic
import pytest
from recording import Recorder

from longshore import (
    Client,
    ConfigurationError,
    Context,
    Fail,
    Item,
    JobType,
    Outcome,
    Refused,
    Release,
    Report,
    Snooze,
    StuckHandlers,
    SyncClient,
    Unreachable,
    Worker,
    batch_job,
    job,
)
from longshore.testing import TestServer
from longshore.worker.batch import BatchCollector
from longshore.worker.held import HeldJob, HeldState


@job("ok")
async def ok(ctx: Context, payload: None) -> str:
    return "ok"


def run_until_idle(server: TestServer, name: str, *jobs: JobType[Any, Any], **options: Any) -> Report:
    return Worker(Client(server.url), jobs, queues=[name], **options).run(until_idle=True)


class Strict(pydantic.BaseModel):
    n: int

    @pydantic.field_validator("n")
    @classmethod
    def check(cls, value: int) -> int:
        return {1: 1}[value]


@dataclass
class Checked:
    n: int

    def __post_init__(self) -> None:
        {1: 1}[self.n]


@pytest.mark.parametrize(
    ("declared", "payload"),
    [(float, 10**400), (Strict, {"n": 7}), (Checked, {"n": 7}), (int, 10**4299 * 7)],
    ids=["overflow", "validator", "post_init", "large"],
)
def test_payload_whose_check_raises_is_bad(
    server: TestServer, client: SyncClient, name: str, declared: Any, payload: Any
) -> None:
    async def handler(ctx: Context, value: Any) -> int:
        return 1

    handler.__annotations__["value"] = declared
    bad = client.submit("bad", payload, queue=name)
    good = client.submit("ok", None, queue=name)
    report = run_until_idle(server, name, job("bad")(handler), ok, slots=1)
    record = bad.get()
    if declared is int:
        assert record["state"] == "completed"
    else:
        assert record["error"]["code"] == "bad_payload"
        assert "7" not in record["error"]["message"]
    assert good.get()["state"] == "completed"
    assert report.completed + report.failed == 2


def test_number_with_more_digits_than_python_converts(server: TestServer, client: SyncClient, name: str) -> None:
    digits = "7" * 5_000
    seen: list[Any] = []

    @job("any")
    async def anything(ctx: Context, payload: Any) -> None:
        seen.append(payload)

    @job("int")
    async def integer(ctx: Context, payload: int) -> None:
        raise AssertionError("not called")

    async def submit_raw(kind: str) -> None:
        body = f'{{"type":"{kind}","payload":{digits}}}'.encode()
        await client.client.transport.request("POST", f"/v1/queues/{name}/jobs", body, 10.0)
        await client.client.close()

    asyncio.run(submit_raw("any"))
    asyncio.run(submit_raw("int"))
    good = client.submit("ok", None, queue=name)
    run_until_idle(server, name, anything, integer, ok, slots=1)
    assert seen == [Decimal(digits)]
    assert good.get()["state"] == "completed"
    [refused] = client.list_jobs(queue=name, type="int")
    assert client.get(refused["id"])["error"]["code"] == "bad_payload"


class _Nameless(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


class _Unusual(BaseException):
    """Not an Exception, as those of test frameworks."""


@pytest.mark.parametrize(
    ("raised", "classify", "code"),
    [
        (ValueError("x"), lambda error: 1 / 0, "ValueError"),
        (ValueError("x"), lambda error: "permanent", "ValueError"),
        (_Nameless(), None, "_Nameless"),
        (_Unusual("x"), None, "_Unusual"),
        (OSError("no file \udcff"), None, "OSError"),
    ],
    ids=["classify raises", "classify returns text", "no text", "base exception", "surrogate"],
)
def test_error_whose_handling_fails_is_a_failure(
    server: TestServer, client: SyncClient, name: str, raised: BaseException, classify: Any, code: str
) -> None:
    @job("raise")
    async def handler(ctx: Context, payload: None) -> None:
        raise raised

    bad = handler.submit(client, None, queue=name)
    good = client.submit("ok", None, queue=name)
    run_until_idle(server, name, handler, ok, slots=1, classify=classify)
    record = bad.get()
    assert (record["state"], record["error"]["code"]) == ("retrying", code)
    assert good.get()["state"] == "completed"


def test_middleware_that_raises_fails_the_job(server: TestServer, client: SyncClient, name: str) -> None:
    async def broken(ctx: Context, call: Any) -> Outcome:
        raise LookupError("middleware")

    handle = ok.submit(client, None, queue=name)
    run_until_idle(server, name, ok, slots=1, middleware=[broken])
    assert handle.get()["error"]["code"] == "LookupError"


def test_outcome_with_wrong_parts_is_a_failure(server: TestServer, client: SyncClient, name: str) -> None:
    @job("odd")
    async def handler(ctx: Context, payload: None) -> Any:
        return Fail("temporary", 5)  # type: ignore[arg-type]

    handle = handler.submit(client, None, queue=name)
    good = ok.submit(client, None, queue=name)
    run_until_idle(server, name, handler, ok, slots=1)
    assert handle.get()["error"] is not None
    assert good.get()["state"] == "completed"


def test_answer_that_is_no_json_is_no_answer() -> None:
    """A proxy may answer 200 with a page of its own."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html>please log in</html>")

        def log_message(self, *_: Any) -> None:
            pass

    web = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=web.serve_forever, args=(0.02,), daemon=True).start()
    client = SyncClient(f"http://127.0.0.1:{web.server_address[1]}", timeout=0.5)
    with pytest.raises(Unreachable, match="not JSON"):
        client.get_queue("q")
    client.close()
    web.shutdown()
    web.server_close()


@pytest.mark.parametrize("outcome", [Snooze(seconds=0), Release()], ids=["snooze", "release"])
def test_outcome_that_the_profile_refuses_becomes_a_failure(
    server: TestServer, client: SyncClient, name: str, outcome: Any
) -> None:
    client.put_queue(name, profile="document")
    runs: list[int] = []

    @job("refused")
    async def handler(ctx: Context, payload: None) -> Any:
        runs.append(ctx.attempt)
        return outcome if len(runs) == 1 else "done"

    handle = handler.submit(client, None, queue=name)
    client.request("POST", f"/v1/jobs/{handle.id}/submit", {})
    report = run_until_idle(server, name, handler)
    assert (report.failed, report.lost) == (1, 0)
    assert handle.get()["error"]["code"] == "illegal_transition"


def test_lease_without_end_is_never_lost(server: TestServer, client: SyncClient, name: str) -> None:
    seen: list[float] = []

    @job("endless")
    async def handler(ctx: Context, payload: None) -> None:
        seen.append(ctx._held.expires_at())

    handle = handler.submit(client, None, queue=name, lease="0s")
    report = run_until_idle(server, name, handler)
    assert handle.get()["state"] == "completed"
    assert (seen, report.completed) == ([float("inf")], 1)


def test_batch_leaves_out_jobs_that_are_released() -> None:
    sizes: list[int] = []

    @batch_job("late", size=2, wait="10s")
    async def handler(items: list[Item[Any]]) -> None:
        sizes.append(len(items))

    def make_held(number: int) -> HeldJob:
        record = {"id": f"job{number}", "type": "late", "queue": "q", "lease": {"token": f"t{number}"}}
        held = HeldJob(record, handler, 0.0, 30.0)
        held.state = HeldState.RUNNING
        return held

    async def application() -> None:
        collector = BatchCollector(handler)
        released, kept = make_held(1), make_held(2)
        tasks = []
        for held in (released, kept):
            ctx = Context(held, Client("http://127.0.0.1:1"), None, None)
            tasks.append(asyncio.create_task(collector.handle(held, ctx, None)))
            if held is released:
                await asyncio.sleep(0)
                released.state = HeldState.SETTLING
        await tasks[1]
        tasks[0].cancel()

    asyncio.run(application())
    assert sizes == [1]


@pytest.mark.parametrize(
    ("outcome", "code"),
    [(SystemExit(3), "SystemExit"), (_Unusual("x"), "_Unusual"), ([StopIteration()], "RuntimeError"), (5, "TypeError")],
    ids=["exit", "base exception", "stop iteration", "no list"],
)
def test_batch_handler_that_goes_wrong_frees_its_slots(
    server: TestServer, client: SyncClient, name: str, outcome: Any, code: str
) -> None:
    @batch_job("wrong", size=1, wait=0)
    async def handler(items: list[Item[Any]]) -> Any:
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    handles = client.submit_many([handler.new(n, queue=name) for n in range(3)])
    report = run_until_idle(server, name, handler)
    assert report.failed == 3
    assert [handle.get()["error"]["code"] for handle in handles] == [code] * 3


def test_stuck_handlers_end_the_run_with_an_error(server: TestServer, client: SyncClient, name: str) -> None:
    stop = threading.Event()

    @job("stuck")
    def stuck(ctx: Context, payload: None) -> None:
        stop.wait(60)

    stuck.submit(client, None, queue=name, execution_timeout="300ms", retry={"limit": 1})
    worker = Worker(Client(server.url), [stuck], queues=[name], stuck_grace="100ms", stuck_limit=1)
    with pytest.raises(StuckHandlers, match="stuck") as caught:
        worker.run(signals=False)
    stop.set()
    assert caught.value.report.abandoned == 1
    assert caught.value.types == ["stuck"]


def test_claims_wait_while_outcomes_are_not_settled(server: TestServer, client: SyncClient, name: str) -> None:
    recorder = Recorder(server.url)
    recorder.refuses_settlements = True
    client.submit_many([ok.new(None, queue=name) for _ in range(400)])
    worker = Worker(Client(recorder.url), [ok], queues=[name], slots=4, unsettled_limit=100)
    thread = threading.Thread(target=worker.run, kwargs={"signals": False}, daemon=True)
    thread.start()
    assert recorder.refused.wait(20)
    for _ in range(4):
        recorder.refused.clear()
        assert recorder.refused.wait(20)
    claimed = 400 - client.get_queue(name)["counts"]["scheduled"]
    assert claimed <= 100 + 8
    recorder.refuses_settlements = False
    for handle in client.list_jobs(queue=name):
        client.wait(handle["id"], 20)
    worker.drain()
    thread.join(20)
    recorder.close()
    assert not thread.is_alive()


def test_answer_of_a_proxy_costs_no_outcome(server: TestServer, client: SyncClient, name: str) -> None:
    recorder = Recorder(server.url)
    recorder.strange = [b"{}", b"<html>", b'{"results":[]}', b'{"results":[],"jobs":[]}', b"[]"]
    handle = ok.submit(client, None, queue=name)
    report = Worker(Client(recorder.url), [ok], queues=[name]).run(signals=False, until_idle=True)
    recorder.close()
    handle.wait("20s")
    assert recorder.strange == []
    assert (report.completed, report.lost) == (1, 0)


def test_token_that_is_revoked_ends_the_worker(server: TestServer, name: str) -> None:
    recorder = Recorder(server.url)
    worker = Worker(Client(recorder.url), [ok], queues=[name], wait=0)
    errors: list[BaseException] = []

    def run() -> None:
        try:
            worker.run(signals=False)
        except Refused as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert recorder.claimed.wait(20)
    recorder.refusal = (401, {"code": "unauthorized", "retry": "never", "detail": "the token is revoked"})
    thread.join(20)
    recorder.close()
    assert [str(error) for error in errors] == ["unauthorized: the token is revoked"]


def test_too_many_types_for_one_claim() -> None:
    types: list[JobType[Any, Any]] = [JobType(f"t{number}", handler=ok.handler) for number in range(101)]
    with pytest.raises(ConfigurationError, match="101 types"):
        Worker(Client("http://127.0.0.1:1"), types)


def test_interrupt_during_the_last_checkpoint_frees_the_slot(server: TestServer, client: SyncClient, name: str) -> None:
    @job("late")
    async def handler(ctx: Context, payload: None) -> None:
        ctx.set_checkpoint(1)
        held = ctx._held
        asyncio.get_running_loop().call_soon(lambda: asyncio.get_running_loop().call_soon(held.force_stop))
        raise ValueError("failed")

    handle = handler.submit(client, None, queue=name)
    good = ok.submit(client, None, queue=name)
    run_until_idle(server, name, handler, ok, slots=1)
    assert handle.get()["error"]["code"] == "ValueError"
    assert good.get()["state"] == "completed"
