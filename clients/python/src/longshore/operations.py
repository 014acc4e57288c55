"""Calls about workers, queues, schedules and webhooks, and why a job does not run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast
from urllib.parse import quote, urlencode

from .jobs import JobType, NewJob
from .schedules import ScheduleOptions, make_schedule

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .jobs import SubmitOptions

Record = dict[str, Any]
_PAGE_MAX = 1000


def path_of(*parts: str) -> str:
    """Returns a path of the API. Names may have any character."""
    return "/v1/" + "/".join(quote(part, safe="") for part in parts)


class Operations:
    """The part of the client that is not about the submission of jobs."""

    async def request(
        self, method: str, path: str, body: Any = None, *, is_idempotent: bool | None = None, extra_time: float = 0.0
    ) -> Any:
        """Sends any request of the API and returns its JSON."""
        raise NotImplementedError

    def prepare(self, new: NewJob[Any]) -> NewJob[Any]:
        """Returns the job to send for a new job."""
        raise NotImplementedError

    async def _record(self, method: str, path: str, body: Any = None) -> Record:
        record: Record = await self.request(method, path, body)
        return record

    async def _all(self, path: str, field: str, query: Mapping[str, Any] | None = None) -> list[Record]:
        """Returns the items of all pages, or the first `limit` of them."""
        found: list[Record] = []
        asked: dict[str, Any] = dict(query or {})
        limit = None if asked.get("limit") is None else int(asked["limit"])
        while True:
            asked["limit"] = _PAGE_MAX if limit is None else min(_PAGE_MAX, limit - len(found))
            page = await self._record("GET", f"{path}?{urlencode(asked)}")
            found.extend(page[field])
            if not page.get("next") or len(found) == limit:
                return found
            asked["cursor"] = page["next"]

    # Jobs

    async def why(self, job_id: str) -> Record:
        """Returns why a job does not run: `reasons`, and how many jobs are before it."""
        return await self._record("GET", path_of("jobs", job_id, "why"))

    async def attempts(self, job_id: str) -> list[Record]:
        """Returns the attempts of a job, oldest first."""
        attempts: list[Record] = (await self._record("GET", path_of("jobs", job_id, "attempts")))["attempts"]
        return attempts

    async def history(self, job_id: str) -> list[Record]:
        """Returns the changes of state of a job, oldest first."""
        history: list[Record] = (await self._record("GET", path_of("jobs", job_id, "history")))["history"]
        return history

    async def run_now(self, job_id: str) -> Record:
        """Makes a delayed or retrying job ready now."""
        return await self._record("POST", path_of("jobs", job_id, "run-now"), {})

    async def dead_letter(self, job_id: str, *, reason: str | None = None) -> Record:
        """Moves a job to the dead letters."""
        body = {} if reason is None else {"reason": reason}
        return await self._record("POST", path_of("jobs", job_id, "dead-letter"), body)

    # Queues and workers

    async def put_queue(
        self, queue: str, *, profile: str | None = None, settings: Mapping[str, Any] | None = None
    ) -> Record:
        """Creates a queue, or changes its settings."""
        fields = {"profile": profile, "settings": settings}
        body = {name: value for name, value in fields.items() if value is not None}
        return await self._record("PUT", path_of("queues", queue), body)

    async def get_queue(self, queue: str) -> Record:
        """Returns a queue with its settings and counts."""
        return await self._record("GET", path_of("queues", queue))

    async def pause_queue(self, queue: str) -> Record:
        """Stops claims of a queue. Submissions go on."""
        return await self._record("POST", path_of("queues", queue, "pause"), {})

    async def resume_queue(self, queue: str) -> Record:
        """Ends the pause of a queue."""
        return await self._record("POST", path_of("queues", queue, "resume"), {})

    async def list_workers(self) -> list[Record]:
        """Returns the workers that the server has seen lately."""
        workers: list[Record] = (await self._record("GET", "/v1/workers"))["workers"]
        return workers

    async def direct_worker(self, name: str, directive: Literal["quiet", "stop", "resume"]) -> Record:
        """Makes a worker claim nothing, end, or claim again."""
        return await self._record("POST", path_of("workers", name, directive), {})

    # Schedules

    async def put_schedule(
        self, name: str, job: NewJob[Any] | JobType[Any, Any], **options: Unpack[ScheduleOptions]
    ) -> Record:
        """Creates or replaces a schedule, with `cron` or `every`. An equal one changes nothing."""
        schedule = make_schedule(name, job, options)
        # A trace belongs to one submission: `before_submit` adds none to a schedule.
        given = schedule.job.options.get("traceparent")
        new = self.prepare(schedule.job).with_options(**cast("SubmitOptions", {"traceparent": given}))
        prepared = make_schedule(name, new, options)
        return await self._record("PUT", path_of("schedules", name), prepared.to_wire())

    async def get_schedule(self, name: str) -> Record:
        """Returns a schedule, with the next ten times at which it is due."""
        return await self._record("GET", path_of("schedules", name))

    async def list_schedules(self) -> list[Record]:
        """Returns all schedules by name."""
        return await self._all("/v1/schedules", "schedules")

    async def pause_schedule(self, name: str, *, note: str | None = None) -> Record:
        """Drops the ticks of a schedule until it is resumed."""
        return await self._record("POST", path_of("schedules", name, "pause"), {} if note is None else {"note": note})

    async def resume_schedule(self, name: str) -> Record:
        """Ends the pause of a schedule."""
        return await self._record("POST", path_of("schedules", name, "resume"), {})

    async def trigger_schedule(self, name: str) -> Record:
        """Submits the job of a schedule now, also while it is paused. Returns its `id`."""
        return await self._record("POST", path_of("schedules", name, "trigger"), {})

    async def schedule_ticks(self, name: str) -> list[Record]:
        """Returns the last 100 ticks of a schedule, newest first."""
        ticks: list[Record] = (await self._record("GET", path_of("schedules", name, "ticks")))["ticks"]
        return ticks

    async def delete_schedule(self, name: str) -> None:
        """Deletes a schedule. Its jobs stay."""
        await self.request("DELETE", path_of("schedules", name))

    # Webhooks

    async def put_webhook(
        self,
        name: str,
        url: str,
        *,
        events: Sequence[str] | None = None,
        queues: Sequence[str] | None = None,
        enabled: bool | None = None,
    ) -> Record:
        """Creates or replaces a webhook endpoint. The answer that creates it has its secret."""
        fields = {"url": url, "events": events, "queues": queues, "enabled": enabled}
        body = {key: value for key, value in fields.items() if value is not None}
        return await self._record("PUT", path_of("webhooks", name), body)

    async def get_webhook(self, name: str) -> Record:
        """Returns a webhook endpoint, without its secret."""
        return await self._record("GET", path_of("webhooks", name))

    async def list_webhooks(self) -> list[Record]:
        """Returns the webhook endpoints by name."""
        webhooks: list[Record] = (await self.request("GET", "/v1/webhooks"))["webhooks"]
        return webhooks

    async def delete_webhook(self, name: str) -> None:
        """Deletes a webhook endpoint. Its pending deliveries fail."""
        await self.request("DELETE", path_of("webhooks", name))

    async def rotate_webhook(self, name: str) -> Record:
        """Gives an endpoint a new secret. The old one signs too for 24 hours."""
        return await self._record("POST", path_of("webhooks", name, "rotate"), {})

    async def test_webhook(self, name: str) -> Record:
        """Sends `webhook.test` to an endpoint, once."""
        return await self._record("POST", path_of("webhooks", name, "test"), {})

    async def webhook_deliveries(self, name: str, *, limit: int = 100) -> list[Record]:
        """Returns deliveries to an endpoint, newest first."""
        page = await self.request("GET", f"{path_of('webhooks', name, 'deliveries')}?limit={limit}")
        deliveries: list[Record] = page["deliveries"]
        return deliveries

    async def job_deliveries(self, job_id: str) -> list[Record]:
        """Returns deliveries about a job, oldest first."""
        deliveries: list[Record] = (await self.request("GET", path_of("jobs", job_id, "deliveries")))["deliveries"]
        return deliveries

    async def redeliver(self, delivery_id: str) -> Record:
        """Attempts a delivery again, with the same `webhook-id`."""
        return await self._record("POST", path_of("deliveries", delivery_id, "redeliver"), {})
