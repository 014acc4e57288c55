"""Signals of a worker process: drain, release all, exit.

A thread reads the signals from a socket, because the event loop may be blocked by a handler.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

from ..errors import LongshoreError
from ..http import Address, BlockingTransport
from ..outcomes import Release, encode_settlement
from .held import HeldJob, HeldState
from .settlements import BATCH_MAX

_LOG = logging.getLogger("longshore.worker")
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
# After the second signal the loop has this long to end the run.
_LOOP_SECONDS = 3.0
_EXIT_SECONDS = 8.0


class SignalWatch:
    """Calls `on_signal(count, number)` in its thread for each SIGTERM and SIGINT."""

    def __init__(self, on_signal: Callable[[int, int], None]) -> None:
        self._on_signal = on_signal
        self._handlers: dict[int, Any] = {}
        self._wakeup_fd = -1

    def __enter__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._writer.setblocking(False)
        self._wakeup_fd = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        for number in _SIGNALS:
            # The handler itself does nothing. It makes Python write the number to the socket.
            self._handlers[number] = signal.signal(number, lambda *_: None)
        threading.Thread(target=self._read, name="longshore-signals", daemon=True).start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup_fd)
        self._writer.close()

    def _read(self) -> None:
        count = 0
        while data := self._reader.recv(64):
            for number in data:
                if number in _SIGNALS:
                    count += 1
                    self._on_signal(count, number)
        self._reader.close()


def exit_now(number: int) -> None:
    """Ends the process without any cleanup."""
    os._exit(128 + number)


def release_from_thread(address: Address, jobs: list[HeldJob]) -> int:
    """Releases jobs without the event loop. Returns how many the server accepted."""
    transport = BlockingTransport(address)
    accepted = 0
    running = [held for held in jobs if held.state in (HeldState.WAITING, HeldState.RUNNING) and not held.is_lost]
    for start in range(0, len(running), BATCH_MAX):
        part = running[start : start + BATCH_MAX]
        items = [encode_settlement(held.id, held.token, Release())[1] for held in part]
        body = b'{"settlements":[' + b",".join(items) + b"]}"
        try:
            answer = transport.request("POST", "/v1/settlements", body, 2.0)
        except LongshoreError as error:
            _LOG.error("cannot release %s jobs: %s", len(part), error)
            break
        accepted += sum("code" not in result for result in answer["results"])
    transport.close()
    return accepted


class Watchdog:
    """Ends the process after the second signal if the event loop does not."""

    def __init__(self, address: Address, held: Callable[[], list[HeldJob]]) -> None:
        self._address = address
        self._held = held
        self._is_ended = threading.Event()

    def start(self, number: int) -> None:
        """Starts to watch."""
        threading.Thread(target=self._watch, args=(number,), name="longshore-watchdog", daemon=True).start()

    def end(self) -> None:
        """The run has ended by itself."""
        self._is_ended.set()

    def _watch(self, number: int) -> None:
        if self._is_ended.wait(_LOOP_SECONDS):
            return
        released = release_from_thread(self._address, self._held())
        _LOG.error("the event loop is blocked: %s jobs are released without it", released)
        if not self._is_ended.wait(_EXIT_SECONDS - _LOOP_SECONDS):
            exit_now(number)
