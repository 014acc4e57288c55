"""Fills a server with objects in all states, so that generated requests meet more than an empty store."""

import json
import urllib.error
import urllib.request

ERROR = {"category": "temporary", "code": "smtp_550", "message": "the mailbox is full", "cause": "550"}
PROFILES = ["standard", "gopherqueue", "taskharbor", "weave", "document"]
# Its host name never resolves.
URL = "https://hooks.invalid/jobs"


def fill(url: str, token: str) -> dict[str, list[str]]:
    """Returns the ids and names of the objects, by the segment of their paths."""
    call = Caller(url, token)
    jobs = []
    for profile in PROFILES:
        call("PUT", f"/v1/queues/{profile}", {"profile": profile})
        jobs += fill_queue(call, profile, profile)
    call("PUT", "/v1/queues/dead", {"settings": {"retry": {"limit": 1, "counts": "starts"}}})
    jobs += fill_queue(call, "dead", "standard")
    workflows = fill_workflows(call)
    schedule = {"queue": "standard", "job": {"type": "report"}}
    call("PUT", "/v1/schedules/minutely", {**schedule, "every": "1m", "overlap": "skip"})
    call("PUT", "/v1/schedules/nightly", {**schedule, "cron": "30 3 * * *", "timezone": "Europe/Berlin"})
    call("PUT", "/v1/webhooks/mailer", {"url": URL, "events": ["job.failed", "job.completed"], "queues": ["*"]})
    deliveries = [call("POST", "/v1/webhooks/mailer/test")["id"] for _ in range(3)]
    dead = {"queue": "dead", "state": "dead_letter"}
    operations = [
        call("POST", "/v1/operations", {"action": "requeue", "filter": dead, "dry_run": True})["id"],
        call("POST", "/v1/operations", {"action": "requeue", "filter": dead, "canary": 1, "rate": 1})["id"],
        call("POST", "/v1/operations", {"action": "cancel", "filter": {"queue": "taskharbor"}})["id"],
    ]
    for _ in range(3):
        call("POST", "/v1/clock/advance", {"by": "1m"})
    return {
        "jobs": jobs,
        "workflows": workflows,
        "schedules": ["minutely", "nightly"],
        "webhooks": ["mailer"],
        "deliveries": deliveries,
        "operations": operations,
        "queues": [*PROFILES, "dead", "default"],
        "workers": ["filler"],
        "types": ["send", "report"],
    }


class Caller:
    def __init__(self, url: str, token: str) -> None:
        self.url, self.token = url, token

    def __call__(self, method: str, path: str, body: object = None) -> dict:
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data, method=method, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                return json.loads(response.read() or b"{}")
        except urllib.error.HTTPError as error:
            raise SystemExit(f"openapi: {method} {path} {body}: {error.read().decode()}") from error


def fill_queue(call: Caller, queue: str, profile: str) -> list[str]:
    """Submits jobs, claims them, and ends each in another way."""
    ids = []
    for batch in range(3):
        tags = {"tenant": "acme", "urgent": None}
        job = {"type": "send", "payload": {"n": batch}, "tags": tags, "correlation_id": "c"}
        added = [answer["id"] for answer in call("POST", f"/v1/queues/{queue}/jobs", [job] * 8)["jobs"]]
        ids += added
        for job_id in added if profile == "document" else []:
            call("POST", f"/v1/jobs/{job_id}/submit")
        claim = {"queues": [queue], "worker": "filler", "version": "1.0", "limit": 6}
        for index, job in enumerate(call("POST", "/v1/claims", claim)["jobs"]):
            end(call, index, job, profile)
    if profile != "document":
        held = call("POST", f"/v1/queues/{queue}/jobs", {"type": "send", "hold": True, "payload_base64": "AAH/"})
        after = call("POST", f"/v1/queues/{queue}/jobs", {"type": "send", "after": [held["id"]]})
        ids += [held["id"], after["id"]]
    call("POST", f"/v1/jobs/{ids[-1]}/cancel", {"reason": "not needed"})
    return ids


def end(call: Caller, index: int, job: dict, profile: str) -> None:
    path, lease = f"/v1/jobs/{job['id']}", job["lease"]["token"]
    if index == 0:
        call("POST", f"{path}/complete", {"lease": lease, "result": {"sent": True}})
    elif index == 1:
        call("POST", f"{path}/fail", {"lease": lease, "error": ERROR})
    elif index == 2:
        call("POST", f"{path}/fail", {"lease": lease, "error": {**ERROR, "category": "permanent"}})
    elif index == 3:
        call("POST", f"{path}/heartbeat", {"lease": lease, "progress": 50, "checkpoint": {"page": 2}})
    elif index == 4 and profile != "document":
        call("POST", f"{path}/snooze", {"lease": lease, "delay": "1h"})


def fill_workflows(call: Caller) -> list[str]:
    steps = [{"type": "send"}, {"group": [{"type": "send"}, {"type": "send"}]}, {"type": "report"}]
    chain = call("POST", "/v1/workflows", {"name": "report", "queue": "flow", "chain": steps})["id"]
    unfinished = call("POST", "/v1/workflows", {"queue": "flow", "open": True})["id"]
    chord = {"group": [{"type": "send"}, {"type": "send"}], "finally": {"type": "report"}}
    failing = call("POST", "/v1/workflows", {"queue": "flow", "chord": chord})["id"]
    for job in call("POST", "/v1/claims", {"queues": ["flow"], "worker": "filler", "limit": 10})["jobs"]:
        path, lease = f"/v1/jobs/{job['id']}", job["lease"]["token"]
        if job.get("workflow") == failing:
            call("POST", f"{path}/fail", {"lease": lease, "error": {**ERROR, "final": True}})
        else:
            children = {"lease": lease, "jobs": [{"type": "send"}], "finally": {"type": "report"}}
            call("POST", f"{path}/children", children)
            call("POST", f"{path}/complete", {"lease": lease})
    return [chain, unfinished, failing]
