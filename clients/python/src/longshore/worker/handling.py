"""Runs handlers and turns what happens into outcomes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ..cancellation import CancelReason
from ..context import Context
from ..errors import ConfigurationError, DecodeError
from ..jobs import BatchJobType, JobType
from ..outcomes import OUTCOME_TYPES, Fail, Outcome, Release, from_exception, to_outcome
from .batch import BatchCollector
from .held import HeldJob
from .threads import HandlerThreads

if TYPE_CHECKING:
    from ..client import Client
    from .options import Classifier, Middleware

_LOG = logging.getLogger("longshore.worker")


class HandlerRunner:
    """Runs the handlers of one worker."""

    def __init__(
        self,
        client: Client,
        state: Any,
        middleware: tuple[Middleware, ...] = (),
        classify: Classifier | None = None,
    ) -> None:
        self._client = client
        self._state = state
        self._middleware = middleware
        self._classify = classify
        self._threads = HandlerThreads()
        self._collectors: dict[str, BatchCollector] = {}
        self.handled: dict[str, int] = {}

    async def run(self, held: HeldJob) -> Outcome:
        """Runs the handler of a job and returns its outcome. Raises nothing but KeyboardInterrupt."""
        job_type = held.type
        try:
            payload = self._decode(job_type, held.record)
        except DecodeError as error:
            return Fail.permanent("bad_payload", str(error))
        except (NameError, ConfigurationError) as error:
            # The worker's declaration is wrong, not the payload: another version of it may run the job.
            _LOG.error("the payload type of handler %s cannot be used: %s", job_type.__name__, error)
            return Fail("system", f"the payload type of the handler cannot be used: {error}", "bad_declaration")
        except Exception as error:
            # The text of the error may quote the payload: its type is enough.
            return Fail.permanent("bad_payload", f"payload: its check raised {type(error).__name__}")
        ctx = Context(held, self._client, self._state, asyncio.get_running_loop())
        self.handled[job_type.type] = self.handled.get(job_type.type, 0) + 1
        try:
            outcome = await self._call(job_type, held, ctx, payload)
        except asyncio.CancelledError as error:
            if held.cancellation.is_set():
                return self._interrupted(held)
            # The handler's own: a release would start it again without end.
            outcome = self._classify_error(held, error)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            outcome = self._classify_error(held, error)
        if isinstance(outcome, Fail) and outcome.category == "temporary":
            return self._failed_after_token(held, outcome)
        return outcome

    async def _call(self, job_type: JobType[Any, Any], held: HeldJob, ctx: Context, payload: Any) -> Outcome:
        if not self._middleware:
            return to_outcome(await self._invoke(job_type, held, ctx, payload))

        async def innermost() -> Outcome:
            return to_outcome(await self._invoke(job_type, held, ctx, payload))

        call: Callable[[], Awaitable[Outcome]] = innermost
        for middleware in reversed(self._middleware):
            call = partial(middleware, ctx, call)
        return to_outcome(await call())

    def _invoke(self, job_type: JobType[Any, Any], held: HeldJob, ctx: Context, payload: Any) -> Awaitable[Any]:
        if isinstance(job_type, BatchJobType):
            collector = self._collectors.get(job_type.type)
            if collector is None:
                collector = self._collectors[job_type.type] = BatchCollector(job_type)
            return collector.handle(held, ctx, payload)
        if job_type.is_async:
            called: Awaitable[Any] = job_type(ctx, payload)
            return called
        return self._threads.run(job_type, ctx, payload)

    @staticmethod
    def _decode(job_type: JobType[Any, Any], record: dict[str, Any]) -> Any:
        value = record.get("payload_base64")
        if value is None:
            return job_type.decode_payload(record.get("payload"), "payload")
        if job_type.payload_type not in (bytes, Any):
            raise DecodeError("payload", "is binary (annotate the payload as bytes)")
        import base64

        return base64.b64decode(value)

    def _classify_error(self, held: HeldJob, error: BaseException) -> Outcome:
        outcome = self._ask_classifier(held, error)
        if outcome is not None:
            return outcome
        if held.cancellation.is_set():
            _LOG.info("handler %s of job %s stopped: %r", held.type.__name__, held.id, error)
        else:
            _LOG.error(
                "handler %s of job %s failed in attempt %s",
                held.type.__name__,
                held.id,
                held.record.get("attempt", 1),
                exc_info=error,
            )
        fail = from_exception(error)
        if isinstance(error, (SystemExit, MemoryError)):
            return Fail("system", fail.message, fail.code, cause=fail.cause)
        return fail

    def _ask_classifier(self, held: HeldJob, error: BaseException) -> Outcome | None:
        """Returns what `classify` says. One that fails itself, or returns something else, has no say."""
        if self._classify is None:
            return None
        try:
            outcome = self._classify(error)
        except Exception:
            _LOG.exception("classify failed for an error of handler %s", held.type.__name__)
            return None
        if outcome is None or isinstance(outcome, OUTCOME_TYPES):
            return outcome
        _LOG.error("classify returned a %s (return an outcome or None)", type(outcome).__name__)
        return None

    def _interrupted(self, held: HeldJob) -> Outcome:
        """Returns the outcome of a handler that CancelledError ended."""
        if held.cancellation.reason in (CancelReason.DEADLINE, CancelReason.CANCELLED):
            return self._failed_after_token(held, Fail("temporary", "the handler was interrupted", "interrupted"))
        return Release()

    @staticmethod
    def _failed_after_token(held: HeldJob, fail: Fail) -> Outcome:
        """Returns what a failure means after the token fired: the failure follows from the stop."""
        reason = held.cancellation.reason
        if reason is CancelReason.DRAIN:
            return Release()
        if reason is CancelReason.DEADLINE:
            return Fail("timeout", fail.message or "the execution timeout has passed", "execution_timeout")
        return fail
