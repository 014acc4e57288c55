"""Tests with the real server and a virtual clock.

`TestQueue` starts the program `longshore` in memory. Its clock moves only by `advance`, so a test of
retries over days runs in milliseconds. The pytest fixture `queue` is a `TestQueue`, and the fixture
`async_queue` an `AsyncTestQueue` for tests with `async def`.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from .client import Client, Handle
from .codec import decode, to_json
from .durations import Duration, to_seconds, to_wire
from .errors import ConfigurationError, LongshoreError
from .jobs import JobType
from .operations import Record
from .outcomes import Outcome
from .sync import LoopThread, SyncClient, SyncHandle
from .worker.handling import HandlerRunner
from .worker.held import ABSENT, HeldJob
from .worker.options import Middleware
from .worker.report import Report
from .worker.worker import Worker

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .jobs import SubmitOptions

P = TypeVar("P")
R = TypeVar("R")
T = TypeVar("T")


def find_binary() -> str:
    """Returns the program: LONGSHORE_BIN, or `longshore` in PATH."""
    found = os.environ.get("LONGSHORE_BIN") or shutil.which("longshore")
    if not found:
        raise ConfigurationError(
            "the program longshore is not found (set LONGSHORE_BIN to its path, or add it to PATH)"
        )
    return found


class TestServer:
    """A server process on a free port."""

    __test__ = False

    def __init__(
        self, *, virtual_clock: bool = True, store: str = "memory:", port: int = 0, arguments: Sequence[str] = ()
    ) -> None:
        command = [find_binary(), "--json", "serve", "--listen", f"127.0.0.1:{port}", "--store", store]
        command += ["--log", "error", *(["--virtual-clock"] if virtual_clock else []), *arguments]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("LONGSHORE_")}
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise LongshoreError(f"the server did not start: exit code {self.process.wait()} ({' '.join(command)})")
        self.url: str = json.loads(line)["url"]

    def kill(self) -> None:
        """Ends the server at once."""
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


@dataclass(frozen=True)
class Submitted(Generic[P]):
    """A submitted job, with its typed payload and its record."""

    payload: P
    job: Record


class AsyncTestQueue:
    """A server in memory with a virtual clock, for tests with `async def`."""

    __test__ = False

    def __init__(self, server: TestServer) -> None:
        self.server = server
        self.url = server.url
        self.client = Client(server.url)

    async def submit(self, job: JobType[P, R], payload: P, **options: Unpack[SubmitOptions]) -> Handle[R]:
        """Submits one job."""
        return await self.client.submit(job.new(payload, **options))

    async def drain(self, *jobs: JobType[Any, Any], **options: Any) -> Report:
        """Runs these handlers until no job of theirs is ready. Jobs for later stay.

        The options are those of `Worker`.
        """
        queues = await self.client.request("GET", "/v1/queues")
        options.setdefault("queues", [queue["name"] for queue in queues["queues"]])
        return await Worker(self.client, jobs, **options).serve(until_idle=True)

    async def advance(self, by: Duration) -> None:
        """Moves the clock. All that falls due on the way happens before it returns."""
        await self.client.request("POST", "/v1/clock/advance", {"by": to_wire(by)})

    async def submitted(self, job: JobType[P, Any], **filters: Any) -> list[Submitted[P]]:
        """Returns the submitted jobs of a type, oldest first. `state`, `tag` and others filter them."""
        found = await self.client.list_jobs(type=job.type, **filters)
        result = []
        for record in reversed(found):
            full = await self.client.get(record["id"], payload=True)
            result.append(Submitted(decode(job.payload_type, full.get("payload")), full))
        return result

    async def perform(self, job: JobType[P, Any], payload: P, **fields: Any) -> Outcome:
        """Runs one handler without a claim. See `perform`."""
        return await perform_async(job, payload, client=self.client, **fields)


class TestQueue:
    """A server in memory with a virtual clock, for tests without an event loop."""

    __test__ = False

    def __init__(self, server: TestServer) -> None:
        self.server = server
        self.url = server.url
        self.client = SyncClient(server.url)
        self._queue = AsyncTestQueue(server)

    def submit(self, job: JobType[P, R], payload: P, **options: Unpack[SubmitOptions]) -> SyncHandle[R]:
        """Submits one job."""
        return self.client.submit(job.new(payload, **options))

    def drain(self, *jobs: JobType[Any, Any], **options: Any) -> Report:
        """Runs these handlers until no job of theirs is ready. Jobs for later stay."""
        return self._run(lambda: self._queue.drain(*jobs, **options))

    def advance(self, by: Duration) -> None:
        """Moves the clock. All that falls due on the way happens before it returns."""
        self._run(lambda: self._queue.advance(by))

    def submitted(self, job: JobType[P, Any], **filters: Any) -> list[Submitted[P]]:
        """Returns the submitted jobs of a type, oldest first."""
        return self._run(lambda: self._queue.submitted(job, **filters))

    def perform(self, job: JobType[P, Any], payload: P, **fields: Any) -> Outcome:
        """Runs one handler without a claim. See `perform`."""
        return self._run(lambda: self._queue.perform(job, payload, **fields))

    @staticmethod
    def _run(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        return _LOOP_THREAD.run(work())


_LOOP_THREAD = LoopThread()


async def perform_async(
    job: JobType[P, Any],
    payload: P,
    *,
    attempt: int = 1,
    last_attempt: bool = False,
    checkpoint: Any = None,
    tags: dict[str, str | None] | None = None,
    state: Any = ABSENT,
    timeout: Duration | None = None,
    traceparent: str | None = None,
    client: Client | None = None,
    middleware: Sequence[Middleware] = (),
) -> Outcome:
    """Runs one handler as attempt `attempt` and returns its outcome. No server is needed.

    The payload goes through JSON as in production. A result is `Done(result)`, an exception is
    `Fail("temporary", …)`.
    """
    record: Record = {
        "id": "00000000-0000-4000-8000-000000000000",
        "type": job.type,
        "queue": job.queue,
        "attempt": attempt,
        "last_attempt": last_attempt,
        "checkpoint": checkpoint,
        "tags": tags or {},
        "lease": {"token": "none", "version": attempt},
    }
    if attempt > 1:
        record["previous_attempt_id"] = "00000000-0000-4000-8000-000000000001"
    if traceparent is not None:
        record["traceparent"] = traceparent
    record.update(job.new(payload).to_wire())
    if "payload" in record:
        record["payload"] = to_json(record["payload"])
    held = HeldJob(record, job, time.monotonic(), 3600.0)
    if timeout is not None:
        seconds = to_seconds(timeout)
        held.set_deadline(time.monotonic() + seconds, seconds)
    return await HandlerRunner(client or Client("http://127.0.0.1:1", timeout=1), state, tuple(middleware)).run(held)


def perform(job: JobType[P, Any], payload: P, **fields: Any) -> Outcome:
    """Runs one handler as `perform_async` does, without an event loop."""
    return asyncio.run(perform_async(job, payload, **fields))
