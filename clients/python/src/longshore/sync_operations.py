"""Blocking calls about workers, queues, schedules and webhooks."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from .jobs import JobType, NewJob
from .operations import Record
from .schedules import ScheduleOptions

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .client import Client

T = TypeVar("T")


class SyncOperations:
    """`Operations` with blocking calls."""

    client: Client

    def run_call(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a call of the client and returns its result."""
        raise NotImplementedError

    # Jobs

    def why(self, job_id: str) -> Record:
        """Returns why a job does not run: `reasons`, and how many jobs are before it."""
        return self.run_call(self.client.why(job_id))

    def attempts(self, job_id: str) -> list[Record]:
        """Returns the attempts of a job, oldest first."""
        return self.run_call(self.client.attempts(job_id))

    def history(self, job_id: str) -> list[Record]:
        """Returns the changes of state of a job, oldest first."""
        return self.run_call(self.client.history(job_id))

    def run_now(self, job_id: str) -> Record:
        """Makes a delayed or retrying job ready now."""
        return self.run_call(self.client.run_now(job_id))

    def dead_letter(self, job_id: str, *, reason: str | None = None) -> Record:
        """Moves a job to the dead letters."""
        return self.run_call(self.client.dead_letter(job_id, reason=reason))

    # Queues and workers

    def put_queue(self, queue: str, *, profile: str | None = None, settings: Mapping[str, Any] | None = None) -> Record:
        """Creates a queue, or changes its settings."""
        return self.run_call(self.client.put_queue(queue, profile=profile, settings=settings))

    def get_queue(self, queue: str) -> Record:
        """Returns a queue with its settings and counts."""
        return self.run_call(self.client.get_queue(queue))

    def pause_queue(self, queue: str) -> Record:
        """Stops claims of a queue. Submissions go on."""
        return self.run_call(self.client.pause_queue(queue))

    def resume_queue(self, queue: str) -> Record:
        """Ends the pause of a queue."""
        return self.run_call(self.client.resume_queue(queue))

    def list_workers(self) -> list[Record]:
        """Returns the workers that the server has seen lately."""
        return self.run_call(self.client.list_workers())

    def direct_worker(self, name: str, directive: Literal["quiet", "stop", "resume"]) -> Record:
        """Makes a worker claim nothing, end, or claim again."""
        return self.run_call(self.client.direct_worker(name, directive))

    # Schedules

    def put_schedule(
        self, name: str, job: NewJob[Any] | JobType[Any, Any], **options: Unpack[ScheduleOptions]
    ) -> Record:
        """Creates or replaces a schedule, with `cron` or `every`. An equal one changes nothing."""
        return self.run_call(self.client.put_schedule(name, job, **options))

    def get_schedule(self, name: str) -> Record:
        """Returns a schedule, with the next ten times at which it is due."""
        return self.run_call(self.client.get_schedule(name))

    def list_schedules(self) -> list[Record]:
        """Returns all schedules by name."""
        return self.run_call(self.client.list_schedules())

    def pause_schedule(self, name: str, *, note: str | None = None) -> Record:
        """Drops the ticks of a schedule until it is resumed."""
        return self.run_call(self.client.pause_schedule(name, note=note))

    def resume_schedule(self, name: str) -> Record:
        """Ends the pause of a schedule."""
        return self.run_call(self.client.resume_schedule(name))

    def trigger_schedule(self, name: str) -> Record:
        """Submits the job of a schedule now, also while it is paused. Returns its `id`."""
        return self.run_call(self.client.trigger_schedule(name))

    def schedule_ticks(self, name: str) -> list[Record]:
        """Returns the last 100 ticks of a schedule, newest first."""
        return self.run_call(self.client.schedule_ticks(name))

    def delete_schedule(self, name: str) -> None:
        """Deletes a schedule. Its jobs stay."""
        self.run_call(self.client.delete_schedule(name))

    # Webhooks

    def put_webhook(
        self,
        name: str,
        url: str,
        *,
        events: Sequence[str] | None = None,
        queues: Sequence[str] | None = None,
        enabled: bool | None = None,
    ) -> Record:
        """Creates or replaces a webhook endpoint. The answer that creates it has its secret."""
        return self.run_call(self.client.put_webhook(name, url, events=events, queues=queues, enabled=enabled))

    def get_webhook(self, name: str) -> Record:
        """Returns a webhook endpoint, without its secret."""
        return self.run_call(self.client.get_webhook(name))

    def list_webhooks(self) -> list[Record]:
        """Returns the webhook endpoints by name."""
        return self.run_call(self.client.list_webhooks())

    def delete_webhook(self, name: str) -> None:
        """Deletes a webhook endpoint. Its pending deliveries fail."""
        self.run_call(self.client.delete_webhook(name))

    def rotate_webhook(self, name: str) -> Record:
        """Gives an endpoint a new secret. The old one signs too for 24 hours."""
        return self.run_call(self.client.rotate_webhook(name))

    def test_webhook(self, name: str) -> Record:
        """Sends `webhook.test` to an endpoint, once."""
        return self.run_call(self.client.test_webhook(name))

    def webhook_deliveries(self, name: str, *, limit: int = 100) -> list[Record]:
        """Returns deliveries to an endpoint, newest first."""
        return self.run_call(self.client.webhook_deliveries(name, limit=limit))

    def job_deliveries(self, job_id: str) -> list[Record]:
        """Returns deliveries about a job, oldest first."""
        return self.run_call(self.client.job_deliveries(job_id))

    def redeliver(self, delivery_id: str) -> Record:
        """Attempts a delivery again, with the same `webhook-id`."""
        return self.run_call(self.client.redeliver(delivery_id))
