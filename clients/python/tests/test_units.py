"""Parts without a server: durations, retries, clock, outcomes, slots, tokens."""

from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from longshore import (
    CancelReason,
    Client,
    ConfigurationError,
    Context,
    Done,
    Fail,
    JobType,
    Refused,
    Release,
    Snooze,
    Unreachable,
    Worker,
    job,
)
from longshore.cancellation import Cancellation
from longshore.durations import format_time, parse_time, to_seconds, to_wire
from longshore.http import Address
from longshore.outcomes import encode_settlement
from longshore.retry import Backoff, RetryPlan, can_repeat
from longshore.worker.clock import ServerClock
from longshore.worker.held import ABSENT, HeldJob, margin_of
from longshore.worker.slots import SlotGroup


def make_held(lease: float = 30.0) -> HeldJob:
    record = {"id": "id", "type": "t", "queue": "q", "lease": {"token": "token"}}
    return HeldJob(record, JobType("t"), 0.0, lease)


@pytest.mark.parametrize(
    ("duration", "seconds"),
    [
        ("1h15m5s", 4505.0),
        ("3w2d", 1_987_200.0),
        ("500ms", 0.5),
        ("1 h 5 s", 3605.0),
        (5, 5.0),
        (timedelta(days=1), 86400.0),
    ],
)
def test_durations(duration: Any, seconds: float) -> None:
    assert to_seconds(duration) == seconds
    assert to_wire(duration) == f"{round(seconds * 1000)}ms"


@pytest.mark.parametrize("text", ["", "5", "5 apples", "h", "1s2"])
def test_wrong_durations_are_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="not a duration"):
        to_seconds(text)


def test_times() -> None:
    at = datetime(2026, 11, 15, 18, 8, 27, 123000, tzinfo=timezone.utc)
    assert format_time(at) == "2026-11-15T18:08:27.123Z"
    assert parse_time("2026-11-15T18:08:27.123Z") == at.timestamp()


@pytest.mark.parametrize(
    ("error", "once", "idempotent"),
    [
        (Refused(503, {"code": "store_unavailable", "retry": "safe"}), True, True),
        (Refused(504, {"code": "submission_timeout", "retry": "unknown"}), False, True),
        (Refused(409, {"code": "stale_lease", "retry": "never"}), False, False),
        (Unreachable("no connection", sent=False), True, True),
        (Unreachable("lost answer", sent=True), False, True),
    ],
)
def test_only_the_retry_word_allows_a_repetition(error: Any, once: bool, idempotent: bool) -> None:
    assert can_repeat(error, is_idempotent=False) is once
    assert can_repeat(error, is_idempotent=True) is idempotent


def test_retries_end_with_the_total_time() -> None:
    error = Refused(503, {"retry": "safe"})
    assert RetryPlan(60.0).next_delay(error, is_idempotent=False) is not None
    assert RetryPlan(0.0).next_delay(error, is_idempotent=False) is None
    waiting = Refused(429, {"retry": "safe"}, retry_after=7.0)
    delay = RetryPlan(60.0).next_delay(waiting, is_idempotent=False)
    assert delay == 7.0


def test_backoff_waits_as_long_as_the_server_asks() -> None:
    waiting = Refused(429, {"retry": "safe"}, retry_after=7.0)
    assert Backoff(first=0.1).next_delay(waiting) == 7.0
    assert Backoff(first=0.1).next_delay(waiting, wait_max=2.0) == 2.0
    assert Backoff(first=0.1).next_delay(Unreachable("no connection", sent=False)) <= 0.1


def test_backoff_grows_to_its_limit() -> None:
    backoff = Backoff(first=1.0, longest=8.0)
    delays = [backoff.next_delay() for _ in range(20)]
    assert all(0.25 <= delay <= 8.0 for delay in delays)
    assert delays[0] <= 1.0
    backoff.reset()
    assert backoff.next_delay() <= 1.0


def test_address() -> None:
    address = Address.make("https://queue.example/base/", "lsk_x")
    assert (address.host, address.port, address.base) == ("queue.example", 443, "/base")
    assert "authorization: Bearer lsk_x\r\n" in address.headers
    assert Address.make("127.0.0.1:9", None).port == 9
    with pytest.raises(ConfigurationError):
        Address.make("ftp://x", None)
    with pytest.raises(ConfigurationError):
        Address.make(None, "a\r\nb")


def test_lease_begins_before_the_claim_was_sent() -> None:
    clock = ServerClock()
    # Server time is 1000 s ahead. A call sent at 10 is answered with 1010.2 at 10.4.
    assert clock.earliest(10.0, 10.4, 1010.2) == 10.0
    clock.add(10.0, 1010.2)
    # A long poll that was sent at 11 and answered at 30: the job was granted at 1029.9.
    assert clock.earliest(11.0, 30.0, 1029.9) == pytest.approx(29.7)
    # A step of the server's clock never moves the start behind the answer.
    assert clock.earliest(31.0, 31.1, 9999.0) == 31.1
    # A sample older than a minute is replaced.
    clock.add(100.0, 1101.0, is_poll=True)
    assert clock.earliest(101.0, 130.0, 1130.5) == pytest.approx(129.5)


