// Tests of the logic behind the pages.

import { describe, expect, test } from "vitest";
import { quote } from "./curl";
import { compact, hideSecrets, isRounded, lines, member, parseExact, pretty } from "./exact-json";
import { parseFilter } from "./filters";
import { axisDuration, bytes, duration, figure, parseDuration, relative, shortCount, shortDuration } from "./format";
import { buildGraph, causes, depths, failedPath } from "./graph";
import { histograms, parseMetrics, quantile } from "./metrics";
import { canOperate, canUndo, narrow, timeLeft } from "./operations";
import { callKind, isAllowed } from "./permissions";
import { delayOf } from "./resource";
import { holdRows, moveCursor } from "./rows";
import { deployMarks, RANGES, readSeries, share, trend } from "./series";
import { at, flatten, isUnder, overridesAfter, read, set, without } from "./settings";
import { EventParser } from "./sse";
import { bodyOf, commandOf, EMPTY, parseTags, policyDifference } from "./submission";
import { buildTimeline, gridTimes, lastRequeue } from "./timeline";
import type { Attempt, Job, Member, Operation, Point, Stats, Transition } from "./types";

describe("exact JSON", () => {
  test("numbers keep every digit", () => {
    const text = '{"id":9007199254740993,"pi":3.14159265358979323846,"e":1E400,"list":[-0,1e-7]}';
    expect(compact(parseExact(text))).toBe(text);
    expect(isRounded("9007199254740993")).toBe(true);
    expect(isRounded("9007199254740992")).toBe(false);
    expect(isRounded("12.5")).toBe(false);
  });
  test("strings survive as characters, duplicate keys stay", () => {
    const text = '{"a":"\\u003cscript\\u003e","a":"é\\n"}';
    expect(parseExact(text)).toEqual({ kind: "object", entries: [{ key: "a", value: { kind: "string", text: "<script>" } }, { key: "a", value: { kind: "string", text: "é\n" } }] });
  });
  test.each(["", "{", "[1,]", "{'a':1}", "01", "nul", "\"\n\"", "[1] x"])("refuses %j", (text) => {
    expect(() => parseExact(text)).toThrow(SyntaxError);
  });
  test("formatting reads back as the same value", () => {
    const text = '{"a":[1,{"b":[]}],"c":{},"d":"x"}';
    expect(compact(parseExact(pretty(parseExact(text))))).toBe(text);
    expect(lines(parseExact("[]"))).toEqual([[{ text: "[", kind: "mark" }, { text: "]", kind: "mark" }]]);
    expect(member(parseExact(text), "d")).toEqual({ kind: "string", text: "x" });
  });
});

test("values of members with the name of a secret are hidden, and only those", () => {
  const text = '{"password":"x","user":{"apiKey":7,"accessToken":["a"],"tokens_used":12,"name":"ann"},"list":[{"card_number":"4111"}],"secret":null}';
  const { node, hidden } = hideSecrets(parseExact(text));
  expect(hidden).toBe(4);
  expect(pretty(node).replace(/\s+/g, "")).toBe('{"password":hidden,"user":{"apiKey":hidden,"accessToken":hidden,"tokens_used":12,"name":"ann"},"list":[{"card_number":hidden}],"secret":null}');
  expect(compact(node)).toBe(text);
});

test("versions that arrive together are one mark", () => {
  const at = (second: number) => `2026-11-18T18:00:${String(second).padStart(2, "0")}.000Z`;
  const deploy = (second: number, queue: string, version: string) => ({ at: at(second), queue, version, worker: "w" });
  expect(deployMarks([deploy(1, "mail", "2.14"), deploy(5, "sms", "2.14"), deploy(9, "mail", "2.15")]).map((mark) => mark.label)).toEqual(["2 queues 2.14", "mail 2.15"]);
});

test("durations at an axis have one unit", () => {
  expect([0, 50, 500, 30_000, 90_000, 7_200_000].map(axisDuration)).toEqual(["0 s", "50 ms", "500 ms", "30 s", "1.5 min", "2 h"]);
  expect([duration(0.25), duration(0)]).toEqual(["250 µs", "0 s"]);
});

