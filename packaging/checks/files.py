"""Syntax, scripts, workflows, the compose file, variables, versions."""

import os
import re
import subprocess
import sys
from pathlib import Path

from .support import (
    CHART, PACKAGING, ROOT, Failure, Skip, expect, known_variables, parse_yaml, read_json, read_toml, read_yaml, run,
    tool, workspace_version,
)

SIZE_MAX = 25_000_000
WORKFLOWS = ROOT / ".github" / "workflows"
COMPOSE = PACKAGING / "compose"
# Options of the API's contract that the server of this tree may not have yet.
PLANNED_VARIABLES = {"LONGSHORE_METRICS_LISTEN", "LONGSHORE_TOKEN"}
# Variables of the packaging itself.
OWN_VARIABLES = {"LONGSHORE_BIN", "LONGSHORE_IMAGE", "LONGSHORE_NAME"}


def tracked() -> list[Path]:
    """Returns the files of packaging/, ops/ and .github/."""
    trees = [PACKAGING, ROOT / "ops", ROOT / ".github"]
    files = (path for tree in trees for path in sorted(tree.rglob("*")) if path.is_file())
    return [path for path in files if "__pycache__" not in path.parts]


def check_syntax() -> None:
    """Every YAML, TOML and JSON file can be parsed. Templates of the chart are rendered elsewhere."""
    for path in tracked():
        if CHART / "templates" in path.parents:
            continue
        if path.suffix in (".yml", ".yaml"):
            parse_yaml(path.read_text(), path)
        elif path.suffix == ".toml":
            read_toml(path)
        elif path.suffix == ".json":
            read_json(path)
    text = "".join(path.read_text() for path in tracked() if path.suffix != ".py")
    for machine in ("/work/", "/root/", "/home/"):
        expect(machine not in text, f"{machine} is a path of one machine")


def scripts() -> list[Path]:
    return [path for path in tracked() if path.read_bytes().startswith(b"#!/bin/sh")]


def check_scripts() -> None:
    for script in scripts():
        run("sh", "-n", script)
        expect(os.access(script, os.X_OK), f"{script} is not executable")
    run(tool("shellcheck"), *scripts())


def validate(*arguments: object) -> None:
    """Runs check-jsonschema, which has the schemas of workflows and of compose files."""
    checker = Path(sys.executable).parent / "check-jsonschema"
    if not checker.exists():
        raise Skip("check-jsonschema is not installed (packaging/requirements.txt)")
    run(checker, "--quiet", *arguments)


def check_workflows() -> None:
    workflows = sorted(WORKFLOWS.glob("*.yml"))
    expect(workflows, "no workflows")
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    for path in workflows:
        text, workflow = path.read_text(), read_yaml(path)
        matrix = [value for job in workflow["jobs"].values() for value in matrix_targets(job)]
        used = set(re.findall(r"\bmake ([a-z-]+)", text)) | {value for value in matrix if value.startswith("soak")}
        expect(used <= targets, f"{path}: unknown targets of make: {used - targets}")
        for script in re.findall(r"\b(packaging/[a-z/-]+\.(?:sh|py))", text):
            expect((ROOT / script).exists(), f"{path}: {script} does not exist")
        expect("permissions" in workflow, f"{path}: no permissions")
        for name, job in workflow["jobs"].items():
            expect("timeout-minutes" in job, f"{path}: job {name} has no timeout")
            for step in job["steps"]:
                uses = step.get("uses", "@v")
                expect(re.search(r"@(v\d|[0-9a-f]{40})|@v$", uses), f"{path}: {uses} has no version")
                check_step(path, step.get("run", ""))
    validate("--builtin-schema", "vendor.github-workflows", *workflows)


def matrix_targets(job: dict) -> list[str]:
    return [str(value) for value in job.get("strategy", {}).get("matrix", {}).get("target", [])]


