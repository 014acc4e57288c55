"""Threads for handlers without `async`."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

_IDLE_SECONDS = 10.0


class HandlerThreads:
    """Daemon threads that grow with the need.

    The slots of the worker bound their number. A stuck handler keeps its thread, and the next handler
    gets another one. Daemon threads do not hold up the end of the process.

    Handing each call to a thread of its own would cost two switches of Python's interpreter lock per
    call. So one thread is woken at a time, and wakes the next one only while calls still wait: a
    thread that finishes a short call takes the next one itself.
    """

    def __init__(self) -> None:
        self._work: deque[Callable[[], None]] = deque()
        self._wakes: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._idle = 0
        # A thread was woken or started, and has not looked at the work yet.
        self._is_waking = False
        self._results: _Results | None = None

    def run(self, function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        """Runs a function in a thread. Returns the future of its result."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        context = contextvars.copy_context()
        results = self._results
        if results is None or results.loop is not loop:
            results = self._results = _Results(loop)

        def call() -> None:
            try:
                result = context.run(function, *arguments)
            except BaseException as error:
                results.add(future, None, error)
            else:
                results.add(future, result, None)

        self._work.append(call)
        try:
            self._wake_one()
        except RuntimeError:
            # The system has no thread left. Those that run take the call, if there are any.
            if self._threads == 0:
                self._work.remove(call)
                raise
        return future

    def _wake_one(self) -> None:
        with self._lock:
            if self._is_waking:
                return
            self._is_waking = True
            if self._idle > 0:
                self._idle -= 1
                self._wakes.put(None)
                return
            self._threads += 1
        try:
            threading.Thread(target=self._serve, name="longshore-handler", daemon=True).start()
        except RuntimeError:
            with self._lock:
                self._threads -= 1
                self._is_waking = False
            raise

    def _serve(self) -> None:
        while True:
            with self._lock:
                self._is_waking = False
            self._run_work()
            if not self._park():
                return

    def _run_work(self) -> None:
        while True:
            try:
                call = self._work.popleft()
            except IndexError:
                return
            if self._work:
                # This call may take long: another thread has to look at the next one.
                with contextlib.suppress(RuntimeError):
                    self._wake_one()
            call()

    def _park(self) -> bool:
        """Waits until there is work. Returns False if the thread should end."""
        with self._lock:
            if self._work:
                return True
            self._idle += 1
        try:
            self._wakes.get(timeout=_IDLE_SECONDS)
        except queue.Empty:
            with self._lock:
                if self._idle > 0:
                    self._idle -= 1
                    self._threads -= 1
                    return False
            # A caller has counted this thread as idle: its wake has come, or will.
            self._wakes.get()
        return True


class _Results:
    """Results on their way from threads to one event loop. Results of the same moment share a wake-up."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._waiting: deque[tuple[asyncio.Future[Any], Any, BaseException | None]] = deque()
        self._are_posted = False

    def add(self, future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
        """Delivers the end of a call. Runs in its thread."""
        self._waiting.append((future, result, error))
        if self._are_posted:
            # The loop has not begun to take results: it takes this one, too.
            return
        self._are_posted = True
        try:
            self.loop.call_soon_threadsafe(self._take)
        except RuntimeError:
            # The loop is closed: the handler was abandoned.
            pass

    def _take(self) -> None:
        # First the mark, then the results: a result that comes later posts again.
        self._are_posted = False
        while self._waiting:
            future, result, error = self._waiting.popleft()
            if future.done():
                continue
            if error is None:
                future.set_result(result)
            elif isinstance(error, StopIteration):
                future.set_exception(RuntimeError("the handler raised StopIteration"))
            else:
                future.set_exception(error)
