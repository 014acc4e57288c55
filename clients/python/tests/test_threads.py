"""Threads of handlers without `async`."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from longshore.worker.threads import HandlerThreads


def test_stuck_thread_does_not_hold_up_others() -> None:
    async def scenario() -> None:
        threads = HandlerThreads()
        stop = threading.Event()
        stuck = threads.run(stop.wait, 60)
        assert await threads.run(lambda: 7) == 7
        with pytest.raises(ValueError, match="x"):
            await threads.run(int, "x")
        stop.set()
        assert await stuck

    asyncio.run(scenario())


def test_calls_that_wait_for_each_other_run_at_the_same_time() -> None:
    async def scenario() -> None:
        threads = HandlerThreads()
        for _ in range(3):
            barrier = threading.Barrier(20, timeout=60)
            calls = [threads.run(barrier.wait) for _ in range(20)]
            assert sorted(await asyncio.gather(*calls)) == list(range(20))

    asyncio.run(scenario())


def test_many_short_calls_have_their_own_results() -> None:
    async def scenario() -> None:
        threads = HandlerThreads()
        calls = [threads.run(lambda n: n * n, number) for number in range(5_000)]
        assert await asyncio.gather(*calls) == [number * number for number in range(5_000)]

    asyncio.run(scenario())


def test_calls_from_several_loops_get_their_results() -> None:
    threads = HandlerThreads()
    found: list[int] = []

    async def scenario(start: int) -> None:
        for number in range(start, start + 200):
            found.append(await threads.run(lambda n: n, number))

    loops = [threading.Thread(target=asyncio.run, args=(scenario(start),)) for start in (0, 1_000)]
    for loop in loops:
        loop.start()
    for loop in loops:
        loop.join(60)
    assert sorted(found) == [*range(200), *range(1_000, 1_200)]


class _NoThread(threading.Thread):
    def start(self) -> None:
        raise RuntimeError("can't start new thread")


def test_without_a_new_thread_the_call_fails_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        threads = HandlerThreads()
        ran: list[str] = []
        append: Callable[[Any], None] = ran.append
        with monkeypatch.context() as patch:
            patch.setattr(threading, "Thread", _NoThread)
            with pytest.raises(RuntimeError, match="new thread"):
                threads.run(append, "refused")
        await threads.run(append, "first")
        with monkeypatch.context() as patch:
            patch.setattr(threading, "Thread", _NoThread)
            # The thread of the first call takes the second.
            await threads.run(append, "second")
        assert ran == ["first", "second"]

    asyncio.run(scenario())