def test_worker_that_only_waits_asks_for_samples() -> None:
    clock = ServerClock()
    assert clock.asks_sample(0.0)
    # The call failed: the next one waits for a second.
    assert not clock.asks_sample(0.5)
    clock.add(0.5, 1000.5)
    assert not clock.asks_sample(45.0)
    # Long polls of 20 s bring no sample: after 45 s one claim does not wait, and replaces the old sample.
    clock.add(40.0, 1060.0, is_poll=True)
    assert clock.asks_sample(46.0)
    clock.add(46.0, 1046.2)
    assert not clock.asks_sample(90.0)
    assert clock.earliest(50.0, 70.0, 1068.0) == pytest.approx(67.8)


def test_margins_of_leases_and_deadlines() -> None:
    assert margin_of(1.0) == pytest.approx(0.1)
    assert margin_of(1800.0) == 1.0
    held = make_held(30.0)
    assert held.heartbeat_at() == 10.0
    assert held.expires_at() == 29.0
    held.set_deadline(100.0, 5.0)
    assert held.stop_at == 99.5


@pytest.mark.parametrize(
    ("outcome", "verb", "fields"),
    [
        (Done(), "complete", {}),
        (Done({"a": 1}), "complete", {"result": {"a": 1}}),
        (Done(0), "complete", {"result": 0}),
        (Release(), "release", {}),
        (Snooze(minutes=5), "snooze", {"delay": "300000ms"}),
        (
            Fail.permanent("no_address"),
            "fail",
            {"error": {"category": "permanent", "message": "no_address", "code": "no_address"}},
        ),
        (
            Fail.temporary("busy", retry_after="2m", cause="c"),
            "fail",
            {"error": {"category": "temporary", "message": "busy", "cause": "c", "retry_after": "120000ms"}},
        ),
    ],
)
def test_settlements(outcome: Any, verb: str, fields: dict[str, Any]) -> None:
    found, body = encode_settlement("id", "token", outcome)
    assert found == verb
    assert json.loads(body) == {"id": "id", "lease": "token", "outcome": verb, **fields}


def test_prefetch_follows_the_duration_of_handlers() -> None:
    group = SlotGroup([], slots=10, prefetch=2.0)
    assert group.free() == 10
    group.record_run(0.001)
    assert group.free() == 20
    slow = SlotGroup([], slots=10, prefetch=2.0)
    slow.record_run(60.0)
    assert slow.free() == 10


def test_token_fires_once_for_all_waiters() -> None:
    async def scenario() -> None:
        token = Cancellation()
        first = asyncio.create_task(token.wait())
        second = asyncio.create_task(token.sleep(60))
        blocked = asyncio.get_running_loop().run_in_executor(None, token.wait_blocking, 60)
        await asyncio.sleep(0)
        thread = threading.Thread(target=token.fire, args=(CancelReason.DRAIN,))
        thread.start()
        assert await first is CancelReason.DRAIN
        assert await second
        assert await blocked
        thread.join()
        assert not token.fire(CancelReason.DEADLINE)
        assert token.reason is CancelReason.DRAIN
        assert await token.wait() is CancelReason.DRAIN

    asyncio.run(scenario())


@dataclass
class Mail:
    to: str


@pytest.mark.parametrize(
    ("declared", "payload"),
    [(Mail, "ada"), (Mail, ["ada"]), (str, 7), (int, "7"), (float, "7"), (bytes, "7"), (str, None)],
)
def test_payload_of_another_class_is_refused(declared: Any, payload: Any) -> None:
    with pytest.raises(ConfigurationError, match=rf"job type 't' is of type \w+ \(expected {declared.__name__}\)"):
        JobType("t", payload=declared).new(payload)


@pytest.mark.parametrize(
    ("declared", "payload"),
    [
        (Mail, Mail("ada")),
        (Mail, {"to": "ada"}),
        (float, 7),
        (bytes, bytearray(b"7")),
        (Any, object()),
        (dict, {}),
        (list[int], []),
    ],
)
def test_payload_of_its_class_is_accepted(declared: Any, payload: Any) -> None:
    assert JobType("t", payload=declared).new(payload).payload is payload


def test_wrong_handlers_are_named() -> None:
    async def lonely(ctx: Any) -> None: ...

    async def crowded(ctx: Any, first: int, second: int) -> None: ...

    async def fitting(ctx: Any, first: int, second: int = 2, *rest: int, **named: int) -> None: ...

    class Handler: ...

    with pytest.raises(ConfigurationError, match=r"lonely has the parameters \(ctx\) \(write it as \(ctx, payload\)\)"):
        job("t")(lonely)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"crowded has the parameters \(ctx, first, second\)"):
        job("t")(crowded)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="Handler is not a function"):
        job("t")(Handler)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r'write it as @job\("email.send"\)'):
        job(fitting)  # type: ignore[arg-type]
    assert job("t")(fitting).payload_type is int


def test_worker_without_client_or_state_says_so() -> None:
    with pytest.raises(ConfigurationError, match=r"write it as Worker\(Client\(url\), jobs\)"):
        Worker("http://127.0.0.1:7070", [])  # type: ignore[arg-type]
    ctx = Context(make_held(), Client(), ABSENT, None)
    with pytest.raises(ConfigurationError, match="the worker has no state"):
        ctx.state.db  # noqa: B018
    assert Context(make_held(), Client(), None, None).state is None
