"""The worker: claims jobs and runs their handlers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ..client import Client
from ..durations import Duration, to_seconds
from ..errors import ConfigurationError
from ..jobs import JobType, NewJob
from ..schedules import Schedule, ScheduleDetails, make_schedule, with_cron
from ..sync import SyncClient
from .held import ABSENT
from .options import Classifier, Middleware, WorkerOptions, default_name
from .report import Report
from .run import WorkerRun
from .signals import SignalWatch, Watchdog, exit_now

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

_LOG = logging.getLogger("longshore.worker")
_LEFTOVER_SECONDS = 0.5
_TYPES_MAX = 100


class Worker:
    """Runs handlers for the jobs of some queues.

    | option | meaning | default |
    | --- | --- | --- |
    | `queues` | queues to claim from, in order | those of the job types |
    | `slots` | handlers that run at the same time | 32 |
    | `prefetch` | claimed jobs per slot, for short handlers | 2.0 |
    | `name` | name for operators | host and process id |
    | `grace` | time from the first signal until the remaining jobs are released | 25 s |
    | `cancel_grace` | time from a cancel request until CancelledError is raised in the handler | 5 s |
    | `stuck_grace` | time from the deadline until a handler is abandoned | 10 s |
    | `stuck_limit` | stuck handlers at which the worker drains and `run` raises `StuckHandlers` | none |
    | `unsettled_limit` | outcomes without an answer at which claims stop | 1,000, or 4 per slot |
    | `middleware` | functions `(ctx, call)` around each handler, outermost first | none |
    | `state` | shared object, `ctx.state` in handlers | none |
    | `classify` | function from an exception to an outcome, or None for the default | none |
    | `lease` | lease of claimed jobs | setting of the queue |
    | `wait` | longest long poll | 20 s |
    | `lag_warning` | time without a response of the event loop that is logged | 1 s |
    | `version` | version of the program, shown to operators | none |
    """

    def __init__(
        self,
        client: Client | SyncClient,
        jobs: Iterable[JobType[Any, Any]],
        *,
        queues: Sequence[str] | None = None,
        slots: int = 32,
        prefetch: float = 2.0,
        name: str | None = None,
        grace: Duration = 25,
        cancel_grace: Duration = 5,
        stuck_grace: Duration = 10,
        stuck_limit: int | None = None,
        middleware: Sequence[Middleware] = (),
        state: Any = ABSENT,
        classify: Classifier | None = None,
        lease: Duration | None = None,
        wait: Duration = 20,
        lag_warning: Duration = 1,
        version: str | None = None,
        unsettled_limit: int | None = None,
    ) -> None:
        if not isinstance(client, (Client, SyncClient)):
            raise ConfigurationError(f"{client!r} is not a client (write it as Worker(Client(url), jobs))")
        self.client = client.client if isinstance(client, SyncClient) else client
        self.jobs = list(jobs)
        _check_jobs(self.jobs)
        self.options = WorkerOptions(
            name=name or default_name(),
            queues=tuple(queues or dict.fromkeys(job_type.queue for job_type in self.jobs)),
            slots=slots,
            prefetch=prefetch,
            wait=to_seconds(wait),
            lease=None if lease is None else to_seconds(lease),
            grace=to_seconds(grace),
            cancel_grace=to_seconds(cancel_grace),
            stuck_grace=to_seconds(stuck_grace),
            stuck_limit=stuck_limit,
            lag_warning=to_seconds(lag_warning),
            middleware=middleware,
            state=state,
            classify=classify,
            version=version,
            unsettled_limit=max(1000, 4 * slots) if unsettled_limit is None else unsettled_limit,
        )
        self.schedules: list[Schedule] = []
        for job_type in self.jobs:
            for schedule in job_type.schedules:
                self._add_schedule(schedule)
        self._run: WorkerRun | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Report] | None = None
        self._early_command: str | None = None

    def schedule(
        self, name: str, cron: str | None, job: NewJob[Any] | JobType[Any, Any], **details: Unpack[ScheduleDetails]
    ) -> Self:
        """Adds a schedule that the worker creates at its start, or brings up to date.

        An equal schedule stays as it is, so any number of workers may have it. `cron` is None for one
        with `every`. The worker's token needs the action `admin` for it.
        """
        self._add_schedule(make_schedule(name, job, with_cron(cron, details)))
        return self

    def _add_schedule(self, schedule: Schedule) -> None:
        if any(each.name == schedule.name for each in self.schedules):
            raise ConfigurationError(f"two schedules have the name {schedule.name!r}")
        self.schedules.append(schedule)

    @property
    def name(self) -> str:
        """Name of the worker, for operators."""
        return self.options.name

    def run(self, *, signals: bool = True, until_idle: bool = False) -> Report:
        """Runs the worker in this thread until it ends, and returns its report.

        SIGTERM or SIGINT drains. A second signal releases all running jobs. A third exits at once.
        With `until_idle` the run ends if no job is ready and no handler runs.
        """
        if asyncio._get_running_loop() is not None:
            raise ConfigurationError("run() is called on an event loop (use `await worker.serve()`)")
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        handles_signals = signals and threading.current_thread() is threading.main_thread()
        watchdog = Watchdog(self.client.address, self._held)
        watch = SignalWatch(lambda count, number: self._on_signal(count, number, watchdog))
        try:
            with watch if handles_signals else contextlib.nullcontext():
                try:
                    report = loop.run_until_complete(self.serve(until_idle=until_idle))
                finally:
                    loop.run_until_complete(_cancel_leftovers())
                    loop.run_until_complete(self.client.close())
                    watchdog.end()
        finally:
            asyncio.set_event_loop(None)
            loop.close()
        _LOG.info("worker %s ended: %s", self.name, report)
        return report

    async def serve(self, *, until_idle: bool = False) -> Report:
        """Runs the worker on the present event loop until `drain`, and returns its report."""
        self._loop = asyncio.get_running_loop()
        self._run = run = WorkerRun(self.client, self.jobs, self.options, self.schedules)
        if self._early_command is not None:
            getattr(run, self._early_command)()
        try:
            return await run.serve(until_idle=until_idle)
        finally:
            self._run = None
            self._early_command = None

    async def __aenter__(self) -> Self:
        """Starts the worker beside the application, for example in an ASGI lifespan."""
        self._task = asyncio.get_running_loop().create_task(self.serve())
        self._task.add_done_callback(self._log_failure)
        await asyncio.sleep(0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Drains the worker."""
        self.drain()
        if self._task is not None:
            report = await self._task
            _LOG.info("worker %s ended: %s", self.name, report)

    def _log_failure(self, task: asyncio.Task[Report]) -> None:
        """Reports an early end at once, not only when the application ends."""
        if not task.cancelled() and task.exception() is not None:
            _LOG.error("worker %s failed: %s", self.name, task.exception())

    def drain(self) -> None:
        """Stops claims and ends the run after its handlers. Any thread may call it."""
        self._post("drain")

    def release_all(self) -> None:
        """Ends the run now and releases all running jobs. Any thread may call it."""
        self._post("release_all")

    def _post(self, command: str) -> None:
        run, loop = self._run, self._loop
        if run is None:
            # A signal before the start. The run begins with it.
            self._early_command = command
        elif loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(getattr(run, command))

    def _held(self) -> list[Any]:
        run = self._run
        return [] if run is None else run.keeper.held()

    def _on_signal(self, count: int, number: int, watchdog: Watchdog) -> None:
        """Runs in the thread of the signals."""
        if count == 1:
            self.drain()
        elif count == 2:
            self.release_all()
            watchdog.start(number)
        else:
            exit_now(number)


async def _cancel_leftovers() -> None:
    """Cancels what abandoned handlers left on the loop. A handler that ignores it is left behind."""
    tasks = {task for task in asyncio.all_tasks() if task is not asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=_LEFTOVER_SECONDS)


def _check_jobs(jobs: list[JobType[Any, Any]]) -> None:
    if not jobs:
        raise ConfigurationError("the worker has no job types (decorate handlers with @job and list them)")
    if len(jobs) > _TYPES_MAX:
        raise ConfigurationError(
            f"the worker has {len(jobs)} types (a claim takes {_TYPES_MAX}: divide them between workers)"
        )
    seen: set[str] = set()
    for job_type in jobs:
        if not isinstance(job_type, JobType):
            raise ConfigurationError(f"{job_type!r} is not a job type (decorate the handler with @job)")
        if job_type.handler is None:
            raise ConfigurationError(f"job type {job_type.type!r} has no handler (decorate a function with @job)")
        if job_type.type in seen:
            raise ConfigurationError(f"two handlers have the type {job_type.type!r}")
        seen.add(job_type.type)
