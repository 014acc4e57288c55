"""The pytest plugin: fixtures `queue` and `async_queue`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .testing import AsyncTestQueue, TestQueue, TestServer


@pytest.fixture
def longshore_server() -> Iterator[TestServer]:
    """A server in memory with a virtual clock, for one test."""
    server = TestServer()
    yield server
    server.kill()


@pytest.fixture
def queue(longshore_server: TestServer) -> TestQueue:
    """A job queue with a virtual clock, for one test."""
    return TestQueue(longshore_server)


@pytest.fixture
def async_queue(longshore_server: TestServer) -> AsyncTestQueue:
    """The same for tests with `async def`."""
    return AsyncTestQueue(longshore_server)
