"""The asynchronous client."""

from __future__ import annotations

import asyncio
import ssl
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterable
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast, overload
from urllib.parse import quote

from .codec import decode, encode
from .durations import Duration, format_time, to_seconds, to_wire
from .errors import ConfigurationError, JobFailed, LongshoreError, Refused, WaitTimeout
from .events import Event, EventOptions, event_path, follow
from .http import Address, AsyncTransport
from .jobs import JobType, NewJob
from .operations import Operations, Record
from .retry import RetryPlan
from .tracing import current_traceparent
from .workflows import Shape

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from .jobs import SubmitOptions

P = TypeVar("P")
R = TypeVar("R")

TERMINAL_STATES = frozenset({"completed", "failed", "dead_letter", "cancelled"})
_BATCH_MAX = 1000
_POLL_SECONDS_MAX = 30.0


class Client(Operations):
    """Submits, reads and cancels jobs.

    `url` defaults to LONGSHORE_SERVER or http://127.0.0.1:7070, `token` to LONGSHORE_TOKEN. `timeout`
    is the total time of a call with its retries. With `auto_keys` each submission without a key gets a
    random idempotency key, so that a lost answer never makes a second job. `before_submit` gets each
    new job, also of workflows, children and schedules, and returns the job to send.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        timeout: Duration = 30,
        tls: ssl.SSLContext | None = None,
        auto_keys: bool = True,
        before_submit: Callable[[NewJob[Any]], NewJob[Any]] | None = None,
    ) -> None:
        self.address = Address.make(url, token, tls)
        self.timeout = to_seconds(timeout)
        self.auto_keys = auto_keys
        self._before_submit = before_submit
        self.transport = AsyncTransport(self.address)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes idle connections. The client can still be used."""
        await self.transport.close()

    async def request(
        self, method: str, path: str, body: Any = None, *, is_idempotent: bool | None = None, extra_time: float = 0.0
    ) -> Any:
        """Sends any request of the API and returns its JSON.

        Repeats it only as the error's `retry` word allows. `is_idempotent` says that a call that may
        have been applied can be repeated; GET, PUT and DELETE are.
        """
        data = None if body is None else encode(body).encode()
        safe = method in ("GET", "PUT", "DELETE") if is_idempotent is None else is_idempotent
        plan = RetryPlan(self.timeout)
        while True:
            try:
                return await self.transport.request(method, path, data, self.timeout + extra_time)
            except LongshoreError as error:
                delay = plan.next_delay(error, is_idempotent=safe)
                if delay is None:
                    raise
            await asyncio.sleep(delay)

    # Submissions

    def prepare(self, new: NewJob[Any]) -> NewJob[Any]:
        """Returns the job to send for a new job: what `before_submit` makes of it."""
        return new if self._before_submit is None else self._before_submit(new)

    def prepare_traced(self, new: NewJob[Any]) -> NewJob[Any]:
        """As `prepare`, with the trace context of the present span if the job has none."""
        prepared = self.prepare(new)
        if prepared.options.get("traceparent") is not None:
            return prepared
        traceparent = current_traceparent()
        return prepared if traceparent is None else prepared.with_options(traceparent=traceparent)

    @overload
    async def submit(self, job: NewJob[R]) -> Handle[R]: ...

    @overload
    async def submit(self, job: JobType[P, R], payload: P, **options: Unpack[SubmitOptions]) -> Handle[R]: ...

    @overload
    async def submit(self, job: str, payload: Any = None, **options: Unpack[SubmitOptions]) -> Handle[Any]: ...

    async def submit(
        self, job: NewJob[Any] | JobType[Any, Any] | str, payload: Any = None, **options: Unpack[SubmitOptions]
    ) -> Handle[Any]:
        """Submits one job and returns its handle. The job is durable then."""
        new = job if isinstance(job, NewJob) else _job_type(job).new(payload, **options)
        sent = self.prepare_traced(new)
        answer = await self._submit_wire(sent.queue, sent.to_wire())
        return Handle(self, answer, new.result_type)

    async def submit_many(self, jobs: Iterable[NewJob[R]]) -> list[Handle[R]]:
        """Submits jobs and returns their handles in order.

        One call takes up to 1,000 jobs of one queue, all or nothing. More jobs take several calls.
        """
        by_queue: dict[str, list[tuple[int, NewJob[R]]]] = {}
        for position, new in enumerate(jobs):
            sent = self.prepare_traced(new)
            by_queue.setdefault(sent.queue, []).append((position, sent))
        handles: dict[int, Handle[R]] = {}
        for queue, members in by_queue.items():
            for start in range(0, len(members), _BATCH_MAX):
                part = members[start : start + _BATCH_MAX]
                answer = await self._submit_wire(queue, [new.to_wire() for _, new in part])
                for (position, new), record in zip(part, answer["jobs"]):
                    handles[position] = Handle(self, record, new.result_type)
        return [handles[position] for position in sorted(handles)]

    async def _submit_wire(self, queue: str, body: Any) -> Any:
        bodies: list[Record] = body if isinstance(body, list) else [body]
        keyless = [each for each in bodies if "idempotency_key" not in each] if self.auto_keys else []
        for each in keyless:
            each["idempotency_key"] = str(uuid.uuid4())
        path = f"/v1/queues/{quote(queue, safe='')}/jobs"
        try:
            has_keys = all("idempotency_key" in each for each in bodies)
            return await self.request("POST", path, body, is_idempotent=has_keys)
        except Refused as error:
            if not (keyless and error.code == "validation" and (error.field or "").endswith("idempotency_key")):
                raise
        # The queue has idempotency switched off.
        for each in keyless:
            del each["idempotency_key"]
        return await self.request("POST", path, body, is_idempotent=False)

    async def submit_workflow(self, shape: Shape, *, name: str | None = None, open: bool = False) -> WorkflowHandle:
        """Submits a chain, group, chord or graph: all of its jobs or none."""
        body = shape.to_wire(self.prepare_traced)
        if name is not None:
            body["name"] = name
        if open:
            body["open"] = True
        return WorkflowHandle(self, await self.request("POST", "/v1/workflows", body, is_idempotent=False))

    # Jobs

    async def get(self, job_id: str, *, payload: bool = False) -> Record:
        """Returns the record of a job."""
        return await self._record("GET", f"/v1/jobs/{quote(job_id)}" + ("?include=payload" if payload else ""))

    async def list_jobs(self, **filters: Any) -> list[Record]:
        """Returns all jobs that match, newest first: `queue`, `type`, `state`, `tag`, `workflow`, …

        With `limit` it returns at most that many.
        """
        return await self._all("/v1/jobs", "jobs", filters)

    async def wait(self, job_id: str, timeout: Duration | None = None) -> Record:
        """Waits until a job has ended and returns its record. Raises `WaitTimeout`."""
        deadline = None if timeout is None else time.monotonic() + to_seconds(timeout)
        while True:
            left = _POLL_SECONDS_MAX if deadline is None else deadline - time.monotonic()
            part = max(0.0, min(_POLL_SECONDS_MAX, left))
            path = f"/v1/jobs/{quote(job_id)}/wait?timeout={to_wire(part)}"
            record: Record = await self.request("GET", path, extra_time=part)
            if record["state"] in TERMINAL_STATES:
                return record
            if deadline is not None and time.monotonic() >= deadline:
                raise WaitTimeout(f"job {job_id} is {record['state']} after {to_seconds(timeout or 0):g} s")

    async def cancel(self, job_id: str, *, reason: str | None = None, force: bool = False) -> Record:
        """Cancels a job. A running one gets a request, unless `force` revokes its lease."""
        body: Record = {"force": True} if force else {}
        if reason is not None:
            body["reason"] = reason
        return await self._record("POST", f"/v1/jobs/{quote(job_id)}/cancel", body)

    async def requeue(self, job_id: str, *, reset: bool | None = None, run_at: datetime | None = None) -> Record:
        """Starts an ended job again, at `run_at` if it is given. `reset` starts its counters again."""
        body: Record = {} if reset is None else {"reset": reset}
        if run_at is not None:
            body["run_at"] = format_time(run_at)
        return await self._record("POST", f"/v1/jobs/{quote(job_id)}/requeue", body)

    async def inputs(self, job_id: str) -> Any:
        """Returns the results of the dependencies of a job."""
        return await self.request("GET", f"/v1/jobs/{quote(job_id)}/inputs")

    # Events

    def events(self, **options: Unpack[EventOptions]) -> AsyncIterator[Event]:
        """Yields changes of jobs, queues and schedules as they happen, without end.

        The stream resumes after a lost connection. `after` is the cursor of the last event that the
        caller has. An event `gap` means that events are missing: list again what you follow.
        """
        after = options.pop("after", None)
        return follow(self.transport, event_path(cast("Any", options)), after, self.timeout)

    # Workflows

    async def get_workflow(self, workflow_id: str) -> Record:
        """Returns a workflow with the states of its jobs."""
        return await self._record("GET", f"/v1/workflows/{quote(workflow_id)}")

    async def cancel_workflow(self, workflow_id: str) -> Record:
        """Cancels all jobs of a workflow that have not ended."""
        return await self._record("POST", f"/v1/workflows/{quote(workflow_id)}/cancel", {})


