"""Durations: `"1h15m"`, a number of seconds, or a `timedelta`."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from typing import Union

from .errors import ConfigurationError

Duration = Union[str, int, float, timedelta]

_UNITS = {"w": 604_800.0, "d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|w|d|h|m|s)\s*")


@lru_cache(maxsize=1024)
def _parse(text: str) -> float:
    total, position = 0.0, 0
    while position < len(text):
        part = _PART.match(text, position)
        if part is None:
            break
        total += float(part.group(1)) * _UNITS[part.group(2)]
        position = part.end()
    if not text or position < len(text):
        raise ConfigurationError(f'"{text}" is not a duration (write it as "1h15m", "30s" or "500ms")')
    return total


def to_seconds(duration: Duration) -> float:
    """Returns a duration in seconds."""
    if isinstance(duration, timedelta):
        return duration.total_seconds()
    if isinstance(duration, str):
        return _parse(duration)
    return float(duration)


def to_wire(duration: Duration) -> str:
    """Returns a duration as the API takes it, in whole milliseconds."""
    return f"{max(0, round(to_seconds(duration) * 1000))}ms"


def parse_time(text: str) -> float:
    """Returns an instant of the API as seconds since the epoch."""
    if text.endswith("Z"):
        text = text[:-1] + "+00:00"
    return datetime.fromisoformat(text).timestamp()


def format_time(at: datetime) -> str:
    """Returns an instant as the API takes it. A time without zone is local time."""
    return at.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
