"""The client for code without an event loop."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import threading
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Generator, Iterable
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from .client import Client, Handle, WorkflowHandle
from .durations import Duration
from .events import Event, EventOptions
from .jobs import JobType, NewJob
from .operations import Record
from .sync_operations import SyncOperations
from .workflows import Shape

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from .jobs import SubmitOptions

P = TypeVar("P")
R = TypeVar("R")
T = TypeVar("T")


class LoopThread:
    """An event loop in a daemon thread. A forked process gets a new one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process = 0

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine on the loop and returns its result."""
        future = asyncio.run_coroutine_threadsafe(work, self._get_loop())
        try:
            return future.result()
        except BaseException:
            # For example KeyboardInterrupt: the call must not go on without its caller.
            future.cancel()
            raise

    def _get_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None or self._process != os.getpid():
                self._loop = asyncio.new_event_loop()
                self._process = os.getpid()
                threading.Thread(target=self._loop.run_forever, name="longshore-client", daemon=True).start()
            return self._loop


_LOOP_THREAD = LoopThread()
_CLIENTS: weakref.WeakSet[SyncClient] = weakref.WeakSet()


@atexit.register
def _close_clients() -> None:
    for client in list(_CLIENTS):
        with contextlib.suppress(Exception):
            client.close()


class SyncClient(SyncOperations):
    """`Client` with blocking calls. Any number of threads may share one."""

    def __init__(self, url: str | None = None, *, token: str | None = None, **options: Any) -> None:
        self.client = Client(url, token=token, **options)
        _CLIENTS.add(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes idle connections. The client can still be used."""
        if self.client.transport.is_open():
            _LOOP_THREAD.run(self.client.close())

    def run_call(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a call of the client and returns its result."""
        return _LOOP_THREAD.run(work)

    def request(self, method: str, path: str, body: Any = None, *, is_idempotent: bool | None = None) -> Any:
        """See `Client.request`."""
        return _LOOP_THREAD.run(self.client.request(method, path, body, is_idempotent=is_idempotent))

    @overload
    def submit(self, job: NewJob[R]) -> SyncHandle[R]: ...

    @overload
    def submit(self, job: JobType[P, R], payload: P, **options: Unpack[SubmitOptions]) -> SyncHandle[R]: ...

    @overload
    def submit(self, job: str, payload: Any = None, **options: Unpack[SubmitOptions]) -> SyncHandle[Any]: ...

    def submit(self, job: Any, payload: Any = None, **options: Unpack[SubmitOptions]) -> SyncHandle[Any]:
        """Submits one job and returns its handle. The job is durable then."""
        return SyncHandle(_LOOP_THREAD.run(self.client.submit(job, payload, **options)))

    def submit_many(self, jobs: Iterable[NewJob[R]]) -> list[SyncHandle[R]]:
        """See `Client.submit_many`."""
        return [SyncHandle(handle) for handle in _LOOP_THREAD.run(self.client.submit_many(jobs))]

    def submit_workflow(self, shape: Shape, *, name: str | None = None, open: bool = False) -> SyncWorkflowHandle:
        """See `Client.submit_workflow`."""
        return SyncWorkflowHandle(_LOOP_THREAD.run(self.client.submit_workflow(shape, name=name, open=open)))

    def get(self, job_id: str, *, payload: bool = False) -> Record:
        """Returns the record of a job."""
        return _LOOP_THREAD.run(self.client.get(job_id, payload=payload))

    def list_jobs(self, **filters: Any) -> list[Record]:
        """See `Client.list_jobs`."""
        return _LOOP_THREAD.run(self.client.list_jobs(**filters))

    def wait(self, job_id: str, timeout: Duration | None = None) -> Record:
        """Waits until a job has ended and returns its record. Raises `WaitTimeout`."""
        return _LOOP_THREAD.run(self.client.wait(job_id, timeout))

    def cancel(self, job_id: str, *, reason: str | None = None, force: bool = False) -> Record:
        """See `Client.cancel`."""
        return _LOOP_THREAD.run(self.client.cancel(job_id, reason=reason, force=force))

    def requeue(self, job_id: str, *, reset: bool | None = None, run_at: datetime | None = None) -> Record:
        """See `Client.requeue`."""
        return _LOOP_THREAD.run(self.client.requeue(job_id, reset=reset, run_at=run_at))

    def inputs(self, job_id: str) -> Any:
        """Returns the results of the dependencies of a job."""
        return _LOOP_THREAD.run(self.client.inputs(job_id))

    def get_workflow(self, workflow_id: str) -> Record:
        """Returns a workflow with the states of its jobs."""
        return _LOOP_THREAD.run(self.client.get_workflow(workflow_id))

    def cancel_workflow(self, workflow_id: str) -> Record:
        """Cancels all jobs of a workflow that have not ended."""
        return _LOOP_THREAD.run(self.client.cancel_workflow(workflow_id))

    def events(self, **options: Unpack[EventOptions]) -> Generator[Event, None, None]:
        """See `Client.events`. The stream ends when the iterator is closed."""
        stream = self.client.events(**options)
        try:
            while True:
                yield _LOOP_THREAD.run(_next_event(stream))
        finally:
            _LOOP_THREAD.run(_close_stream(stream))


async def _next_event(stream: AsyncIterator[Event]) -> Event:
    return await anext(stream)


async def _close_stream(stream: AsyncIterator[Event]) -> None:
    if isinstance(stream, AsyncGenerator):
        # An interrupted call may not have left it yet. It ends by itself then.
        with contextlib.suppress(RuntimeError):
            await stream.aclose()


class SyncHandle(Generic[R]):
    """A submitted job."""

    def __init__(self, handle: Handle[R]) -> None:
        self.handle = handle
        self.id = handle.id
        self.seq = handle.seq
        self.state = handle.state
        self.duplicate = handle.duplicate
        self.same_payload = handle.same_payload

    def __repr__(self) -> str:
        return repr(self.handle)

    def wait(self, timeout: Duration | None = None) -> R:
        """Waits for the result. Raises `JobFailed` if the job ends without one, or `WaitTimeout`."""
        return _LOOP_THREAD.run(self.handle.wait(timeout))

    def get(self) -> Record:
        """Returns the record of the job."""
        return _LOOP_THREAD.run(self.handle.get())

    def cancel(self, *, reason: str | None = None, force: bool = False) -> Record:
        """Cancels the job."""
        return _LOOP_THREAD.run(self.handle.cancel(reason=reason, force=force))


class SyncWorkflowHandle:
    """A submitted workflow. `jobs` has the ids of its jobs by `ref`."""

    def __init__(self, handle: WorkflowHandle) -> None:
        self.handle = handle
        self.id = handle.id
        self.jobs = handle.jobs

    def get(self) -> Record:
        """Returns the workflow with the states of its jobs."""
        return _LOOP_THREAD.run(self.handle.get())

    def wait(self, timeout: Duration | None = None) -> Record:
        """Waits until all jobs have ended and returns the workflow."""
        return _LOOP_THREAD.run(self.handle.wait(timeout))

    def cancel(self) -> Record:
        """Cancels all jobs of the workflow that have not ended."""
        return _LOOP_THREAD.run(self.handle.cancel())
