"""Errors of the client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .worker.report import Report


class LongshoreError(Exception):
    """Base class of all errors of this package."""


class ConfigurationError(LongshoreError):
    """An argument or a handler cannot be used as it is."""


class Unreachable(LongshoreError):
    """The server gave no answer.

    `sent` says whether the request may have reached it. A request that was not sent had no effect.
    """

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


class Refused(LongshoreError):
    """An error answer of the server. See docs/errors.md for the codes.

    `retry` is `never`, `safe` (no change was applied) or `unknown` (the change may be applied).
    """

    def __init__(self, status: int, problem: dict[str, Any], retry_after: float | None = None) -> None:
        self.status = status
        self.code = str(problem.get("code", "unknown"))
        self.title = str(problem.get("title", ""))
        self.detail = str(problem.get("detail", ""))
        self.retry = str(problem.get("retry", "unknown" if status >= 500 else "never"))
        self.field: str | None = problem.get("field")
        self.allowed: list[str] | None = problem.get("allowed")
        self.errors: list[dict[str, Any]] = problem.get("errors", [])
        self.request_id: str | None = problem.get("request_id")
        self.retry_after = retry_after
        text = f"{self.code}: {self.detail or self.title or status}"
        if self.request_id:
            text += f" (request {self.request_id})"
        super().__init__(text)


class JobFailed(LongshoreError):
    """A job ended without a result: it is failed, dead_letter or cancelled."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.job = job
        self.state = str(job["state"])
        error = job.get("error") or {}
        self.category: str | None = error.get("category")
        self.code: str | None = error.get("code")
        self.message: str = error.get("message") or ""
        detail = ": ".join(part for part in (self.code, self.message) if part)
        super().__init__(f"job {job['id']} is {self.state}" + (f": {detail}" if detail else ""))


class WaitTimeout(LongshoreError):
    """A job has not ended within the timeout of `wait`."""


class StuckHandlers(LongshoreError):
    """So many handlers ignored their tokens that the worker has ended. It drained the others before.

    `types` has the job types of the stuck handlers, `report` what the run did.
    """

    def __init__(self, types: list[str], report: Report) -> None:
        names = ", ".join(sorted(set(types)))
        super().__init__(f"{len(types)} handlers are stuck: {names} (let them return when their tokens fire)")
        self.types = types
        self.report = report


class JobCancelled(LongshoreError):
    """Raised by `Context.raise_if_cancelled` after the token fired."""


class DecodeError(LongshoreError):
    """JSON does not have the declared type. The text names the place, never the value."""

    def __init__(self, path: str, expected: str) -> None:
        super().__init__(f"{path}: {expected}")
        self.path = path
