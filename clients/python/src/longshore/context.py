"""What a handler gets beside its payload."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, MutableMapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from .cancellation import Cancellation, CancelReason
from .codec import to_json
from .errors import ConfigurationError, JobCancelled, Refused
from .jobs import NewJob
from .worker.held import ABSENT, HeldJob
from .workflows import member_to_wire

if TYPE_CHECKING:
    from .client import Client

T = TypeVar("T")
_LOGGER = logging.getLogger("longshore.job")
_STEPS = "$steps"


class _JobLogger(logging.LoggerAdapter):  # type: ignore[type-arg]
    """Puts type, id and attempt before each message."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        extra: dict[str, Any] = dict(self.extra or {})
        return f"[{extra['job_type']} {extra['job_id']} #{extra['attempt']}] {msg}", {**kwargs, "extra": extra}


class Context:
    """The running job: who it is, how long it may run, and what it may report.

    All attributes and `progress`, `set_checkpoint`, `cancelled` may be used in any thread. A handler
    in a thread calls coroutines with `run`.
    """

    __slots__ = ("_held", "_loop", "_state", "_step_lock", "client")

    def __init__(self, held: HeldJob, client: Client, state: Any, loop: asyncio.AbstractEventLoop | None) -> None:
        self._held = held
        self._loop = loop
        self._step_lock: asyncio.Lock | None = None
        self.client = client
        self._state = state

    @property
    def state(self) -> Any:
        """The shared object of the worker: `Worker(state=…)`."""
        if self._state is ABSENT:
            raise ConfigurationError("the worker has no state (pass it with Worker(state=…))")
        return self._state

    # Identity

    @property
    def id(self) -> str:
        """Id of the job."""
        return self._held.id

    @property
    def type(self) -> str:
        """Type of the job."""
        return str(self._held.record["type"])

    @property
    def queue(self) -> str:
        """Queue of the job."""
        return str(self._held.record["queue"])

    @property
    def attempt(self) -> int:
        """Number of this attempt, from 1."""
        return int(self._held.record.get("attempt", 1))

    @property
    def is_last_attempt(self) -> bool:
        """Whether a failure now would end the job."""
        return bool(self._held.record.get("last_attempt", False))

    @property
    def attempt_id(self) -> str | None:
        """Id of this attempt. It never repeats."""
        return self._held.record.get("attempt_id")

    @property
    def previous_attempt_id(self) -> str | None:
        """Id of the attempt before this one."""
        return self._held.record.get("previous_attempt_id")

    @property
    def lease_version(self) -> int:
        """Number of this claim. It only rises: use it as a fencing token in your own stores."""
        return int(self._held.record["lease"].get("version", 1))

    @property
    def tags(self) -> dict[str, str | None]:
        """Tags of the job."""
        return self._held.record.get("tags") or {}

    @property
    def correlation_id(self) -> str | None:
        """Correlation id of the submitter."""
        return self._held.record.get("correlation_id")

    @property
    def idempotency_key(self) -> str | None:
        """Idempotency key of the submission."""
        return self._held.record.get("idempotency_key")

    @property
    def workflow(self) -> str | None:
        """Id of the workflow that the job is a member of."""
        return self._held.record.get("workflow")

    @property
    def traceparent(self) -> str | None:
        """W3C trace context of the submission."""
        return self._held.record.get("traceparent")

    @property
    def record(self) -> dict[str, Any]:
        """The job as the claim returned it."""
        return self._held.record

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose messages name the job."""
        names = {"job_type": self.type, "job_id": self.id, "attempt": self.attempt}
        return _JobLogger(_LOGGER, names)

    # Cancellation and time

    @property
    def cancelled(self) -> Cancellation:
        """The token that fires if the handler should stop."""
        return self._held.cancellation

    def raise_if_cancelled(self) -> None:
        """Raises `JobCancelled` after the token fired."""
        reason = self._held.cancellation.reason
        if reason is not None:
            raise JobCancelled(f"job {self.id} should stop: {reason}")

    @property
    def remaining(self) -> float | None:
        """Seconds until the token fires with `deadline`. None without an execution timeout."""
        stop_at = self._held.stop_at
        return None if stop_at is None else max(0.0, stop_at - time.monotonic())

    @asynccontextmanager
    async def shield(self) -> AsyncIterator[None]:
        """Delays CancelledError until the end of a short critical section."""
        held = self._held
        held.shields += 1
        try:
            yield
        finally:
            held.shields -= 1
            if held.force_is_pending and not held.shields:
                held.force_is_pending = False
                held.force_stop()

    # Progress and checkpoint

    def progress(self, value: Any) -> None:
        """Stores progress for readers. It is sent with the next heartbeat."""
        self._held.next_progress = to_json(value)

    @property
    def checkpoint(self) -> Any:
        """The checkpoint of the last attempt, or the one that this attempt has set."""
        return self._held.checkpoint

    def set_checkpoint(self, value: Any) -> None:
        """Stores a checkpoint for the next attempt. It is sent with the next heartbeat."""
        data = to_json(value)
        self._held.checkpoint = data
        self._held.next_checkpoint = data

    async def save_checkpoint(self, value: Any) -> None:
        """Stores a checkpoint for the next attempt. It is durable when the call returns."""
        held = self._held
        data = to_json(value)
        held.next_checkpoint = ABSENT
        while held.checkpoint_in_flight:  # noqa: ASYNC110 (the thread of the heartbeats clears it)
            await asyncio.sleep(0.005)
        body = {"lease": held.token, "checkpoint": data}
        try:
            await self.client.request("POST", f"/v1/jobs/{quote(self.id)}/heartbeat", body, is_idempotent=True)
        except Refused as error:
            if error.code == "stale_lease":
                held.is_lost = True
                held.cancellation.fire(CancelReason.LEASE_LOST)
            raise
        held.checkpoint = data

    async def step(self, name: str, work: Callable[..., Any], *arguments: Any) -> Any:
        """Runs a part of the handler once over all attempts, and returns its stored result.

        The results are kept in the checkpoint under `$steps`.
        """
        stored = self._held.checkpoint
        checkpoint = dict(stored) if isinstance(stored, dict) else {}
        steps: dict[str, Any] = dict(checkpoint.get(_STEPS, {}))
        if name in steps:
            return steps[name]
        result = work(*arguments)
        if inspect.isawaitable(result):
            result = await result
        if self._step_lock is None:
            self._step_lock = asyncio.Lock()
        # One save after the other: each has the results of the steps before it.
        async with self._step_lock:
            stored = self._held.checkpoint
            checkpoint = dict(stored) if isinstance(stored, dict) else {}
            checkpoint[_STEPS] = {**checkpoint.get(_STEPS, {}), name: to_json(result)}
            await self.save_checkpoint(checkpoint)
        return checkpoint[_STEPS][name]

    # Other jobs

    async def submit_children(
        self, jobs: Iterable[NewJob[Any]], *, finally_: NewJob[Any] | None = None
    ) -> dict[str, Any]:
        """Submits children of this job, fenced by its lease, and a job that runs after all of them."""
        body: dict[str, Any] = {
            "lease": self._held.token,
            "jobs": [member_to_wire(self.client.prepare_traced(new)) for new in jobs],
        }
        if finally_ is not None:
            body["finally"] = member_to_wire(self.client.prepare_traced(finally_))
        answer: dict[str, Any] = await self.client.request("POST", f"/v1/jobs/{quote(self.id)}/children", body)
        return answer

    async def inputs(self) -> Any:
        """Returns the results of the jobs that this one depends on."""
        return await self.client.inputs(self.id)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine on the worker's event loop, from a handler in a thread."""
        if self._loop is None:
            return asyncio.run(work)
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()
