"""The pytest plugin: virtual time, drain, submitted jobs, single handlers."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from longshore import ConfigurationError, Context, Done, Fail, Snooze, job
from longshore.testing import AsyncTestQueue, TestQueue, find_binary, perform


@dataclass
class SendEmail:
    to: str


class Smtp:
    """Refuses the first messages."""

    def __init__(self, refusals: int) -> None:
        self.refusals = refusals
        self.sent: list[str] = []

    def send(self, to: str) -> None:
        if self.refusals:
            self.refusals -= 1
            raise ConnectionError("try later")
        self.sent.append(to)


@job("email.send", queue="mail", retry={"limit": 5, "backoff": {"kind": "constant", "base": "1h"}})
async def send_email(ctx: Context, mail: SendEmail) -> str:
    ctx.state.send(mail.to)
    return f"sent in attempt {ctx.attempt}"


@job("welcome")
async def welcome(ctx: Context, name: str) -> None:
    await send_email.submit(ctx.client, SendEmail(f"{name}@example.com"), delay="1d", key=f"welcome:{name}")


@job("last")
async def give_up(ctx: Context, payload: None) -> int | Fail | Snooze:
    if ctx.is_last_attempt:
        return Fail.permanent("gave_up")
    return ctx.attempt if ctx.checkpoint is None else Snooze(minutes=5)


def test_retrying_handler(queue: TestQueue) -> None:
    smtp = Smtp(refusals=2)
    handle = queue.submit(send_email, SendEmail("ada@example.com"))
    for _ in range(3):
        queue.drain(send_email, state=smtp)
        queue.advance("2h")
    assert handle.wait() == "sent in attempt 3"
    assert smtp.sent == ["ada@example.com"]


def test_handler_submits_another_job(queue: TestQueue) -> None:
    queue.submit(welcome, "ada")
    queue.drain(welcome)
    [mail] = queue.submitted(send_email)
    assert mail.payload == SendEmail("ada@example.com")
    assert (mail.job["state"], mail.job["idempotency_key"]) == ("delayed", "welcome:ada")
    assert queue.submitted(send_email, state="completed") == []
    smtp = Smtp(0)
    queue.advance("1d")
    queue.drain(send_email, state=smtp)
    assert smtp.sent == ["ada@example.com"]


def test_exhausted_retries(queue: TestQueue) -> None:
    handle = queue.submit(send_email, SendEmail("ada@example.com"))
    for _ in range(6):
        queue.drain(send_email, state=Smtp(refusals=100))
        queue.advance("3h")
    record = handle.get()
    assert (record["state"], record["counters"]["failures"]) == ("dead_letter", 5)


def test_single_handlers(queue: TestQueue) -> None:
    assert queue.perform(give_up, None, attempt=3) == Done(3)
    assert queue.perform(give_up, None, attempt=3, last_attempt=True) == Fail.permanent("gave_up")
    assert queue.perform(give_up, None, checkpoint={}) == Snooze(300)


def test_single_handler_without_a_server() -> None:
    assert perform(send_email, SendEmail("ada"), state=Smtp(0), attempt=2) == Done("sent in attempt 2")
    failure = perform(send_email, SendEmail("ada"), state=Smtp(1))
    assert failure == Fail("temporary", "ConnectionError: try later", "ConnectionError")


def test_handler_stays_callable() -> None:
    @job("plain")
    def double(ctx: Context | None, n: int) -> int:
        return n * 2

    assert double(None, 4) == 8
    assert double.type == "plain"


def test_async_queue(async_queue: AsyncTestQueue) -> None:
    async def scenario() -> None:
        handle = await async_queue.submit(send_email, SendEmail("ada"), delay="1h")
        await async_queue.advance("1h")
        report = await async_queue.drain(send_email, state=Smtp(0))
        assert report.completed == 1
        assert await handle.wait() == "sent in attempt 1"
        assert len(await async_queue.submitted(send_email)) == 1
        assert await async_queue.perform(give_up, None) == Done(1)

    asyncio.run(scenario())


def test_missing_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LONGSHORE_BIN", raising=False)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ConfigurationError, match="LONGSHORE_BIN"):
        find_binary()
