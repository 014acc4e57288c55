"""A claimed job while the worker holds its lease."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum
from typing import Any, Final

from ..cancellation import Cancellation
from ..jobs import JobType

ABSENT: Final = object()
# Of a lease or an execution timeout, this part is not used: it covers the last call to the server.
_MARGIN_PART = 0.1
_MARGIN_SECONDS_MAX = 1.0


def margin_of(seconds: float) -> float:
    """Returns the time before the end of a lease or timeout at which its job has to stop."""
    return min(_MARGIN_SECONDS_MAX, seconds * _MARGIN_PART)


class HeldState(Enum):
    """Where a held job is in the worker."""

    WAITING = "waiting"
    RUNNING = "running"
    SETTLING = "settling"
    ENDED = "ended"


class HeldJob:
    """The wire record of a claimed job, with its lease as this process knows it.

    `lease_seconds` is infinite for a lease that does not expire.

    Times are of `time.monotonic()`. The lease keeper's thread and the event loop share this object:
    each field is written by one of them, or is a single assignment.
    """

    __slots__ = (
        "abandon_at",
        "cancellation",
        "checkpoint",
        "checkpoint_in_flight",
        "claimed_at",
        "deadline",
        "force_at",
        "force_is_pending",
        "id",
        "interrupt_batch",
        "is_lost",
        "is_lost_counted",
        "lease_seconds",
        "leased_from",
        "next_checkpoint",
        "next_progress",
        "progress_in_flight",
        "record",
        "shields",
        "started_at",
        "state",
        "stop_at",
        "task",
        "token",
        "type",
    )

    def __init__(self, record: dict[str, Any], job_type: JobType[Any, Any], leased_from: float, lease: float) -> None:
        self.record = record
        self.type = job_type
        self.id: str = record["id"]
        self.token: str = record["lease"]["token"]
        self.claimed_at = leased_from
        self.leased_from = leased_from
        self.lease_seconds = lease
        self.deadline: float | None = None
        self.stop_at: float | None = None
        self.force_at: float | None = None
        self.abandon_at: float | None = None
        self.started_at = 0.0
        self.state = HeldState.WAITING
        self.cancellation = Cancellation()
        self.task: asyncio.Task[None] | None = None
        self.interrupt_batch: Callable[[], None] | None = None
        self.shields = 0
        self.force_is_pending = False
        self.is_lost = False
        self.is_lost_counted = False
        self.checkpoint: Any = record.get("checkpoint")
        self.checkpoint_in_flight = False
        self.next_checkpoint: Any = ABSENT
        self.next_progress: Any = ABSENT
        self.progress_in_flight: Any = ABSENT

    def set_deadline(self, deadline: float, timeout: float) -> None:
        """Sets the execution deadline, which is `timeout` after the claim."""
        self.deadline = deadline
        self.stop_at = deadline - margin_of(timeout)

    def heartbeat_at(self) -> float:
        """Returns when the next heartbeat is due: after a third of the lease."""
        return self.leased_from + min(self.lease_seconds / 3, 10.0)

    def expires_at(self) -> float:
        """Returns when this process has to consider the lease as lost."""
        return self.leased_from + self.lease_seconds - margin_of(self.lease_seconds)

    def force_stop(self) -> None:
        """Raises CancelledError in an async handler. Runs on the event loop.

        A handler in a thread cannot be interrupted. A batch is interrupted once it has no other job.
        """
        if self.state is not HeldState.RUNNING or self.task is None or not self.type.is_async:
            return
        if self.interrupt_batch is not None:
            self.interrupt_batch()
            return
        if self.shields:
            self.force_is_pending = True
        else:
            self.task.cancel()
