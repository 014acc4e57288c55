"""Hooks of schemathesis: shorter waits, and rules that JSON Schema cannot express.

`run.py` sets FUZZ_TOKEN_ID, the token of the run, FUZZ_KNOWN, a file with ids and names that exist, and FUZZ_REPORT,
where the counts are written.
"""

import atexit
import itertools
import json
import os
import re
from collections import Counter
from pathlib import Path

import schemathesis
from schemathesis.specs.openapi.checks import positive_data_acceptance

KNOWN = {kind: itertools.cycle(names) for kind, names in json.loads(Path(os.environ["FUZZ_KNOWN"]).read_text()).items()}
TURN = itertools.cycle([True, True, False])
RULES = json.loads((Path(__file__).parent / "rules.json").read_text())
REQUESTS: Counter[str] = Counter()
EXCUSED: Counter[str] = Counter()
LONGEST_DURATION = 36500 * 86400


def is_duration(value: object, most: float) -> bool:
    """Whether the server would accept a length of time: only then it is made shorter."""
    if isinstance(value, bool):
        return False
    if isinstance(value, (int, float)):
        return 0 <= value <= most
    return isinstance(value, str) and re.fullmatch(r"[0-9][0-9a-z ]*[smhdw]", value) is not None


@schemathesis.hook
def before_call(context, case, kwargs):
    """Long polls wait in real time, and a long advance fires every tick on the way."""
    name_known_objects(case)
    body, query = case.body, case.query
    if case.path == "/v1/claims" and isinstance(body, dict) and is_wait(body.get("wait")):
        case.body = {**body, "wait": "1ms"}
    if case.path == "/v1/clock/advance" and isinstance(body, dict) and is_duration(body.get("by"), LONGEST_DURATION):
        case.body = {**body, "by": "1ms"}
    if case.path == "/v1/jobs/{id}/wait":
        query = query if isinstance(query, dict) else {}
        if is_wait(query.get("timeout", "30s")):
            case.query = {**query, "timeout": "1ms"}


def name_known_objects(case):
    """Two of three calls of an object name one that exists; queues, schedules and webhooks are never deleted."""
    known = KNOWN.get(case.path.removeprefix("/v1/").split("/")[0])
    may_change = case.method.upper() != "DELETE" or case.path.startswith("/v1/jobs/")
    for name, value in (case.path_parameters or {}).items() if known and may_change else ():
        is_valid = re.fullmatch(r"[A-Za-z0-9_.:-]{1,128}", str(value)) and value != "callbacks"
        if is_valid and next(TURN):
            case.path_parameters = {**case.path_parameters, name: next(known)}


def is_wait(value: object) -> bool:
    if isinstance(value, str):
        return re.fullmatch(r"[0-9]{1,4} ?ms|([0-9]|[1-5][0-9]|60)( ?s)?|[01] ?m", value) is not None
    return is_duration(value, 60)


@schemathesis.hook
def filter_case(context, case):
    """The run does not revoke its own token."""
    own = os.environ["FUZZ_TOKEN_ID"]
    return not (case.path == "/v1/tokens/{id}" and (case.path_parameters or {}).get("id") == own)


@schemathesis.hook
def after_call(context, case, response):
    REQUESTS[f"{response.status_code}"] += 1


@schemathesis.check
def valid_requests_are_accepted(ctx, response, case):
    """`positive_data_acceptance`, except for the rules of `rules.json`."""
    try:
        positive_data_acceptance(ctx, response, case)
    except AssertionError:
        rule = rule_of(case, response)
        if rule is None:
            raise
        EXCUSED[rule["why"]] += 1


def rule_of(case, response):
    problem = response.json()
    found = {
        "operation": f"{case.method.upper()} {case.path}",
        "code": problem.get("code", ""),
        "field": problem.get("field", ""),
    }
    # Parts of these two are enough.
    parts = {"detail": problem.get("detail", ""), "body": json.dumps(case.body, default=str)}
    for rule in RULES:
        matches = all(re.fullmatch(rule[key], found[key]) for key in found if key in rule)
        if matches and all(re.search(rule[key], parts[key]) for key in parts if key in rule):
            return rule
    return None


@atexit.register
def write_report():
    counts = {"requests": sum(REQUESTS.values()), "statuses": REQUESTS, "excused": EXCUSED}
    Path(os.environ["FUZZ_REPORT"]).write_text(json.dumps(counts))
