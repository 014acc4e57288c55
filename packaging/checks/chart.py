"""The Helm chart: its values, and what it renders."""

import json
import os
import re
import subprocess

from .files import validate
from .support import CHART, PACKAGING, TIMEOUT, Skip, environment, expect, parse_yaml, read_json, read_yaml, run, scratch, tool

TEMPLATES = CHART / "templates"
SETS = {
    "embedded": ({}, {"StatefulSet"}),
    "bootstrap": ({"bootstrap": True}, {"StatefulSet"}),
    "tls": ({"tls": {"secretName": "api-certificate"}}, {"StatefulSet"}),
    "postgres": (
        {
            "store": {"kind": "postgres", "postgres": {"secretName": "db", "migrate": {"enabled": True, "secretName": "owner"}}},
            "metrics": {"serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}}},
            "networkPolicy": {"enabled": True},
            "extraEnv": [{"name": "LONGSHORE_CACHE", "value": "64MiB"}],
            "podAnnotations": {"a": "b"}, "nodeSelector": {"disk": "fast"}, "tolerations": [{"key": "jobs"}],
        },
        {"Deployment", "PodDisruptionBudget", "ServiceMonitor", "NetworkPolicy", "Job"},
    ),
}
ALWAYS = {"ConfigMap", "Service", "ServiceAccount"}
REFUSED = [
    {"store": {"kind": "sqlite"}},
    {"store": {"kind": "postgres"}},
    {"replicas": 0},
    {"replica": 3},
    {"image": {"digest": "sha256:1"}},
    {"store": {"kind": "postgres", "postgres": {"secretName": "db", "migrate": {"enabled": True}}}},
]


def merged(base: dict, over: dict) -> dict:
    both = {key: merged(base[key], over[key]) for key in base.keys() & over.keys() if isinstance(base[key], dict)}
    return {**base, **over, **both}


def value_at(values: dict, path: str) -> bool:
    for key in path.split("."):
        if not isinstance(values, dict) or key not in values:
            return False
        values = values[key]
    return True


def check_chart() -> None:
    """Templates use values and parts that exist, and the schema accepts and refuses what it should."""
    values, schema = read_yaml(CHART / "values.yaml"), read_json(CHART / "values.schema.json")
    undescribed = set(values) - set(schema["properties"])
    expect(not undescribed, f"values.schema.json lacks {undescribed}")
    text = "".join(path.read_text() for path in TEMPLATES.iterdir())
    for path in set(re.findall(r"\.Values\.([\w.]+)", text)):
        expect(value_at(values, path), f"values.yaml lacks {path}, which a template uses")
    for key in values:
        expect(f".Values.{key}" in text, f"no template uses the value {key}")
    defined, included = (set(re.findall(rf'{word} "([\w.]+)"', text)) for word in ("define", "include"))
    expect(included == defined, f"templates that are not defined or not used: {included ^ defined}")
    for path in TEMPLATES.iterdir():
        actions = re.findall(r"\{\{-?\s*(if|with|range|define|end)\b", path.read_text())
        expect(actions.count("end") * 2 == len(actions), f"{path}: an action without its end")
    with scratch() as directory:
        accepted = [merged(values, over) for over, _ in SETS.values()]
        files = [directory / f"accepted-{number}.json" for number in range(len(accepted))]
        for file, content in zip(files, accepted):
            file.write_text(json.dumps(content))
        validate("--schemafile", CHART / "values.schema.json", *files)
        check_refusals(values, schema)


def check_refusals(values: dict, schema: dict) -> None:
    import jsonschema

    jsonschema.Draft7Validator.check_schema(schema)
    validator = jsonschema.Draft7Validator(schema)
    for over in REFUSED:
        expect(not validator.is_valid(merged(values, over)), f"values.schema.json accepts {over}")


def render(over: dict) -> list[dict]:
    """Returns the objects of the chart: by helm, else by Go's templates."""
    arguments = json.dumps(over)
    try:
        helm = tool("helm")
    except Skip:
        return parse_yaml(render_with_go(arguments), "chart")
    with scratch() as directory:
        (directory / "values.json").write_text(arguments)
        return parse_yaml(run(helm, "template", "jobs", CHART, "-f", directory / "values.json"), "chart")


def render_with_go(arguments: str) -> str:
    go = tool("go")
    sources = "/usr/share/gocode"
    packages = {
        "golang-github-masterminds-sprig-dev": "github.com/Masterminds/sprig",
        "golang-github-ghodss-yaml-dev": "github.com/ghodss/yaml",
    }
    missing = [name for name, path in packages.items() if not os.path.isdir(f"{sources}/src/{path}")]
    if missing:
        raise Skip(f"helm is not installed, nor are these packages of Debian: {', '.join(missing)}")
    # The cache of the compiler keeps a second run short.
    home = {"GO111MODULE": "off", "GOPATH": sources, "GOFLAGS": "", "GOCACHE": "/tmp/longshore-go-cache"}
    done = subprocess.run(
        [go, "run", str(PACKAGING / "helm" / "render" / "render.go"), str(CHART), arguments],
        env=environment() | home, capture_output=True, text=True, timeout=2 * TIMEOUT, check=False,
    )
    expect(done.returncode == 0, done.stderr)
    return "".join(part for part in re.split(r"(?m)^(?=--- # )", done.stdout) if not part.startswith("--- # NOTES.txt"))


def check_rendered() -> None:
    for name, (over, kinds) in SETS.items():
        objects = render(over)
        found = {item["kind"] for item in objects}
        expect(found == kinds | ALWAYS, f"{name}: the chart has {sorted(found)}")
        for item in objects:
            labels = item["metadata"]["labels"]
            expect(labels["app.kubernetes.io/instance"] == "jobs", f"{name}: {item['kind']} has no labels")
            if item["kind"] in ("StatefulSet", "Deployment", "Job"):
                check_pod(f"{name}: {item['kind']}", item["spec"]["template"])
            if item["kind"] in ("StatefulSet", "Deployment"):
                selector = item["spec"]["selector"]["matchLabels"].items()
                expect(selector <= item["spec"]["template"]["metadata"]["labels"].items(), f"{name}: selector")
                check_server(name, item["spec"]["template"]["spec"]["containers"][0], over)


def check_pod(name: str, template: dict) -> None:
    pod = template["spec"]
    security = pod["securityContext"]
    expect(security["runAsNonRoot"] and security["runAsUser"] == 65532, f"{name}: runs as root")
    for container in pod["containers"]:
        confined = container["securityContext"]
        expect(confined["readOnlyRootFilesystem"] and not confined["allowPrivilegeEscalation"], f"{name}: not confined")
        expect(confined["capabilities"]["drop"] == ["ALL"], f"{name}: has capabilities")
        mounted = {mount["name"] for mount in container.get("volumeMounts", [])}
        volumes = {volume["name"] for volume in pod.get("volumes", [])} | {"data"}
        expect(mounted <= volumes, f"{name}: mounts unknown volumes {mounted - volumes}")


def check_server(name: str, container: dict, over: dict) -> None:
    variables = {item["name"]: item for item in container["env"]}
    is_postgres = over.get("store", {}).get("kind") == "postgres"
    expect(("LONGSHORE_STORE" in variables) == is_postgres, f"{name}: the store is wrong")
    expect(("LONGSHORE_DATA" in variables) != is_postgres, f"{name}: two stores")
    listens = variables["LONGSHORE_LISTEN"]["value"]
    expect(listens.startswith("127.") == over.get("bootstrap", False), f"{name}: listens on {listens}")
    probes = json.dumps(container["readinessProbe"])
    expect(("httpGet" in probes) != over.get("bootstrap", False), f"{name}: the probe cannot reach the server")
