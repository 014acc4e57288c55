// Overview: key figures, charts, what needs attention, queues.

import { useMemo, useState } from "preact/hooks";
import { Count, Empty, Failure, Icon, Loading } from "../components/basic";
import { Chart, Legend } from "../components/chart";
import { BAD_SHARE, QueueTable } from "../components/queue-table";
import { call, mayOffer } from "../lib/api";
import { age, figuresError, info, now, queues, stats, workers } from "../lib/app";
import { useAttention, withoutWorker } from "../lib/attention";
import { axisDuration, bytes, count, duration, figure, parseDuration, relative, shortDuration } from "../lib/format";
import { refresh } from "../lib/live";
import type { Resource } from "../lib/resource";
import { link, route, setQuery } from "../lib/router";
import { HOUR, last, lately, rangeOf, RANGES, share, trend, useSeries, type Columns, type Range, type Series } from "../lib/series";
import type { AttentionItem, Counts, Json } from "../lib/types";
import { toast } from "../lib/ui";
import { errorText } from "../components/dialog";
import { COMMANDS, t } from "../strings";

const LIVE_WORKER_MS = 120_000;

/** How much a rate has changed over the range, in percent; `null` if that is not known. */
function change(column: (number | null)[], range: Range): preact.ComponentChildren {
  const found = trend(column);
  if (!found || found.before < 0.01) return null;
  const percent = Math.round((100 * (found.after - found.before)) / found.before);
  if (percent === 0) return t.overview.steady(range.name);
  return <><b>{percent > 0 ? "+" : "−"}{count(Math.abs(percent))} %</b> {t.overview.inRange(range.name)}</>;
}

/** By how much a level has changed over the range; `null` if that is not known. */
function growth(column: (number | null)[], range: Range, unit: string, isBad: boolean): preact.ComponentChildren {
  const found = trend(column);
  if (!found) return null;
  const grown = unit ? found.after - found.before : Math.round(found.after - found.before);
  if (Math.abs(grown) < 0.05) return t.overview.steady(range.name);
  return <><b class={isBad && grown > 0 ? "bad" : ""}>{grown > 0 ? "+" : "−"}{figure(Math.abs(grown))}{unit}</b> {t.overview.inRange(range.name)}</>;
}

interface FiguresProps { series: Series | null; range: Range; queue: string }

function Figures({ series, range, queue }: FiguresProps) {
  const read = queue ? stats.value!.queues[queue] : stats.value!.totals;
  const counts: Counts = read?.counts ?? {};
  const of = (name: "submitted" | "completed" | "failed") => lately(series, (columns) => columns[name]) ?? read?.rates[name] ?? 0;
  const rates = { submitted: of("submitted"), completed: of("completed"), failed: of("failed") };
  const failedShare = share(rates.failed, rates.completed) ?? 0;
  const notDue = (counts.pending ?? 0) + (counts.delayed ?? 0);
  const seen = (workers.value ?? []).filter((worker) => age(worker.last_seen_at) < LIVE_WORKER_MS && (!queue || worker.queues.includes(queue))).length;
  const p95 = series ? last(series.totals.wait.p95) : null;
  const target = targetOf(queue);
  const [waitValue, waitUnit] = p95 === null ? [t.time.none, ""] : split(axisDuration(p95 * 1000));
  return (
    <section class="card stats" aria-label={t.overview.key}>
      <div class="stat"><div class="k">{t.overview.completed}</div><div class="v">{figure(rates.completed)}<small>{t.overview.perSecond}</small></div><div class="d">{(series && change(series.totals.completed, range)) ?? t.overview.submitted(figure(rates.submitted))}</div></div>
      <div class="stat"><div class="k">{t.overview.failedAttempts}</div><div class={`v ${failedShare >= BAD_SHARE ? "bad" : ""}`}>{figure(failedShare)}<small>%</small></div><div class="d">{(series && growth(series.totals.failedShare, range, " %", failedShare >= BAD_SHARE)) ?? t.overview.lastMinute}</div></div>
      <div class="stat"><div class="k">{t.overview.waitP95}</div><div class={`v ${p95 !== null && target !== null && p95 * 1000 > target ? "bad" : ""}`}>{waitValue}<small>{waitUnit}</small></div><div class="d">{target !== null ? t.overview.target(shortDuration(target)) : p95 === null ? t.overview.noStart : `p50 ${duration((last(series!.totals.wait.p50) ?? 0) * 1000)}`}</div></div>
      <div class="stat"><div class="k">{t.overview.waiting}</div><div class="v"><Count value={counts.scheduled ?? 0} /></div><div class="d">{counts.retrying ? t.overview.inRetry(counts.retrying) : t.overview.inOthers(notDue)}</div></div>
      <div class="stat"><div class="k">{t.overview.running}</div><div class="v"><Count value={counts.running ?? 0} /></div><div class="d">{t.overview.workers(seen)}</div></div>
      <div class="stat"><div class="k">{t.overview.dead}</div><div class="v"><Count value={counts.dead_letter ?? 0} /></div><div class="d">{counts.dead_letter ? ((series && growth(series.totals.deadLetters, range, "", true)) ?? t.overview.kept) : t.overview.noDead}</div></div>
    </section>
  );
}

