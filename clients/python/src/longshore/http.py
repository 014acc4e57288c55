"""HTTP/1.1 over asyncio and over a blocking socket.

Two transports share the address, the request head and the reading of errors:
`AsyncTransport` keeps a pool for the event loop, `BlockingTransport` has one connection for one
thread. Both raise `Refused` for an error answer and `Unreachable` if there is no answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import ssl
import weakref
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from .codec import parse
from .errors import ConfigurationError, Refused, Unreachable

DEFAULT_URL = "http://127.0.0.1:7070"
_USER_AGENT = "longshore-python/0.1.0"
_HEAD_BYTES_MAX = 65_536
# The server closes a connection that was idle for longer than this.
_IDLE_SECONDS_MAX = 30.0
_BROKEN_EXCHANGE = (OSError, EOFError, ValueError, IndexError, asyncio.LimitOverrunError, asyncio.TimeoutError)


@dataclass(frozen=True)
class Address:
    """Where the server is, and how the client identifies itself."""

    url: str
    host: str
    port: int
    tls: ssl.SSLContext | None
    base: str
    headers: str

    @classmethod
    def make(cls, url: str | None, token: str | None, tls: ssl.SSLContext | None = None) -> Address:
        """Parses a URL. The defaults are LONGSHORE_SERVER and LONGSHORE_TOKEN."""
        text = url or os.environ.get("LONGSHORE_SERVER") or DEFAULT_URL
        token = token or os.environ.get("LONGSHORE_TOKEN") or None
        parts = urlsplit(text if "://" in text else f"http://{text}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigurationError(f"{text!r} is not a URL of a server (write it as {DEFAULT_URL})")
        if token is not None and not (token.isascii() and token.isprintable()):
            raise ConfigurationError("the token has characters that a header cannot carry")
        context = (tls or ssl.create_default_context()) if parts.scheme == "https" else None
        port = parts.port or (443 if context else 80)
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        headers = f"host: {host}:{port}\r\nuser-agent: {_USER_AGENT}\r\naccept: application/json\r\n"
        if token:
            headers += f"authorization: Bearer {token}\r\n"
        return cls(text, parts.hostname, port, context, parts.path.rstrip("/"), headers)


def _request_bytes(address: Address, method: str, path: str, body: bytes | None) -> bytes:
    head = f"{method} {address.base}{path} HTTP/1.1\r\n{address.headers}"
    if body is None:
        return (head + ("content-length: 0\r\n\r\n" if method != "GET" else "\r\n")).encode("ascii")
    head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode("ascii") + body


def _read_answer(status: int, headers: dict[str, str], body: bytes) -> Any:
    if status < 400:
        try:
            return parse(body) if body else None
        except ValueError as error:
            # A proxy answers with a page of its own.
            raise Unreachable(f"the answer with status {status} is not JSON: {error}", sent=True) from None
    try:
        problem = json.loads(body)
    except ValueError:
        problem = None
    if not isinstance(problem, dict):
        # An answer of a proxy, not of the server.
        problem = {"code": "unknown", "detail": f"HTTP status {status}"}
    retry_after = headers.get("retry-after", "")
    raise Refused(status, problem, float(retry_after) if retry_after.isdigit() else None)


class _Connection:
    """One connection of the pool."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.idle_since = 0.0

    def is_usable(self, now: float) -> bool:
        stale = now - self.idle_since > _IDLE_SECONDS_MAX
        return not (stale or self.reader.at_eof() or self.writer.transport.is_closing())

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self.writer.close()

    async def read_head(self) -> tuple[int, dict[str, str]]:
        head = await self.reader.readuntil(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        status = int(lines[0].split(" ", 2)[1])
        headers: dict[str, str] = {}
        for line in lines[1:]:
            if line:
                name, _, value = line.partition(":")
                headers[name.strip().lower()] = value.strip()
        return status, headers

    async def read_body(self, status: int, headers: dict[str, str]) -> bytes:
        if status in (204, 304):
            return b""
        if "content-length" in headers:
            return await self.reader.readexactly(int(headers["content-length"]))
        if headers.get("transfer-encoding", "").lower() == "chunked":
            return await self.read_chunks()
        headers["connection"] = "close"
        return await self.reader.read()

    async def read_chunks(self) -> bytes:
        chunks: list[bytes] = []
        while True:
            size = int((await self.reader.readline()).split(b";")[0], 16)
            chunk = await self.reader.readexactly(size)
            await self.reader.readline()
            if size == 0:
                return b"".join(chunks)
            chunks.append(chunk)


class Hangup:
    """Ends a waiting request early without losing its answer.

    It closes the sending side only. The server then answers no more, or has answered already: the
    request returns that answer, or raises `Unreachable`.
    """

    def __init__(self) -> None:
        self._connection: _Connection | None = None
        self.is_requested = False

    def request(self) -> None:
        self.is_requested = True
        if self._connection is not None:
            self._close_sending_side(self._connection)

    def attach(self, connection: _Connection | None) -> None:
        self._connection = connection
        if self.is_requested and connection is not None:
            self._close_sending_side(connection)

    @staticmethod
    def _close_sending_side(connection: _Connection) -> None:
        writer = connection.writer
        if writer.can_write_eof():
            with contextlib.suppress(OSError):
                writer.write_eof()
        else:
            connection.close()


class AsyncTransport:
    """A pool of connections for each event loop that uses it."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._pools: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, list[_Connection]]
        self._pools = weakref.WeakKeyDictionary()

    async def request(
        self, method: str, path: str, body: bytes | None, timeout: float, hangup: Hangup | None = None
    ) -> Any:
        """Sends one request and returns its JSON."""
        loop = asyncio.get_running_loop()
        pool = self._pools.setdefault(loop, [])
        connection = self._take_idle(pool, loop.time()) or await self._connect(timeout)
        try:
            status, headers, data = await asyncio.wait_for(
                self._exchange(connection, _request_bytes(self.address, method, path, body), hangup), timeout
            )
        except _BROKEN_EXCHANGE as error:
            connection.close()
            reason = "no answer in time" if isinstance(error, asyncio.TimeoutError) else _describe(error)
            raise Unreachable(f"{method} {path} got no answer from {self.address.url}: {reason}", sent=True) from error
        except BaseException:
            connection.close()
            raise
        if headers.get("connection", "").lower() == "close" or (hangup and hangup.is_requested):
            connection.close()
        else:
            connection.idle_since = loop.time()
            pool.append(connection)
        return _read_answer(status, headers, data)

    @staticmethod
    async def _exchange(
        connection: _Connection, request: bytes, hangup: Hangup | None
    ) -> tuple[int, dict[str, str], bytes]:
        connection.writer.write(request)
        await connection.writer.drain()
        if hangup:
            hangup.attach(connection)
        try:
            status, headers = await connection.read_head()
            return status, headers, await connection.read_body(status, headers)
        finally:
            if hangup:
                hangup.attach(None)

    @staticmethod
    def _take_idle(pool: list[_Connection], now: float) -> _Connection | None:
        while pool:
            connection = pool.pop()
            if connection.is_usable(now):
                return connection
            connection.close()
        return None

    async def _connect(self, timeout: float) -> _Connection:
        address = self.address
        try:
            opening = asyncio.open_connection(address.host, address.port, ssl=address.tls, limit=_HEAD_BYTES_MAX)
            reader, writer = await asyncio.wait_for(opening, min(timeout, 10.0))
        except (OSError, asyncio.TimeoutError) as error:
            raise Unreachable(f"cannot connect to {address.url}: {_describe(error)}", sent=False) from error
        return _Connection(reader, writer)

    async def stream(
        self, path: str, last_event_id: str | None, timeout: float, silence_max: float
    ) -> AsyncIterator[bytes]:
        """Yields the parts of a body without an end. Raises `Unreachable` if the connection is lost."""
        connection = await self._connect(timeout)
        try:
            request = _request_bytes(self.address, "GET", path, None)
            if last_event_id is not None:
                request = request.removesuffix(b"\r\n") + f"last-event-id: {last_event_id}\r\n\r\n".encode("ascii")
            connection.writer.write(request)
            await connection.writer.drain()
            status, answer = await asyncio.wait_for(connection.read_head(), timeout)
            if status >= 400:
                _read_answer(status, answer, await connection.read_body(status, answer))
            while size := int((await asyncio.wait_for(connection.reader.readline(), silence_max)).split(b";")[0], 16):
                part = await asyncio.wait_for(connection.reader.readexactly(size + 2), silence_max)
                yield part[:size]
        except _BROKEN_EXCHANGE as error:
            raise Unreachable(f"GET {path} was interrupted: {_describe(error)}", sent=True) from error
        finally:
            connection.close()

    def is_open(self) -> bool:
        """Returns whether there are idle connections."""
        return any(self._pools.values())

    async def close(self) -> None:
        """Closes the idle connections of the present event loop."""
        idle = self._pools.pop(asyncio.get_running_loop(), [])
        for connection in idle:
            connection.close()
        for connection in idle:
            with contextlib.suppress(OSError, asyncio.TimeoutError):
                await asyncio.wait_for(connection.writer.wait_closed(), 1.0)


class BlockingTransport:
    """One connection for one thread."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._connection: http.client.HTTPConnection | None = None

    def request(self, method: str, path: str, body: bytes | None, timeout: float) -> Any:
        """Sends one request and returns its JSON."""
        sent = False
        try:
            connection = self._open(timeout)
            sent = True
            connection.send(_request_bytes(self.address, method, path, body))
            response = http.client.HTTPResponse(connection.sock, method=method)
            response.begin()
            data = response.read()
            headers = {name.lower(): value for name, value in response.getheaders()}
            if response.will_close:
                self.close()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise Unreachable(
                f"{method} {path} got no answer from {self.address.url}: {_describe(error)}", sent=sent
            ) from error
        return _read_answer(response.status, headers, data)

    def _open(self, timeout: float) -> http.client.HTTPConnection:
        if self._connection is None:
            address = self.address
            if address.tls:
                self._connection = http.client.HTTPSConnection(
                    address.host, address.port, timeout=timeout, context=address.tls
                )
            else:
                self._connection = http.client.HTTPConnection(address.host, address.port, timeout=timeout)
            self._connection.connect()
        self._connection.sock.settimeout(timeout)
        return self._connection

    def close(self) -> None:
        """Closes the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _describe(error: BaseException) -> str:
    if isinstance(error, EOFError):
        return "the server closed the connection"
    return str(error) or type(error).__name__