test("durations and numbers", () => {
  expect(parseDuration("1h15m5s")).toBe(4_505_000);
  expect(parseDuration("500ms")).toBe(500);
  expect(parseDuration("soon")).toBeNull();
  expect([duration(800), duration(209_000), duration(7_500_000), duration(20 * 86_400_000), shortDuration(209_000)]).toEqual(["0.8 s", "3 min 29 s", "2 h 5 min", "20 d", "3 min"]);
  expect([shortCount(1_250_000), shortCount(12_408), figure(386.4), figure(0.06), bytes(261)]).toEqual(["1.25 M", "12,408", "386", "0.06", "261 bytes"]);
  const now = Date.parse("2026-11-18T18:00:00Z");
  expect([relative("2026-11-18T17:24:00Z", now), relative("2026-11-18T18:04:12Z", now), relative("2026-11-12T17:30:00Z", now)]).toEqual(["36 min ago", "in 4 min 12 s", "12 Nov 2026 17:30"]);
});

test("filters are read from words", () => {
  expect(parseFilter("queue:mail tag:tenant:acme error:smtp_421")).toEqual({ filters: { queue: "mail", tag: "tenant:acme", error_code: "smtp_421" } });
  expect(parseFilter("web.in", ["web.in"])).toEqual({ filters: { queue: "web.in" } });
  expect(parseFilter("email.send")).toEqual({ filters: { type: "email.send" } });
  expect(parseFilter("7F3A9C1E-52D0-4B8E-9A41-C06E2D94B7F5")).toEqual({ job: "7f3a9c1e-52d0-4b8e-9a41-c06e2d94b7f5" });
  expect([canOperate({ queue: "a", state: "failed" }), canOperate({ workflow: "x" }), canOperate({})]).toEqual([true, false, false]);
  expect([narrow("requeue", { queue: "a" })?.state, narrow("requeue", { state: "running" }), narrow("cancel", { state: "running,failed" })]).toEqual(["failed,dead_letter,cancelled", null, { state: "running" }]);
});

test("events arrive in any chunks", () => {
  const parser = new EventParser();
  const text = ": hello\r\nid: 7\nevent: job\ndata: {\"a\":1}\n\nevent: gap\ndata: {}\n\n";
  const found = [...text].flatMap((character) => parser.push(character));
  expect(found).toEqual([{ event: "job", id: "7", data: '{"a":1}' }, { event: "gap", id: "7", data: "{}" }]);
});

test("settings are edited by path", () => {
  const settings = { retry: { limit: 3, backoff: { base: "1s" } }, lease: "30s", max_queued: null };
  expect(flatten(settings)).toEqual([{ path: "retry.limit", text: "3" }, { path: "retry.backoff.base", text: "1s" }, { path: "lease", text: "30s" }, { path: "max_queued", text: "null" }]);
  expect(set(settings, "retry.backoff.base", "2s").retry).toEqual({ limit: 3, backoff: { base: "2s" } });
  expect(without(settings, "retry.backoff.base")).toEqual({ retry: { limit: 3 }, lease: "30s", max_queued: null });
  expect([read("5", 3), read("1m", "1s"), read("100", null), at(settings, "retry.limit")]).toEqual([5, "1m", 100, 3]);
});

const job = (over: Partial<Job>): Job => ({ id: "j", queue: "q", type: "t", state: "dead_letter", created_at: "2026-11-18T10:00:00.000Z", updated_at: "2026-11-18T10:00:00.000Z", completed_at: null, run_at: null, error: null, ...over }) as Job;

test("a change of a setting is one override; going back to the profile removes it", () => {
  const settings = { retry: { limit: 5, counts: "starts" }, lease: "1m", wait_target: null };
  expect(overridesAfter({ lease: "1m" }, settings, { "retry.limit": "7", wait_target: "30s" })).toEqual({ lease: "1m", retry: { limit: 7 }, wait_target: "30s" });
  expect(overridesAfter({ lease: "1m", retry: { limit: 5 } }, settings, { "retry.limit": null })).toEqual({ lease: "1m" });
  expect([isUnder("retry.limit", "retry"), isUnder("retry", "retry"), isUnder("retry_x", "retry")]).toEqual([true, true, false]);
});

