"""Outcomes on their way to the server."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Any

from ..errors import Unreachable
from ..outcomes import Done, Fail, Outcome, Release, Snooze
from .held import HeldJob

BATCH_MAX = 1000
_BATCH_BYTES_MAX = 8 * 1024 * 1024


@dataclass
class Settlement:
    """One encoded outcome. `is_replacement` says that the server has refused an earlier one."""

    __slots__ = ("body", "held", "is_replacement", "outcome", "verb")
    held: HeldJob
    outcome: Outcome
    verb: str
    body: bytes
    is_replacement: bool


class SettlementBuffer:
    """Settlements that are not sent yet. The claim loop or the settlement loop takes them."""

    def __init__(self) -> None:
        self._waiting: deque[Settlement] = deque()
        self._in_flight = 0
        self.arrived = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    def unsettled(self) -> int:
        """Returns how many settlements have no answer yet."""
        return len(self._waiting) + self._in_flight

    def is_empty(self) -> bool:
        """Returns whether all settlements have their answers."""
        return not self._waiting and not self._in_flight

    def add(self, settlement: Settlement) -> None:
        """Adds one settlement."""
        self._waiting.append(settlement)
        self.arrived.set()

    def take(self) -> list[Settlement]:
        """Returns the next batch. `finish` or `restore` has to follow."""
        batch: list[Settlement] = []
        size = 0
        while self._waiting and len(batch) < BATCH_MAX:
            size += len(self._waiting[0].body) + 1
            if batch and size > _BATCH_BYTES_MAX:
                break
            batch.append(self._waiting.popleft())
        self._in_flight += len(batch)
        if not self._waiting:
            self.arrived.clear()
        return batch

    def finish(self, batch: list[Settlement]) -> None:
        """Ends a batch that has its answers."""
        self._in_flight -= len(batch)

    def restore(self, batch: list[Settlement]) -> None:
        """Puts a batch back whose call failed."""
        self._in_flight -= len(batch)
        self._waiting.extendleft(reversed(batch))
        if self._waiting:
            self.arrived.set()


def join(batch: list[Settlement]) -> bytes:
    """Returns a batch as a JSON array."""
    return b"[" + b",".join(settlement.body for settlement in batch) + b"]"


def members_of(answer: Any, field: str, count: int | None = None) -> list[dict[str, Any]]:
    """Returns a list of an answer. A proxy may answer with something else, which is like no answer."""
    members = answer.get(field) if isinstance(answer, dict) else None
    if not isinstance(members, list) or (count is not None and len(members) != count):
        raise Unreachable(f"the answer has no {field!r} of the expected length (is a proxy in between?)", sent=True)
    return members


def is_lost(result: dict[str, Any]) -> bool:
    """Returns whether a verdict says that the lease is not this worker's any more."""
    return result.get("code") in ("stale_lease", "job_not_found")


def replacement_for(settlement: Settlement, result: dict[str, Any]) -> Fail | None:
    """Returns the failure that replaces a refused outcome, or None if there is none.

    Without an outcome the job would stay running until its lease ends, and would run again.
    """
    if settlement.is_replacement:
        return None
    outcome, code = settlement.outcome, str(result["code"])
    message = f"the server refused the outcome: {code}: {result.get('detail', '')}"
    if isinstance(outcome, Done):
        # For example a result over the size limit.
        return None if code == "illegal_transition" else Fail.permanent("bad_result", message)
    if isinstance(outcome, Snooze):
        # Some profiles have no way back to the queue but a retry.
        return Fail("temporary", message, code, outcome.seconds)
    if isinstance(outcome, Release):
        return Fail("temporary", message, code)
    return None if code == "illegal_transition" else Fail(outcome.category, message, code)
