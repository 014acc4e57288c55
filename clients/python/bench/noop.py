"""Measures how many no-op jobs per second one worker process handles.

    python bench/noop.py [--jobs 50000] [--slots 128] [--kind async|plain|batch] [--store memory:|DIR]

It starts the program LONGSHORE_BIN, submits the jobs, and then starts the clock with the worker.
"""

from __future__ import annotations

import argparse
import tempfile
from typing import Any

from longshore import Client, Context, Item, JobType, SyncClient, Worker, batch_job, job
from longshore.testing import TestServer


@job("async")
async def on_loop(ctx: Context, payload: Any) -> None:
    return None


@job("plain")
def in_thread(ctx: Context, payload: Any) -> None:
    return None


@batch_job("batch", size=100, wait=0.01)
async def in_batches(items: list[Item[Any]]) -> None:
    return None


KINDS: dict[str, JobType[Any, Any]] = {"async": on_loop, "plain": in_thread, "batch": in_batches}


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures no-op jobs per second of one worker.")
    parser.add_argument("--jobs", type=int, default=50_000)
    parser.add_argument("--slots", type=int, default=128)
    parser.add_argument("--kind", choices=sorted(KINDS), default="async")
    parser.add_argument("--store", help="store of the server (default: a new directory)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        server = TestServer(virtual_clock=False, store=options.store or f"{directory}/data")
        try:
            job_type = KINDS[options.kind]
            client = SyncClient(server.url, auto_keys=False)
            client.submit_many([job_type.new({"n": n}) for n in range(options.jobs)])
            report = Worker(Client(server.url), [job_type], slots=options.slots).run(until_idle=True)
        finally:
            server.kill()
    if report.completed != options.jobs:
        raise SystemExit(f"{report.completed} of {options.jobs} jobs were completed: {report}")
    print(f"{options.kind}: {options.jobs} jobs in {report.seconds:.2f} s: {options.jobs / report.seconds:,.0f} jobs/s")


if __name__ == "__main__":
    main()
