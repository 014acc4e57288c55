"""Webhooks: endpoints, deliveries, and signatures that the reference implementation verifies."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from queue import Queue
from typing import Any

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from longshore import SyncClient
from longshore.errors import Refused


class _Receiver:
    """A receiver on loopback that keeps what it gets."""

    def __init__(self) -> None:
        self.messages: Queue[tuple[dict[str, str], bytes]] = Queue()
        messages = self.messages

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                messages.put(({name.lower(): value for name, value in self.headers.items()}, body))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def next(self) -> tuple[dict[str, str], bytes]:
        return self.messages.get(timeout=20)


def test_signatures_are_verified_by_the_reference_implementation(client: SyncClient, name: str) -> None:
    receiver = _Receiver()
    created = client.put_webhook(name, receiver.url, events=["job.cancelled"], queues=[name])
    handle = client.submit("t", {}, queue=name)
    handle.cancel()
    headers, body = receiver.next()
    message = Webhook(created["secret"]).verify(body, headers)
    assert message["type"] == "job.cancelled"
    assert message["data"]["id"] == handle.id
    with pytest.raises(WebhookVerificationError):
        Webhook(created["secret"]).verify(json.dumps({}).encode(), headers)
    deliveries = client.job_deliveries(handle.id)
    assert [delivery["id"] for delivery in deliveries] == [headers["webhook-id"]]
    client.redeliver(deliveries[0]["id"])
    again, same = receiver.next()
    assert (again["webhook-id"], same) == (headers["webhook-id"], body)
    rotated = client.rotate_webhook(name)
    client.test_webhook(name)
    headers, body = receiver.next()
    for secret in (created["secret"], rotated["secret"]):
        assert Webhook(secret).verify(body, headers)["type"] == "webhook.test"
    assert len(client.webhook_deliveries(name)) == 2
    assert name in [webhook["name"] for webhook in client.list_webhooks()]
    assert "secret" not in client.get_webhook(name)
    client.delete_webhook(name)
    with pytest.raises(Refused):
        client.get_webhook(name)
