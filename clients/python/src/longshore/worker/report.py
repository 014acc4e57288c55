"""What a worker has done."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class Report:
    """Counts of one run of a worker.

    `completed`, `failed`, `snoozed` and `released` are settlements that the server accepted. `lost`
    counts jobs whose lease was lost, `abandoned` stuck handlers, `handled` runs per job type.
    """

    completed: int = 0
    failed: int = 0
    snoozed: int = 0
    released: int = 0
    lost: int = 0
    abandoned: int = 0
    handled: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Returns the report as JSON types."""
        return asdict(self)

    def __str__(self) -> str:
        names = ("completed", "failed", "snoozed", "released", "lost", "abandoned")
        counts = ", ".join(
            f"{getattr(self, name)} {name}" for name in names if getattr(self, name) or name in names[:1]
        )
        return f"{counts} in {self.seconds:.1f} s"
