"""The settlement loop: batches of outcomes, and what the server says about each."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from ..errors import LongshoreError, Refused
from ..http import AsyncTransport
from ..outcomes import Fail, Outcome, encode_settlement
from ..retry import Backoff
from .held import HeldJob, HeldState
from .keeper import LeaseKeeper
from .report import Report
from .settlements import Settlement, SettlementBuffer, is_lost, join, members_of, replacement_for

_LOG = logging.getLogger("longshore.worker")
_LINGER_SECONDS = 0.005
_LINGER_JOBS = 64
_CARRY_SECONDS = 0.5
_CALL_SECONDS = 30.0
# Longest wait that `Retry-After` adds: an outcome must not outlast its lease.
_RETRY_AFTER_MAX = 5.0
_COUNTED = {"complete": "completed", "fail": "failed", "snooze": "snoozed", "release": "released"}


class Settler:
    """Settles jobs: by the next claim if one comes soon, else by calls of its own.

    `is_carried` says that claims carry settlements. `claims_wait` is set while the claim loop takes
    none: it waits for jobs, for room, or for the server.
    """

    def __init__(
        self,
        transport: AsyncTransport,
        keeper: LeaseKeeper,
        report: Report,
        changed: asyncio.Event,
        running: Callable[[], int],
    ) -> None:
        self._transport = transport
        self._keeper = keeper
        self._report = report
        self._changed = changed
        self._running = running
        self.buffer = SettlementBuffer()
        self.claims_wait = asyncio.Event()
        self.is_carried = True

    def settle(self, held: HeldJob, outcome: Outcome) -> None:
        """Plans the settlement of a job whose lease is not lost."""
        self._settle(held, outcome, is_replacement=False)

    def _settle(self, held: HeldJob, outcome: Outcome, *, is_replacement: bool) -> None:
        held.state = HeldState.SETTLING
        if held.is_lost:
            self.drop_lost(held)
            return
        try:
            verb, body = encode_settlement(held.id, held.token, outcome)
        except Exception as error:
            # Models and other classes may raise anything while they become JSON.
            _LOG.error("the outcome of handler %s is not JSON: %r", held.type.__name__, error)
            outcome = Fail.permanent("bad_result", f"result: {type(error).__name__}: {error}")
            verb, body = encode_settlement(held.id, held.token, outcome)
        self.buffer.add(Settlement(held, outcome, verb, body, is_replacement))

    def drop_lost(self, held: HeldJob) -> None:
        """Forgets a job whose lease is lost."""
        self._keeper.remove(held)
        self.count_lost(held)

    def count_lost(self, held: HeldJob) -> None:
        """Counts a lost lease, once."""
        if not held.is_lost_counted:
            held.is_lost_counted = True
            self._report.lost += 1

    async def run(self) -> None:
        """Sends what no claim carries soon."""
        backoff = Backoff()
        while True:
            await self.buffer.arrived.wait()
            if self.is_carried and not self.claims_wait.is_set():
                # The next claim carries what is here now.
                await self._wait_for_claims()
                if not self.buffer:
                    continue
            if len(self.buffer) < _LINGER_JOBS and self._running():
                await asyncio.sleep(_LINGER_SECONDS)
            batch = self.buffer.take()
            if not batch:
                continue
            try:
                await self._send_settlements(batch)
                backoff.reset()
            except LongshoreError as error:
                self.buffer.restore(batch)
                if backoff.failures == 0:
                    _LOG.warning("cannot settle %s jobs, trying again: %s", len(batch), error)
                await asyncio.sleep(backoff.next_delay(error, _RETRY_AFTER_MAX))

    async def _wait_for_claims(self) -> None:
        try:
            await asyncio.wait_for(self.claims_wait.wait(), _CARRY_SECONDS)
        except asyncio.TimeoutError:
            # The claim is slow. Its answer must not hold up outcomes.
            pass

    async def _send_settlements(self, batch: list[Settlement]) -> None:
        body = b'{"settlements":' + join(batch) + b"}"
        try:
            answer = await self._transport.request("POST", "/v1/settlements", body, _CALL_SECONDS)
        except Refused as error:
            if error.retry != "never" or error.status in (401, 403):
                raise
            # One item spoils the batch: each gets its own verdict.
            if len(batch) > 1:
                for settlement in batch:
                    await self._send_alone(settlement)
                self.buffer.finish(batch)
                self._changed.set()
                return
            self.apply_results(batch, [{"code": error.code, "detail": error.detail}])
            return
        self.apply_results(batch, members_of(answer, "results", len(batch)))

    async def _send_alone(self, settlement: Settlement) -> None:
        body = b'{"settlements":' + join([settlement]) + b"}"
        try:
            answer = await self._transport.request("POST", "/v1/settlements", body, _CALL_SECONDS)
            results = members_of(answer, "results", 1)
        except Refused as error:
            if error.retry != "never":
                self.buffer.add(settlement)
                return
            results = [{"code": error.code, "detail": error.detail}]
        except LongshoreError:
            self.buffer.add(settlement)
            return
        self._apply_result(settlement, results[0])

    def apply_results(self, batch: list[Settlement], results: list[dict[str, Any]]) -> None:
        """Takes the verdicts of a batch."""
        for settlement, result in zip(batch, results):
            self._apply_result(settlement, result)
        self.buffer.finish(batch)
        self._changed.set()

    def _apply_result(self, settlement: Settlement, result: dict[str, Any]) -> None:
        held = settlement.held
        if "code" not in result:
            self._keeper.remove(held)
            name = _COUNTED[settlement.verb]
            setattr(self._report, name, getattr(self._report, name) + 1)
        elif is_lost(result):
            _LOG.warning("the outcome of job %s comes too late: %s", held.id, result.get("detail", result["code"]))
            self.drop_lost(held)
        else:
            _LOG.error("the outcome of job %s is refused: %s: %s", held.id, result["code"], result.get("detail", ""))
            replacement = replacement_for(settlement, result)
            if replacement is None:
                self.drop_lost(held)
            else:
                self._settle(held, replacement, is_replacement=True)
