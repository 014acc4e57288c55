"""Threads for handlers without `async`."""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable
from typing import Any

_IDLE_SECONDS = 10.0


class HandlerThreads:
    """Daemon threads that grow with the need.

    The slots of the worker bound their number. A stuck handler keeps its thread, and the next handler
    gets another one. Daemon threads do not hold up the end of the process.
    """

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0

    def run(self, function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        """Runs a function in a thread. Returns the future of its result."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        context = contextvars.copy_context()

        def call() -> None:
            try:
                result = context.run(function, *arguments)
            except BaseException as error:
                _deliver(loop, future, None, error)
            else:
                _deliver(loop, future, result, None)

        with self._lock:
            has_idle = self._idle > 0
            if has_idle:
                self._idle -= 1
        self._work.put(call)
        if not has_idle:
            threading.Thread(target=self._serve, name="longshore-handler", daemon=True).start()
        return future

    def _serve(self) -> None:
        while True:
            try:
                call = self._work.get(timeout=_IDLE_SECONDS)
            except queue.Empty:
                with self._lock:
                    # A caller that counted this thread as idle has put its work already, or will.
                    if self._idle > 0:
                        self._idle -= 1
                        return
                continue
            call()
            with self._lock:
                self._idle += 1


def _deliver(
    loop: asyncio.AbstractEventLoop, future: asyncio.Future[Any], result: Any, error: BaseException | None
) -> None:
    def resolve() -> None:
        if future.done():
            return
        if error is None:
            future.set_result(result)
        elif isinstance(error, StopIteration):
            future.set_exception(RuntimeError("the handler raised StopIteration"))
        else:
            future.set_exception(error)

    try:
        loop.call_soon_threadsafe(resolve)
    except RuntimeError:
        # The loop is closed: the handler was abandoned.
        pass
