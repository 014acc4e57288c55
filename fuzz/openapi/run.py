#!/usr/bin/env python3
"""Sends generated requests to a server, and compares the answers with its OpenAPI description.

    run.py                      several seeds on the embedded store
    run.py --store postgres://  the same on PostgreSQL; the database must be empty
    run.py --quick              one seed: examples and boundaries only

`LONGSHORE_BIN` names the program; default: target/debug/longshore. The event stream is left out: its response has no
end. Wire tests cover its parameters.
"""

import argparse
import collections
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from fill import fill

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
ACTIONS = "submit,work,read,operate,admin"
EXCLUDED = "positive_data_acceptance"
MINUTES_MAX = 30


def main() -> int:
    options = arguments()
    default = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug" / "longshore"
    binary = os.environ.get("LONGSHORE_BIN", str(default))
    totals: collections.Counter[str] = collections.Counter()
    excused: collections.Counter[str] = collections.Counter()
    failed = 0
    with tempfile.TemporaryDirectory() as directory:
        store = options.store or f"{directory}/jobs"
        with Server(binary, store, directory) as server:
            known = Path(directory, "known.json")
            known.write_text(json.dumps(fill(server.url, server.token)))
            for seed in range(options.first_seed, options.first_seed + (1 if options.quick else options.seeds)):
                code, counts = run_seed(server, directory, seed, options)
                failed += code != 0
                totals.update({status: number for status, number in counts["statuses"].items()})
                excused.update(counts["excused"])
                print(f"openapi: seed {seed}: {counts['requests']} requests, {'failed' if code else 'ok'}", flush=True)
            server.check_alive()
    print(f"openapi: {sum(totals.values())} requests; by status: {dict(sorted(totals.items()))}")
    for why, number in excused.most_common():
        print(f"openapi: {number} valid requests refused: {why}")
    return 1 if failed else 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--store", help="store of the server; default: a new directory")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--examples", type=int, default=40, help="generated requests of one operation and seed")
    parser.add_argument("--description", help="file in place of the served description, to try a change")
    parser.add_argument("--quick", action="store_true")
    return parser.parse_args()


class Server:
    """A server in virtual time, and a token for everything."""

    def __init__(self, binary: str, store: str, directory: str) -> None:
        self.binary, self.store, self.directory = binary, store, directory
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{probe.getsockname()[1]}"
        self.url = f"http://{self.address}"

    def __enter__(self) -> "Server":
        log = open(f"{self.directory}/server.log", "w")
        arguments = ["serve", "--store", self.store, "--listen", self.address, "--virtual-clock", "--log", "warn"]
        self.process = subprocess.Popen([self.binary, *arguments], stdout=log, stderr=log)
        deadline = time.monotonic() + 30
        while not self.is_ready():
            if self.process.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"openapi: the server does not start: {Path(log.name).read_text()}")
            time.sleep(0.1)
        create = ["tokens", "create", "--name", "fuzz", "--actions", ACTIONS, "--queues", "*", "--json"]
        done = subprocess.run([self.binary, "--server", self.url, *create], check=True, capture_output=True)
        created = json.loads(done.stdout)
        self.token, self.token_id = created["token"], created["id"]
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(30)

    def is_ready(self) -> bool:
        try:
            return urllib.request.urlopen(f"{self.url}/readyz", timeout=1).status == 200
        except OSError:
            return False

    def check_alive(self) -> None:
        if self.process.poll() is not None or not self.is_ready():
            sys.exit(f"openapi: the server ended: {Path(self.directory, 'server.log').read_text()[-2000:]}")


def run_seed(server: Server, directory: str, seed: int, options: argparse.Namespace) -> tuple[int, dict]:
    report = Path(directory, "report.json")
    report.unlink(missing_ok=True)
    environment = os.environ | {
        "SCHEMATHESIS_HOOKS": "hooks",
        "PYTHONPATH": str(HERE),
        "FUZZ_TOKEN_ID": server.token_id,
        "FUZZ_REPORT": str(report),
        "FUZZ_KNOWN": f"{directory}/known.json",
    }
    phases = "examples,coverage" if options.quick else "examples,coverage,fuzzing,stateful"
    command = [
        str(Path(sys.executable).with_name("schemathesis")), "--config-file", str(HERE / "schemathesis.toml"),
        "run", options.description or f"{server.url}/openapi.json", "--url", server.url,
        "--header", f"Authorization: Bearer {server.token}",
        "--seed", str(seed), "--max-examples", str(options.examples), "--phases", phases,
        "--checks", "all", "--exclude-checks", EXCLUDED, "--exclude-path", "/v1/events",
        "--continue-on-failure", "--no-shrink", "--request-timeout", "30",
    ]  # fmt: skip
    done = subprocess.run(
        command, env=environment, cwd=directory, capture_output=True, text=True, timeout=60 * MINUTES_MAX, check=False
    )
    if done.returncode != 0:
        print(done.stdout, done.stderr[-2000:])
    if not report.exists():
        sys.exit(f"openapi: schemathesis ended with {done.returncode} and no report")
    return done.returncode, json.loads(report.read_text())


if __name__ == "__main__":
    sys.exit(main())
