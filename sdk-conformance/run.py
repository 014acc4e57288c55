#!/usr/bin/env python3
"""Checks the workers of the SDKs against the real server. See README.md.

usage: run.py [--case NAME]... LANG...
"""

import argparse
import contextlib
import http.client
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import urllib.parse
from concurrent.futures import ThreadPoolExecutor

ROOT = pathlib.Path(__file__).resolve().parent.parent
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
BINARY = pathlib.Path(os.environ.get("LONGSHORE_BINARY", TARGET / "debug" / "longshore"))
PROGRAMS = {
    "rust": TARGET / "debug" / "examples" / "conformance",
    "python": ROOT / "clients" / "python" / "conformance" / "run",
    "typescript": ROOT / "clients" / "typescript" / "conformance" / "run",
}
# Longest wait for a condition. A busy machine needs some of it; a correct SDK does not.
TIMEOUT = 30.0


class Failure(Exception):
    """A check of a case failed."""


def check(holds, message):
    if not holds:
        raise Failure(message)


def wait_until(what, condition, seconds=TIMEOUT):
    """Polls a condition and returns its first true value."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        check(time.monotonic() < end, f"{what}: not within {seconds} s")
        time.sleep(0.05)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """The real binary on a free port, in memory or on a directory."""

    def __init__(self, directory=None, port=0):
        self.directory = directory
        self.port = port
        self.process = None
        self.start()

    def start(self):
        store = ["--data", self.directory] if self.directory else ["--store", "memory:"]
        listen = f"127.0.0.1:{self.port}"
        command = [str(BINARY), "--json", "serve", "--listen", listen, "--log", "error", *store]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("LONGSHORE_")}
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True)
        banner = self.process.stdout.readline()
        check(banner, f"the server did not start: {command}")
        self.url = json.loads(banner)["url"]
        self.port = urllib.parse.urlsplit(self.url).port

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def call(self, method, path, body=None, expect=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT)
        try:
            headers = {"content-type": "application/json"} if body is not None else {}
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            text = response.read()
        finally:
            connection.close()
        answer = json.loads(text) if text else None
        good = response.status in expect if expect else response.status < 300
        check(good, f"{method} {path}: {response.status} {answer}")
        return answer

    def submit(self, name, job_type, payload=None, **fields):
        job = {"type": job_type, "payload": payload, **fields}
        return self.call("POST", f"/v1/queues/{name}/jobs", job)["id"]

    def job(self, identity):
        return self.call("GET", f"/v1/jobs/{identity}")

    def wait_for_state(self, identity, *states, seconds=TIMEOUT):
        def ended():
            job = self.job(identity)
            return job if job["state"] in states else None

        return wait_until(f"job {identity} becomes {states}", ended, seconds)


class Program:
    """A running conformance program. Collects what it prints."""

    def __init__(self, language, mode, url, queue_name, **settings):
        path = os.environ.get("LONGSHORE_CONFORMANCE_PROGRAM", str(PROGRAMS[language]))
        values = {"slots": 4, "grace": 20, "stuck_grace": 5, "worker": f"w-{queue_name}", **settings}
        environment = {name: value for name, value in os.environ.items() if not name.startswith("LONGSHORE_")}
        environment |= {"LONGSHORE_URL": url, "CONFORMANCE_QUEUE": queue_name}
        environment |= {f"CONFORMANCE_{name.upper()}": str(value) for name, value in values.items()}
        self.name = values["worker"]
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            [path, mode], stdout=subprocess.PIPE, stderr=self.errors, env=environment, text=True
        )
        self.lines = []
        self.arrived = threading.Condition()
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            with self.arrived:
                try:
                    self.lines.append(json.loads(line))
                except ValueError:
                    self.lines.append({"event": "not JSON", "line": line})
                self.arrived.notify_all()

    def events(self, **fields):
        with self.arrived:
            return [line for line in self.lines if all(line.get(name) == value for name, value in fields.items())]

    def wait_for(self, seconds=TIMEOUT, **fields):
        return wait_until(f"line {fields} of {self.name}", lambda: self.events(**fields), seconds)[0]

    def signal(self, number=signal.SIGTERM):
        self.process.send_signal(number)

    def wait(self, seconds=TIMEOUT):
        """Returns the exit code."""
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired as late:
            raise Failure(f"{self.name} did not exit within {seconds} s") from late
        self.reader.join(5)
        return code

    def finish(self, seconds=TIMEOUT):
        """Sends SIGTERM and returns the report."""
        if self.process.poll() is None:
            self.signal()
        return self.report(seconds)

    def report(self, seconds=TIMEOUT):
        code = self.wait(seconds)
        check(code == 0, f"{self.name} exited with code {code}")
        reports = self.events(event="report")
        check(len(reports) == 1, f"{self.name} printed {len(reports)} reports")
        return reports[0]

    def describe(self):
        self.errors.seek(0)
        return f"{self.name} printed {self.lines[-20:]}\n{self.errors.read()[-4000:]}"

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.errors.close()


class Gate:
    """A TCP proxy that drops the answer to the first request, and passes all others."""

    def __init__(self, port):
        self.target = port
        self.dropped = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                near, _ = self.listener.accept()
                far = socket.create_connection(("127.0.0.1", self.target))
                drop = self.dropped == 0
                self.dropped += 1
                threading.Thread(target=self.forward, args=(near, far, False), daemon=True).start()
                threading.Thread(target=self.forward, args=(far, near, drop), daemon=True).start()

    @staticmethod
    def forward(source, sink, drop):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if drop:
                    break
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self):
        self.listener.close()


class HoldingGate:
    """A TCP proxy that can hold back what the server sends. An end of one direction stays in that direction."""

    def __init__(self, port):
        self.target = port
        self.passes = threading.Event()
        self.passes.set()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                near, _ = self.listener.accept()
                far = socket.create_connection(("127.0.0.1", self.target))
                threading.Thread(target=self.forward, args=(near, far, None), daemon=True).start()
                threading.Thread(target=self.forward, args=(far, near, self.passes), daemon=True).start()

    @staticmethod
    def forward(source, sink, passes):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if passes:
                    passes.wait()
                sink.sendall(data)
            if passes:
                passes.wait()
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    def close(self):
        self.passes.set()
        self.listener.close()


class Case:
    """What a case uses: a server that it shares, a queue of its own, programs that are ended."""

    def __init__(self, language, server, name):
        self.language = language
        self.server = server
        self.queue = name
        self.programs = []
        self.stack = contextlib.ExitStack()

    def worker(self, url=None, **settings):
        settings.setdefault("worker", f"{self.queue}-{len(self.programs)}")
        return self.start("worker", url, **settings)

    def start(self, mode, url=None, **settings):
        program = Program(self.language, mode, url or self.server.url, self.queue, **settings)
        self.programs.append(program)
        self.stack.callback(program.close)
        return program

    def own_server(self, directory=True):
        place = self.stack.enter_context(tempfile.TemporaryDirectory()) if directory else None
        server = Server(place)
        self.stack.callback(server.kill)
        return server

    def submit(self, job_type, payload=None, **fields):
        return self.server.submit(self.queue, job_type, payload, **fields)


def blocked_loop(case):
    identity = case.submit("block", {"seconds": 3}, lease="1s")
    first, second = case.worker(), case.worker()
    job = case.server.wait_for_state(identity, "completed")
    check(job["counters"]["starts"] == 1, f"starts: {job['counters']}")
    check(job["counters"]["reclaims"] == 0, f"reclaims: {job['counters']}")
    starts = first.events(event="start") + second.events(event="start")
    check(len(starts) == 1, f"runs: {starts}")
    reports = [first.finish(), second.finish()]
    check(sum(report["completed"] for report in reports) == 1, f"reports: {reports}")


def first_signal_drains(case):
    worker = case.worker(grace=30)
    identity = case.submit("sleep", {"seconds": 2}, lease="1s")
    worker.wait_for(event="start", id=identity)
    worker.signal()
    time.sleep(0.3)
    later = case.submit("noop")
    report = worker.report()
    job = case.server.job(identity)
    check(job["state"] == "completed" and job["counters"]["starts"] == 1, f"{job['state']} {job['counters']}")
    check(case.server.job(later)["state"] == "scheduled", "a draining worker has claimed a job")
    check(report["completed"] == 1 and report["released"] == 0, f"report: {report}")


def second_signal_releases(case):
    worker = case.worker(grace=60)
    heeding = case.submit("sleep", {"seconds": 60})
    deaf = case.submit("deaf", {"seconds": 60})
    for identity in (heeding, deaf):
        worker.wait_for(event="start", id=identity)
    worker.signal()
    time.sleep(0.3)
    check(worker.process.poll() is None, "the first signal ended the worker")
    check(not worker.events(event="cancelled"), "the first signal fired the token")
    worker.signal(signal.SIGINT)
    report = worker.report(10)
    check(worker.events(event="cancelled", id=heeding, reason="drain"), "the token did not fire with drain")
    for identity in (heeding, deaf):
        job = case.server.job(identity)
        check(job["state"] == "scheduled", f"{job['type']} is {job['state']}")
        check(job["counters"]["starts"] == 0, f"{job['type']}: {job['counters']}")
    check(report["released"] == 2, f"report: {report}")


def third_signal_exits(case):
    server = case.own_server(directory=False)
    worker = case.worker(server.url, grace=60)
    identity = server.submit(case.queue, "deaf", {"seconds": 60})
    worker.wait_for(event="start", id=identity)
    server.signal(signal.SIGSTOP)
    try:
        for _ in range(2):
            worker.signal()
            time.sleep(0.4)
        check(worker.process.poll() is None, "two signals ended the worker before its job was released")
        worker.signal()
        code = worker.wait(5)
        check(code == 128 + signal.SIGTERM, f"exit code {code}")
    finally:
        server.signal(signal.SIGCONT)


def hundred_handlers(case):
    worker = case.worker(slots=100, grace=4)
    jobs = [
        {"type": "sleep", "payload": {"seconds": 2.5 if number % 2 else 60}, "lease": "5s"} for number in range(100)
    ]
    answer = case.server.call("POST", f"/v1/queues/{case.queue}/jobs", jobs)
    ids = [job["id"] for job in answer["jobs"]]
    wait_until("100 handlers", lambda: len(worker.events(event="start")) == 100)
    worker.signal()
    begin = time.monotonic()
    report = worker.report(20)
    check(time.monotonic() - begin < 10, "the worker did not end with its grace time")
    states = {}
    for identity in ids:
        job = case.server.job(identity)
        starts = {"completed": 1, "scheduled": 0}.get(job["state"])
        check(starts is not None, f"a job is {job['state']}")
        check(job["counters"]["starts"] == starts, f"{job['state']}: {job['counters']}")
        check(job["counters"]["failures"] == 0, f"{job['state']}: {job['counters']}")
        states[job["state"]] = states.get(job["state"], 0) + 1
    check(states == {"completed": 50, "scheduled": 50}, f"states: {states}")
    check((report["completed"], report["released"]) == (50, 50), f"report: {report}")


def stuck_handler(case):
    worker = case.worker(slots=1, stuck_grace=1)
    stuck = case.submit("deaf", {"seconds": 120}, execution_timeout="1s", retry={"limit": 1})
    worker.wait_for(event="start", id=stuck)
    after = case.submit("noop")
    case.server.wait_for_state(after, "completed")
    job = case.server.wait_for_state(stuck, "dead_letter")
    check(job["error"]["category"] == "timeout", f"error: {job['error']}")
    report = worker.finish(10)
    check(report["abandoned"] == 1 and report["completed"] == 1, f"report: {report}")


def lost_lease(case):
    worker = case.worker()
    identity = case.submit("sleep", {"seconds": 60}, lease="1500ms")
    worker.wait_for(event="start", id=identity)
    case.server.call("POST", f"/v1/jobs/{identity}/cancel", {"force": True})
    worker.wait_for(event="cancelled", id=identity, reason="lease_lost")
    after = case.submit("noop")
    case.server.wait_for_state(after, "completed")
    report = worker.finish()
    check(case.server.job(identity)["state"] == "cancelled", "the job was settled")
    check(report["lost"] == 1 and report["failed"] == 0, f"report: {report}")


def late_settlement(case):
    worker = case.worker()
    identity = case.submit("sleep", {"seconds": 1}, lease="30s")
    worker.wait_for(event="start", id=identity)
    case.server.call("POST", f"/v1/jobs/{identity}/cancel", {"force": True})
    time.sleep(1)
    after = case.submit("noop")
    case.server.wait_for_state(after, "completed")
    report = worker.finish()
    check(not worker.events(event="cancelled"), "the token fired before a heartbeat")
    check(case.server.job(identity)["state"] == "cancelled", "a late settlement was accepted")
    check(report["lost"] == 1 and report["completed"] == 1, f"report: {report}")


def bad_payload(case):
    worker = case.worker()
    bad = case.submit("typed", {"n": "seven"})
    good = case.submit("typed", {"n": 7})
    job = case.server.wait_for_state(bad, "failed", "dead_letter")
    check(job["error"]["category"] == "permanent", f"error: {job['error']}")
    check(job["error"]["code"] == "bad_payload", f"error: {job['error']}")
    check("seven" not in json.dumps(job["error"]), f"the error shows the payload: {job['error']}")
    job = case.server.wait_for_state(good, "completed")
    check(job["result"] == {"n": 7}, f"result: {job['result']}")
    report = worker.finish()
    check(report["handled"].get("typed") == 1, f"report: {report}")


def unknown_type(case):
    worker = case.worker()
    unknown = case.submit("no.such.handler")
    known = case.submit("noop")
    case.server.wait_for_state(known, "completed")
    worker.finish()
    job = case.server.job(unknown)
    check(job["state"] == "scheduled" and job["lease"] is None, f"{job['state']} {job['counters']}")
    history = case.server.call("GET", f"/v1/jobs/{unknown}/attempts")["attempts"]
    check(history == [], f"attempts: {history}")


def failures(case):
    worker = case.worker()
    later = case.submit("fail", {"category": "temporary", "code": "busy", "retry_after": 3600})
    never = case.submit("fail", {"category": "permanent", "code": "no_address"})
    job = case.server.wait_for_state(later, "retrying")
    check((job["error"]["category"], job["error"]["code"]) == ("temporary", "busy"), f"error: {job['error']}")
    attempts = case.server.call("GET", f"/v1/jobs/{later}/attempts")["attempts"]
    check(attempts[0]["next_delay"] == "1h", f"attempts: {attempts}")
    job = case.server.wait_for_state(never, "failed", "dead_letter")
    check((job["error"]["category"], job["error"]["code"]) == ("permanent", "no_address"), f"error: {job['error']}")
    report = worker.finish()
    check(report["failed"] == 2, f"report: {report}")


def server_restart(case):
    server = case.own_server()
    worker = case.worker(server.url)
    running = server.submit(case.queue, "sleep", {"seconds": 3}, lease="20s")
    worker.wait_for(event="start", id=running)
    server.kill()
    time.sleep(1)
    server.start()
    waiting = server.submit(case.queue, "noop")
    job = server.wait_for_state(running, "completed")
    check(job["counters"]["starts"] == 1, f"{job['counters']}")
    server.wait_for_state(waiting, "completed")
    report = worker.finish()
    check((report["completed"], report["lost"]) == (2, 0), f"report: {report}")


def quiet_resume_stop(case):
    worker = case.worker()
    running = case.submit("sleep", {"seconds": 6}, lease="1500ms")
    worker.wait_for(event="start", id=running)
    path = f"/v1/workers/{urllib.parse.quote(worker.name)}"
    case.server.call("POST", f"{path}/quiet")
    held = case.submit("noop")
    time.sleep(1.5)
    check(case.server.job(held)["state"] == "scheduled", "a quiet worker has claimed a job")
    check(case.server.job(running)["state"] == "running", "quiet has ended a running job")
    case.server.call("POST", f"{path}/resume")
    case.server.wait_for_state(held, "completed")
    check(case.server.job(running)["state"] == "running", "the running job has ended")
    case.server.call("POST", f"{path}/stop")
    report = worker.report()
    job = case.server.job(running)
    check(job["state"] == "completed", f"stop did not wait for the running job: {job['state']}")
    check(report["completed"] == 2 and report["released"] == 0, f"report: {report}")


def cancel(case):
    worker = case.worker()
    identity = case.submit("sleep", {"seconds": 60}, lease="1500ms")
    worker.wait_for(event="start", id=identity)
    case.server.call("POST", f"/v1/jobs/{identity}/cancel", {}, expect=[202])
    worker.wait_for(event="cancelled", id=identity, reason="cancelled")
    case.server.wait_for_state(identity, "cancelled")
    worker.finish()


def deadline(case):
    worker = case.worker()
    identity = case.submit("sleep", {"seconds": 60}, execution_timeout="1500ms", retry={"limit": 1})
    worker.wait_for(event="cancelled", id=identity, reason="deadline")
    job = case.server.wait_for_state(identity, "dead_letter")
    check(job["error"]["category"] == "timeout", f"error: {job['error']}")
    worker.finish()


def snooze_and_release(case):
    worker = case.worker()
    ids = [case.submit("snooze"), case.submit("release")]
    for identity in ids:
        job = case.server.wait_for_state(identity, "completed")
        check(job["result"] == {"attempt": 1}, f"{job['type']}: {job['result']}")
        check(job["counters"]["starts"] == 1, f"{job['type']}: {job['counters']}")
        check(job["counters"]["failures"] == 0, f"{job['type']}: {job['counters']}")
        check(len(worker.events(event="start", id=identity)) == 2, f"{job['type']}: runs")
    report = worker.finish()
    check((report["snoozed"], report["released"], report["completed"]) == (1, 1, 2), f"report: {report}")


def lost_answer(case):
    gate = Gate(case.server.port)
    case.stack.callback(gate.close)
    program = case.start("submit", gate.url)
    code = program.wait()
    check(code == 0, f"exit code {code}")
    check(gate.dropped >= 2, "the submission was not repeated")
    identity = program.events(event="submitted")[0]["id"]
    jobs = case.server.call("GET", f"/v1/jobs?queue={case.queue}")["jobs"]
    check([job["id"] for job in jobs] == [identity], f"jobs: {jobs}")


def checkpoint_after_kill(case):
    worker = case.worker()
    identity = case.submit("checkpoint", lease="2s")
    worker.wait_for(event="checkpointed", id=identity)
    successor = case.worker()
    successor.wait_for(event="ready")
    worker.process.kill()
    begin = time.monotonic()
    successor.wait_for(event="start", id=identity)
    # Two seconds of lease, and one second until the next worker has the job.
    check(time.monotonic() - begin < 3, f"the job ran again after {time.monotonic() - begin:.1f} s")
    job = case.server.wait_for_state(identity, "completed")
    check(job["result"] == {"from": {"at": 5}}, f"result: {job['result']}")
    check(successor.events(event="start", id=identity)[0]["attempt"] == 2, "attempt")
    successor.finish()


def idle_worker(case):
    worker = case.worker()
    worker.wait_for(event="ready")
    # The claim waits at the server for longer than lease and timeout of the job that it gets.
    time.sleep(5)
    identity = case.submit("sleep", {"seconds": 1.2}, lease="2s", execution_timeout="3s", retry={"limit": 1})
    job = case.server.wait_for_state(identity, "completed", "dead_letter", "failed")
    check(job["state"] == "completed", f"{job['state']}: {job['error']}")
    check(job["counters"]["starts"] == 1 and job["counters"]["reclaims"] == 0, f"{job['counters']}")
    check(not worker.events(event="cancelled"), "the token fired")
    report = worker.finish()
    check((report["completed"], report["lost"], report["failed"]) == (1, 0, 0), f"report: {report}")


def claim_in_flight(case):
    gate = HoldingGate(case.server.port)
    case.stack.callback(gate.close)
    worker = case.worker(gate.url, grace=20)
    worker.wait_for(event="ready")
    time.sleep(1.5)
    gate.passes.clear()
    identity = case.submit("noop", lease="60s")
    case.server.wait_for_state(identity, "running")
    # The response is on its way: the server has handed out the lease.
    worker.signal()
    time.sleep(0.5)
    gate.passes.set()
    report = worker.report(10)
    job = case.server.job(identity)
    check(job["state"] in ("scheduled", "completed"), f"the job of a claim in flight is {job['state']}")
    starts = {"scheduled": 0, "completed": 1}[job["state"]]
    check(job["counters"]["starts"] == starts, f"{job['state']}: {job['counters']}")
    check(report["released"] + report["completed"] == 1 and report["lost"] == 0, f"report: {report}")


def long_grace(case):
    worker = case.worker(grace=10, stuck_grace=1)
    identity = case.submit("deaf", {"seconds": 9.2}, lease="3s")
    worker.wait_for(event="start", id=identity)
    worker.signal()
    # Tokens fire at 7.5 s. A handler that drains is not stuck: it has all of the grace time.
    report = worker.report(20)
    job = case.server.job(identity)
    check(job["state"] == "completed" and job["counters"]["starts"] == 1, f"{job['state']} {job['counters']}")
    check((report["completed"], report["abandoned"]) == (1, 0), f"report: {report}")


def second_run(case):
    worker = case.worker(stuck_grace=1)
    identity = case.submit("deaf", {"seconds": 5}, lease="1500ms")
    worker.wait_for(event="start", id=identity)
    case.server.call("POST", f"/v1/jobs/{identity}/cancel", {"force": True})
    again = case.server.call("POST", f"/v1/jobs/{identity}/requeue", {})
    check(again["id"] == identity, f"the requeue made another job: {again}")
    # The first run is abandoned while the second runs. The second must keep its lease.
    job = case.server.wait_for_state(identity, "completed")
    check(job["counters"]["reclaims"] == 0, f"the second run lost its lease: {job['counters']}")
    check(len(worker.events(event="start", id=identity)) == 2, "the job did not run twice")
    report = worker.finish()
    check(report["completed"] == 1, f"report: {report}")


def signals_while_blocked(case):
    worker = case.worker(grace=60)
    identity = case.submit("block", {"seconds": 60}, lease="30s")
    worker.wait_for(event="start", id=identity)
    worker.signal()
    time.sleep(0.4)
    check(worker.process.poll() is None, "the first signal ended the worker")
    worker.signal()
    job = case.server.wait_for_state(identity, "scheduled", seconds=10)
    check(job["counters"]["starts"] == 0, f"{job['counters']}")
    worker.signal()
    code = worker.wait(5)
    check(code == 128 + signal.SIGTERM, f"exit code {code}")


def exactly_once(case):
    for _ in range(10):
        jobs = [{"type": "noop", "payload": None}] * 1000
        case.server.call("POST", f"/v1/queues/{case.queue}/jobs", jobs)
    worker = case.worker(slots=64)

    def completed():
        return case.server.call("GET", f"/v1/queues/{case.queue}")["counts"]["completed"] == 10_000

    wait_until("10,000 jobs are completed", completed, 60)
    report = worker.finish()
    check(report["handled"].get("noop") == 10_000, f"report: {report}")
    check(report["completed"] == 10_000 and report["lost"] == 0, f"report: {report}")


# The longest come first: all of these run at the same time, a few at once.
TOGETHER = [
    quiet_resume_stop, hundred_handlers, blocked_loop, checkpoint_after_kill, server_restart, stuck_handler, deadline,
    first_signal_drains, second_signal_releases, third_signal_exits, lost_lease, late_settlement, cancel,
    snooze_and_release, bad_payload, unknown_type, failures, lost_answer, long_grace, idle_worker, claim_in_flight,
    second_run, signals_while_blocked,
]
# What a language cannot do. Node runs signal handlers on the thread of the event loop only.
IMPOSSIBLE = {("typescript", "signals_while_blocked")}
ALONE = [exactly_once]


def run_case(language, server, function):
    """Returns the text of a failure, or none."""
    begin = time.monotonic()
    case = Case(language, server, f"{function.__name__}-{language}")
    failure = None
    with case.stack:
        try:
            function(case)
        except Failure as failed:
            failure = "\n".join([str(failed), *(program.describe() for program in case.programs)])
        except Exception:  # A broken answer of a program must not hide the other cases.
            failure = "\n".join([traceback.format_exc(), *(program.describe() for program in case.programs)])
    verdict = "failed" if failure else "ok"
    print(f"{language:<10} {function.__name__:<24} {verdict:<6} {time.monotonic() - begin:5.1f} s", flush=True)
    if failure:
        print("  " + failure.replace("\n", "\n  "), flush=True)
    return failure


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--case", action="append", help="run only this case; may be repeated")
    parser.add_argument("languages", nargs="+", metavar="LANG", choices=sorted(PROGRAMS))
    options = parser.parse_args()
    known = {function.__name__ for function in TOGETHER + ALONE}
    unknown = set(options.case or []) - known
    if unknown:
        parser.error(f"unknown case {', '.join(sorted(unknown))} (known: {', '.join(sorted(known))})")
    if not BINARY.exists():
        parser.error(f"{BINARY} is missing (build it: cargo build -p longshore-cli)")
    chosen = lambda functions: [each for each in functions if not options.case or each.__name__ in options.case]
    failed = 0
    for language in options.languages:
        server = Server()
        try:
            with ThreadPoolExecutor(6) as pool:
                together = [each for each in chosen(TOGETHER) if (language, each.__name__) not in IMPOSSIBLE]
                results = list(pool.map(lambda each: run_case(language, server, each), together))
            results += [run_case(language, server, each) for each in chosen(ALONE)]
        finally:
            server.kill()
        failed += sum(result is not None for result in results)
    if failed:
        sys.exit(f"{failed} cases failed")


if __name__ == "__main__":
    main()