/** The wait target of a queue, or of the only queue that has one, in milliseconds. */
function targetOf(queue: string): number | null {
  const targets = (queues.value ?? []).filter((item) => item.settings.wait_target && (!queue || item.name === queue)).map((item) => parseDuration(item.settings.wait_target!));
  return targets.length === 1 ? targets[0]! : null;
}

function split(text: string): [string, string] {
  const [value = "", ...unit] = text.split(" ");
  return [value, unit.join(" ")];
}

const RAMP = ["q1", "q2", "q3", "q4"];

interface DepthLine { label: string; token: string; values: (number | null)[] }

/** The largest queues of a depth chart, and the sum of the others. */
function depthLines(series: Series): DepthLine[] {
  const top = (columns: Columns) => Math.max(0, ...columns.depth.map((value) => value ?? 0));
  const sorted = Object.entries(series.queues).sort((a, b) => top(b[1]) - top(a[1]));
  const shown = sorted.length > 4 ? sorted.slice(0, 3) : sorted;
  const lines: DepthLine[] = shown.map(([label, columns], index) => ({ label, token: RAMP[index]!, values: columns.depth }));
  const rest = sorted.slice(shown.length);
  if (rest.length) lines.push({ label: t.overview.nMore(rest.length), token: RAMP[3]!, values: series.at.map((_, index) => rest.reduce((sum, [, columns]) => sum + (columns.depth[index] ?? 0), 0)) });
  return lines.length ? lines : [{ label: t.overview.allQueues, token: RAMP[0]!, values: series.totals.depth }];
}

const axisCount = (value: number) => (value >= 1000 ? `${figure(value / 1000)}k` : Number.isInteger(value) ? String(value) : value.toFixed(1));

export function Charts({ series, queue }: { series: Series; queue: string }) {
  const { totals } = series;
  const of = queue || t.overview.allQueues;
  const target = targetOf(queue);
  const depth = useMemo(() => depthLines(series), [series]);
  const rates = useMemo(() => [
    { label: t.overview.completedL, token: "s-completed-fill", values: totals.completed, isArea: true, width: 2 },
    { label: t.overview.submittedL, token: "text-3", values: totals.submitted, dash: [3, 3] },
    { label: t.overview.failedL, token: "s-failed-fill", values: totals.failed },
  ], [series]);
  const shares = useMemo(() => [{ label: of, token: "s-failed-fill", values: totals.failedShare, isArea: true }], [series]);
  const waits = useMemo(() => [
    { label: "p50", token: "q3", values: totals.wait.p50 }, { label: "p95", token: "q1", values: totals.wait.p95, width: 2 }, { label: "p99", token: "q2", values: totals.wait.p99, dash: [5, 2] },
  ], [series]);
  const seconds = (value: number) => duration(value * 1000);
  const marks = series.deploys;
  const waitTarget = target === null ? {} : { target: { value: target / 1000, label: t.overview.target(shortDuration(target)) } };
  return (
    <div class="charts">
      <section class="card"><div class="chart-head"><h2>{t.overview.throughput}</h2><span class="unit">{t.overview.jobsPerSecond}</span><Legend items={rates.map((line) => ({ ...line, dash: !!line.dash, isArea: false }))} /></div>
        <Chart label={t.overview.throughput} at={series.at} lines={rates} format={(value) => `${figure(value)} /s`} axis={axisCount} floor={4} marks={marks} /></section>
      <section class="card"><div class="chart-head"><h2>{t.overview.wait}</h2><Legend items={waits.map((line) => ({ label: line.label, token: line.token, dash: !!line.dash }))} /></div>
        <Chart label={t.overview.wait} at={series.at} lines={waits} format={seconds} isSeconds axis={(value) => axisDuration(value * 1000)} floor={0.1} spans marks={marks} {...waitTarget} /></section>
      <section class="card"><div class="chart-head"><h2>{t.overview.depth}</h2><span class="unit">{t.overview.waitingUnit}</span><Legend items={depth.map((line) => ({ ...line, isArea: true }))} /></div>
        <Chart label={t.overview.depth} at={series.at} lines={depth} isStacked format={(value) => count(Math.round(value))} axis={axisCount} floor={4} marks={marks} /></section>
      <section class="card"><div class="chart-head"><h2>{t.overview.failedShare}</h2><span class="unit">{t.overview.shareUnit}</span><Legend items={[{ label: of, token: "s-failed-fill" }]} /></div>
        <Chart label={t.overview.failedShare} at={series.at} lines={shares} format={(value) => `${figure(value)} %`} axis={(value) => `${figure(value)} %`} floor={2} marks={marks} /></section>
    </div>
  );
}

