"""Schedules, of the client and of a worker's start."""

from __future__ import annotations

import threading

import pytest
from recording import Recorder

from longshore import Client, ConfigurationError, Context, Refused, SyncClient, Worker, job, scheduled
from longshore.testing import TestQueue, TestServer


@job("report", queue="reports")
async def report(ctx: Context, day: str) -> str:
    return f"report of {day}"


def test_calls_about_schedules(queue: TestQueue) -> None:
    client = queue.client
    made = client.put_schedule("nightly", report.new("all", priority="low"), cron="30 3 * * *", timezone="UTC")
    assert (made["cron"], made["queue"], made["job"]["payload"], len(made["next"])) == (
        "30 3 * * *",
        "reports",
        "all",
        10,
    )
    client.put_schedule("often", report.new("now"), every="90s", overlap="skip", jitter="1s")
    assert client.get_schedule("often")["every"] == "1m30s"
    assert [each["name"] for each in client.list_schedules()] == ["nightly", "often"]
    assert client.pause_schedule("often", note="not today")["pause_note"] == "not today"
    assert client.trigger_schedule("often")["id"]
    assert not client.resume_schedule("often")["paused"]
    queue.advance("2m")
    [tick] = client.schedule_ticks("often")
    assert tick["outcome"] in ("fired", "skipped_overlap")
    client.delete_schedule("often")
    assert [each["name"] for each in client.list_schedules()] == ["nightly"]


def test_worker_creates_its_schedules(queue: TestQueue) -> None:
    @scheduled("yearly", "@yearly", payload="year")
    @scheduled("daily", "0 4 * * *", payload="day")
    @job("daily", queue="days")
    async def daily(ctx: Context, kind: str) -> str:
        return kind

    worker = Worker(Client(queue.url), [daily, report]).schedule("hourly", None, report.new("hour"), every="1h")
    worker.run(until_idle=True)
    before = queue.client.list_schedules()
    assert [each["name"] for each in before] == ["daily", "hourly", "yearly"]
    # A second start changes nothing.
    Worker(Client(queue.url), [daily, report]).schedule("hourly", None, report.new("hour"), every="1h").run(
        until_idle=True
    )
    assert [each["updated_at"] for each in queue.client.list_schedules()] == [each["updated_at"] for each in before]
    queue.advance("1d")
    queue.drain(daily, report)
    [done] = queue.submitted(daily)
    assert (done.payload, done.job["state"]) == ("day", "completed")
    assert len(queue.submitted(report)) == 24


def test_wrong_schedules_are_refused(server: TestServer) -> None:
    worker = Worker(Client(server.url), [report])
    with pytest.raises(ConfigurationError, match="one of cron and every"):
        worker.schedule("none", None, report.new("x"))
    worker.schedule("wrong", "no cron", report.new("x"))
    with pytest.raises(ConfigurationError, match="two schedules"):
        worker.schedule("wrong", "@daily", report.new("x"))
    with pytest.raises(Refused, match="cron"):
        worker.run(signals=False)


def test_worker_waits_for_the_server_with_its_schedules(server: TestServer, client: SyncClient, name: str) -> None:
    recorder = Recorder(server.url)
    recorder.is_down = True
    worker = Worker(Client(recorder.url, timeout=0.2), [report], queues=[name])
    worker.schedule(f"late-{name}", "@daily", report.new("x"))
    thread = threading.Thread(target=worker.run, kwargs={"signals": False}, daemon=True)
    thread.start()
    recorder.is_down = False
    for _ in range(200):
        if any(each["name"] == f"late-{name}" for each in client.list_schedules()):
            break
        threading.Event().wait(0.05)
    else:
        raise AssertionError("the schedule is not created")
    worker.drain()
    thread.join(20)
    recorder.close()
    assert not thread.is_alive()