test("what a token may do", () => {
  const self = (actions: string[], queues = ["*"]) => ({ id: "a", name: "a", actions, queues, expires_at: null });
  expect(callKind("POST", "v1/queues/mail/pause?x=1")).toBe("POST queues/*/pause");
  expect([callKind("POST", "/v1/jobs/bulk"), callKind("GET", "v1/dead-letters/groups"), callKind("POST", "v1/clock/advance")]).toEqual(["POST jobs/bulk", "GET dead-letters/groups", "POST clock/advance"]);
  expect([isAllowed(self(["read"]), "GET jobs"), isAllowed(self(["read"]), "POST queues/*/pause"), isAllowed(self(["admin"]), "GET queues")]).toEqual([true, false, true]);
  expect([isAllowed(self(["operate"], ["mail"]), "POST workers/*/quiet"), isAllowed(self(["operate"]), "POST workers/*/quiet")]).toEqual([false, true]);
});

test("rows that are held keep their place, with their newest values", () => {
  const row = (id: string, state = "scheduled") => ({ id, state });
  const held = holdRows([row("b"), row("a")], [row("c"), row("b", "running")]);
  expect(held).toEqual({ rows: [row("b", "running"), row("a")], waiting: 1 });
  expect([moveCursor(held.rows, null, 1), moveCursor(held.rows, "b", 1), moveCursor(held.rows, "a", 1), moveCursor(held.rows, "gone", -1), moveCursor([], null, 1)]).toEqual(["b", "a", "a", "b", null]);
});

test("an update that comes too soon waits", () => {
  expect([delayOf(1_000, 200), delayOf(1_000, 1_000), delayOf(0, 0)]).toEqual([800, 0, 0]);
});

const operation = (over: Partial<Operation>): Operation => ({ state: "done", changed: 3, undo: null, undo_until: "2026-11-18T10:05:00.000Z", rate: null, remaining: 0, ...over }) as Operation;

test("operations: undo and the time left", () => {
  const now = Date.parse("2026-11-18T10:00:00.000Z");
  expect([canUndo(operation({}), now), canUndo(operation({}), now + 400_000), canUndo(operation({ changed: 0 }), now), canUndo(operation({ undo_until: null }), now)]).toEqual([true, false, false, false]);
  expect([timeLeft({ rate: 200, remaining: 1_000 }), timeLeft({ rate: null, remaining: 5 })]).toEqual([5_000, null]);
});

const point = (at: string, over: Partial<Point>): Point => ({ at, submitted: 0, completed: 0, failed: 0, depth: 0, ready: 0, slots: 0, dead_letters: 0, wait: null, run: null, ...over });

test("series: counts become rates, an interval that has just begun has none", () => {
  const [hour] = RANGES.filter((range) => range.window === "1h");
  const points = [point("2026-11-18T10:00:00.000Z", { submitted: 60, completed: 30, failed: 10, depth: 4, wait: { p50: 0.1, p95: 1, p99: 2 } }), point("2026-11-18T10:00:30.000Z", { completed: 5 })];
  const read = { counts: {}, rates: { submitted: 0, claimed: 0, completed: 0, failed: 0 }, since_start: { submitted: 0, claimed: 0, completed: 0, failed: 0 } };
  const stats: Stats = { now: "2026-11-18T10:00:32.000Z", totals: { ...read, series: points }, queues: { mail: { ...read, series: points.slice(1) } }, series: { window: "1h", step: "30s", since: "2026-11-18T10:00:00.000Z", queues_left_off: 0 } };
  const series = readSeries(stats, hour!, null);
  expect([series.totals.submitted, series.totals.completed, series.totals.failedShare, series.totals.wait.p95]).toEqual([[2, null], [1, null], [25, 0], [1, null]]);
  expect(series.queues.mail?.depth).toEqual([null, 0]);
  expect([share(1, 3), share(0, 0), share(null, 1)]).toEqual([25, 0, null]);
  expect(trend([1, 1, ...Array<number>(8).fill(2), 3, 3])).toEqual({ before: 1, after: 3 });
  expect(trend([1, 2])).toBeNull();
});

