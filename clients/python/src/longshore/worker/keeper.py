"""The lease keeper: heartbeats and deadlines in a thread of their own.

A blocked event loop must not lose a lease. So this thread has its own connection, sends one batched
heartbeat for all held jobs, and decides when a handler has to stop. It reaches the event loop only
through `call_soon_threadsafe`.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from ..cancellation import CancelReason
from ..codec import encode
from ..durations import parse_time
from ..errors import LongshoreError, Refused
from ..retry import Backoff
from .clock import ServerClock
from .held import ABSENT, HeldJob, HeldState

_LOG = logging.getLogger("longshore.worker")
_BATCH_MAX = 1000
# The server takes 32 MiB. A progress or checkpoint may have as much as a payload.
_BATCH_BYTES_MAX = 8 * 1024 * 1024
# A job waits for its slot for half of this at most, however long its lease is.
_WAIT_MAX = 60.0
_CALL_SECONDS_MAX = 10.0
_LOST_CODES = frozenset({"stale_lease", "job_not_found", "illegal_transition"})
_LOST_FORCE_SECONDS = 1.0


class KeeperEvents:
    """What the keeper reports to the event loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        abandon: Callable[[HeldJob], None],
        release_waiting: Callable[[HeldJob], None],
        direct: Callable[[str], None],
    ) -> None:
        self.loop = loop
        self.abandon = abandon
        self.release_waiting = release_waiting
        self.direct = direct

    def post(self, callback: Callable[..., None], *arguments: Any) -> None:
        """Calls a function on the event loop."""
        try:
            self.loop.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:
            # The loop is closed: the worker has ended.
            pass


class Transport(Protocol):
    """What the keeper needs of `BlockingTransport`."""

    def request(self, method: str, path: str, body: bytes | None, timeout: float) -> Any:
        """Sends one request and returns its JSON."""

    def close(self) -> None:
        """Closes the connection."""


