"""The conformance program: handlers and output as sdk-conformance/README.md says."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import dataclass
from typing import Any, Literal

from longshore import Client, Context, Fail, Release, Snooze, SyncClient, Worker, job

QUEUE = os.environ["CONFORMANCE_QUEUE"]
_returned: set[str] = set()


def emit(event: str, **fields: Any) -> None:
    print(json.dumps({"event": event, **fields}), flush=True)


def emit_start(ctx: Context) -> None:
    emit("start", id=ctx.id, type=ctx.type, attempt=ctx.attempt)


@dataclass
class Typed:
    n: int


@dataclass
class Period:
    seconds: float


@dataclass
class Failure:
    category: Literal["temporary", "permanent"]
    code: str
    retry_after: float | None = None


@job("noop", queue=QUEUE)
async def noop(ctx: Context, payload: Any) -> dict[str, bool]:
    return {"ok": True}


@job("typed", queue=QUEUE)
async def typed(ctx: Context, payload: Typed) -> dict[str, int]:
    emit_start(ctx)
    return {"n": payload.n}


@job("sleep", queue=QUEUE)
async def sleep(ctx: Context, period: Period) -> dict[str, int] | Fail:
    emit_start(ctx)
    if await ctx.cancelled.sleep(period.seconds):
        emit("cancelled", id=ctx.id, reason=ctx.cancelled.reason)
        return Fail.temporary("the token fired")
    return {"attempt": ctx.attempt}


@job("deaf", queue=QUEUE)
def deaf(ctx: Context, period: Period) -> None:
    emit_start(ctx)
    time.sleep(period.seconds)


@job("block", queue=QUEUE)
async def block(ctx: Context, period: Period) -> dict[str, int]:
    emit_start(ctx)
    time.sleep(period.seconds)  # noqa: ASYNC251 (the case is a blocked event loop)
    return {"attempt": ctx.attempt}


@job("snooze", queue=QUEUE)
async def snooze(ctx: Context, payload: Any) -> dict[str, int] | Snooze:
    emit_start(ctx)
    if ctx.id not in _returned:
        _returned.add(ctx.id)
        return Snooze("100ms")
    return {"attempt": ctx.attempt}


@job("release", queue=QUEUE)
async def release(ctx: Context, payload: Any) -> dict[str, int] | Release:
    emit_start(ctx)
    if ctx.id not in _returned:
        _returned.add(ctx.id)
        return Release()
    return {"attempt": ctx.attempt}


@job("checkpoint", queue=QUEUE)
async def checkpoint(ctx: Context, payload: Any) -> dict[str, Any] | Fail:
    emit_start(ctx)
    if ctx.checkpoint is not None:
        return {"from": ctx.checkpoint}
    await ctx.save_checkpoint({"at": 5})
    emit("checkpointed", id=ctx.id)
    await ctx.cancelled.sleep(600)
    return Fail.temporary("the token fired")


@job("fail", queue=QUEUE)
async def fail(ctx: Context, failure: Failure) -> Fail:
    emit_start(ctx)
    if failure.category == "permanent":
        return Fail.permanent(failure.code)
    return Fail.temporary(code=failure.code, retry_after=failure.retry_after)


HANDLERS = [noop, typed, sleep, deaf, block, snooze, release, checkpoint, fail]


def work(url: str) -> None:
    worker = Worker(
        Client(url),
        HANDLERS,
        name=os.environ["CONFORMANCE_WORKER"],
        slots=int(os.environ["CONFORMANCE_SLOTS"]),
        grace=float(os.environ["CONFORMANCE_GRACE"]),
        stuck_grace=float(os.environ["CONFORMANCE_STUCK_GRACE"]),
    )
    emit("ready")
    emit("report", **worker.run().to_dict())


def main() -> None:
    url = os.environ["LONGSHORE_URL"]
    if sys.argv[1] == "worker":
        work(url)
    else:
        emit("submitted", id=SyncClient(url).submit(noop, {"n": 1}).id)


if __name__ == "__main__":
    main()
