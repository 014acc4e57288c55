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
                connection = HTTPConnection(target.hostname or "", target.port, timeout=70)
                connection.request(self.command, self.path, body, {"content-type": "application/json"})
                response = connection.getresponse()
                data = response.read()
                connection.close()
                self.send_response(response.status)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PUT = forward

            def log_message(self, *_: Any) -> None:
                pass

        self.proxy = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.proxy.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.proxy.server_address[1]}"
        threading.Thread(target=self.proxy.serve_forever, daemon=True).start()

    def of(self, path: str) -> list[tuple[float, Any]]:
        """Returns the times and bodies of the requests to a path."""
        return [(at, body) for at, each, body in self.requests if each == path]

    def close(self) -> None:
        self.proxy.shutdown()
        self.proxy.server_close()
