"""A proxy before the real server that records requests, and can stop or hold them."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit


class Recorder:
    """Forwards requests to a server. `requests` has (time, path, body) of each."""

    def __init__(self, url: str) -> None:
        self.requests: list[tuple[float, str, Any]] = []
        self.is_down = False
        # With `directive` the proxy offers what newer servers do: settlements in claims, directives.
        self.directive: str | None = None
        # Refuses settlements alone (503) and in claims (400), as an earlier server in an outage does.
        self.refuses_settlements = False
        self.refused = threading.Event()
        # Status and problem document of every answer, instead of the server's.
        self.refusal: tuple[int, dict[str, Any]] | None = None
        # Answers to the next requests with outcomes, which the server does not see.
        self.strange: list[bytes] = []
        self.claimed = threading.Event()
        recorder = self
        target = urlsplit(url)

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def forward(self) -> None:
                with contextlib.suppress(OSError, HTTPException):
                    self.exchange()

            def exchange(self) -> None:
                length = int(self.headers.get("content-length", 0))
                body = self.rfile.read(length)
                if recorder.is_down:
                    self.close_connection = True
                    return
                recorder.requests.append((time.monotonic(), self.path, json.loads(body) if body else None))
                # The worker may hang up meanwhile: the next request needs a new connection.
                self.close_connection = True
                status, data = self.answer(body)
                self.send_response(status)
                self.send_header("connection", "close")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def answer(self, body: bytes) -> tuple[int, bytes]:
                if recorder.refusal is not None:
                    return recorder.refusal[0], json.dumps(recorder.refusal[1]).encode()
                if recorder.strange and b'"outcome"' in body:
                    return 200, recorder.strange.pop()
                if self.path == "/v1/claims":
                    recorder.claimed.set()
                if recorder.refuses_settlements:
                    if self.path == "/v1/settlements":
                        recorder.refused.set()
                        return 503, json.dumps({"code": "store_unavailable", "retry": "safe"}).encode()
                    if b'"settle"' in body:
                        return 400, json.dumps({"code": "validation", "field": "settle", "retry": "never"}).encode()
                if recorder.directive is None or self.path not in ("/v1/claims", "/v1/heartbeats"):
                    return self.call(self.path, body)
                request = json.loads(body)
                results = None
                if settle := request.pop("settle", None):
                    settled = self.call("/v1/settlements", json.dumps({"settlements": settle}).encode())
                    results = json.loads(settled[1])["results"]
                    request.pop("wait", None)
                if recorder.directive != "run" and self.path == "/v1/claims":
                    return 200, json.dumps({"jobs": [], "directive": recorder.directive}).encode()
                status, data = self.call(self.path, json.dumps(request).encode())
                answer = {**json.loads(data), "directive": recorder.directive}
                if results is not None:
                    answer["results"] = results
                return status, json.dumps(answer).encode()

            def call(self, path: str, body: bytes) -> tuple[int, bytes]:
                connection = HTTPConnection(target.hostname or "", target.port, timeout=70)
                connection.request(self.command, path, body, {"content-type": "application/json"})
                response = connection.getresponse()
                data = response.read()
                connection.close()
                return response.status, data

            do_GET = do_POST = do_PUT = forward

            def log_message(self, *_: Any) -> None:
                pass

        self.proxy = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.proxy.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.proxy.server_address[1]}"
        threading.Thread(target=self.proxy.serve_forever, args=(0.02,), daemon=True).start()

    def of(self, path: str) -> list[tuple[float, Any]]:
        """Returns the times and bodies of the requests to a path."""
        return [(at, body) for at, each, body in self.requests if each == path]

    def close(self) -> None:
        self.proxy.shutdown()
        self.proxy.server_close()
