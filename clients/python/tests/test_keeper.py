"""The lease keeper in virtual time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, cast

import pytest

from longshore import CancelReason, Context, JobType, Refused, Unreachable, job
from longshore.worker.clock import ServerClock
from longshore.worker.held import HeldJob, HeldState
from longshore.worker.keeper import KeeperEvents, LeaseKeeper


@job("handler")
async def handler(ctx: Context, payload: None) -> None:
    return None


class FakeServer:
    """Answers heartbeats at once, as `results` says by job id."""

    def __init__(self, keeper: KeeperInVirtualTime) -> None:
        self.keeper = keeper
        self.calls: list[tuple[float, list[dict[str, Any]]]] = []
        self.results: dict[str, dict[str, Any]] = {}
        self.is_down = False
        self.directive = "run"
        self.bytes_max = 32 * 1024 * 1024

    def request(self, method: str, path: str, body: bytes | None, timeout: float) -> Any:
        assert (method, path) == ("POST", "/v1/heartbeats")
        items = json.loads(body or b"")["heartbeats"]
        self.calls.append((self.keeper.time, items))
        if self.is_down:
            raise Unreachable("down", sent=True)
        if len(body or b"") > self.bytes_max:
            raise Refused(413, {"code": "payload_too_large", "retry": "never"})
        results = [self.results.get(item["id"], {"id": item["id"]}) for item in items]
        return {"results": results, "directive": self.directive}

    def close(self) -> None:
        pass


class KeeperInVirtualTime(KeeperEvents):
    """A keeper whose thread is this test."""

    def __init__(self) -> None:
        self.events: list[tuple[float, str, Any]] = []
        super().__init__(
            cast(asyncio.AbstractEventLoop, None),
            lambda held: self.record("abandon", held),
            lambda held: self.record("release", held),
            lambda word: self.record("directive", word),
        )
        self.time = 0.0
        self.server = FakeServer(self)
        self.keeper = LeaseKeeper(
            self.server,
            ServerClock(),
            cancel_grace=5.0,
            stuck_grace=10.0,
            lag_warning=1.0,
            now=lambda: self.time,
        )
        self.keeper.attach(self)

    def record(self, name: str, value: Any) -> None:
        self.events.append((self.time, name, value))

    def post(self, callback: Callable[..., None], *arguments: Any) -> None:
        if callback.__name__ == "force_stop":
            self.record("force", None)
        else:
            callback(*arguments)

    def hold(self, count: int = 1, lease: float = 30.0, timeout: float | None = None) -> list[HeldJob]:
        jobs = []
        for number in range(count):
            record = {"id": f"job{number}", "type": "handler", "queue": "q", "lease": {"token": f"token{number}"}}
            held = HeldJob(record, cast(JobType[Any, Any], handler), self.time, lease)
            held.state = HeldState.RUNNING
            if timeout is not None:
                held.set_deadline(self.time + timeout, timeout)
            jobs.append(held)
        self.keeper.add(jobs)
        return jobs

    def advance(self, until: float) -> None:
        """Ticks as often as the thread would."""
        while True:
            wake_at = self.keeper.tick(self.time)
            assert wake_at > self.time
            if wake_at > until:
                break
            self.time = wake_at
        self.time = until

    def times_of(self, name: str) -> list[float]:
        return [round(at, 2) for at, each, _ in self.events if each == name]


@pytest.fixture
def virtual() -> KeeperInVirtualTime:
    return KeeperInVirtualTime()


def test_one_heartbeat_for_all_jobs_every_third_of_the_lease(virtual: KeeperInVirtualTime) -> None:
    jobs = virtual.hold(3, lease=15.0)
    virtual.advance(60.0)
    assert [at for at, _ in virtual.server.calls] == pytest.approx([5.0 * n for n in range(1, 13)])
    assert all(len(items) == 3 for _, items in virtual.server.calls)
    # Heartbeats end with the job.
    for held in jobs:
        virtual.keeper.remove(held)
    virtual.advance(120.0)
    assert len(virtual.server.calls) == 12


def test_heartbeats_of_long_leases_are_ten_seconds_apart(virtual: KeeperInVirtualTime) -> None:
    virtual.hold(1, lease=3600.0)
    virtual.advance(35.0)
    assert [at for at, _ in virtual.server.calls] == pytest.approx([10.0, 20.0, 30.0])


def test_settling_job_keeps_its_lease(virtual: KeeperInVirtualTime) -> None:
    [held] = virtual.hold()
    held.state = HeldState.SETTLING
    virtual.server.results["job0"] = {"id": "job0", "code": "stale_lease", "detail": ""}
    virtual.advance(25.0)
    assert len(virtual.server.calls) >= 2
    assert not held.is_lost


def test_progress_and_checkpoint_are_sent_once(virtual: KeeperInVirtualTime) -> None:
    [held] = virtual.hold()
    held.next_progress, held.next_checkpoint, held.checkpoint = 50, {"row": 7}, {"row": 7}
    virtual.server.is_down = True
    virtual.advance(10.5)
    virtual.server.is_down = False
    virtual.advance(30.0)
    with_checkpoint = [items[0] for _, items in virtual.server.calls if "checkpoint" in items[0]]
    # The first calls failed: the checkpoint is sent again until one is answered.
    assert len(with_checkpoint) >= 2
    assert "checkpoint" not in virtual.server.calls[-1][1][0]
    assert not held.checkpoint_in_flight


def test_progress_of_a_failed_heartbeat_is_sent_again(virtual: KeeperInVirtualTime) -> None:
    [held] = virtual.hold()
    held.next_progress = 50
    virtual.server.is_down = True
    virtual.advance(10.5)
    virtual.server.is_down = False
    virtual.advance(30.0)
    assert [items[0].get("progress") for _, items in virtual.server.calls[-2:]] == [50, None]


def test_large_checkpoints_take_several_calls(virtual: KeeperInVirtualTime) -> None:
    """40 checkpoints of 1 MiB do not fit into the 32 MiB of one request."""
    jobs = virtual.hold(40)
    for held in jobs:
        held.next_checkpoint = held.checkpoint = "x" * 1024 * 1024
    virtual.advance(12.0)
    assert len(virtual.server.calls) >= 5
    stored = [item["id"] for _, items in virtual.server.calls for item in items if "checkpoint" in item]
    assert sorted(stored) == sorted(held.id for held in jobs)
    assert all(held.leased_from >= 10.0 for held in jobs)


def test_refused_checkpoint_costs_no_lease(virtual: KeeperInVirtualTime) -> None:
    jobs = virtual.hold(3)
    virtual.server.bytes_max = 1000
    jobs[1].next_checkpoint = jobs[1].checkpoint = "x" * 1000
    virtual.advance(120.0)
    assert not any(held.is_lost for held in jobs)
    assert not jobs[1].checkpoint_in_flight


def test_lease_without_end_survives_an_outage(virtual: KeeperInVirtualTime) -> None:
    [held] = virtual.hold(lease=float("inf"))
    virtual.server.is_down = True
    virtual.advance(3_000.0)
    assert not held.is_lost
    virtual.server.is_down = False
    virtual.advance(3_020.0)
    assert held.leased_from > 3_000.0


def test_cancel_request_forces_after_the_grace_time(virtual: KeeperInVirtualTime) -> None:
    [held] = virtual.hold()
    virtual.server.results["job0"] = {"id": "job0", "cancel_requested": True}
    virtual.advance(40.0)
    assert held.cancellation.reason is CancelReason.CANCELLED
    assert virtual.times_of("force") == [15.0]
    assert virtual.times_of("abandon") == []


def test_lost_lease_stops_the_handler(virtual: KeeperInVirtualTime) -> None:
    [held] = virtual.hold()
    virtual.server.results["job0"] = {"id": "job0", "code": "stale_lease", "detail": ""}
    virtual.advance(60.0)
    assert (held.is_lost, held.cancellation.reason) == (True, CancelReason.LEASE_LOST)
    assert len(virtual.server.calls) == 1
    assert virtual.times_of("force") == [11.0]
    assert virtual.times_of("abandon") == [21.0]


def test_outage_loses_the_lease_before_the_server_ends_it(virtual: KeeperInVirtualTime) -> None:
    [held] = virtual.hold()
    virtual.server.is_down = True
    virtual.advance(28.9)
    assert not held.is_lost
    # Jittered backoff of at most two seconds.
    assert len(virtual.server.calls) >= 9
    virtual.advance(29.1)
    assert (held.is_lost, held.cancellation.reason) == (True, CancelReason.LEASE_LOST)


def test_lease_is_lost_in_time_between_two_tries(virtual: KeeperInVirtualTime, monkeypatch: pytest.MonkeyPatch) -> None:
    # Tries at 10.0, 11.7, ..., 28.7 and 30.4 seconds.
    monkeypatch.setattr(virtual.keeper._backoff, "next_delay", lambda *_: 1.7)
    [held] = virtual.hold()
    virtual.server.is_down = True
    virtual.advance(29.1)
    assert round(virtual.server.calls[-1][0], 2) == 28.7
    assert (held.is_lost, held.cancellation.reason) == (True, CancelReason.LEASE_LOST)


def test_short_outage_loses_nothing(virtual: KeeperInVirtualTime) -> None:
    [held] = virtual.hold()
    virtual.server.is_down = True
    virtual.advance(25.0)
    virtual.server.is_down = False
    virtual.advance(120.0)
    assert not held.is_lost
    assert not held.cancellation.is_set()


def test_deadline_token_then_force_then_abandon(virtual: KeeperInVirtualTime) -> None:
    [held] = virtual.hold(timeout=20.0)
    virtual.advance(18.9)
    assert not held.cancellation.is_set()
    virtual.advance(40.0)
    assert held.cancellation.reason is CancelReason.DEADLINE
    assert virtual.times_of("force") == [20.0]
    assert virtual.times_of("abandon") == [30.0]


def test_waiting_job_is_released_after_half_of_its_lease(virtual: KeeperInVirtualTime) -> None:
    [held] = virtual.hold()
    held.state = HeldState.WAITING
    virtual.advance(14.0)
    assert virtual.times_of("release") == []
    virtual.advance(21.0)
    assert virtual.times_of("release")
    assert virtual.times_of("release")[0] < 17.0


def test_directive_reaches_the_run(virtual: KeeperInVirtualTime) -> None:
    virtual.server.directive = "quiet"
    virtual.hold()
    virtual.advance(11.0)
    assert (virtual.events[0][1], virtual.events[0][2]) == ("directive", "quiet")