const SEVERITY: Record<string, [string, string]> = { error: ["sev-1", "alert"], warning: ["sev-2", "alert"], info: ["sev-3", "info"] };

interface Words { title: preact.ComponentChildren; cause: string; act: string; href: string }

/** Words for an item: what it is, its cause from the server's facts, and the page of its next step. */
function words(item: AttentionItem): Words {
  const { queue, type, facts } = item;
  const text = (key: string): string => (typeof facts[key] === "string" ? facts[key] : "");
  const number = (key: string): number => (typeof facts[key] === "number" ? facts[key] : 0);
  const since = (key: string): string | null => (text(key) ? relative(text(key), now.value) : null);
  const jobsOf = (parameters: Record<string, string | null>) => link(["jobs"], { queue, type, ...parameters });
  const name = <code>{queue ?? ""}</code>;
  const a = t.attention;
  switch (item.code) {
    case "no_worker": return { title: <>{a.noWorker} <code>{type ?? queue}</code></>, cause: a.noWorkerCause(facts.ready as number | null, queue ?? "", isRecent(text("last_seen_at")) ? null : since("last_seen_at"), isRecent(text("last_seen_at"))), act: a.seeJobs, href: jobsOf({ state: "scheduled" }) };
    case "oldest_over_target": return { title: <>{name}{a.overTarget}</>, cause: a.overTargetCause(short(text("age")), short(text("wait_target")), number("ready")), act: a.seeJobs, href: jobsOf({ state: "scheduled" }) };
    case "dead_letters_growing": return { title: <>{a.deadGrow} {name}</>, cause: a.deadGrowCause(number("growth"), short(text("window")), number("count")), act: a.openGroups, href: link(["dead-letters"], { queue }) };
    case "paused_with_work": return { title: <>{name} {a.paused}</>, cause: a.pausedCause(number("waiting"), since("oldest_scheduled_at")), act: a.openQueue, href: link(["queues", queue ?? ""]) };
    case "schedule_missed": return { title: <>{a.schedule} <code>{text("schedule")}</code> {a.missed}</>, cause: text("detail") || a.missedCause(t.schedules.outcomes[text("outcome")] ?? text("outcome"), since("due_at")), act: a.openSchedule, href: link(["schedules", text("schedule")]) };
    case "disk_low": return { title: item.severity === "error" ? a.diskFull : a.diskLow, cause: text("refusing") || a.diskCause(bytes(number("free_bytes")), bytes(number("reserve_bytes"))), act: a.openSystem, href: link(["system"]) };
    case "node_behind": return { title: <>{a.node} <code>{text("node")}</code> {facts.is_ahead === true ? a.ahead(short(text("behind"))) : a.behind(short(text("behind")))}</>, cause: text("kind") === "clock" ? a.clockCause : a.commitsCause, act: a.openSystem, href: link(["system"]) };
    case "error_burst": return { title: <>{name}{a.burst(figure(100 * number("share")))}</>, cause: a.burstCause(number("failed"), short(text("window"))), act: a.seeJobs, href: jobsOf({ state: "failed,dead_letter,retrying" }) };
    case "webhook_failing": return { title: <>{a.webhook} <code>{text("webhook")}</code> {facts.disabled === true ? a.isDisabled : a.fails}</>, cause: text("last_error") || a.webhookCause(number("failed") + number("pending")), act: a.openWebhook, href: link(["webhooks", text("webhook")]) };
    default: return { title: <>{item.code.replaceAll("_", " ")} {queue ? name : null}</>, cause: unknownFacts(facts), act: a.other, href: queue ? link(["queues", queue]) : link(["system"]) };
  }
}

/** Whether an instant is less than a minute ago. */
const isRecent = (at: string): boolean => at !== "" && age(at) < 60_000;

/** The first letter of a label is large. */
const sentence = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1);

/** A duration of the API as the dashboard writes it. */
function short(text: string): string {
  const milliseconds = parseDuration(text);
  return milliseconds === null ? text : shortDuration(milliseconds);
}

/** Facts of a code that this page does not know yet. */
function unknownFacts(facts: Record<string, Json>): string {
  return Object.entries(facts).slice(0, 2).map(([key, value]) => `${key.replaceAll("_", " ")} ${typeof value === "number" ? count(value) : String(value)}`).join(", ");
}

