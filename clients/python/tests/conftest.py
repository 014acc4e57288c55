"""Fixtures: a server in real time for all tests, and queues of their own."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from longshore import SyncClient
from longshore.testing import TestServer

ROOT = Path(__file__).resolve().parents[3]
_NUMBERS = itertools.count(1)


def pytest_configure() -> None:
    """Uses the program of this repository if no other one is set."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    built = target / "debug" / "longshore"
    if "LONGSHORE_BIN" not in os.environ and not shutil.which("longshore") and built.exists():
        os.environ["LONGSHORE_BIN"] = str(built)


@pytest.fixture(scope="session")
def server() -> Iterator[TestServer]:
    """A server in real time, in memory."""
    # The tests of webhooks have their receivers on loopback.
    server = TestServer(virtual_clock=False, arguments=["--webhook-allow", "127.0.0.0/8"])
    yield server
    server.kill()


@pytest.fixture
def client(server: TestServer) -> SyncClient:
    return SyncClient(server.url)


@pytest.fixture
def name() -> str:
    """A queue that no other test uses."""
    return f"q{next(_NUMBERS)}"
