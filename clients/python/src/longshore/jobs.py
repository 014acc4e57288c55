"""Job types: handlers with the type, queue and payload that they stand for.

`@job("email.send")` makes a `JobType` of a handler. The handler stays callable, so that tests can
call it. A producer that does not have the handler declares the type alone: `JobType("email.send")`.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Literal, TypedDict, TypeVar, Union, cast, overload

from .codec import decoder, is_model
from .durations import Duration, format_time, to_wire
from .errors import ConfigurationError
from .outcomes import Done, Fail, Release, Snooze

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .client import Client, Handle
    from .context import Context
    from .schedules import Schedule
    from .sync import SyncClient, SyncHandle

P = TypeVar("P")
R = TypeVar("R")
P_contra = TypeVar("P_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)
Priority = Literal["critical", "high", "normal", "low", "bulk"]


class JobDefaults(TypedDict, total=False):
    """Options that a job type may set for all of its submissions."""

    delay: Duration
    run_at: datetime
    key: str
    priority: Priority
    tags: Union[Mapping[str, Union[str, None]], Sequence[str]]
    correlation_id: str
    callback_url: str
    external_id: str
    after: Sequence[str]
    after_any: Sequence[str]
    ref: str
    hold: bool
    retry: Mapping[str, Any]
    execution_timeout: Duration
    lease: Duration
    lifetime: Duration
    retention: Mapping[str, Any]


class SubmitOptions(JobDefaults, total=False):
    """Options of a submission. Absent options have the defaults of the job type or the queue.

    `traceparent` is a W3C trace context. Absent, it is that of OpenTelemetry's present span.
    """

    queue: str
    traceparent: str


_DURATIONS = ("delay", "execution_timeout", "lease", "lifetime")


@dataclass(frozen=True)
class NewJob(Generic[R_co]):
    """A job that is not submitted yet: for `submit_many` and for workflows."""

    type: str
    queue: str
    payload: Any
    options: SubmitOptions
    result_type: Any = Any

    def with_options(self, **options: Unpack[SubmitOptions]) -> NewJob[R_co]:
        """Returns this job with other options, for `before_submit`."""
        merged = cast(SubmitOptions, {**self.options, **options})
        return replace(self, options=merged, queue=merged.get("queue") or self.queue)

    def to_wire(self) -> dict[str, Any]:
        """Returns the job as the API takes it, without its queue."""
        body: dict[str, Any] = {"type": self.type}
        if isinstance(self.payload, (bytes, bytearray)):
            import base64

            body["payload_base64"] = base64.b64encode(self.payload).decode("ascii")
        else:
            body["payload"] = self.payload
        for name, value in self.options.items():
            if value is None or name == "queue":
                continue
            if name == "key":
                name = "idempotency_key"
            elif name in _DURATIONS:
                value = to_wire(cast(Duration, value))
            elif name == "run_at":
                value = format_time(cast(datetime, value))
            body[name] = value
        return body


class JobType(Generic[P_contra, R_co]):
    """The sort of work that a handler does: its type name, queue, and types of payload and result."""

    batch_size: int = 1
    batch_wait: float = 0.0
    batch_concurrency: int = 1

    def __init__(
        self,
        type: str,
        *,
        queue: str = "default",
        handler: Callable[..., Any] | None = None,
        payload: Any = Any,
        result: Any = Any,
        defaults: JobDefaults | None = None,
    ) -> None:
        self.type = type
        self.queue = queue
        self.handler = handler
        self.payload_type = payload
        self.result_type = result
        self.defaults: JobDefaults = defaults or {}
        self.schedules: list[Schedule] = []
        self.decode_payload = decoder(payload)
        self.is_async = handler is not None and is_async_callable(handler)
        self.__name__ = getattr(handler, "__name__", type)
        self.__doc__ = getattr(handler, "__doc__", None)
        self.__wrapped__ = handler

    def __repr__(self) -> str:
        return f"<job type {self.type!r} of queue {self.queue!r}>"

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Calls the handler itself."""
        if self.handler is None:
            raise ConfigurationError(f"job type {self.type!r} has no handler (decorate a function with @job)")
        return self.handler(*arguments, **named)

    def new(self, payload: P_contra, **options: Unpack[SubmitOptions]) -> NewJob[R_co]:
        """Returns a job of this type for `submit_many` or a workflow."""
        _check_payload(self.type, payload, self.payload_type)
        merged = cast(SubmitOptions, {**self.defaults, **options})
        return NewJob(self.type, merged.get("queue") or self.queue, payload, merged, self.result_type)

    @overload
    def submit(
        self, client: Client, payload: P_contra, **options: Unpack[SubmitOptions]
    ) -> Awaitable[Handle[R_co]]: ...

    @overload
    def submit(self, client: SyncClient, payload: P_contra, **options: Unpack[SubmitOptions]) -> SyncHandle[R_co]: ...

    def submit(self, client: Client | SyncClient, payload: P_contra, **options: Unpack[SubmitOptions]) -> Any:
        """Submits one job. With a `Client` the call is awaited."""
        return client.submit(self.new(payload, **options))


