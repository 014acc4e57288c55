"""Collects jobs for a batch handler."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import LongshoreError
from ..jobs import BatchJobType, Item
from .held import HeldJob, HeldState

if TYPE_CHECKING:
    from ..context import Context


@dataclass
class _Entry:
    held: HeldJob
    item: Item[Any]
    value: asyncio.Future[Any]

    def is_wanted(self) -> bool:
        """Returns whether the handler still has to run for this job."""
        return self.held.state is HeldState.RUNNING and not self.held.is_lost and not self.value.done()


class BatchCollector:
    """Calls the handler with `size` jobs, or with those that came within `wait`."""

    def __init__(self, job_type: BatchJobType[Any, Any]) -> None:
        self._type = job_type
        self._entries: list[_Entry] = []
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def handle(self, held: HeldJob, ctx: Context, payload: Any) -> Any:
        """Adds one job and returns its value of the handler's answer."""
        loop = asyncio.get_running_loop()
        entry = _Entry(held, Item(ctx, payload), loop.create_future())
        self._entries.append(entry)
        if len(self._entries) >= self._type.batch_size:
            self._flush()
        elif self._timer is None:
            self._timer = loop.call_later(self._type.batch_wait, self._flush)
        return await entry.value

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        entries, self._entries = self._entries, []
        # A job that was released or lost meanwhile may run in another worker already.
        entries = [entry for entry in entries if entry.is_wanted()]
        if not entries:
            return
        task = asyncio.get_running_loop().create_task(self._call(entries), name=f"batch handler {self._type.__name__}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

        def interrupt() -> None:
            if all(entry.held.cancellation.is_set() for entry in entries):
                task.cancel()

        for entry in entries:
            entry.held.interrupt_batch = interrupt

    async def _call(self, entries: list[_Entry]) -> None:
        try:
            values = await self._type([entry.item for entry in entries])
            if values is None:
                values = [None] * len(entries)
            if len(values) != len(entries):
                raise LongshoreError(
                    f"batch handler {self._type.__name__} returned {len(values)} values for {len(entries)} jobs"
                )
        except asyncio.CancelledError:
            for entry in entries:
                entry.value.cancel()
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            values = [error] * len(entries)
            self._deliver(entries, values)
        else:
            self._deliver(entries, values)

    @staticmethod
    def _deliver(entries: list[_Entry], values: Any) -> None:
        for entry, value in zip(entries, values):
            if entry.value.done():
                continue
            if isinstance(value, StopIteration):
                entry.value.set_exception(RuntimeError("the handler raised or returned StopIteration"))
            elif isinstance(value, BaseException):
                entry.value.set_exception(value)
            else:
                entry.value.set_result(value)
