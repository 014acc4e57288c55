"""One run of a worker, on the event loop.

Two loops share the connection to the server. The claim loop claims jobs for free slots, and carries
settlements with each claim. The settlement loop sends what no claim carries soon: while a claim
waits for jobs, while the slots are full, and while the worker drains.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..cancellation import CancelReason
from ..codec import encode
from ..durations import parse_time, to_seconds, to_wire
from ..errors import LongshoreError, Refused, StuckHandlers
from ..http import AsyncTransport, BlockingTransport, Hangup
from ..jobs import BatchJobType, JobType
from ..outcomes import Done, Fail, Release
from ..retry import Backoff
from .clock import ServerClock
from .handling import HandlerRunner
from .held import ABSENT, HeldJob, HeldState
from .keeper import KeeperEvents, LeaseKeeper
from .options import WorkerOptions
from .report import Report
from .settlements import BATCH_MAX, Settlement, join, members_of
from .settling import Settler
from .slots import SlotGroup

if TYPE_CHECKING:
    from ..client import Client
    from ..schedules import Schedule

_LOG = logging.getLogger("longshore.worker")
_CALL_SECONDS = 30.0
_FATAL_CODES = frozenset({"unauthorized", "forbidden", "validation", "bad_request"})
_CHECKPOINT_SECONDS = 2.0
_QUIET_POLL_SECONDS = 1.0
_HANGUP_SECONDS = 1.0
_FLUSH_SECONDS = 5.0
_URGENT_SECONDS = 0.5
_CANCEL_PART = 0.75
_FORCE_PART = 0.9


class WorkerRun:
    """The state of one run."""

    def __init__(
        self, client: Client, types: list[JobType[Any, Any]], options: WorkerOptions, schedules: list[Schedule]
    ) -> None:
        self._client = client
        self._schedules = schedules
        self._options = options
        self._transport = AsyncTransport(client.address)
        self._types = {job_type.type: job_type for job_type in types}
        self._groups = _make_groups(types, options)
        self._group_of = {job_type.type: group for group in self._groups for job_type in group.types}
        self._runner = HandlerRunner(client, options.state, tuple(options.middleware), options.classify)
        self._clock = ServerClock()
        self.keeper = LeaseKeeper(
            BlockingTransport(client.address),
            self._clock,
            cancel_grace=options.cancel_grace,
            stuck_grace=options.stuck_grace,
            lag_warning=options.lag_warning,
        )
        self.report = Report(handled=self._runner.handled)
        self.stuck_types: list[str] = []
        self._has_room = asyncio.Event()
        self._changed = asyncio.Event()
        self._settler = Settler(self._transport, self.keeper, self.report, self._changed, self._running)
        self._hangup: Hangup | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._optional_fields = {"settle"}
        self._is_quiet = False
        self._is_draining = False
        self._until_idle = False
        self._urgent_at: float | None = None
        self._drain_requested = asyncio.Event()
        self._claims_are_failing = False
        if options.version is not None:
            self._optional_fields.add("version")

    # Control, on the event loop

    def drain(self) -> None:
        """Stops claims. The run ends after its handlers, at the latest after the grace time."""
        self._drain_requested.set()

    def release_all(self) -> None:
        """Stops the run now: running jobs are released."""
        if self._urgent_at is None:
            self._urgent_at = time.monotonic()
        self._changed.set()
        self._drain_requested.set()

    async def serve(self, *, until_idle: bool = False) -> Report:
        """Runs until it is drained. With `until_idle` also if no job is ready and no handler runs."""
        started_at = time.monotonic()
        loop = asyncio.get_running_loop()
        self._until_idle = until_idle
        self.keeper.start(KeeperEvents(loop, self._abandon, self._release_waiting, self._direct))
        claims = loop.create_task(self._claim_loop())
        settlements = loop.create_task(self._settler.run())
        requested = loop.create_task(self._drain_requested.wait())
        refused = loop.create_task(self._put_schedules())
        try:
            try:
                if until_idle:
                    await asyncio.wait({refused, requested}, return_when=asyncio.FIRST_COMPLETED)
                await self._wait_for_end({claims, settlements, requested}, refused)
                await self._drain(claims)
            except asyncio.CancelledError:
                # The application ends without `drain`: no job may be lost with it.
                self.release_all()
                await self._drain(claims)
                raise
            for task in (claims, settlements, refused):
                if task.done() and not task.cancelled():
                    task.result()
        finally:
            for ended in (claims, settlements, requested, refused):
                ended.cancel()
            self.keeper.stop()
            await self._transport.close()
            self.report.seconds = time.monotonic() - started_at
        if self._options.stuck_limit is not None and len(self.stuck_types) >= self._options.stuck_limit:
            raise StuckHandlers(self.stuck_types, self.report)
        return self.report

    @staticmethod
    async def _wait_for_end(tasks: set[asyncio.Task[Any]], schedules: asyncio.Task[None]) -> None:
        """Waits until one of the tasks ends, or until the schedules cannot be created."""
        while not any(task.done() for task in tasks):
            if schedules.done() and (schedules.cancelled() or schedules.exception() is not None):
                return
            waited = tasks if schedules.done() else {*tasks, schedules}
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)

    async def _put_schedules(self) -> None:
        """Creates the schedules of the worker. It claims meanwhile, and survives an outage."""
        backoff = Backoff()
        for schedule in self._schedules:
            while True:
                try:
                    await self._client.put_schedule(schedule.name, schedule.job, **schedule.options)
                    break
                except LongshoreError as error:
                    if isinstance(error, Refused) and error.retry == "never":
                        raise
                    _LOG.warning("cannot create schedule %s, trying again: %s", schedule.name, error)
                await asyncio.sleep(backoff.next_delay())

    # Claims

    async def _claim_loop(self) -> None:
        backoff = Backoff()
        while not self._is_draining:
            if self._is_quiet:
                self._settler.claims_wait.set()
                await asyncio.sleep(_QUIET_POLL_SECONDS)
            if self._is_pressed():
                self._settler.claims_wait.set()
                await self._wait_until(
                    lambda: self._is_draining or not self._is_pressed(), time.monotonic() + _CALL_SECONDS, 0.0
                )
                continue
            groups = [group for group in self._groups if group.free() > 0]
            if not groups:
                self._has_room.clear()
                self._settler.claims_wait.set()
                await self._has_room.wait()
                continue
            self._settler.claims_wait.clear()
            # An outcome during the claim may make a job ready: only an idle worker's claim proves that none is.
            was_idle = self._is_idle()
            batch = self._settler.buffer.take() if self._settler.is_carried and not self._is_quiet else []
            try:
                count = await self._claim(groups, batch)
            except LongshoreError as error:
                self._settler.buffer.restore(batch)
                await self._after_failed_claim(error, backoff)
                continue
            except BaseException:
                self._settler.buffer.restore(batch)
                raise
            if self._claims_are_failing:
                self._claims_are_failing = False
                _LOG.warning("the server answers again")
            backoff.reset()
            if count:
                # Handlers without an await end here: the next claim carries their settlements.
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            elif self._until_idle:
                if was_idle:
                    return
                self._settler.claims_wait.set()
                await self._wait_until(
                    lambda: bool(self._settler.buffer) or not self._running(), time.monotonic() + 1.0, 0.0
                )

    def _is_pressed(self) -> bool:
        """Returns whether so many outcomes wait for the server that no job may be claimed."""
        return self._settler.buffer.unsettled() >= self._options.unsettled_limit and not self._settler.is_carried

    def _is_idle(self) -> bool:
        return (
            self._settler.buffer.is_empty() and not self._running() and not any(group.waiting for group in self._groups)
        )

    async def _claim(self, groups: list[SlotGroup], batch: list[Settlement]) -> int:
        """Claims jobs for these groups, settles a batch, and starts handlers. Returns the count."""
        options = self._options
        limit = min(BATCH_MAX, sum(group.free() for group in groups))
        is_waiting = not (batch or self._until_idle or self._is_quiet or self._clock.asks_sample(time.monotonic()))
        body: dict[str, Any] = {
            "queues": options.queues,
            "worker": options.name,
            "limit": limit,
            "types": [job_type.type for group in groups for job_type in group.types],
        }
        if is_waiting:
            body["wait"] = to_wire(options.wait)
        if options.lease is not None:
            body["lease"] = to_wire(options.lease)
        if "version" in self._optional_fields:
            body["version"] = options.version
        data = encode(body).encode()
        if batch:
            data = data[:-1] + b',"settle":' + join(batch) + b"}"
        timeout = _CALL_SECONDS + (options.wait if is_waiting else 0.0)
        self._hangup = Hangup() if is_waiting else None
        if is_waiting:
            self._settler.claims_wait.set()
        sent = time.monotonic()
        try:
            answer = await self._transport.request("POST", "/v1/claims", data, timeout, self._hangup)
        finally:
            self._hangup = None
            self._settler.claims_wait.clear()
        jobs = members_of(answer, "jobs")
        if batch:
            self._settler.apply_results(batch, members_of(answer, "results", len(batch)))
        if jobs:
            self._accept(jobs, answer.get("now"), sent, is_poll=is_waiting)
        elif "now" in answer:
            self._clock.add(sent, parse_time(answer["now"]), is_poll=is_waiting)
        self._direct(answer.get("directive", "run"))
        return len(jobs)

    async def _after_failed_claim(self, error: LongshoreError, backoff: Backoff) -> None:
        if self._is_draining:
            return
        if isinstance(error, Refused):
            if error.code == "validation" and error.field in self._optional_fields:
                # A server of an earlier version.
                self._optional_fields.discard(error.field)
                self._settler.is_carried = "settle" in self._optional_fields
                return
            if (error.field or "").startswith("settle["):
                # One item spoils the claim: the settlement loop gets a verdict for each.
                self._settler.is_carried = False
                self._settler.claims_wait.set()
                await self._wait_until(self._settler.buffer.is_empty, time.monotonic() + _CALL_SECONDS, 0.0)
                self._settler.is_carried = True
                return
            # A token that is revoked, or a wrong option: no later claim can succeed either.
            if error.code in _FATAL_CODES:
                raise error
        if not self._claims_are_failing:
            self._claims_are_failing = True
            _LOG.warning("cannot claim jobs, trying again: %s", error)
        self._settler.claims_wait.set()
        await asyncio.sleep(backoff.next_delay(error))

    def _accept(self, jobs: list[dict[str, Any]], now_text: str | None, sent: float, *, is_poll: bool) -> None:
        """Takes claimed jobs, and starts as many as there are free slots."""
        received = time.monotonic()
        now = parse_time(now_text) if now_text else None
        leased_from = sent if now is None else self._clock.earliest(sent, received, now)
        if now is not None:
            self._clock.add(sent, now, is_poll=is_poll)
        accepted = []
        for record in jobs:
            lease = record["lease"]
            seconds = _lease_seconds(lease)
            held = HeldJob(record, self._types[record["type"]], leased_from, seconds)
            deadline_at = record.get("deadline_at")
            if deadline_at is not None and now is not None:
                timeout = parse_time(deadline_at) - now
                held.set_deadline(leased_from + timeout, timeout)
            accepted.append(held)
        self.keeper.add(accepted)
        for held in accepted:
            self._group_of[held.type.type].add(held)
        if self._is_draining:
            self._release_waiting_jobs()
            return
        for group in self._groups:
            self._dispatch(group)

    def _direct(self, directive: str) -> None:
        """Follows the directive of the server."""
        if directive == "stop":
            if not self._is_draining:
                _LOG.info("the server stops this worker")
            self.drain()
        elif (directive == "quiet") != self._is_quiet:
            self._is_quiet = directive == "quiet"
            _LOG.info("the server %s this worker", "quiets" if self._is_quiet else "resumes")

    # Handlers

    def _running(self) -> int:
        return sum(group.running for group in self._groups)

    def _dispatch(self, group: SlotGroup) -> None:
        loop = asyncio.get_running_loop()
        while True:
            held = group.next_job()
            if held is None:
                return
            if held.state is not HeldState.WAITING:
                continue
            if held.is_lost:
                self._settler.drop_lost(held)
                continue
            held.state = HeldState.RUNNING
            held.started_at = time.monotonic()
            group.running += 1
            held.task = task = loop.create_task(self._execute(held, group))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _execute(self, held: HeldJob, group: SlotGroup) -> None:
        try:
            outcome = await self._runner.run(held)
        except Exception as error:
            # A defect of this package. The slot and the job must not be lost with it.
            _LOG.exception("cannot run handler %s of job %s", held.type.__name__, held.id)
            outcome = Fail("system", f"the worker failed: {type(error).__name__}", "worker_error")
        # From here on no force may interrupt the task: it ends soon by itself.
        held.task = None
        if held.next_checkpoint is not ABSENT and not isinstance(outcome, Done):
            await self._send_checkpoint(held)
        if held.state is not HeldState.RUNNING:
            # Abandoned, or released by the drain: the slot is free already.
            return
        group.running -= 1
        group.record_run(time.monotonic() - held.started_at)
        self._settler.settle(held, outcome)
        self._dispatch(group)
        self._make_room()
        self._changed.set()

    def _make_room(self) -> None:
        """Wakes the claim loop if it waits for free slots."""
        if not self._has_room.is_set():
            self._has_room.set()
            # The settlement loop leaves to it what is here now.
            self._settler.claims_wait.clear()

    async def _send_checkpoint(self, held: HeldJob) -> None:
        """Sends a checkpoint that no heartbeat has carried yet: the next attempt needs it."""
        body = encode({"lease": held.token, "checkpoint": held.next_checkpoint}).encode()
        held.next_checkpoint = ABSENT
        try:
            await self._transport.request("POST", f"/v1/jobs/{held.id}/heartbeat", body, _CHECKPOINT_SECONDS)
        except LongshoreError as error:
            _LOG.warning("the checkpoint of job %s is not stored: %s", held.id, error)

    def _abandon(self, held: HeldJob) -> None:
        """Frees the slot of a stuck handler. Its lease is not settled: the server ends it."""
        if held.state is not HeldState.RUNNING:
            return
        group = self._group_of[held.type.type]
        self.keeper.remove(held)
        group.running -= 1
        self.report.abandoned += 1
        self.stuck_types.append(held.type.type)
        if held.is_lost:
            self._settler.count_lost(held)
        _LOG.error("handler %s of job %s is stuck: it ignores its token and is abandoned", held.type.__name__, held.id)
        self._dispatch(group)
        self._make_room()
        self._changed.set()
        limit = self._options.stuck_limit
        if limit is not None and self.report.abandoned >= limit:
            _LOG.error("%s handlers are stuck: the worker drains", self.report.abandoned)
            self.drain()

    # The end

    def _release_waiting(self, held: HeldJob) -> None:
        """Releases a job that has waited too long for a slot."""
        if held.state is HeldState.WAITING:
            self._group_of[held.type.type].waiting.remove(held)
            self._settler.settle(held, Release())
            self._make_room()

    def _release_waiting_jobs(self) -> None:
        for group in self._groups:
            while group.waiting:
                self._settler.settle(group.waiting.popleft(), Release())

    async def _drain(self, claims: asyncio.Task[None]) -> None:
        """Finishes, cancels, releases: in this order, within the grace time."""
        start = time.monotonic()
        grace = self._options.grace
        self._is_draining = True
        self._has_room.set()
        self._release_waiting_jobs()
        if self._running() and self._urgent_at is None:
            _LOG.info("draining: %s handlers have %.1f s to finish", self._running(), grace)
        await self._end_claims(claims)
        is_finished = await self._wait_until(lambda: not self._running(), start + grace * _CANCEL_PART, 0.0)
        if not is_finished:
            self._cancel_running(start + grace * _FORCE_PART)
            await self._wait_until(lambda: not self._running(), start + grace, _URGENT_SECONDS)
            self._release_running()
        is_flushed = await self._wait_until(
            self._settler.buffer.is_empty, start + grace + _FLUSH_SECONDS, _FLUSH_SECONDS
        )
        if not is_flushed:
            _LOG.error("the server does not answer: %s outcomes are not settled", len(self.keeper.held()))

    async def _end_claims(self, claims: asyncio.Task[None]) -> None:
        if self._hangup is not None:
            self._hangup.request()
        if self._is_quiet:
            claims.cancel()
        await asyncio.wait({claims}, timeout=_HANGUP_SECONDS)
        claims.cancel()
        self._settler.is_carried = False
        self._settler.claims_wait.set()

    async def _wait_until(self, condition: Callable[[], bool], deadline: float, urgent_seconds: float) -> bool:
        """Waits for a condition until the deadline, which a second signal brings forward."""
        while not condition():
            until = deadline if self._urgent_at is None else min(deadline, self._urgent_at + urgent_seconds)
            left = until - time.monotonic()
            if left <= 0:
                return False
            self._changed.clear()
            try:
                await asyncio.wait_for(self._changed.wait(), left)
            except asyncio.TimeoutError:
                pass
        return True

    def _cancel_running(self, force_at: float) -> None:
        now = time.monotonic()
        if self._urgent_at is not None:
            force_at = now + _URGENT_SECONDS / 2
        for held in self.keeper.held():
            if held.state is HeldState.RUNNING:
                held.cancellation.fire(CancelReason.DRAIN)
                held.force_at = force_at
        self.keeper.wake()

    def _release_running(self) -> None:
        for held in self.keeper.held():
            if held.state is HeldState.RUNNING:
                self._group_of[held.type.type].running -= 1
                _LOG.warning("job %s is released: handler %s did not finish", held.id, held.type.__name__)
                self._settler.settle(held, Release())


def _lease_seconds(lease: dict[str, Any]) -> float:
    """Returns how long a lease lasts without a heartbeat. It is infinite where leases are off."""
    return to_seconds(lease["duration"]) if lease.get("duration") is not None else math.inf


def _make_groups(types: list[JobType[Any, Any]], options: WorkerOptions) -> list[SlotGroup]:
    single = [job_type for job_type in types if not isinstance(job_type, BatchJobType)]
    groups = [SlotGroup(single, options.slots, options.prefetch)] if single else []
    for job_type in types:
        if isinstance(job_type, BatchJobType):
            groups.append(SlotGroup([job_type], job_type.batch_size * job_type.batch_concurrency, 1.0))
    return groups