_PLAIN_TYPES: dict[Any, tuple[type, ...]] = {
    str: (str,),
    bool: (bool,),
    int: (int,),
    float: (int, float),
    bytes: (bytes, bytearray),
}


def _check_payload(name: str, payload: Any, expected: Any) -> None:
    """Refuses a payload of another class: its job would fail in the worker. Its fields are not checked."""
    if not isinstance(expected, type) or typing.get_origin(expected) is not None:
        return
    if expected in _PLAIN_TYPES:
        allowed = _PLAIN_TYPES[expected]
    elif is_model(expected):
        allowed = (expected, Mapping)
    else:
        return
    if not isinstance(payload, allowed):
        raise ConfigurationError(
            f"the payload of job type {name!r} is of type {type(payload).__name__} (expected {expected.__name__})"
        )


@dataclass(frozen=True)
class Item(Generic[P]):
    """One job of a batch."""

    ctx: Context
    payload: P


class BatchJobType(JobType[P_contra, R_co]):
    """A job type whose handler gets several jobs in one call."""

    def __init__(self, type: str, *, size: int, wait: Duration, concurrency: int = 1, **options: Any) -> None:
        from .durations import to_seconds

        if not 1 <= size <= 1000:
            raise ConfigurationError(f"size of batch type {type!r} is {size} (allowed: 1 to 1000)")
        super().__init__(type, **options)
        self.batch_size = size
        self.batch_wait = to_seconds(wait)
        self.batch_concurrency = concurrency


HandlerOutcome = Union[Done, Fail, Snooze, Release]
AsyncHandler = Callable[["Context", P], Awaitable[Union[R, HandlerOutcome]]]
SyncHandler = Callable[["Context", P], Union[R, HandlerOutcome]]
BatchHandler = Callable[[list[Item[P]]], Awaitable[Union[Sequence[Union[R, HandlerOutcome, Exception]], None]]]


@dataclass(frozen=True)
class _Decorator:
    """`@job(…)` before it has its handler."""

    type: str
    queue: str
    defaults: JobDefaults = field(default_factory=lambda: cast(JobDefaults, {}))

    @overload
    def __call__(self, handler: Callable[[Context, P], Awaitable[HandlerOutcome]]) -> JobType[P, Any]: ...

    @overload
    def __call__(self, handler: AsyncHandler[P, R]) -> JobType[P, R]: ...

    @overload
    def __call__(self, handler: SyncHandler[P, R]) -> JobType[P, R]: ...

    def __call__(self, handler: Callable[..., Any]) -> JobType[Any, Any]:
        payload, result = _handler_types(handler)
        return JobType(
            self.type, queue=self.queue, handler=handler, payload=payload, result=result, defaults=self.defaults
        )


