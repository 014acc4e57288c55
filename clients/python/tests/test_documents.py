"""The guide and the README work as they are written."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest
from conftest import ROOT

from longshore import Done
from longshore.testing import TestServer, find_binary, perform

GUIDE = ROOT / "docs" / "guides" / "python.md"
README = ROOT / "clients" / "python" / "README.md"
# The virtual environment of the tests has the package and pytest already, and LONGSHORE_BIN is set.
_INSTALLATION = ("python3 -m venv", ". .venv/bin/activate", "pip install", "export LONGSHORE_BIN=")


def blocks(page: Path) -> list[tuple[str, str]]:
    """Returns language and text of all fenced blocks."""
    return re.findall(r"^```(\w+)\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


def test_guide_from_an_empty_directory(server: TestServer, tmp_path: Path) -> None:
    bin_directory = Path(sys.executable).parent
    environment = {
        **os.environ,
        "PATH": f"{bin_directory}{os.pathsep}{os.environ['PATH']}",
        "LONGSHORE_SERVER": server.url,
        "LONGSHORE_BIN": find_binary(),
    }
    found = blocks(GUIDE)
    for language, text in found:
        if language == "python":
            title = re.match(r"# (\w+\.py)\n", text)
            assert title, f"a block has no file name: {text}"
            (tmp_path / title[1]).write_text(text)
            if title[1] != "submit.py":
                command = [sys.executable, "-c", f"import {title[1][:-3]}"]
                subprocess.run(command, cwd=tmp_path, env=environment, check=True)
    output = ""
    for language, text in found:
        if language == "bash":
            lines = [line for line in text.splitlines() if not line.startswith(_INSTALLATION)]
            command = ["bash", "-euo", "pipefail", "-c", "\n".join(lines)]
            done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
            assert done.returncode == 0, done.stdout + done.stderr
            output += done.stdout
    assert "sending to ada@example.com, attempt 1" in output
    assert "sent to ada@example.com" in output
    assert "1 completed" in output
    assert "3 passed" in output


def test_worker_of_the_tour_takes_the_payloads_of_the_tour(monkeypatch: pytest.MonkeyPatch) -> None:
    page = ROOT / "README.md"
    [worker] = [text for language, text in blocks(page) if language == "python"]
    module = types.ModuleType("tour")
    monkeypatch.setitem(sys.modules, "tour", module)
    exec(compile(worker, str(page), "exec"), module.__dict__)
    payloads = re.findall(r"--type email\.send --payload '([^']*)'", page.read_text())
    assert payloads
    for payload in payloads:
        sent = json.loads(payload)
        assert perform(module.send_email, sent) == Done(f"sent to {sent['to']}")


@pytest.mark.parametrize("page", [GUIDE, README], ids=["guide", "readme"])
def test_minimal_worker_has_twelve_lines(page: Path) -> None:
    worker = next(text for language, text in blocks(page) if language == "python")
    assert len([line for line in worker.splitlines() if line.strip() and not line.startswith("#")]) <= 12
    compile(worker, str(page), "exec")


def test_examples_of_the_guide_have_types(tmp_path: Path) -> None:
    for language, text in blocks(GUIDE):
        title = re.match(r"# (\w+\.py)\n", text)
        if language == "python" and title:
            (tmp_path / title[1]).write_text(text)
    cache = ROOT / "clients" / "python" / ".mypy_cache"
    command = [sys.executable, "-m", "mypy", "--strict", "--python-version", "3.10", "--cache-dir", str(cache), "."]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