def check_step(path: Path, text: str) -> None:
    """A step is a correct script, once the expressions of the workflow are replaced."""
    script = re.sub(r"\$\{\{.*?\}\}", "value", text)
    done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False)
    expect(done.returncode == 0, f"{path}: {done.stderr}")


def check_image_name(name: str, where: object) -> None:
    """An image has a tag, and no host of a registry."""
    first = name.split("/")[0]
    expect("/" not in name or not re.search(r"[.:]", first), f"{where}: {name} names a registry")
    expect(":" in name, f"{where}: {name} has no tag")


def check_compose() -> None:
    path = COMPOSE / "compose.yaml"
    compose = read_yaml(path)
    expect(set(compose["services"]) == {"server", "postgres", "prometheus", "grafana"}, "services are missing")
    for name, service in compose["services"].items():
        image = re.sub(r"\$\{[A-Z_]+:-(.*)\}", r"\1", service["image"])
        check_image_name(image, path)
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            if source.startswith("."):
                expect((COMPOSE / source).is_file(), f"{path}: {name}: {source} does not exist")
            else:
                expect(source in compose["volumes"], f"{path}: {name}: unknown volume {source}")
        for port in service.get("ports", []):
            expect(port.startswith("127.0.0.1:"), f"{path}: {name}: port {port} is open to all networks")
    server = compose["services"]["server"]
    expect(server["read_only"] and server["cap_drop"] == ["ALL"], "the server is not confined")
    metrics = server["environment"]["LONGSHORE_METRICS_LISTEN"].rsplit(":", 1)[1]
    scraped = read_yaml(COMPOSE / "prometheus.yml")["scrape_configs"][0]
    expect(scraped["job_name"] == "longshore", "the alert rules select job=longshore")
    expect(scraped["static_configs"][0]["targets"] == [f"server:{metrics}"], "Prometheus scrapes another port")
    validate("--builtin-schema", "vendor.compose-spec", path)


def check_variables() -> None:
    """Every LONGSHORE_* variable exists."""
    known = known_variables() | PLANNED_VARIABLES | OWN_VARIABLES
    for path in tracked():
        used = set(re.findall(r"LONGSHORE_[A-Z_]*[A-Z]", path.read_text()))
        expect(used <= known, f"{path}: unknown variables {used - known}")


def check_versions(version: str | None = None) -> None:
    expected = version or workspace_version()
    expect(workspace_version() == expected, f"the workspace has version {workspace_version()}, not {expected}")
    chart = read_yaml(CHART / "Chart.yaml")
    expect(str(chart["version"]) == str(chart["appVersion"]) == expected, f"the chart is not version {expected}")
    dockerfile = (PACKAGING / "docker" / "Dockerfile").read_text()
    expect(f"ARG VERSION={expected}\n" in dockerfile, f"the Dockerfile is not version {expected}")
    compiler = read_toml(ROOT / "rust-toolchain.toml")["toolchain"]["channel"].rsplit(".", 1)[0]
    expect(f"ARG RUST_IMAGE=rust:{compiler}-" in dockerfile, f"the Dockerfile does not use Rust {compiler}")


def check_size(name: str) -> None:
    size = Path(name).stat().st_size
    expect(size <= SIZE_MAX, f"{name} has {size:,} bytes, more than {SIZE_MAX:,}")
    expect(".debug_info" not in run(tool("objdump"), "-h", name), f"{name} has debug information")
    print(f"{name}: {size:,} bytes")


def check_documents() -> None:
    """Files that the documents of this part name exist."""
    documents = ["docs/install.md", "docs/upgrading.md", "docs/stability.md", "docs/operations.md", "SECURITY.md"]
    for document in documents:
        text = (ROOT / document).read_text()
        for name in re.findall(r"\b((?:packaging|ops)/[\w./@-]*\w)", text):
            expect((ROOT / name).exists(), f"{document}: {name} does not exist")
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
            if not (ROOT / document).parent.joinpath(link).exists():
                raise Failure(f"{document}: the link {link} leads nowhere")
