"""The client against the real server, and against one that fails."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from longshore import (
    Client,
    ConfigurationError,
    Context,
    JobFailed,
    JobType,
    Refused,
    SyncClient,
    Unreachable,
    WaitTimeout,
    Worker,
    chain,
    chord,
    graph,
    group,
    job,
)
from longshore.testing import TestServer


@dataclass
class Sum:
    a: int
    b: int


@dataclass
class Total:
    value: int


@job("add")
async def add(ctx: Context, numbers: Sum) -> Total:
    return Total(numbers.a + numbers.b)


def run_until_idle(server: TestServer, name: str, *jobs: JobType[Any, Any]) -> None:
    Worker(Client(server.url), jobs, queues=[name]).run(until_idle=True)


def test_typed_result(server: TestServer, client: SyncClient, name: str) -> None:
    handle = add.submit(client, Sum(2, 3), queue=name)
    run_until_idle(server, name, add)
    assert handle.wait(5) == Total(5)


def test_options_reach_the_server(client: SyncClient, name: str) -> None:
    handle = client.submit(
        add.new(
            Sum(1, 2),
            queue=name,
            delay="5m",
            key="k1",
            priority="high",
            tags={"tenant": "acme"},
            correlation_id="c",
            retry={"limit": 7},
            execution_timeout=timedelta(seconds=10),
            lease=20,
        )
    )
    record = handle.get()
    assert (record["state"], record["priority"], record["tags"]) == ("delayed", "high", {"tenant": "acme"})
    assert (record["idempotency_key"], record["correlation_id"]) == ("k1", "c")
    assert (record["policy"]["retry"]["limit"], record["policy"]["lease"]) == (7, "20s")
    at = datetime.now(timezone.utc) + timedelta(hours=1)
    later = client.submit("add", {"a": 1, "b": 1}, queue=name, run_at=at).get()
    assert later["run_at"].startswith(at.strftime("%Y-%m-%dT%H:%M:%S"))


def test_same_key_is_one_job(client: SyncClient, name: str) -> None:
    first = add.submit(client, Sum(1, 1), queue=name, key="once")
    again = add.submit(client, Sum(1, 1), queue=name, key="once")
    other = add.submit(client, Sum(9, 9), queue=name, key="once")
    assert first.id == again.id == other.id
    assert (first.duplicate, again.duplicate, again.same_payload, other.same_payload) == (False, True, True, False)


def test_many_jobs_of_two_queues(client: SyncClient, name: str) -> None:
    jobs = [add.new(Sum(i, i), queue=f"{name}-{i % 2}") for i in range(2500)]
    handles = client.submit_many(jobs)
    assert len({handle.id for handle in handles}) == 2500
    assert client.get(handles[2].id, payload=True)["payload"] == {"a": 2, "b": 2}
    assert client.get_queue(f"{name}-1")["counts"]["scheduled"] == 1250


def test_queue_without_idempotency(client: SyncClient, name: str) -> None:
    client.put_queue(name, settings={"idempotency": {"scope": "off"}})
    assert client.submit("add", {}, queue=name).get()["idempotency_key"] is None
    with pytest.raises(Refused):
        client.submit("add", {}, queue=name, key="k")


def test_binary_payload(server: TestServer, client: SyncClient, name: str) -> None:
    @job("binary")
    async def size(ctx: Context, data: bytes) -> int:
        return len(data)

    handle = size.submit(client, b"\x00\xff\xfe", queue=name)
    run_until_idle(server, name, size)
    assert handle.wait(5) == 3


def test_workflow(server: TestServer, client: SyncClient, name: str) -> None:
    @job("inputs")
    async def inputs(ctx: Context, payload: None) -> Any:
        return await ctx.inputs()

    new = add.new(Sum(1, 2), queue=name)
    last = inputs.new(None, queue=name, ref="last")
    flow = client.submit_workflow(chain(new, chord(group(new, new), finally_=last)), name="sums")
    run_until_idle(server, name, add, inputs)
    record = flow.wait(5)
    assert (record["state"], record["name"]) == ("completed", "sums")
    assert json.dumps(client.get(flow.jobs["last"])["result"]).count('"value": 3') == 2


def test_graph_and_cancel(client: SyncClient, name: str) -> None:
    shape = graph({"a": add.new(Sum(1, 1), queue=name), "b": add.new(Sum(1, 1), queue=name, after=["#a"])})
    flow = client.submit_workflow(shape)
    assert client.get(flow.jobs["b"])["state"] == "pending"
    flow.cancel()
    assert flow.wait(5)["state"] == "cancelled"


def test_wait_for_a_job_that_does_not_complete(client: SyncClient, name: str) -> None:
    handle = add.submit(client, Sum(1, 1), queue=name)
    with pytest.raises(WaitTimeout, match="is scheduled"):
        handle.wait("10ms")
    handle.cancel(reason="not needed")
    with pytest.raises(JobFailed, match="is cancelled"):
        handle.wait(5)


def test_refusal_has_its_code(client: SyncClient, name: str) -> None:
    with pytest.raises(Refused) as error:
        client.get("00000000-0000-4000-8000-000000000000")
    assert (error.value.code, error.value.status, error.value.retry) == ("job_not_found", 404, "never")
    with pytest.raises(Refused) as error:
        client.submit("", {}, queue=name)
    assert (error.value.code, error.value.field) == ("validation", "type")


def test_one_client_in_many_tasks(server: TestServer, name: str) -> None:
    async def scenario() -> None:
        async with Client(server.url) as client:
            await asyncio.gather(*(client.submit("add", {}, queue=name) for _ in range(200)))
            found = await client.list_jobs(queue=name)
            assert len(found) == 200

    asyncio.run(scenario())


def test_wrong_arguments() -> None:
    with pytest.raises(ConfigurationError, match="two handlers"):
        Worker(Client(), [add, add])
    with pytest.raises(ConfigurationError, match="no handler"):
        Worker(Client(), [JobType("x")])
    with pytest.raises(ConfigurationError, match="no job types"):
        Worker(Client(), [])
    with pytest.raises(ConfigurationError, match="slots is 0"):
        Worker(Client(), [add], slots=0)
    wrong: Any = lambda payload: None  # noqa: E731
    with pytest.raises(ConfigurationError, match=r"\(ctx, payload\)"):
        job("x")(wrong)


class FailingServer:
    """Answers each request with the next of its answers. None closes the connection instead."""

    def __init__(self, *answers: tuple[int, dict[str, Any]] | None) -> None:
        self.answers = list(answers)
        self.bodies: list[Any] = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self) -> None:
        while self.answers:
            connection, _ = self.listener.accept()
            with connection, connection.makefile("rb") as reader:
                while self.answers:
                    head = []
                    while (line := reader.readline()) not in (b"\r\n", b""):
                        head.append(line.decode().lower())
                    if not head:
                        break
                    length = next((int(line.split(":")[1]) for line in head if line.startswith("content-length")), 0)
                    self.bodies.append(json.loads(reader.read(length) or b"null"))
                    answer = self.answers.pop(0)
                    if answer is None:
                        break
                    status, body = answer
                    # Chunked, as a proxy may send it.
                    data = json.dumps(body).encode()
                    chunk = b"%x\r\n%s\r\n0\r\n\r\n" % (len(data), data)
                    connection.sendall(b"HTTP/1.1 %d X\r\ntransfer-encoding: chunked\r\n\r\n" % status + chunk)
        self.listener.close()


CREATED = (201, {"id": "j", "seq": 1, "state": "scheduled", "duplicate": False})


def test_lost_answer_is_repeated_with_the_same_key() -> None:
    server = FailingServer(None, (504, {"code": "submission_timeout", "retry": "unknown"}), CREATED)
    assert SyncClient(server.url).submit("add", {}).id == "j"
    keys = {body["idempotency_key"] for body in server.bodies}
    assert len(server.bodies) == 3
    assert len(keys) == 1


def test_without_a_key_a_lost_answer_is_an_error() -> None:
    server = FailingServer(None, CREATED)
    with pytest.raises(Unreachable) as error:
        SyncClient(server.url, auto_keys=False).submit("add", {})
    assert error.value.sent
    assert len(server.bodies) == 1


def test_never_is_never_repeated() -> None:
    server = FailingServer((400, {"code": "validation", "retry": "never", "field": "type"}), CREATED)
    with pytest.raises(Refused):
        SyncClient(server.url).submit("add", {})
    assert len(server.bodies) == 1


def test_unreachable_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(Unreachable, match="cannot connect") as error:
        SyncClient(f"http://127.0.0.1:{port}", timeout="200ms").submit("add", {})
    assert not error.value.sent
