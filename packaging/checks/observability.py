"""Alert rules and dashboard against the metrics of a server."""

import re

from .support import PACKAGING, ROOT, expect, fetch, program, read_json, read_yaml, run, scratch, serving, tool

OPS = ROOT / "ops"
DASHBOARD = OPS / "grafana-dashboard.json"
RULES = OPS / "prometheus-rules.yml"
# Labels that Prometheus adds.
TARGET_LABELS = {"instance", "job"}
# Only a server on PostgreSQL has these; docs/metrics.md lists them, too.
POSTGRES_METRICS = {"longshore_store_fast_path_total": {"result"}}


def exposed() -> dict[str, set[str]]:
    """Returns the metrics of a server on the embedded store that has run jobs, with their labels."""
    with scratch() as directory:
        command = [program(), "--json", "serve", "--listen", "127.0.0.1:0", "--data", directory]
        with serving(command) as (_, url):
            run(program(), "--server", url, "submit", "-q", "mail", "-t", "hello")
            run(program(), "--server", url, "work", "-q", "mail", "--until-empty", "--exec", "true")
            text = fetch(f"{url}/metrics")
    metrics: dict[str, set[str]] = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, labels = re.match(r"(\w+)(?:\{(.*)\})?", line).groups()
            metrics.setdefault(name, set()).update(re.findall(r'(\w+)="', labels or ""))
    expect(len(metrics) > 20, f"only {len(metrics)} metrics")
    return metrics


def expressions() -> list[tuple[str, str]]:
    """Returns every expression with its place."""
    found = []
    for group in read_yaml(RULES)["groups"]:
        found += [(rule["alert"], rule["expr"]) for rule in group["rules"]]
    dashboard = read_json(DASHBOARD)
    for panel in dashboard["panels"]:
        found += [(panel["title"], target["expr"]) for target in panel.get("targets", [])]
    found += [(item["name"], item["query"]["query"]) for item in dashboard["templating"]["list"] if item["type"] == "query"]
    found += [(item["name"], item["expr"]) for item in dashboard["annotations"]["list"]]
    return found


def check_expression(place: str, expression: str, metrics: dict[str, set[str]]) -> set[str]:
    """Returns the metrics of an expression, after it has found all of them and their labels."""
    expect(expression.count("(") == expression.count(")"), f"{place}: parentheses of {expression}")
    used = set()
    for name, selector in re.findall(r"\b(longshore_\w+|up)\b(?:\{([^}]*)\})?", expression):
        if name == "up":
            continue
        expect(name in metrics, f"{place}: the server has no metric {name}")
        labels = set(re.findall(r'(\w+)\s*(?:=~|!~|!=|=)\s*"', selector))
        unknown = labels - metrics[name] - TARGET_LABELS
        expect(not unknown, f"{place}: {name} has no labels {unknown}")
        used.add(name)
    available = TARGET_LABELS.union(*(metrics[name] for name in used))
    grouped = {label.strip() for labels in re.findall(r"\b(?:by|on) \(([^)]*)\)", expression) for label in labels.split(",")}
    expect(grouped <= available, f"{place}: {grouped - available} are no labels of {used}")
    return used


def check_metrics() -> None:
    metrics = exposed() | POSTGRES_METRICS
    documented = set(re.findall(r"^\| `(longshore_\w+)`", (ROOT / "docs" / "metrics.md").read_text(), re.M))
    expect(POSTGRES_METRICS.keys() <= documented, "docs/metrics.md lacks a metric of PostgreSQL")
    used = set()
    for place, expression in expressions():
        used |= check_expression(place, expression, metrics)
    families = {re.sub(r"_(bucket|sum|count)$", "", name) if re.sub(r"_(bucket|sum|count)$", "", name) in documented else name for name in used}
    unused = documented - families
    expect(not unused, f"neither dashboard nor alerts use {sorted(unused)}")
    check_runbooks()
    dashboard = read_json(DASHBOARD)
    numbers = [panel["id"] for panel in dashboard["panels"]]
    expect(len(numbers) == len(set(numbers)), "two panels have one id")
    for panel in dashboard["panels"]:
        if panel["type"] != "row":
            expect(panel["description"] and panel["targets"], f"panel {panel['title']} has no description or target")


def check_runbooks() -> None:
    """Every alert has a section in docs/operations.md, and every section an alert."""
    rules = [rule for group in read_yaml(RULES)["groups"] for rule in group["rules"]]
    sections = set(re.findall(r"^### (Longshore\w+)$", (ROOT / "docs" / "operations.md").read_text(), re.M))
    alerts = {rule["alert"] for rule in rules}
    expect(alerts == sections, f"alerts and sections of docs/operations.md differ: {alerts ^ sections}")
    for rule in rules:
        expected = f"docs/operations.md#{rule['alert'].lower()}"
        expect(rule["annotations"]["runbook"] == expected, f"{rule['alert']}: the runbook is not {expected}")
        expect(rule["labels"]["severity"] in ("critical", "warning"), f"{rule['alert']}: severity")


def check_promtool() -> None:
    promtool = tool("promtool")
    run(promtool, "check", "rules", RULES)
    run(promtool, "test", "rules", OPS / "prometheus-rules-test.yml")
    run(promtool, "check", "config", "--syntax-only", PACKAGING / "compose" / "prometheus.yml")
    check_with_promtool(promtool)


def check_with_promtool(promtool: str) -> None:
    """Parses the expressions of the dashboard as rules, with its variables replaced."""
    dashboard = read_json(DASHBOARD)
    rules = [
        {"record": f"panel:{panel['id']}:{target['refId'].lower()}", "expr": target["expr"].replace("$__rate_interval", "5m")}
        for panel in dashboard["panels"] for target in panel.get("targets", [])
    ]
    with scratch() as directory:
        import json

        # JSON is YAML.
        (directory / "rules.yml").write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
        run(promtool, "check", "rules", directory / "rules.yml")