class LeaseKeeper:
    """Keeps the leases of all held jobs."""

    def __init__(
        self,
        transport: Transport,
        clock: ServerClock,
        *,
        cancel_grace: float,
        stuck_grace: float,
        lag_warning: float,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._transport = transport
        self._now = now
        self._clock = clock
        self._cancel_grace = cancel_grace
        self._stuck_grace = stuck_grace
        self._lag = LoopLag(lag_warning)
        self._held: dict[str, HeldJob] = {}
        self._wake = threading.Condition()
        self._wake_at = 0.0
        self._is_woken = False
        self._is_stopping = False
        self._backoff = Backoff(first=0.1, longest=2.0)
        self._retry_at = 0.0
        self._thread: threading.Thread | None = None
        self._events: KeeperEvents | None = None

    def start(self, events: KeeperEvents) -> None:
        """Starts the thread."""
        self.attach(events)
        self._thread = threading.Thread(target=self._run, name="longshore-heartbeats", daemon=True)
        self._thread.start()

    def attach(self, events: KeeperEvents) -> None:
        """Sets where the keeper reports to."""
        self._events = events

    def stop(self) -> None:
        """Stops the thread. It ends after a call that is in flight."""
        with self._wake:
            self._is_stopping = True
            self._wake.notify()

    def add(self, jobs: list[HeldJob]) -> None:
        """Keeps the leases of these jobs until `remove`."""
        # From now on the thread also watches the event loop.
        earliest = self._now() + self._lag.warn_after
        for held in jobs:
            self._held[held.token] = held
            earliest = min(earliest, self._due_at(held))
        if earliest < self._wake_at:
            self.wake()

    def remove(self, held: HeldJob) -> None:
        """Ends the heartbeats of a job."""
        held.state = HeldState.ENDED
        self._held.pop(held.token, None)

    def held(self) -> list[HeldJob]:
        """Returns all jobs whose leases are kept."""
        return list(self._held.values())

    def wake(self) -> None:
        """Makes the thread look at all jobs now."""
        with self._wake:
            self._is_woken = True
            self._wake.notify()

    def _run(self) -> None:
        while True:
            try:
                wake_at = self.tick(self._now())
            except Exception:
                # A defect here must not end the heartbeats of all jobs.
                _LOG.exception("the heartbeat thread failed; it continues")
                wake_at = self._now() + 0.5
            with self._wake:
                self._wake_at = wake_at
                if not self._is_stopping and not self._is_woken:
                    self._wake.wait(max(0.0, min(wake_at - self._now(), 3600.0)))
                self._is_woken = False
                if self._is_stopping:
                    break
        self._transport.close()

    @staticmethod
    def _due_at(held: HeldJob) -> float:
        due = held.heartbeat_at()
        if held.stop_at is not None:
            due = min(due, held.stop_at)
        return due

    def tick(self, now: float) -> float:
        """Does what is due. Returns the next instant at which something is."""
        soon: list[HeldJob] = []
        is_due = False
        wake_at = now + 3600.0
        has_running = False
        for held in self.held():
            has_running = has_running or held.state in (HeldState.WAITING, HeldState.RUNNING)
            if held.state is HeldState.WAITING and now - held.claimed_at > min(held.lease_seconds, _WAIT_MAX) / 2:
                self._post(self._require_events().release_waiting, held)
            elif held.state is HeldState.RUNNING:
                wake_at = min(wake_at, self._check_running(held, now))
            if held.is_lost:
                continue
            # One call for all jobs: what is due soon joins it.
            heartbeat_at = held.heartbeat_at()
            is_due = is_due or heartbeat_at <= now
            if heartbeat_at <= now + min(held.lease_seconds / 6, 1.0):
                soon.append(held)
            wake_at = min(wake_at, max(heartbeat_at, self._retry_at))
        if is_due and now >= self._retry_at:
            self._send(soon)
            # The times of the next heartbeats have moved: tick again. A lease may end before the next try.
            return self._now() + 0.005
        if has_running:
            wake_at = min(wake_at, self._lag.check(self._require_events(), self.held(), now))
        return wake_at

    def _check_running(self, held: HeldJob, now: float) -> float:
        """Stops a handler whose time is up. Returns the next instant at which to look."""
        wake_at = float("inf")
        if not held.is_lost and now >= held.expires_at():
            self._lose(held, now, "no heartbeat reached the server")
        elif not held.is_lost:
            wake_at = held.expires_at()
        if held.stop_at is not None and held.deadline is not None:
            if now >= held.stop_at:
                held.stop_at = None
                held.cancellation.fire(CancelReason.DEADLINE)
                held.force_at = held.deadline
                held.abandon_at = held.deadline + self._stuck_grace
            else:
                wake_at = min(wake_at, held.stop_at)
        if held.force_at is not None:
            if now >= held.force_at:
                held.force_at = None
                self._post(held.force_stop)
            else:
                wake_at = min(wake_at, held.force_at)
        if held.abandon_at is not None:
            if now >= held.abandon_at:
                held.abandon_at = None
                self._post(self._require_events().abandon, held)
            else:
                wake_at = min(wake_at, held.abandon_at)
        return wake_at

    def _lose(self, held: HeldJob, now: float, reason: str) -> None:
        held.is_lost = True
        if held.state is not HeldState.RUNNING:
            return
        _LOG.warning("the lease of job %s (%s) is lost: %s", held.id, held.type.type, reason)
        held.cancellation.fire(CancelReason.LEASE_LOST)
        held.force_at = now + _LOST_FORCE_SECONDS
        held.abandon_at = now + _LOST_FORCE_SECONDS + self._stuck_grace

    def _send(self, due: list[HeldJob]) -> None:
        part: list[HeldJob] = []
        items: list[bytes] = []
        size = 0
        for held in due:
            item = _encode(held)
            if part and (len(part) >= _BATCH_MAX or size + len(item) > _BATCH_BYTES_MAX):
                if not self._send_part(part, items):
                    _restore([held])
                    return
                part, items, size = [], [], 0
            part.append(held)
            items.append(item)
            size += len(item)
        if part:
            self._send_part(part, items)

    def _send_part(self, part: list[HeldJob], items: list[bytes]) -> bool:
        """Sends heartbeats in one call. Returns whether the server has answered for all of them."""
        sent = self._now()
        timeout = min(_CALL_SECONDS_MAX, max(0.5, min(held.lease_seconds for held in part) / 3))
        body = b'{"heartbeats":[' + b",".join(items) + b"]}"
        try:
            answer = self._transport.request("POST", "/v1/heartbeats", body, timeout)
        except LongshoreError as error:
            if isinstance(error, Refused) and error.retry == "never" and error.status in (400, 413):
                return self._send_refused(part, items, error)
            _restore(part)
            # The wait that the server asks for is kept as long as the leases allow more tries.
            shortest = min(held.lease_seconds for held in part)
            self._retry_at = self._now() + self._backoff.next_delay(error, min(shortest / 6, 10.0))
            if isinstance(error, Refused) and error.retry == "never":
                _LOG.error("heartbeats are refused: %s", error)
            elif self._backoff.failures == 1:
                _LOG.warning("heartbeats fail, trying again: %s", error)
            return False
        except BaseException:
            _restore(part)
            raise
        self._backoff.reset()
        _forget_sent(part)
        self._apply(part, answer, sent)
        return True

    def _send_refused(self, part: list[HeldJob], items: list[bytes], error: Refused) -> bool:
        """Finds the item that spoils a call, and keeps its lease without its progress and checkpoint."""
        if len(part) > 1:
            middle = len(part) // 2
            is_first_sent = self._send_part(part[:middle], items[:middle])
            return self._send_part(part[middle:], items[middle:]) and is_first_sent
        [held] = part
        _forget_sent(part)
        bare = _encode_item(held, ABSENT, ABSENT)
        if items == [bare]:
            _LOG.error("a heartbeat of job %s is refused: %s", held.id, error)
            self._retry_at = self._now() + self._backoff.next_delay()
            return False
        _LOG.error("progress or checkpoint of job %s is refused: %s", held.id, error)
        return self._send_part(part, [bare])

    def _apply(self, part: list[HeldJob], answer: dict[str, Any], sent: float) -> None:
        now = self._now()
        if "now" in answer:
            self._clock.add(sent, parse_time(answer["now"]))
        for held, result in zip(part, answer["results"]):
            code = result.get("code")
            if code is None:
                held.leased_from = sent
                if result.get("cancel_requested"):
                    self._request_cancel(held, now)
            elif code in _LOST_CODES:
                # A job that is being settled may have ended while the heartbeat was in flight.
                if held.state in (HeldState.WAITING, HeldState.RUNNING):
                    self._lose(held, now, f"{code}: {result.get('detail', '')}")
            else:
                # A progress or checkpoint that the server does not take. The lease itself is kept.
                _LOG.error("a heartbeat of job %s is refused: %s: %s", held.id, code, result.get("detail", ""))
        if "directive" in answer:
            self._post(self._require_events().direct, answer["directive"])

    def _request_cancel(self, held: HeldJob, now: float) -> None:
        if held.state is HeldState.RUNNING and held.cancellation.fire(CancelReason.CANCELLED):
            held.force_at = now + self._cancel_grace

    def _require_events(self) -> KeeperEvents:
        assert self._events is not None, "the keeper is not started"
        return self._events

    def _post(self, callback: Callable[..., None], *arguments: Any) -> None:
        self._require_events().post(callback, *arguments)


def _encode(held: HeldJob) -> bytes:
    """Returns the heartbeat of a job, with the progress and checkpoint that it has for the server."""
    # First the marks, then the values: `save_checkpoint` looks at the marks.
    held.checkpoint_in_flight = held.next_checkpoint is not ABSENT
    progress, held.next_progress = held.next_progress, ABSENT
    checkpoint, held.next_checkpoint = held.next_checkpoint, ABSENT
    held.progress_in_flight = progress
    return _encode_item(held, progress, checkpoint)


def _encode_item(held: HeldJob, progress: Any, checkpoint: Any) -> bytes:
    item: dict[str, Any] = {"id": held.id, "lease": held.token}
    if progress is not ABSENT:
        item["progress"] = progress
    if checkpoint is not ABSENT:
        item["checkpoint"] = checkpoint
    return encode(item).encode()


def _forget_sent(part: list[HeldJob]) -> None:
    for held in part:
        held.progress_in_flight = ABSENT
        held.checkpoint_in_flight = False


def _restore(part: list[HeldJob]) -> None:
    """Plans again what a failed call may not have stored, unless there is something newer."""
    for held in part:
        if held.checkpoint_in_flight and held.next_checkpoint is ABSENT:
            held.next_checkpoint = held.checkpoint
        if held.progress_in_flight is not ABSENT and held.next_progress is ABSENT:
            held.next_progress = held.progress_in_flight
    _forget_sent(part)


class LoopLag:
    """Warns if the event loop does not respond, with the name of the handler that blocks it."""

    def __init__(self, warn_after: float) -> None:
        self.warn_after = warn_after
        self._sent_at: float | None = None
        self._is_answered = True
        self._is_reported = False

    def check(self, events: KeeperEvents, held: list[HeldJob], now: float) -> float:
        """Sends a ping to the loop, or looks for its answer. Returns when to look again."""
        if self._is_answered:
            self._is_answered = False
            self._is_reported = False
            self._sent_at = now
            events.post(self._answer)
        elif self._sent_at is not None and now - self._sent_at >= self.warn_after and not self._is_reported:
            self._is_reported = True
            _LOG.warning(
                "the event loop is blocked for more than %.1f s by handler %s (await, or use a plain def)",
                self.warn_after,
                _blocking_handler(events.loop, held),
            )
        return now + self.warn_after / 2

    def _answer(self) -> None:
        self._is_answered = True


def _blocking_handler(loop: asyncio.AbstractEventLoop, held: list[HeldJob]) -> str:
    """Returns the handler that runs on the loop now, with its line if it is known."""
    current = asyncio.current_task(loop)
    for job in held:
        if job.task is not None and job.task is current:
            return f"{job.type.__name__} of job {job.id}{_line_of(job)}"
    return "unknown" if current is None else current.get_name()


def _line_of(job: HeldJob) -> str:
    handler = job.type.handler
    code = getattr(handler, "__code__", None)
    for frame in sys._current_frames().values():
        while frame is not None:
            if code is not None and frame.f_code is code:
                return f" at {code.co_filename}:{frame.f_lineno}"
            frame = frame.f_back  # type: ignore[assignment]
    return ""
