"""Slots: how many handlers run, and how many jobs are claimed before their slot is free."""

from __future__ import annotations

from collections import deque
from typing import Any

from ..jobs import JobType
from .held import HeldJob

# A job waits for its slot for about this long at most.
_WAIT_SECONDS_MAX = 1.0


class SlotGroup:
    """Job types that share slots. Each batch type has slots of its own."""

    def __init__(self, types: list[JobType[Any, Any]], slots: int, prefetch: float) -> None:
        self.types = types
        self.slots = slots
        self.running = 0
        self.waiting: deque[HeldJob] = deque()
        self._prefetch = prefetch
        self._mean_seconds: float | None = None
        self._lease_seconds = 30.0

    def free(self) -> int:
        """Returns how many jobs to claim."""
        return self.slots + self._extra() - self.running - len(self.waiting)

    def _extra(self) -> int:
        """Returns how many jobs may wait for a slot.

        The bound is a part of the slots, and what the slots do within a quarter of the lease.
        """
        if self._mean_seconds is None:
            return 0
        wait = min(_WAIT_SECONDS_MAX, self._lease_seconds / 4)
        return int(min(self.slots * (self._prefetch - 1), self.slots * wait / max(self._mean_seconds, 1e-6)))

    def add(self, held: HeldJob) -> None:
        """Adds a claimed job that waits for its slot."""
        self._lease_seconds = held.lease_seconds
        self.waiting.append(held)

    def next_job(self) -> HeldJob | None:
        """Takes the next job if a slot is free."""
        if self.waiting and self.running < self.slots:
            return self.waiting.popleft()
        return None

    def record_run(self, seconds: float) -> None:
        """Takes the duration of one run into the mean."""
        mean = self._mean_seconds
        self._mean_seconds = seconds if mean is None else mean + 0.1 * (seconds - mean)
