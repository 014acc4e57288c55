"""Types that mypy infers for users. mypy checks this file; running it only imports it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from typing_extensions import assert_type

from longshore import Client, Context, Fail, JobType, Snooze, SyncClient, job
from longshore.client import Handle
from longshore.sync import SyncHandle


@dataclass
class Mail:
    to: str


@job("typed.async")
async def on_loop(ctx: Context, mail: Mail) -> int | Fail | Snooze:
    return 1


@job("typed.plain")
def in_thread(ctx: Context, mail: Mail) -> str:
    return ""


declared = JobType[Mail, bytes]("typed.declared")


async def check_types(client: Client, sync: SyncClient) -> None:
    assert_type(on_loop, JobType[Mail, int])
    assert_type(in_thread, JobType[Mail, str])
    assert_type(await on_loop.submit(client, Mail("a")), Handle[int])
    assert_type(on_loop.submit(sync, Mail("a")), SyncHandle[int])
    assert_type(in_thread.submit(sync, Mail("a")).wait(), str)
    assert_type(await (await client.submit(declared, Mail("a"), delay="5m")).wait(), bytes)
    assert_type(await client.submit("any", {}), Handle[Any])
    if TYPE_CHECKING:
        on_loop.submit(sync, "a")  # type: ignore[call-overload]
        on_loop.submit(sync, Mail("a"), dealy="5m")  # type: ignore[call-overload]


def test_types_are_read_from_the_handler() -> None:
    assert (on_loop.payload_type, on_loop.result_type) == (Mail, int)
    assert (in_thread.payload_type, in_thread.result_type) == (Mail, str)
