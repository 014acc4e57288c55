"""The systemd units."""

import configparser
import os
import re
import subprocess

from .support import PACKAGING, Skip, environment, expect, program, run, scratch, serving, tool

UNITS = PACKAGING / "systemd"
EXPOSURE_MAX = 2.0
# Settings that differ between the unit and its template.
OF_ONE_UNIT = {"ExecStart", "EnvironmentFile", "StateDirectory", "WorkingDirectory", "ConfigurationDirectory"}


def settings(name: str) -> dict[str, str]:
    parser = configparser.ConfigParser(strict=False, interpolation=None, delimiters=("=",))
    parser.optionxform = str
    parser.read(UNITS / name)
    return dict(parser["Service"])


def check_units() -> None:
    unit, template = settings("longshore.service"), settings("longshore@.service")
    same = {name for name in unit if name not in OF_ONE_UNIT}
    different = {name for name in same if unit[name] != template.get(name)}
    expect(not different, f"unit and template differ in {different}")
    expect(unit["Type"] == "notify" and unit["WatchdogSec"] == "60s", "no notification, or no watchdog")
    analyze = tool("systemd-analyze")
    with scratch() as directory:
        for name in ("longshore.service", "longshore@.service"):
            text = (UNITS / name).read_text().replace("/usr/bin/longshore", str(program()))
            path = directory / name.replace("@", "@reports")
            path.write_text(text)
            run(analyze, "verify", "--man=no", path)
    users = tool("systemd-sysusers")
    with scratch() as directory:
        (directory / "etc").mkdir()
        for name in ("passwd", "group"):
            (directory / "etc" / name).write_text("")
        run(users, f"--root={directory}", UNITS / "longshore.sysusers")
        expect("longshore:" in (directory / "etc" / "passwd").read_text(), "no user was created")


def check_exposure() -> None:
    report = run(tool("systemd-analyze"), "security", "--offline=yes", UNITS / "longshore.service")
    level = float(re.search(r"exposure level.*?: ([0-9.]+)", report)[1])
    expect(level <= EXPOSURE_MAX, f"the exposure level is {level}, above {EXPOSURE_MAX}")


def calls_of(analyze: str, group: str) -> set[str]:
    """Returns the system calls of a group, of inner groups too."""
    found = set()
    for line in run(analyze, "syscall-filter", group).splitlines():
        name = line.strip().split("#")[0].strip()
        if name.startswith("@") and name != group:
            found |= calls_of(analyze, name)
        elif name and not name.startswith("@"):
            found.add(name)
    return found


def check_system_calls() -> None:
    """Every system call of a server, from start to stop, passes the filter of the unit."""
    analyze, strace = tool("systemd-analyze"), tool("strace")
    if subprocess.run([strace, "-o", "/dev/null", "true"], check=False, capture_output=True).returncode != 0:
        raise Skip("strace is not permitted")
    filters = re.findall(r"^SystemCallFilter=(.*)", (UNITS / "longshore.service").read_text(), re.M)
    allowed: set[str] = set()
    for words in filters:
        for group in words.lstrip("~").split():
            calls = calls_of(analyze, group)
            allowed = allowed - calls if words.startswith("~") else allowed | calls
    with scratch() as directory:
        log = directory / "calls"
        command = [strace, "-D", "-f", "-q", "-o", log, program(), "--json", "serve", "--listen", "127.0.0.1:0"]
        with serving([*command, "--data", directory / "data"], env=environment()) as (_, url):
            run(program(), "--server", url, "submit", "-t", "hello")
            run(program(), "--server", url, "work", "--until-empty", "--exec", "true")
        used = set(re.findall(r"^\d+ +([a-z_0-9]+)\(", log.read_text(), re.M))
    if os.geteuid() == 0:
        # SQLite gives the WAL the owner of the database, as root only. The unit has another user.
        used.discard("fchown")
    expect({"fdatasync", "execve", "accept4"} & used, f"the trace is not one of a server: {used}")
    expect(used <= allowed, f"the unit forbids system calls that the server makes: {sorted(used - allowed)}")