function AttentionRow({ item }: { item: AttentionItem }) {
  const { title, cause, act, href } = words(item);
  const [tone, icon] = SEVERITY[item.severity] ?? SEVERITY.info!;
  const action = item.action;
  const may = action && mayOffer(action.method, action.path);
  const run = () => call(action!.method, action!.path, { body: action!.body ?? {} }).then(() => (toast(t.overview.acted(sentence(action!.label))), refresh()), (error: unknown) => toast(errorText(error), "error"));
  return (
    <li data-code={item.code}>
      <Icon name={icon} class={`sev ${tone}`} label={t.overview.severity[item.severity] ?? item.severity} />
      <span class="t">{title}</span>
      <span class="since num" title={item.since ?? undefined}>{item.since ? shortDuration(age(item.since)) : ""}</span>
      <p class="cause">{cause}</p>
      {may ? <button class="link act plain" type="button" onClick={run}>{sentence(action.label)}</button> : <a class="link act" href={href}>{act}</a>}
    </li>
  );
}

/** Rows that are as high as the charts beside them. */
const ROWS = 7;

function AttentionCard({ list }: { list: Resource<{ items: AttentionItem[] }> }) {
  const [isWhole, setWhole] = useState(false);
  const items = list.data?.items ?? [];
  const shown = items.length > ROWS ? ROWS - 1 : ROWS;
  const more = items.length - shown;
  return (
    <section class={`card attn ${isWhole ? "is-whole" : ""}`} aria-labelledby="attn">
      <div class="card-head"><h2 id="attn">{t.overview.attention}</h2>{items.length ? <span class="count">{items.length}</span> : null}</div>
      {list.data === null ? (list.error ? <Failure error={list.error} what={t.overview.attention} retry={list.reload} /> : <Loading />)
        : items.length ? <ol>{(isWhole ? items : items.slice(0, shown)).map((item, index) => <AttentionRow key={`${item.code}${item.queue}${item.type}${index}`} item={item} />)}</ol>
          : <div class="attn-none"><svg class="g g-lg s-completed" aria-hidden="true"><use href="#g-completed" /></svg><b>{t.overview.nothing}</b><p class="muted">{t.overview.checked}</p></div>}
      {more > 0 ? <div class="attn-foot"><button class="link plain" type="button" onClick={() => setWhole(!isWhole)}>{isWhole ? t.overview.fewer : t.overview.nMore(more)}</button></div> : null}
    </section>
  );
}

export function Overview() {
  const range = RANGES.find((item) => item.window === route.value.query.get("range")) ?? rangeOf(info.value, HOUR);
  const queue = route.value.query.get("queue") ?? "";
  const loaded = useSeries(range, queue || null);
  const series = loaded.data;
  const attention = useAttention();
  if (!stats.value) return <main class="page" id="content" tabIndex={-1}><div class="page-head"><h1>{t.overview.title}</h1></div><section class="card">{figuresError.value ? <Failure error={figuresError.value} what={t.overview.title} retry={refresh} /> : <Loading />}</section></main>;
  const rows = (queues.value ?? []).filter((item) => !queue || item.name === queue).sort((a, b) => (b.counts.scheduled ?? 0) - (a.counts.scheduled ?? 0)).slice(0, 8);
  return (
    <main class="page" id="content" tabIndex={-1}>
      <div class="page-head"><h1>{t.overview.title}</h1>
        <div class="right">
          <div class="seg" role="group" aria-label={t.overview.range}>{RANGES.map((item) => <button key={item.window} type="button" aria-pressed={item === range} onClick={() => setQuery({ range: item.window }, true)}>{item.name}</button>)}</div>
          <select class="input compact" aria-label={t.common.queue} value={queue} onChange={(event) => setQuery({ queue: event.currentTarget.value || null }, true)}><option value="">{t.dead.allQueues}</option>{(queues.value ?? []).map((item) => <option key={item.name}>{item.name}</option>)}</select>
        </div>
      </div>
      <Figures series={series} range={range} queue={queue} />
      <div class="over">
        {series ? <Charts series={series} queue={queue} /> : <section class="card charts-wait">{loaded.error ? <Failure error={loaded.error} what={t.overview.series} retry={loaded.reload} /> : <Loading />}</section>}
        <AttentionCard list={attention} />
      </div>
      <section class="card">
        <div class="card-head"><h2>{t.overview.queues}</h2><span class="count">{queues.value?.length ?? 0}</span><div class="right"><a class="link" href={link(["queues"])}>{t.overview.allOfQueues}</a></div></div>
        {rows.length ? <QueueTable queues={rows} series={series} range={range} unserved={withoutWorker(attention.data?.items ?? [])} /> : <Empty icon="queues" title={t.queues.empty} text={t.queues.emptyText} command={COMMANDS.submit} />}
      </section>
    </main>
  );
}
