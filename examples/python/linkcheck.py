"""Checks the links of web pages.

    python linkcheck.py worker [https://example.com/]
    python linkcheck.py check https://example.com/

`check` submits one job per link of the page, and a job that collects their results. The worker also
checks the pages that it is given every night.
"""

from __future__ import annotations

import sys
import urllib.error
import urllib.request
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urldefrag, urljoin, urlsplit

from longshore import Client, Context, Fail, SyncClient, Worker, job


@dataclass
class Page:
    url: str


@dataclass
class Link:
    url: str
    status: int


@dataclass
class Summary:
    checked: int
    broken: list[str]


def fetch(url: str) -> tuple[int, bytes] | Fail:
    """Returns status and content. Failures that may pass are temporary."""
    try:
        with urllib.request.urlopen(url, timeout=10) as response:
            return response.status, response.read(1_000_000)
    except urllib.error.HTTPError as error:
        if error.code in (429, 503):
            wait = error.headers.get("retry-after", "")
            return Fail.temporary(f"{url}: {error.code}", code="busy", retry_after=int(wait) if wait.isdigit() else 30)
        return error.code, b""
    except OSError as error:
        return Fail.temporary(f"{url}: {error}", code="unreachable")


class Links(HTMLParser):
    """The targets of all links of a page."""

    def __init__(self, base: str) -> None:
        super().__init__()
        self.base = base
        self.found: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        target = dict(attrs).get("href")
        if tag == "a" and target:
            url = urldefrag(urljoin(self.base, target)).url
            if url.startswith(("http://", "https://")):
                self.found.add(url)


@job("link.check", queue="links", retry={"limit": 3})
def check_link(ctx: Context, page: Page) -> Link | Fail:
    answer = fetch(page.url)
    if isinstance(answer, Fail):
        # The last failure is a result: one dead host must not fail the whole page.
        return Link(page.url, 0) if ctx.is_last_attempt else answer
    return Link(page.url, answer[0])


@job("page.check", queue="links")
def check_page(ctx: Context, page: Page) -> int | Fail:
    answer = fetch(page.url)
    if isinstance(answer, Fail):
        return answer
    status, content = answer
    if status != 200:
        return Fail.permanent("not_a_page", f"{page.url}: status {status}")
    links = Links(page.url)
    links.feed(content.decode("utf-8", "replace"))
    # The key makes a second attempt find the children of the first one.
    children = [check_link.new(Page(url), key=f"{ctx.id}:{url}") for url in sorted(links.found)]
    if children:
        ctx.run(ctx.submit_children(children, finally_=summarize.new(page, key=f"{ctx.id}:summary")))
    return len(children)


@job("page.summary", queue="links")
async def summarize(ctx: Context, page: Page) -> Summary:
    results: list[dict[str, Any]] = [job["result"] for job in (await ctx.inputs())["inputs"]]
    broken = sorted(link["url"] for link in results if not 200 <= link["status"] < 400)
    ctx.log.info("%s: %s links, %s broken", page.url, len(results), len(broken))
    return Summary(len(results), broken)


HANDLERS = [check_page, check_link, summarize]


def make_worker(client: Client, nightly: list[str]) -> Worker:
    """Returns the worker, with a schedule for each page that it checks every night."""
    worker = Worker(client, HANDLERS, slots=16)
    for url in nightly:
        name = f"links-{urlsplit(url).hostname}"
        worker.schedule(name, "30 3 * * *", check_page.new(Page(url)), overlap="skip")
    return worker


def main() -> None:
    command, *urls = sys.argv[1:] or ["help"]
    if command == "worker":
        print(make_worker(Client(), urls).run())
    elif command == "check" and urls:
        client = SyncClient()
        for url in urls:
            handle = check_page.submit(client, Page(url))
            print(f"{url}: {handle.wait('5m')} links, job {handle.id}")
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
