"""Options of a worker."""

from __future__ import annotations

import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import ConfigurationError
from ..outcomes import Outcome

if TYPE_CHECKING:
    from ..context import Context

Middleware = Callable[["Context", Callable[[], Awaitable[Outcome]]], Awaitable[Outcome]]
Classifier = Callable[[BaseException], "Outcome | None"]


@dataclass(frozen=True)
class WorkerOptions:
    """Options of a worker, checked and in seconds."""

    name: str
    queues: tuple[str, ...]
    slots: int
    prefetch: float
    wait: float
    lease: float | None
    grace: float
    cancel_grace: float
    stuck_grace: float
    stuck_limit: int | None
    lag_warning: float
    middleware: Sequence[Middleware]
    state: Any
    classify: Classifier | None
    version: str | None
    unsettled_limit: int

    def __post_init__(self) -> None:
        if not 1 <= self.slots <= 10_000:
            raise ConfigurationError(f"slots is {self.slots} (allowed: 1 to 10000)")
        if not 1.0 <= self.prefetch <= 10.0:
            raise ConfigurationError(
                f"prefetch is {self.prefetch} (allowed: 1 to 10; 1 claims no job before its slot is free)"
            )
        if not 0 <= self.wait <= 60:
            raise ConfigurationError(f"wait is {self.wait} s (allowed: 0 to 60 s)")
        if self.unsettled_limit < 1:
            raise ConfigurationError(f"unsettled_limit is {self.unsettled_limit} (allowed: 1 or more)")
        if not self.queues:
            raise ConfigurationError("the worker has no queues (name one in @job, or with queues=[…])")


def default_name() -> str:
    """Returns a name that tells operators where the worker runs."""
    host = "".join(letter if letter.isalnum() or letter in "_.-" else "-" for letter in socket.gethostname())
    return f"{host[:100]}-{os.getpid()}"
