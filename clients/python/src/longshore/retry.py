"""Which failed call may be sent again, and when."""

from __future__ import annotations

import math
import random
import time

from .errors import LongshoreError, Refused, Unreachable


class Backoff:
    """Delays that double from `first` to `longest` seconds, with full jitter."""

    def __init__(self, first: float = 0.1, longest: float = 10.0) -> None:
        self.first = first
        self.longest = longest
        self.failures = 0

    def next_delay(self, error: LongshoreError | None = None, wait_max: float = 60.0) -> float:
        """Returns the delay after one more failure: at least the `Retry-After` of its error.

        `wait_max` bounds that wait.
        """
        ceiling = min(self.longest, self.first * 2.0 ** min(self.failures, 30))
        self.failures += 1
        delay = random.uniform(ceiling / 4, ceiling)
        if isinstance(error, Refused) and error.retry_after is not None:
            delay = max(delay, min(error.retry_after, wait_max))
        return delay

    def reset(self) -> None:
        """Starts again after a success."""
        self.failures = 0


def can_repeat(error: LongshoreError, *, is_idempotent: bool) -> bool:
    """Returns whether the same call may be sent again: only as its `retry` word allows.

    A call that may have been applied is repeated only if repeating it has no further effect.
    """
    if isinstance(error, Unreachable):
        return is_idempotent or not error.sent
    if isinstance(error, Refused):
        return error.retry == "safe" or (error.retry == "unknown" and is_idempotent)
    return False


class RetryPlan:
    """The retries of one call, until its total time has passed."""

    def __init__(self, total: float) -> None:
        self.deadline = time.monotonic() + total
        self.backoff = Backoff(first=0.1, longest=5.0)

    def next_delay(self, error: LongshoreError, *, is_idempotent: bool) -> float | None:
        """Returns the delay before the next try, or None if there is none."""
        if not can_repeat(error, is_idempotent=is_idempotent):
            return None
        delay = self.backoff.next_delay(error, wait_max=math.inf)
        return delay if time.monotonic() + delay < self.deadline else None
