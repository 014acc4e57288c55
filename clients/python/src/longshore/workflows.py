"""Shapes of workflows: chains, groups, chords and graphs of new jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Union

from .jobs import NewJob

Prepare = Callable[[NewJob[Any]], NewJob[Any]]


@dataclass(frozen=True)
class Shape:
    """A workflow before its submission. Shapes nest."""

    form: str
    members: tuple[Member, ...]
    finally_: NewJob[Any] | None = None
    names: tuple[str, ...] = ()

    def to_wire(self, prepare: Prepare) -> dict[str, Any]:
        """Returns the workflow as the API takes it. `prepare` returns the job to send for each job."""
        content: Any = [_member(member, prepare) for member in self.members]
        if self.form == "jobs":
            content = [{"ref": name, **member} for name, member in zip(self.names, content)]
        elif self.finally_ is not None:
            content = {"group": content, "finally": _member(self.finally_, prepare)}
        return {self.form: content}


Member = Union[NewJob[Any], Shape]


def _member(member: Member, prepare: Prepare) -> dict[str, Any]:
    return member.to_wire(prepare) if isinstance(member, Shape) else member_to_wire(prepare(member))


def member_to_wire(new: NewJob[Any]) -> dict[str, Any]:
    """Returns a job with its queue, for requests about several queues."""
    return {"queue": new.queue, **new.to_wire()}


def chain(*members: Member) -> Shape:
    """Jobs one after the other."""
    return Shape("chain", members)


def group(*members: Member) -> Shape:
    """Jobs side by side."""
    return Shape("group", members)


def chord(*members: Member, finally_: NewJob[Any]) -> Shape:
    """Jobs side by side, and a finalizer after all of them."""
    return Shape("chord", members, finally_)


def graph(members: Mapping[str, NewJob[Any]]) -> Shape:
    """Jobs by name. A job names its dependencies as `after=["#name"]`."""
    return Shape("jobs", tuple(members.values()), names=tuple(members))
