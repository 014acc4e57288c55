"""Paths, programs, files, and a running server."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import tomllib
import urllib.request
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGING = ROOT / "packaging"
CHART = PACKAGING / "helm" / "longshore"
TIMEOUT = 60


class Failure(Exception):
    """A check found something wrong."""


class Skip(Exception):
    """A tool is missing, or not permitted here."""


def expect(condition: object, message: str) -> None:
    if not condition:
        raise Failure(message)


def program() -> Path:
    """Returns the binary under test."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    path = Path(os.environ.get("LONGSHORE_BIN", target / "debug" / "longshore"))
    expect(path.exists(), f"{path} does not exist (build it, or set LONGSHORE_BIN)")
    return path.resolve()


def tool(name: str) -> str:
    """Returns the path of a tool. Skips the check without it."""
    path = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin:/usr/bin:/bin")
    if path is None:
        raise Skip(f"{name} is not installed")
    return path


def environment() -> dict[str, str]:
    """Returns the environment without the variables of Longshore."""
    return {name: value for name, value in os.environ.items() if not name.startswith("LONGSHORE_")}


def run(*command: object, **options: object) -> str:
    """Runs a command and returns its standard output. Fails with its output if it fails."""
    words = [str(word) for word in command]
    options = {"env": environment(), "timeout": TIMEOUT, "cwd": ROOT} | options
    done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False, **options)
    expect(done.returncode == 0, f"`{' '.join(words)}` failed ({done.returncode}):\n{done.stdout}{done.stderr}")
    return done.stdout


def read_toml(path: Path) -> dict:
    try:
        return tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError as error:
        raise Failure(f"{path}: {error}") from error


def read_json(path: Path) -> dict:
    try:
        return json.loads(path.read_text())
    except json.JSONDecodeError as error:
        raise Failure(f"{path}: {error}") from error


def parse_yaml(text: str, name: object) -> list:
    """Returns the documents of a YAML text, without empty ones."""
    from ruamel.yaml import YAML, YAMLError

    try:
        return [document for document in YAML(typ="safe").load_all(text) if document is not None]
    except YAMLError as error:
        raise Failure(f"{name}: {error}") from error


def read_yaml(path: Path) -> dict:
    documents = parse_yaml(path.read_text(), path)
    expect(len(documents) == 1, f"{path}: {len(documents)} documents")
    return documents[0]


def workspace_version() -> str:
    return read_toml(ROOT / "Cargo.toml")["workspace"]["package"]["version"]


def wrapper(directory: Path) -> Path:
    """Returns a small program that runs the binary: debug builds are large."""
    path = directory / "longshore"
    path.write_text(f'#!/bin/sh\nexec "{program()}" "$@"\n')
    path.chmod(0o755)
    return path


@contextlib.contextmanager
def serving(command: list[object], **options: object) -> Iterator[tuple[subprocess.Popen, str]]:
    """Starts `longshore --json serve`, and yields the process and the URL. Stops it at the end."""
    words = [str(word) for word in command]
    options = {"env": environment()} | options
    server = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)
    try:
        line = server.stdout.readline()
        if not line:
            raise Failure(f"`{' '.join(words)}` did not start: {server.stderr.read()}")
        yield server, json.loads(line)["url"]
        server.send_signal(signal.SIGTERM)
        code = server.wait(TIMEOUT)
        expect(code == 0, f"`{' '.join(words)}` ended with code {code}")
    finally:
        if server.poll() is None:
            server.kill()
            server.wait()
        server.stdout.close()
        server.stderr.close()


def fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=TIMEOUT) as response:
        return response.read().decode()


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="longshore-packaging-") as directory:
        yield Path(directory)


def known_variables() -> set[str]:
    """Returns the variables that docs/configuration.md lists."""
    return set(re.findall(r"`(LONGSHORE_[A-Z_]+)`", (ROOT / "docs" / "configuration.md").read_text()))
