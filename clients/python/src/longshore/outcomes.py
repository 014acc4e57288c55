"""Outcomes of a handler, as values.

A handler returns its result, or one of `Fail`, `Snooze` and `Release`. An exception is a temporary
failure. `Done` is what middleware gets for a result.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Union

from .codec import encode
from .durations import Duration, to_seconds, to_wire

Category = Literal["temporary", "permanent", "timeout", "system"]
MESSAGE_CHARACTERS_MAX = 4_000
CODE_CHARACTERS_MAX = 128


@dataclass(frozen=True)
class Done:
    """The handler has done the work. `result` is stored with the job."""

    result: Any = None


@dataclass(frozen=True)
class Fail:
    """The attempt failed. Use `Fail.temporary` or `Fail.permanent`."""

    category: Category
    message: str = ""
    code: str | None = None
    retry_after: float | None = None
    cause: str | None = None
    final: bool = False

    @classmethod
    def temporary(
        cls,
        message: str = "",
        *,
        code: str | None = None,
        retry_after: Duration | None = None,
        cause: str | None = None,
    ) -> Fail:
        """The next attempt may succeed. `retry_after` replaces the delay of the queue's policy."""
        seconds = None if retry_after is None else to_seconds(retry_after)
        return cls("temporary", message, code, seconds, cause)

    @classmethod
    def permanent(cls, code: str, message: str = "", *, cause: str | None = None) -> Fail:
        """No attempt can succeed. `code` groups such failures for operators."""
        return cls("permanent", message, code, None, cause)


@dataclass(frozen=True, init=False)
class Snooze:
    """Returns the job for later. No attempt is counted."""

    seconds: float

    def __init__(
        self, delay: Duration = 0, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0
    ) -> None:
        total = to_seconds(delay) + days * 86_400 + hours * 3_600 + minutes * 60 + seconds
        object.__setattr__(self, "seconds", total)


@dataclass(frozen=True)
class Release:
    """Returns the job at once, for any worker. No attempt is counted."""


Outcome = Union[Done, Fail, Snooze, Release]
OUTCOME_TYPES = (Done, Fail, Snooze, Release)


def to_outcome(value: Any) -> Outcome:
    """Returns the outcome of what a handler returned."""
    return value if isinstance(value, OUTCOME_TYPES) else Done(value)


def from_exception(error: BaseException) -> Fail:
    """Returns the temporary failure that an exception stands for."""
    cause = error.__cause__
    return Fail("temporary", _describe(error), type(error).__name__, cause=None if cause is None else _describe(cause))


def _describe(error: BaseException) -> str:
    """Returns type and text of an exception. Its text may be broken too."""
    try:
        text = str(error)
    except Exception:
        text = ""
    name = type(error).__name__
    return f"{name}: {text}" if text else name


def _cut(text: str, longest: int = MESSAGE_CHARACTERS_MAX) -> str:
    """Returns a text that fits, without characters that UTF-8 cannot carry, such as those of odd file names."""
    clean = str(text).encode("utf-8", "replace").decode()
    return clean if len(clean) <= longest else clean[: longest - 1] + "…"


def encode_settlement(job_id: str, lease: str, outcome: Outcome) -> tuple[str, bytes]:
    """Returns the verb of an outcome and its item of `/v1/settlements`.

    Raises TypeError or ValueError if the result has no JSON form.
    """
    start = f'{{"id":"{job_id}","lease":"{lease}","outcome":'
    if isinstance(outcome, Done):
        if outcome.result is None:
            return "complete", (start + '"complete"}').encode()
        return "complete", f'{start}"complete","result":{encode(outcome.result)}}}'.encode()
    if isinstance(outcome, Snooze):
        return "snooze", f'{start}"snooze","delay":"{to_wire(outcome.seconds)}"}}'.encode()
    if isinstance(outcome, Release):
        return "release", (start + '"release"}').encode()
    error: dict[str, Any] = {"category": outcome.category, "message": _cut(outcome.message or outcome.code or "failed")}
    if outcome.code:
        error["code"] = _cut(outcome.code, CODE_CHARACTERS_MAX)
    if outcome.cause:
        error["cause"] = _cut(outcome.cause)
    if outcome.retry_after is not None:
        error["retry_after"] = to_wire(outcome.retry_after)
    if outcome.final:
        error["final"] = True
    return "fail", f'{start}"fail","error":{encode(error)}}}'.encode()
