"""The Dockerfile, and its steps in a root directory of their own."""

import os
import re
import subprocess
from pathlib import Path

from .files import check_image_name
from .support import PACKAGING, ROOT, Failure, Skip, expect, fetch, program, read_toml, run, scratch, serving, tool

DOCKERFILE = PACKAGING / "docker" / "Dockerfile"
INSTRUCTIONS = set(
    "ARG CMD COPY ENTRYPOINT ENV EXPOSE FROM HEALTHCHECK LABEL RUN STOPSIGNAL USER VOLUME WORKDIR".split()
)
USER = 65532


def instructions() -> list[tuple[str, str]]:
    """Returns the instructions with their arguments, continued lines joined."""
    text = re.sub(r"^\s*#.*\n", "", DOCKERFILE.read_text(), flags=re.M)
    lines = [line.strip() for line in re.sub(r"\\\n", " ", text).splitlines() if line.strip()]
    return [(line.split()[0], line.split(maxsplit=1)[1]) for line in lines]


def check_dockerfile() -> None:
    stages: list[list[tuple[str, str]]] = []
    names, defaults = [], {}
    for word, rest in instructions():
        expect(word in INSTRUCTIONS, f"unknown instruction {word}")
        if word == "ARG" and not stages:
            name, _, value = rest.partition("=")
            defaults[f"${{{name}}}"] = value
        if word == "FROM":
            image, _, name = rest.partition(" AS ")
            image = defaults.get(image, image)
            if image != "scratch":
                check_image_name(image, DOCKERFILE)
            stages.append([])
            names.append(name)
        elif stages:
            stages[-1].append((word, rest))
        for stage in re.findall(r"--from=(\S+)", rest):
            expect(stage in names[:-1], f"COPY from an unknown stage {stage}")
        for script in re.findall(r"\b(packaging/\S+\.sh)", rest):
            expect((ROOT / script).exists(), f"{script} does not exist")
    expect(len(stages) >= 2, "the build and the image are one stage")
    final = dict(stages[-1])
    expect(final["USER"] == f"{USER}:{USER}", "the image runs as root")
    expect(final["HEALTHCHECK"].endswith('CMD ["/usr/bin/longshore", "health"]'), "no health check")
    expect(final["VOLUME"] == "/data" and final["STOPSIGNAL"] == "SIGTERM", "volume or signal is wrong")
    expect("RUN" not in final, "the final stage has no shell")
    build = stages[names.index("build")]
    expect(("COPY", "--from=dashboard /source/ui/dist ui/dist") in build, "the program is built without its dashboard")
    # The context has everything that the workspace needs.
    ignore = (DOCKERFILE.parent / "Dockerfile.dockerignore").read_text().splitlines()
    for member in read_toml(ROOT / "Cargo.toml")["workspace"]["members"]:
        expect(f"!{member.split('/')[0]}" in ignore, f"Dockerfile.dockerignore leaves out {member}")


def check_dashboard(name: str) -> None:
    """The program serves the dashboard, not the page that says how to build it."""
    path = Path(name).resolve()
    with serving([path, "--json", "serve", "--store", "memory:", "--listen", "127.0.0.1:0"]) as (_, url):
        page = fetch(f"{url}/")
        expect('id="app"' in page, f"{name} was built without its dashboard (make ui, then build again)")
        for part in re.findall(r'(?:src|href)="\./(ui/[^"]+)"', page):
            expect(fetch(f"{url}/{part}"), f"{name}: {part} is empty")


def confined(root: object, *command: object) -> list[object]:
    """A command in the image: its root read-only, /data writable, no network but loopback, no root."""
    mounts = (
        'mount --bind "$0" "$0" && mount --bind "$0/data" "$0/data" && mount -o remount,bind,ro "$0" '
        '&& ip link set lo up 2>/dev/null; exec chroot --userspec=65532:65532 "$0" "$@"'
    )
    return [tool("unshare"), "--mount", "sh", "-c", mounts, root, *command]


def check_root() -> None:
    """Runs the last step of the build, then serves from the result as the image does."""
    if os.geteuid() != 0:
        raise Skip("it needs root")
    if subprocess.run([tool("unshare"), "--mount", "true"], capture_output=True, check=False).returncode != 0:
        raise Skip("unshare is not permitted")
    with scratch() as directory:
        directory.chmod(0o755)
        root = directory / "root"
        slim = directory / "longshore"
        # A debug build is large: the image has no debug information either.
        run(tool("objcopy"), "--strip-debug", program(), slim)
        run(PACKAGING / "docker" / "rootfs.sh", slim, root)
        longshore = "/usr/bin/longshore"
        config = ["--config", "/etc/longshore/longshore.toml"]
        denied = subprocess.run(
            [str(word) for word in confined(root, longshore, "man", "/etc/pages")], capture_output=True, text=True, check=False
        )
        expect("Read-only file system" in denied.stderr, f"the root can be written: {denied.stderr}")
        serve = confined(root, longshore, "--json", "serve", *config, "--listen", "127.0.0.1:0")
        with serving(serve) as (server, url):
            owner = re.search(r"^Uid:\s+(\d+)", open(f"/proc/{server.pid}/status").read(), re.M)
            expect(int(owner[1]) == USER, f"the server runs as {owner[1]}")
            run(*confined(root, longshore, "health", "--server", url))
            run(*confined(root, longshore, "--server", url, "submit", "-t", "hello"))
            names = {path.name for path in (root / "data").iterdir()}
            if "longshore.db" not in names:
                raise Failure(f"no store in /data: {names}")
