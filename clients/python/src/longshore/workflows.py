"""Shapes of workflows: chains, groups, chords and graphs of new jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Union

from .jobs import NewJob


@dataclass(frozen=True)
class Shape:
    """A workflow before its submission. Shapes nest."""

    form: str
    content: Any


Member = Union[NewJob[Any], Shape]


def _member(member: Member) -> Any:
    if isinstance(member, Shape):
        return {member.form: member.content}
    return {"queue": member.queue, **member.to_wire()}


def chain(*members: Member) -> Shape:
    """Jobs one after the other."""
    return Shape("chain", [_member(member) for member in members])


def group(*members: Member) -> Shape:
    """Jobs side by side."""
    return Shape("group", [_member(member) for member in members])


def chord(*members: Member, finally_: NewJob[Any]) -> Shape:
    """Jobs side by side, and a finalizer after all of them."""
    return Shape("chord", {"group": [_member(member) for member in members], "finally": _member(finally_)})


def graph(members: Mapping[str, NewJob[Any]]) -> Shape:
    """Jobs by name. A job names its dependencies as `after=["#name"]`."""
    return Shape("jobs", [{"ref": name, **_member(member)} for name, member in members.items()])
