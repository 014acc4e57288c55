"""The event stream: changes as they happen."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypedDict
from urllib.parse import urlencode

from .errors import LongshoreError, Refused

if TYPE_CHECKING:
    from .http import AsyncTransport

# The server sends a comment every 15 s.
_SILENCE_SECONDS_MAX = 45.0
_DELAY_SECONDS_FIRST = 0.05
_DELAY_SECONDS_MAX = 2.0


class EventOptions(TypedDict, total=False):
    """Which events a stream has. `state` is the state that a job enters."""

    queue: str | None
    type: str | None
    job: str | None
    workflow: str | None
    state: str | list[str] | None
    after: str | None


@dataclass(frozen=True)
class Event:
    """One event. `kind` is `job`, `queue`, `schedule`, `gap` or `closed`.

    `data` has the fields of the API. `gap` means that events are missing before it: list again what
    you follow. `cursor` is the position after the event, for `after` of a later stream.
    """

    kind: str
    data: dict[str, Any]
    cursor: str | None


@dataclass
class EventParser:
    """Collects bytes until they are whole events. `cursor` is the last known position."""

    cursor: str | None = None
    _line: bytes = b""
    _id: str | None = None
    _kind: str = "message"
    _data: list[str] = field(default_factory=list)

    def push(self, data: bytes) -> list[Event]:
        """Returns the events that are complete now."""
        events: list[Event] = []
        *lines, self._line = (self._line + data).split(b"\n")
        for line in lines:
            event = self._end_line(line.removesuffix(b"\r").decode("utf-8", "replace"))
            if event is not None:
                events.append(event)
        return events

    def _end_line(self, line: str) -> Event | None:
        if not line:
            return self._end_block()
        # The server names its position in comments, so that a client can resume without an event.
        if line.startswith(": cursor "):
            self.cursor = line[len(": cursor ") :]
            return None
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "id":
            self._id = value
        elif name == "event":
            self._kind = value
        elif name == "data":
            self._data.append(value)
        return None

    def _end_block(self) -> Event | None:
        kind, data, cursor = self._kind, self._data, self._id
        self._kind, self._data, self._id = "message", [], None
        if cursor is not None:
            self.cursor = cursor
        return Event(kind, json.loads("\n".join(data)), cursor) if data else None


def event_path(filters: dict[str, str | list[str] | None]) -> str:
    """Returns the path of a stream with these filters."""
    pairs = {
        name: ",".join(value) if isinstance(value, list) else value
        for name, value in filters.items()
        if value is not None and value != []
    }
    return f"/v1/events?{urlencode(pairs)}" if pairs else "/v1/events"


async def follow(transport: AsyncTransport, path: str, after: str | None, timeout: float) -> AsyncIterator[Event]:
    """Yields events without end. Resumes after a lost connection, for `timeout` seconds at most."""
    cursor, delay, lost_since = after, _DELAY_SECONDS_FIRST, None
    while True:
        parser = EventParser(cursor)
        try:
            async for data in transport.stream(path, cursor, timeout, _SILENCE_SECONDS_MAX):
                delay, lost_since = _DELAY_SECONDS_FIRST, None
                for event in parser.push(data):
                    yield event
                cursor = parser.cursor
        except LongshoreError as error:
            cursor = parser.cursor
            now = time.monotonic()
            lost_since = now if lost_since is None else lost_since
            is_final = isinstance(error, Refused) and error.retry == "never"
            if is_final or now - lost_since >= timeout:
                raise
        await asyncio.sleep(delay)
        delay = min(2 * delay, _DELAY_SECONDS_MAX)
