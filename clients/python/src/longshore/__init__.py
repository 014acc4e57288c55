"""Client and worker of the Longshore job queue.

```python
from longshore import Client, Context, Worker, job

@job("greet")
async def greet(ctx: Context, name: str) -> str:
    return f"hello {name}"

Worker(Client(), [greet]).run()
```
"""

from .cancellation import Cancellation, CancelReason
from .client import Client, Handle, WorkflowHandle
from .context import Context
from .durations import Duration
from .errors import (
    ConfigurationError,
    DecodeError,
    JobCancelled,
    JobFailed,
    LongshoreError,
    Refused,
    StuckHandlers,
    Unreachable,
    WaitTimeout,
)
from .events import Event
from .jobs import BatchJobType, Item, JobType, NewJob, SubmitOptions, batch_job, job
from .outcomes import Done, Fail, Outcome, Release, Snooze
from .schedules import ScheduleOptions, scheduled
from .sync import SyncClient, SyncHandle, SyncWorkflowHandle
from .tracing import trace_jobs
from .worker.options import Middleware
from .worker.report import Report
from .worker.worker import Worker
from .workflows import Shape, chain, chord, graph, group

__version__ = "0.1.0"

__all__ = [
    "BatchJobType",
    "CancelReason",
    "Cancellation",
    "Client",
    "ConfigurationError",
    "Context",
    "DecodeError",
    "Done",
    "Duration",
    "Event",
    "Fail",
    "Handle",
    "Item",
    "JobCancelled",
    "JobFailed",
    "JobType",
    "LongshoreError",
    "Middleware",
    "NewJob",
    "Outcome",
    "Refused",
    "Release",
    "Report",
    "ScheduleOptions",
    "Shape",
    "Snooze",
    "StuckHandlers",
    "SubmitOptions",
    "SyncClient",
    "SyncHandle",
    "SyncWorkflowHandle",
    "Unreachable",
    "WaitTimeout",
    "Worker",
    "WorkflowHandle",
    "batch_job",
    "chain",
    "chord",
    "graph",
    "group",
    "job",
    "scheduled",
    "trace_jobs",
]