class Handle(Generic[R]):
    """A submitted job."""

    def __init__(self, client: Client, answer: Record, result_type: Any = Any) -> None:
        self.client = client
        self.id: str = answer["id"]
        self.seq: int | None = answer.get("seq")
        self.state: str | None = answer.get("state")
        self.duplicate: bool = answer.get("duplicate", False)
        self.same_payload: bool | None = answer.get("same_payload")
        self.result_type = result_type

    def __repr__(self) -> str:
        return f"<job {self.id}>"

    async def wait(self, timeout: Duration | None = None) -> R:
        """Waits for the result. Raises `JobFailed` if the job ends without one, or `WaitTimeout`."""
        return self.read_result(await self.client.wait(self.id, timeout))

    def read_result(self, record: Record) -> R:
        """Returns the typed result of an ended job."""
        if record["state"] != "completed":
            raise JobFailed(record)
        result: R = decode(self.result_type, record.get("result"), "result")
        return result

    async def get(self) -> Record:
        """Returns the record of the job."""
        return await self.client.get(self.id)

    async def cancel(self, *, reason: str | None = None, force: bool = False) -> Record:
        """Cancels the job."""
        return await self.client.cancel(self.id, reason=reason, force=force)


class WorkflowHandle:
    """A submitted workflow. `jobs` has the ids of its jobs by `ref`."""

    def __init__(self, client: Client, answer: Record) -> None:
        self.client = client
        self.id: str = answer["id"]
        self.jobs: dict[str, str] = answer["jobs"]

    async def get(self) -> Record:
        """Returns the workflow with the states of its jobs."""
        return await self.client.get_workflow(self.id)

    async def wait(self, timeout: Duration | None = None) -> Record:
        """Waits until all jobs have ended and returns the workflow."""
        deadline = None if timeout is None else time.monotonic() + to_seconds(timeout)
        for job_id in self.jobs.values():
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            await self.client.wait(job_id, left)
        return await self.get()

    async def cancel(self) -> Record:
        """Cancels all jobs of the workflow that have not ended."""
        return await self.client.cancel_workflow(self.id)


def _job_type(job: JobType[Any, Any] | str) -> JobType[Any, Any]:
    if isinstance(job, JobType):
        return job
    if isinstance(job, str):
        return JobType(job)
    raise ConfigurationError(f"{job!r} is not a job type (decorate the handler with @job, or name the type)")
