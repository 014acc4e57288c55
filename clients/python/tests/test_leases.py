"""Leases, deadlines, cancellation, outages and the end of a worker."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from recording import Recorder

from longshore import CancelReason, Client, Context, Fail, JobType, Report, StuckHandlers, SyncClient, Worker, job
from longshore.testing import TestServer
from longshore.worker.held import HeldState
from longshore.worker.signals import release_from_thread


def wait_for(what: str, condition: Callable[[], Any], seconds: float = 20.0) -> Any:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.01)
    raise AssertionError(f"{what}: not within {seconds} s")


class WorkerThread:
    """A worker in a thread of its own."""

    def __init__(self, url: str, name: str, *jobs: JobType[Any, Any], **options: Any) -> None:
        self.worker = Worker(Client(url), jobs, queues=[name], name=f"worker-{name}", **options)
        self.report: Report | None = None
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self) -> None:
        try:
            self.report = self.worker.run()
        except StuckHandlers as error:
            self.report = error.report

    def end(self, seconds: float = 20.0) -> Report:
        self.worker.drain()
        return self.join(seconds)

    def join(self, seconds: float = 20.0) -> Report:
        self.thread.join(seconds)
        assert not self.thread.is_alive(), "the worker did not end"
        assert self.report is not None
        return self.report


@pytest.fixture
def recorder(server: TestServer) -> Iterator[Recorder]:
    recorder = Recorder(server.url)
    yield recorder
    recorder.close()


@job("sleep")
async def sleep(ctx: Context, seconds: float) -> str | Fail:
    if await ctx.cancelled.sleep(seconds):
        return Fail.temporary(f"stopped: {ctx.cancelled.reason}")
    return "slept"


@job("block")
async def block(ctx: Context, seconds: float) -> int:
    time.sleep(seconds)  # noqa: ASYNC251 (this is the case)
    return ctx.attempt


def test_long_handlers_keep_their_leases(recorder: Recorder, client: SyncClient, name: str) -> None:
    jobs = client.submit_many([sleep.new(2.0, queue=name, lease="1500ms") for _ in range(3)])
    worker = WorkerThread(recorder.url, name, sleep)
    assert [handle.wait(20) for handle in jobs] == ["slept"] * 3
    worker.end()
    assert all(handle.get()["counters"]["reclaims"] == 0 for handle in jobs)
    assert recorder.of("/v1/heartbeats")


def test_blocked_loop_keeps_its_lease(
    server: TestServer, client: SyncClient, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    handle = block.submit(client, 2.5, queue=name, lease="1s")
    with caplog.at_level(logging.WARNING, "longshore.worker"):
        worker = WorkerThread(server.url, name, block, lag_warning="500ms")
        assert handle.wait(20) == 1
        worker.end()
    assert handle.get()["counters"]["reclaims"] == 0
    warnings = [record.getMessage() for record in caplog.records if "blocked" in record.getMessage()]
    assert len(warnings) == 1
    assert f"by handler block of job {handle.id} at {__file__}" in warnings[0]


def test_cancel_request_fires_the_token(server: TestServer, client: SyncClient, name: str) -> None:
    handle = sleep.submit(client, 60.0, queue=name, lease="600ms")
    worker = WorkerThread(server.url, name, sleep)
    wait_for("start", lambda: handle.get()["state"] == "running")
    handle.cancel()
    assert client.wait(handle.id, 20)["state"] == "cancelled"
    worker.end()


def test_handler_that_ignores_its_token_is_interrupted(server: TestServer, client: SyncClient, name: str) -> None:
    ended: list[str] = []

    @job("deaf")
    async def deaf(ctx: Context, payload: None) -> None:
        try:
            async with ctx.shield():
                await asyncio.sleep(0.3)
                ended.append("shielded")
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ended.append(f"interrupted: {ctx.cancelled.reason}")
            raise

    handle = deaf.submit(client, None, queue=name, execution_timeout="1s", retry={"limit": 1})
    worker = WorkerThread(server.url, name, deaf)
    record = client.wait(handle.id, 20)
    worker.end()
    assert record["error"]["category"] == "timeout"
    assert ended == ["shielded", "interrupted: deadline"]


def test_deadline_fires_the_token(server: TestServer, client: SyncClient, name: str) -> None:
    remaining: list[float] = []

    @job("deadline")
    async def deadline(ctx: Context, payload: None) -> Fail:
        assert ctx.remaining is not None
        remaining.append(ctx.remaining)
        assert await ctx.cancelled.wait() is CancelReason.DEADLINE
        return Fail.temporary("no time")

    handle = deadline.submit(client, None, queue=name, execution_timeout="2s", retry={"limit": 1})
    worker = WorkerThread(server.url, name, deadline)
    record = client.wait(handle.id, 20)
    report = worker.end()
    assert (record["error"]["category"], record["error"]["code"]) == ("timeout", "execution_timeout")
    assert 0 < remaining[0] <= 1.8
    # On a busy machine the settlement may come too late. The server has then ended the attempt itself.
    assert report.failed + report.lost == 1


def test_stuck_handler_frees_its_slot(server: TestServer, client: SyncClient, name: str) -> None:
    stop = threading.Event()

    @job("stuck")
    def stuck(ctx: Context, payload: None) -> None:
        stop.wait(60)

    handle = stuck.submit(client, None, queue=name, execution_timeout="500ms", retry={"limit": 1})
    worker = WorkerThread(server.url, name, stuck, sleep, slots=1, stuck_grace="300ms", stuck_limit=2)
    assert client.wait(handle.id, 20)["error"]["category"] == "timeout"
    assert sleep.submit(client, 0.0, queue=name).wait(20) == "slept"
    stuck.submit(client, None, queue=name, execution_timeout="500ms", retry={"limit": 1})
    # The second stuck handler ends the worker.
    report = worker.join()
    stop.set()
    assert (report.abandoned, report.completed) == (2, 1)


def test_lease_is_lost_in_an_outage(recorder: Recorder, client: SyncClient, name: str) -> None:
    reasons: list[Any] = []

    @job("outage")
    async def outage(ctx: Context, payload: None) -> None:
        reasons.append(await ctx.cancelled.wait())

    handle = outage.submit(client, None, queue=name, lease="1s")
    worker = WorkerThread(recorder.url, name, outage)
    wait_for("start", lambda: handle.get()["state"] == "running")
    recorder.is_down = True
    wait_for("lost lease", lambda: reasons)
    assert reasons == [CancelReason.LEASE_LOST]
    recorder.is_down = False
    # The worker comes back by itself.
    assert sleep.type == "sleep"
    wait_for("second run", lambda: len(reasons) == 1 and handle.get()["lease"] and handle.get()["attempt"] == 2)
    handle.cancel(force=True)
    wait_for("second loss", lambda: len(reasons) == 2)
    report = worker.end()
    assert report.lost == 2


def test_outcome_survives_an_outage(recorder: Recorder, client: SyncClient, name: str) -> None:
    gate = threading.Event()

    @job("finish")
    def finish(ctx: Context, payload: None) -> str:
        gate.wait(20)
        return "done"

    handle = finish.submit(client, None, queue=name, lease="10s")
    worker = WorkerThread(recorder.url, name, finish)
    wait_for("start", lambda: handle.get()["state"] == "running")
    recorder.is_down = True
    gate.set()
    time.sleep(0.3)
    recorder.is_down = False
    assert handle.wait(20) == "done"
    assert worker.end().completed == 1


def test_drain_finishes_cancels_and_releases(server: TestServer, client: SyncClient, name: str) -> None:
    short = client.submit_many([sleep.new(0.5, queue=name) for _ in range(5)])
    long = client.submit_many([sleep.new(60.0, queue=name) for _ in range(5)])
    worker = WorkerThread(server.url, name, sleep, slots=10, grace=2.0)
    wait_for("ten handlers", lambda: client.get_queue(name)["counts"]["running"] == 10)
    started = time.monotonic()
    report = worker.end()
    assert time.monotonic() - started < 10.0
    assert (report.completed, report.released, report.failed) == (5, 5, 0)
    assert {handle.get()["state"] for handle in short} == {"completed"}
    for handle in long:
        record = handle.get()
        assert (record["state"], record["counters"]["starts"]) == ("scheduled", 0)


def test_waiting_claim_ends_at_once(server: TestServer, name: str) -> None:
    worker = WorkerThread(server.url, name, sleep)
    client = SyncClient(server.url)
    wait_for("parked claim", lambda: any(each["name"] == worker.worker.name for each in workers_of(client)))
    started = time.monotonic()
    worker.end()
    assert time.monotonic() - started < 1.0


def workers_of(client: SyncClient) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.request("GET", "/v1/workers")["workers"]
    return found


def test_server_without_settlements_in_claims(recorder: Recorder, client: SyncClient, name: str) -> None:
    """Whatever the server supports, each job is settled once."""
    client.submit_many([sleep.new(0.0, queue=name) for _ in range(200)])
    report = Worker(Client(recorder.url), [sleep], queues=[name], slots=8).run(until_idle=True)
    assert report.completed == 200
    carried = sum(len(body.get("settle", [])) for _, body in recorder.of("/v1/claims"))
    sent = sum(len(body["settlements"]) for _, body in recorder.of("/v1/settlements"))
    assert carried + sent >= 200


def test_settlements_travel_with_claims(recorder: Recorder, client: SyncClient, name: str) -> None:
    recorder.directive = "run"
    client.submit_many([sleep.new(0.0, queue=name) for _ in range(200)])
    report = Worker(Client(recorder.url), [sleep], queues=[name], slots=8).run(until_idle=True)
    assert report.completed == 200
    assert sum(len(body.get("settle", [])) for _, body in recorder.of("/v1/claims")) == 200
    assert recorder.of("/v1/settlements") == []


def test_directives_of_the_server(recorder: Recorder, client: SyncClient, name: str) -> None:
    recorder.directive = "run"
    running = sleep.submit(client, 60.0, queue=name, lease="600ms")
    worker = WorkerThread(recorder.url, name, sleep, wait=1, grace=2)
    wait_for("start", lambda: running.get()["state"] == "running")
    recorder.directive = "quiet"
    wait_for(
        "quiet claims", lambda: len(recorder.of("/v1/claims")) and worker.worker._run and worker.worker._run._is_quiet
    )
    assert running.get()["state"] == "running"
    recorder.directive = "run"
    assert sleep.submit(client, 0.0, queue=name).wait(20) == "slept"
    recorder.directive = "stop"
    report = worker.join()
    assert (report.completed, report.released) == (1, 1)


def test_progress_and_checkpoint_ride_on_heartbeats(server: TestServer, client: SyncClient, name: str) -> None:
    @job("ride")
    async def ride(ctx: Context, payload: None) -> None:
        ctx.progress({"percent": 50})
        ctx.set_checkpoint({"row": 7})
        await ctx.cancelled.wait()

    handle = ride.submit(client, None, queue=name, lease="900ms")
    worker = WorkerThread(server.url, name, ride)
    wait_for("progress", lambda: handle.get()["progress"] == {"percent": 50})
    assert handle.get()["checkpoint"] == {"row": 7}
    handle.cancel()
    client.wait(handle.id, 20)
    worker.end()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes")
def test_first_signal_drains(server: TestServer, client: SyncClient, name: str) -> None:
    """In this process: the handlers of signals are those from before afterwards."""
    before = signal.getsignal(signal.SIGTERM)
    handle = sleep.submit(client, 1.0, queue=name)

    def send() -> None:
        wait_for("start", lambda: handle.get()["state"] == "running")
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=send).start()
    report = Worker(Client(server.url), [sleep], queues=[name]).run()
    assert (report.completed, report.released) == (1, 0)
    assert signal.getsignal(signal.SIGTERM) is before


def test_blocked_loop_is_released_by_the_second_signal(server: TestServer, client: SyncClient, name: str) -> None:
    """The watchdog releases the job without the event loop."""
    handle = block.submit(client, 2.5, queue=name)
    worker = WorkerThread(server.url, name, block)
    wait_for("start", lambda: [held for held in worker.worker._held() if held.state is HeldState.RUNNING])
    worker.worker.drain()
    assert release_from_thread(worker.worker.client.address, worker.worker._held()) == 1
    record = handle.get()
    assert (record["state"], record["counters"]["starts"]) == ("scheduled", 0)
    assert worker.join().lost == 1
