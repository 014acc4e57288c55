#!/usr/bin/env python3
"""Counts the instructions of the server per request and per job, with callgrind.

usage: instructions.py LONGSHORE [LONGSHORE ...]

Prints one Markdown row per operation and one column per binary. The counts cover all threads of
the server and no kernel code. They repeat within 2 % on a busy machine, unlike times. Needs valgrind.
A directory KEEP in the environment keeps the profiles for callgrind_annotate.
"""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time

PAYLOAD = {"t": "0" * 20, "kind": "email.send", "to": "user@example.com", "tries": 3, "pad": "x" * 168}
JOB = json.dumps({"type": "email.send", "payload": PAYLOAD}, separators=(",", ":"))


class Connection:
    """A kept-alive connection."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.socket.makefile("rb")

    def call(self, method, path, body):
        head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        self.socket.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
        status, length = int(self.file.readline().split()[1]), 0
        while (line := self.file.readline().strip().lower()) != b"":
            if line.startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        answer = self.file.read(length)
        assert status in (200, 201), (status, answer)
        return json.loads(answer)


class Server:
    """A server under callgrind, on an empty directory."""

    def __init__(self, binary, directory):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.out, self.dumps = os.path.join(directory, "callgrind.out"), 0
        self.process = subprocess.Popen(
            ["valgrind", "--tool=callgrind", "--quiet", f"--callgrind-out-file={self.out}", binary, "serve"]
            + ["--data", os.path.join(directory, "data"), "--listen", f"127.0.0.1:{self.port}", "--log", "warn"],
            stdout=subprocess.DEVNULL,
        )
        for _ in range(600):
            try:
                self.connection = Connection(self.port)
                return
            except ConnectionRefusedError:
                time.sleep(0.1)
        raise RuntimeError("the server did not start within 60 s")

    def instructions(self):
        """Returns the instructions since the last call."""
        time.sleep(0.3)
        self.dumps += 1
        subprocess.run(["callgrind_control", "-d", str(self.process.pid)], check=True, stdout=subprocess.DEVNULL)
        path = f"{self.out}.{self.dumps}"
        for _ in range(100):
            if os.path.exists(path):
                with open(path) as profile:
                    if found := re.findall(r"^(?:totals|summary): (\d+)", profile.read(), re.MULTILINE):
                        return int(found[-1])
            time.sleep(0.1)
        raise RuntimeError(f"no profile at {path}")


def measure(binary, directory):
    """Returns the instructions per operation, in order."""
    server = Server(binary, directory)
    call, rows = server.connection.call, {}

    def count(name, operations, work):
        work(operations // 4)
        server.instructions()
        work(operations)
        rows[name] = server.instructions() // operations

    leases = []

    def claim(queue, limit):
        body = {"queues": [queue], "worker": "w", "limit": limit, "wait": "200ms", "lease": "5m"}
        jobs = call("POST", "/v1/claims", json.dumps(body))["jobs"]
        leases.extend((job["id"], job["lease"]["token"]) for job in jobs)

    def submit_all(times):
        for _ in range(times):
            call("POST", "/v1/queues/single/jobs", JOB)

    def claim_all(times):
        for _ in range(times):
            claim("single", 1)

    def complete_all(times):
        for _ in range(times):
            job, token = leases.pop(0)
            call("POST", f"/v1/jobs/{job}/complete", json.dumps({"lease": token}))

    def submit_bulk(jobs):
        for _ in range(max(jobs // 1000, 1)):
            call("POST", "/v1/queues/bulk/jobs", "[" + ",".join([JOB] * 1000) + "]")

    def drain(jobs):
        for _ in range(max(jobs // 100, 1)):
            claim("bulk", 100)
            items = [{"id": job, "lease": token, "outcome": "complete"} for job, token in leases]
            leases.clear()
            call("POST", "/v1/settlements", json.dumps({"settlements": items}))

    count("submit", 400, submit_all)
    count("claim", 400, claim_all)
    count("complete", 400, complete_all)
    count("bulk item (1,000 per call)", 8000, submit_bulk)
    count("drained job (100 per call)", 8000, drain)
    server.process.terminate()
    server.process.wait(60)
    return rows


def main():
    columns = []
    for binary in sys.argv[1:]:
        directory = tempfile.mkdtemp(prefix="instructions.")
        try:
            columns.append(measure(binary, directory))
        finally:
            if keep := os.environ.get("KEEP"):
                shutil.copytree(directory, os.path.join(keep, os.path.basename(binary)), dirs_exist_ok=True)
            shutil.rmtree(directory)
    print("| operation | " + " | ".join(os.path.basename(binary) for binary in sys.argv[1:]) + " |")
    print("| --- |" + " --- |" * len(columns))
    for name in columns[0]:
        print(f"| {name} | " + " | ".join(f"{column[name]:,}" for column in columns) + " |")


if __name__ == "__main__":
    sys.exit(__doc__) if len(sys.argv) < 2 else main()