@dataclass(frozen=True)
class _BatchDecorator:
    type: str
    queue: str
    size: int
    wait: Duration
    concurrency: int
    defaults: JobDefaults

    def __call__(self, handler: BatchHandler[P, R]) -> BatchJobType[P, R]:
        hints = _hints(handler)
        names = list(inspect.signature(handler).parameters)
        payload: Any = Any
        if names and names[0] in hints:
            item = (typing.get_args(hints[names[0]]) or (Any,))[0]
            payload = (typing.get_args(item) or (Any,))[0]
        if not is_async_callable(handler):
            raise ConfigurationError(f"batch handler {_name_of(handler)} is not async (write it as async def)")
        return BatchJobType(
            self.type,
            size=self.size,
            wait=self.wait,
            concurrency=self.concurrency,
            queue=self.queue,
            handler=handler,
            payload=payload,
            defaults=self.defaults,
        )


def job(type: str, *, queue: str = "default", **defaults: Unpack[JobDefaults]) -> _Decorator:
    """Makes a job type of a handler `(ctx, payload) -> result`.

    An `async def` runs on the event loop, a `def` in a thread. The annotation of `payload` is the
    type that payloads are decoded to. Options such as `priority` are defaults of submissions.
    """
    if not isinstance(type, str):
        raise ConfigurationError('@job has no type (write it as @job("email.send"))')
    return _Decorator(type, queue, defaults)


def batch_job(
    type: str,
    *,
    size: int,
    wait: Duration = 0.2,
    concurrency: int = 1,
    queue: str = "default",
    **defaults: Unpack[JobDefaults],
) -> _BatchDecorator:
    """Makes a job type of a handler `(items) -> outcomes` for up to `size` jobs in one call.

    The handler is called with `size` jobs, or with those that came within `wait`. It returns one
    value per item: a result, an outcome or an exception. `None` completes all of them.
    """
    return _BatchDecorator(type, queue, size, wait, concurrency, defaults)


def is_async_callable(handler: Callable[..., Any]) -> bool:
    """Returns whether calling the handler gives a coroutine."""
    return inspect.iscoroutinefunction(_function_of(handler))


def _function_of(handler: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the function behind a handler, which may be an object that can be called."""
    return handler if inspect.isroutine(handler) else type(handler).__call__


_COLLECTING = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _name_of(handler: Any) -> str:
    return str(getattr(handler, "__qualname__", repr(handler)))


def _hints(handler: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(_function_of(handler), include_extras=True)
    except NameError as error:
        raise ConfigurationError(
            f"cannot read the types of handler {_name_of(handler)}: {error} "
            "(define the type at the top of a module, and import it outside of TYPE_CHECKING)"
        ) from error


def _handler_types(handler: Callable[..., Any]) -> tuple[Any, Any]:
    """Returns the annotated types of payload and result."""
    if inspect.isclass(handler) or not callable(handler):
        raise ConfigurationError(f"handler {_name_of(handler)} is not a function (write it as (ctx, payload))")
    parameters = list(inspect.signature(handler).parameters.values())
    required = [each for each in parameters if each.default is each.empty and each.kind not in _COLLECTING]
    if len(parameters) < 2 or len(required) > 2:
        names = ", ".join(each.name for each in parameters)
        raise ConfigurationError(
            f"handler {_name_of(handler)} has the parameters ({names}) (write it as (ctx, payload))"
        )
    hints = _hints(handler)
    result = hints.get("return", Any)
    members = typing.get_args(result) if typing.get_origin(result) in (Union, _union_type()) else (result,)
    results = tuple(member for member in members if member not in (Done, Fail, Snooze, Release))
    if not results:
        result = Any
    elif len(results) < len(members):
        result = Union[results]
    return hints.get(parameters[1].name, Any), result


def _union_type() -> Any:
    import types

    return types.UnionType
