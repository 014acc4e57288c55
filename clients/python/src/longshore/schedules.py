"""Schedules: jobs at recurring times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar, cast

from .durations import Duration, to_wire
from .errors import ConfigurationError
from .jobs import JobType, NewJob

if TYPE_CHECKING:
    from typing_extensions import Unpack

P = TypeVar("P")
R = TypeVar("R")


class ScheduleDetails(TypedDict, total=False):
    """Options of a schedule besides `cron`. Absent options have the server's defaults."""

    every: Duration
    timezone: str
    misfire: Literal["skip", "one", "all"]
    overlap: Literal["allow", "skip"]
    jitter: Duration
    paused: bool


class ScheduleOptions(ScheduleDetails, total=False):
    """When a schedule fires. It has `cron` or `every`."""

    cron: str


@dataclass(frozen=True)
class Schedule:
    """A schedule that a worker creates at its start, or brings up to date."""

    name: str
    job: NewJob[Any]
    options: ScheduleOptions

    def to_wire(self) -> dict[str, Any]:
        """Returns the body of the request."""
        if ("cron" in self.options) == ("every" in self.options):
            raise ConfigurationError(f"schedule {self.name!r} needs one of cron and every")
        body: dict[str, Any] = {"queue": self.job.queue, "job": self.job.to_wire()}
        for name, value in self.options.items():
            body[name] = to_wire(value) if name in ("every", "jitter") else value  # type: ignore[arg-type]
        return body


def with_cron(cron: str | None, details: ScheduleDetails) -> ScheduleOptions:
    """Returns the options of a schedule whose `cron` is named apart."""
    options = cast(ScheduleOptions, dict(details))
    if cron is not None:
        options["cron"] = cron
    return options


def make_schedule(name: str, job: NewJob[Any] | JobType[Any, Any], options: ScheduleOptions) -> Schedule:
    """Returns a schedule. A job type alone has the payload null."""
    schedule = Schedule(name, job.new(None) if isinstance(job, JobType) else job, options)
    schedule.to_wire()
    return schedule


class scheduled:
    """Gives a job type a schedule, which its worker creates at its start: see `Worker.schedule`.

    ```python
    @scheduled("nightly", "30 3 * * *", payload="all", timezone="Europe/Berlin")
    @job("report.build", queue="reports")
    async def build(ctx: Context, day: str) -> None: ...
    ```
    """

    def __init__(
        self, name: str, cron: str | None = None, *, payload: Any = None, **details: Unpack[ScheduleDetails]
    ) -> None:
        self._name = name
        self._payload = payload
        self._options = with_cron(cron, details)

    def __call__(self, job: JobType[P, R]) -> JobType[P, R]:
        if not isinstance(job, JobType):
            raise ConfigurationError(f"{job!r} is not a job type (write @scheduled above @job)")
        job.schedules.append(make_schedule(self._name, job.new(self._payload), self._options))
        return job
