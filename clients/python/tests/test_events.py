"""The event stream against the real server, and against one that is lost."""

from __future__ import annotations

import asyncio

import pytest

from longshore import Client, Event, Refused
from longshore.events import EventParser, event_path
from longshore.testing import TestServer


@pytest.mark.parametrize("size", [1, 2, 5, 1000])
def test_events_are_the_same_however_they_arrive(size: int) -> None:
    text = ': hi\n\n: cursor a-1\n\nevent: job\r\nid: a-2\r\ndata: {"x":\r\n'
    text += 'data: "é"}\r\n\r\nevent: gap\ndata: {}\n\nevent: x'
    data, parser, events = text.encode(), EventParser(), list[Event]()
    for start in range(0, len(data), size):
        events += parser.push(data[start : start + size])
    assert events == [Event("job", {"x": "é"}, "a-2"), Event("gap", {}, None)]
    assert parser.cursor == "a-2"


def test_filters_become_a_query() -> None:
    assert event_path({"queue": None, "state": []}) == "/v1/events"
    assert (
        event_path({"queue": "a b", "state": ["failed", "cancelled"]})
        == "/v1/events?queue=a+b&state=failed%2Ccancelled"
    )


def test_transitions_arrive_and_a_cursor_resumes(server: TestServer, name: str) -> None:
    async def run() -> None:
        async with Client(server.url) as client:
            await client.put_queue(name)
            events = client.events(queue=name)
            first = asyncio.ensure_future(anext_event(events))
            # The stream is open once an event of a later submission arrives.
            handle = None
            while not first.done():
                handle = await client.submit("t", None, queue=name)
                await asyncio.wait([first], timeout=0.2)
            event = await first
            assert (event.kind, event.data["from"], event.data["to"]) == ("job", None, "pending")
            following = await anext_event(events)
            assert (following.data["id"], following.data["to"]) == (event.data["id"], "scheduled")
            resumed = client.events(queue=name, after=event.cursor)
            assert await anext_event(resumed) == following
            unknown = client.events(queue=name, after="0123456789abcdef-1")
            assert (await anext_event(unknown)).kind == "gap"
            assert handle is not None

    asyncio.run(run())


async def anext_event(events: object) -> Event:
    event: Event = await asyncio.wait_for(events.__anext__(), 30)  # type: ignore[attr-defined]
    return event


def test_a_malformed_cursor_is_refused(server: TestServer) -> None:
    async def run() -> None:
        async with Client(server.url) as client:
            with pytest.raises(Refused) as caught:
                await anext_event(client.events(after="17"))
            assert caught.value.code == "validation"

    asyncio.run(run())


def test_a_lost_stream_is_resumed_with_its_cursor() -> None:
    """The server ends each stream after one event: the client asks for the next one."""
    asked: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        asked.extend(line.split(": ")[1] for line in head.split("\r\n") if line.startswith("last-event-id"))
        body = f'event: queue\nid: e-{len(asked)}\ndata: {{"n": {len(asked)}}}\n\n'.encode()
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n%x\r\n%s\r\n" % (len(body), body))
        await writer.drain()
        writer.close()

    async def run() -> None:
        served = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = served.sockets[0].getsockname()[1]
        events = Client(f"http://127.0.0.1:{port}").events()
        assert [(await anext_event(events)).data["n"] for _ in range(3)] == [0, 1, 2]
        served.close()

    asyncio.run(run())
    assert asked == ["e-0", "e-1"]
