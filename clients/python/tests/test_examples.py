"""The example application, on pages of a local web server."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from conftest import ROOT

from longshore import Client
from longshore.testing import TestQueue

sys.path.insert(0, str(ROOT / "examples" / "python"))
import linkcheck


class Site(BaseHTTPRequestHandler):
    """A page with three links: one good, one missing, one that is busy for its first request."""

    busy = 1

    def do_GET(self) -> None:
        status, body = {
            "/": (
                200,
                b'<a href="/good#x">1</a> <a href="/missing">2</a> <a href="/busy">3</a> <a href="mailto:x">4</a>',
            ),
            "/good": (200, b"good"),
            "/busy": (200, b"busy"),
        }.get(self.path, (404, b""))
        if self.path == "/busy" and Site.busy:
            Site.busy -= 1
            status = 503
        self.send_response(status)
        self.send_header("retry-after", "3600")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def site() -> Iterator[str]:
    web = ThreadingHTTPServer(("127.0.0.1", 0), Site)
    web.daemon_threads = True
    threading.Thread(target=web.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{web.server_address[1]}"
    web.shutdown()
    web.server_close()


def test_linkcheck(queue: TestQueue, site: str) -> None:
    page = queue.submit(linkcheck.check_page, linkcheck.Page(f"{site}/"))
    queue.drain(*linkcheck.HANDLERS)
    assert page.wait() == 3
    assert queue.submitted(linkcheck.summarize)[0].job["state"] == "pending"
    queue.advance("1h")
    queue.drain(*linkcheck.HANDLERS)
    [summary] = queue.submitted(linkcheck.summarize)
    assert summary.job["result"] == {"checked": 3, "broken": [f"{site}/missing"]}


def test_missing_page_is_permanent(queue: TestQueue, site: str) -> None:
    page = queue.submit(linkcheck.check_page, linkcheck.Page(f"{site}/missing"))
    queue.drain(*linkcheck.HANDLERS)
    assert page.get()["error"]["code"] == "not_a_page"


def test_pages_are_checked_every_night(queue: TestQueue, site: str) -> None:
    linkcheck.make_worker(Client(queue.url), [f"{site}/good"]).run(until_idle=True)
    for _ in range(2):
        queue.advance("1d")
        queue.drain(*linkcheck.HANDLERS)
    checked = queue.submitted(linkcheck.check_page)
    assert [(page.payload.url, page.job["state"]) for page in checked] == [(f"{site}/good", "completed")] * 2