test("a submission is the same as a request and as a command", () => {
  const form = { ...EMPTY, queue: "mail", type: "email.send", payload: '{"n":12345678901234567890}', priority: "high", when: "delay" as const, time: "10m", tags: "tenant=acme, seven", key: "k 1", hold: true, limit: "7", policy: '{"max_reclaims":null}' };
  expect(bodyOf(form)).toBe('{"type":"email.send","max_reclaims":null,"retry":{"limit":7},"priority":"high","delay":"10m","tags":{"tenant":"acme","seven":null},"idempotency_key":"k 1","hold":true,"payload":{"n":12345678901234567890}}');
  expect(parseTags("a=b=c, d")).toEqual({ a: "b=c", d: null });
  expect(policyDifference({ retry: { limit: 5, counts: "starts" }, lease: "30s", fencing: "x" }, { retry: { limit: 3, counts: "starts" }, lease: "30s", fencing: "y" })).toEqual({ retry: { limit: 5 } });
  expect(() => commandOf({ ...form, policy: "{" })).toThrow(SyntaxError);
});

const node = (ref: string, state: Member["state"], after: string[] = []): Member => ({ ref, id: ref, state, queue: "q", type: ref.split("-")[0]!, after, after_any: [] });

test("the failed path leads to the cause and to what it ended", () => {
  const members = [node("a", "completed"), node("b", "failed", ["a"]), node("c", "failed", ["b"]), node("d", "completed", ["a"])];
  expect(causes(members)).toEqual({ cause: new Set(["b"]), propagated: new Set(["c"]) });
  expect(failedPath(members)).toEqual(new Set(["a", "b", "c"]));
  expect(buildGraph(members, false).edges.map((edge) => [edge.from, edge.to, edge.kind])).toEqual([["a", "b", "fail"], ["b", "c", "propagated"], ["a", "d", "done"]]);
});

test("a thousand jobs fold into few nodes", () => {
  const members = [node("start", "completed"), ...Array.from({ length: 998 }, (_, index) => node(`part-${index}`, index < 500 ? "completed" : "running", ["start"])), node("end", "pending", Array.from({ length: 998 }, (_, index) => `part-${index}`))];
  const graph = buildGraph(members, true);
  expect(graph.nodes.map((item) => [item.label, item.members.length, item.state])).toEqual([["start", 1, "completed"], ["part", 998, "running"], ["end", 1, "pending"]]);
  expect(depths(members).get("end")).toBe(2);
});

test("the timeline has spans, runs and the plan", () => {
  const history: Transition[] = [{ from: null, to: "pending", at: "2026-11-18T10:00:00.000Z", cause: "create" }, { from: "pending", to: "scheduled", at: "2026-11-18T10:00:00.000Z", cause: "submit" }, { from: "scheduled", to: "running", at: "2026-11-18T10:00:05.000Z", cause: "claim" }, { from: "running", to: "retrying", at: "2026-11-18T10:00:10.000Z", cause: "fail" }];
  const attempts = [{ id: "x", number: 1, started_at: "2026-11-18T10:00:05.000Z", ended_at: "2026-11-18T10:00:10.000Z", outcome: "failed", error: { code: "boom" } }] as Attempt[];
  const now = Date.parse("2026-11-18T10:00:12.000Z");
  const line = buildTimeline(job({ state: "retrying", run_at: "2026-11-18T10:01:00.000Z" }), history, attempts, [], now, null, (entry) => entry.cause);
  expect(line.spans.map((span) => [span.state, span.isOpen])).toEqual([["scheduled", false], ["running", false], ["retrying", true]]);
  expect([line.runs[0]?.code, line.plan?.state, line.events.map((mark) => mark.text), lastRequeue(history)]).toEqual(["boom", "retrying", ["create"], null]);
  expect(gridTimes(0, 60_000, 6)).toEqual([0, 10_000, 20_000, 30_000, 40_000, 50_000, 60_000]);
});

test("histograms of Prometheus", () => {
  const text = '# HELP x\nlongshore_commit_seconds_bucket{le="0.001"} 50\nlongshore_commit_seconds_bucket{le="0.01"} 100\nlongshore_commit_seconds_bucket{le="+Inf"} 100\nlongshore_commit_seconds_sum 0.3\nlongshore_commit_seconds_count 100\n';
  const [found] = histograms(parseMetrics(text));
  expect([found?.count, quantile(found!, 0.5)]).toEqual([100, 0.001]);
  expect(quantile(found!, 1)).toBeCloseTo(0.01);
});

test("shell words are quoted", () => {
  expect([quote("email.send"), quote(`{"a":"it's"}`)]).toEqual(["email.send", `'{"a":"it'\\''s"}'`]);
});
