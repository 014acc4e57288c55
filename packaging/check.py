#!/usr/bin/env python3
"""Checks the files of packaging/, ops/ and .github/ as far as this machine allows.

    check.py                 all checks; `make test-packaging` runs them
    check.py NAME...         some of them
    check.py --version X     X is the version of the workspace, the chart and the image
    check.py --size FILE     FILE has at most 25 MB and no debug information
    check.py --dashboard FILE   the program FILE serves the dashboard

A check whose tool is missing is skipped, and the last lines list what was skipped.
`LONGSHORE_BIN` names the program; default: target/debug/longshore.
"""

import sys
import time

from checks import chart, debian, files, image, observability, service
from checks.support import Failure, Skip

CHECKS = {
    "syntax": files.check_syntax,
    "scripts": files.check_scripts,
    "workflows": files.check_workflows,
    "compose": files.check_compose,
    "variables": files.check_variables,
    "versions": files.check_versions,
    "documents": files.check_documents,
    "dockerfile": image.check_dockerfile,
    "image": image.check_root,
    "units": service.check_units,
    "exposure": service.check_exposure,
    "system-calls": service.check_system_calls,
    "chart": chart.check_chart,
    "rendered-chart": chart.check_rendered,
    "deb": debian.check_package,
    "archive": debian.check_archive,
    "manual": debian.check_manual,
    "metrics": observability.check_metrics,
    "promtool": observability.check_promtool,
}


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--version"]:
        checks = {"version": lambda: files.check_versions(arguments[1])}
    elif arguments[:1] == ["--size"]:
        checks = {"size": lambda: files.check_size(arguments[1])}
    elif arguments[:1] == ["--dashboard"]:
        checks = {"dashboard": lambda: image.check_dashboard(arguments[1])}
    else:
        unknown = set(arguments) - set(CHECKS)
        if unknown:
            print(f"check.py: unknown: {', '.join(sorted(unknown))} (use {', '.join(CHECKS)})")
            return 2
        checks = {name: check for name, check in CHECKS.items() if not arguments or name in arguments}
    failed, skipped = [], []
    for name, check in checks.items():
        start = time.monotonic()
        try:
            check()
            print(f"packaging: {name}: ok ({time.monotonic() - start:.1f} s)")
        except Skip as reason:
            skipped.append(f"packaging: {name}: skipped: {reason}")
        except Failure as failure:
            failed.append(name)
            print(f"packaging: {name}: FAILED: {failure}")
    for line in skipped:
        print(line)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
