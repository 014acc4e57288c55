"""When a lease began, in the time of this process."""

from __future__ import annotations

_SAMPLE_SECONDS_MAX = 60.0


class ServerClock:
    """Upper bound of (server time - monotonic time), from the calls of the last minute.

    A call that was sent at `sent` and answered with the server's `now` proves that the difference is
    at most `now - sent`. A long poll proves little by itself: it may have waited for most of its time.
    """

    def __init__(self) -> None:
        self._bound: float | None = None
        self._at = 0.0

    def add(self, sent: float, server_now: float) -> None:
        """Takes the sample of one call."""
        bound = server_now - sent
        if self._bound is None or bound <= self._bound or sent - self._at > _SAMPLE_SECONDS_MAX:
            self._bound = bound
            self._at = sent

    def earliest(self, sent: float, received: float, server_now: float) -> float:
        """Returns the earliest instant at which the server can have answered with `server_now`.

        It is never before the request was sent, and never after its answer came.
        """
        if self._bound is None:
            return sent
        return min(received, max(sent, server_now - self._bound))
