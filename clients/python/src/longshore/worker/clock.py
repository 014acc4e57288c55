"""When a lease began, in the time of this process."""

from __future__ import annotations

# A worker that only waits asks for a new sample after this time,
_SAMPLE_SECONDS = 45.0
# and takes any sample after this one.
_SAMPLE_SECONDS_MAX = 60.0
_ASK_SECONDS_MIN = 1.0


class ServerClock:
    """Upper bound of (server time - monotonic time), from the calls of the last minute.

    A call that was sent at `sent` and answered with the server's `now` proves that the difference is
    at most `now - sent`. A long poll proves little by itself: it may have waited for most of its time.
    """

    def __init__(self) -> None:
        self._bound: float | None = None
        self._at = 0.0
        self._asked_at: float | None = None

    def asks_sample(self, now: float) -> bool:
        """Returns whether the next claim should not wait, so that its answer is a good sample."""
        is_fresh = self._bound is not None and now - self._at <= _SAMPLE_SECONDS
        if is_fresh or (self._asked_at is not None and now - self._asked_at < _ASK_SECONDS_MIN):
            return False
        self._asked_at = now
        return True

    def add(self, sent: float, server_now: float, *, is_poll: bool = False) -> None:
        """Takes the sample of one call. `is_poll` says that the call may have waited."""
        bound = server_now - sent
        longest = _SAMPLE_SECONDS_MAX if is_poll else _SAMPLE_SECONDS
        if self._bound is None or bound <= self._bound or sent - self._at > longest:
            self._bound = bound
            self._at = sent

    def earliest(self, sent: float, received: float, server_now: float) -> float:
        """Returns the earliest instant at which the server can have answered with `server_now`.

        It is never before the request was sent, and never after its answer came.
        """
        if self._bound is None:
            return sent
        return min(received, max(sent, server_now - self._bound))
