"""The cancellation token of a running job."""

from __future__ import annotations

import asyncio
import threading
from enum import Enum


class CancelReason(str, Enum):
    """Why a handler should stop."""

    CANCELLED = "cancelled"
    DEADLINE = "deadline"
    DRAIN = "drain"
    LEASE_LOST = "lease_lost"

    def __str__(self) -> str:
        return self.value


_LOCK = threading.Lock()


class Cancellation:
    """Fires once, with a reason. Any thread may wait for it."""

    __slots__ = ("_event", "_futures", "reason")

    def __init__(self) -> None:
        self.reason: CancelReason | None = None
        self._futures: list[asyncio.Future[None]] | None = None
        self._event: threading.Event | None = None

    def is_set(self) -> bool:
        """Returns whether the handler should stop."""
        return self.reason is not None

    async def wait(self) -> CancelReason:
        """Waits until the token fires and returns the reason."""
        with _LOCK:
            if self.reason is not None:
                return self.reason
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            if self._futures is None:
                self._futures = []
            self._futures.append(future)
        try:
            await future
        finally:
            with _LOCK:
                if self._futures and future in self._futures:
                    self._futures.remove(future)
        assert self.reason is not None
        return self.reason

    async def sleep(self, seconds: float) -> bool:
        """Sleeps until the time is up or the token fires. Returns whether it fired."""
        try:
            await asyncio.wait_for(self.wait(), seconds)
        except asyncio.TimeoutError:
            pass
        return self.is_set()

    def wait_blocking(self, seconds: float | None = None) -> bool:
        """Blocks a thread until the token fires or the time is up. Returns whether it fired."""
        with _LOCK:
            if self.reason is not None:
                return True
            if self._event is None:
                self._event = threading.Event()
            event = self._event
        return event.wait(seconds)

    def fire(self, reason: CancelReason) -> bool:
        """Fires the token, from any thread. Returns whether this was the first reason."""
        with _LOCK:
            if self.reason is not None:
                return False
            self.reason = reason
            futures, self._futures = self._futures, None
            if self._event is not None:
                self._event.set()
        for future in futures or ():
            loop = future.get_loop()
            if not loop.is_closed():
                loop.call_soon_threadsafe(_resolve, future)
        return True


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
