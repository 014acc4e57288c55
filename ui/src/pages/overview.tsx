// Overview: key figures, charts, what needs attention, queues.

import { useMemo, useState } from "preact/hooks";
import { Icon, Loading, Time, Count, Failure, Empty } from "../components/basic";
import { Chart, Legend } from "../components/chart";
import { QueueTable } from "../components/queue-table";
import { call, mayOffer } from "../lib/api";
import { age, figuresError, info, now, queues, stats, workers } from "../lib/app";
import { loadAttention, type Attention } from "../lib/attention";
import { count, duration, figure, relative, shortDuration } from "../lib/format";
import { refresh } from "../lib/live";
import { useResource } from "../lib/resource";
import { link } from "../lib/router";
import { loadSeries, pageSeries, sampleCount, share, type Series } from "../lib/series";
import type { AttentionItem, Counts } from "../lib/types";
import { toast } from "../lib/ui";
import { errorText } from "../components/dialog";
import { COMMANDS, t } from "../strings";

const RANGES: [string, string, string][] = [["15 min", "15m", "10s"], ["1 h", "1h", "30s"], ["6 h", "6h", "3m"], ["24 h", "24h", "10m"]];
const LIVE_WORKER_MS = 120_000;

function Figures({ series }: { series: Series }) {
  const read = stats.value!;
  const counts: Counts = read.totals.counts;
  const failedShare = share(read.totals.rates.failed, read.totals.rates.completed) ?? 0;
  const notDue = (counts.pending ?? 0) + (counts.delayed ?? 0);
  const oldest = (queues.value ?? []).filter((queue) => queue.oldest_scheduled_at).sort((a, b) => a.oldest_scheduled_at!.localeCompare(b.oldest_scheduled_at!))[0];
  const seen = (workers.value ?? []).filter((worker) => age(worker.last_seen_at) < LIVE_WORKER_MS).length;
  const p95 = series.wait?.p95.filter((value): value is number => value !== null).at(-1);
  const target = oldest?.settings.wait_target;
  const [oldestValue, oldestUnit] = oldest ? split(shortDuration(age(oldest.oldest_scheduled_at!))) : ["0", "s"];
  return (
    <section class="card stats" aria-label={t.overview.key}>
      <div class="stat"><div class="k">{t.overview.completed}</div><div class="v">{figure(read.totals.rates.completed)}<small>{t.overview.perSecond}</small></div><div class="d">{t.overview.submitted(figure(read.totals.rates.submitted))}</div></div>
      <div class="stat"><div class="k">{t.overview.failedAttempts}</div><div class={`v ${failedShare >= 5 ? "bad" : ""}`}>{figure(failedShare)}<small>%</small></div><div class="d">{t.overview.lastMinute}</div></div>
      {p95 !== undefined
        ? <div class="stat"><div class="k">{t.overview.waitP95}</div><div class="v">{split(duration(p95 * 1000))[0]}<small>{split(duration(p95 * 1000))[1]}</small></div><div class="d">{t.overview.lastMinute}</div></div>
        : <div class="stat"><div class="k">{t.overview.oldest}</div><div class="v">{oldestValue}<small>{oldestUnit}</small></div><div class="d">{oldest ? t.overview.inQueue(oldest.name) : t.overview.noneWaits}{target ? `, ${t.queues.target} ${target}` : ""}</div></div>}
      <div class="stat"><div class="k">{t.overview.waiting}</div><div class="v"><Count value={counts.scheduled ?? 0} /></div><div class="d">{counts.retrying ? t.overview.inRetry(counts.retrying) : t.overview.inOthers(notDue)}</div></div>
      <div class="stat"><div class="k">{t.overview.running}</div><div class="v"><Count value={counts.running ?? 0} /></div><div class="d">{t.overview.workers(seen)}</div></div>
      <div class="stat"><div class="k">{t.overview.dead}</div><div class="v"><Count value={counts.dead_letter ?? 0} /></div><div class="d">{counts.dead_letter ? t.overview.kept : t.overview.noDead}</div></div>
    </section>
  );
}

function split(text: string): [string, string] {
  const [value = "", ...unit] = text.split(" ");
  return [value, unit.join(" ")];
}

const RAMP = ["q1", "q2", "q3", "q4"];

/** The largest queues of a depth chart, and the sum of the others. */
function depthLines(series: Series): { label: string; token: string; values: (number | null)[] }[] {
  const last = (values: (number | null)[]) => Math.max(0, ...values.map((value) => value ?? 0));
  const sorted = Object.entries(series.depth).sort((a, b) => last(b[1]) - last(a[1]));
  const top = sorted.length > 4 ? sorted.slice(0, 3) : sorted;
  const lines = top.map(([label, values], index) => ({ label: label || t.overview.allQueues, token: RAMP[index]!, values }));
  const rest = sorted.slice(top.length);
  if (rest.length) lines.push({ label: t.overview.nMore(rest.length), token: RAMP[3]!, values: series.at.map((_, index) => rest.reduce((sum, [, values]) => sum + (values[index] ?? 0), 0)) });
  return lines;
}

const axisCount = (value: number) => (value >= 1000 ? `${figure(value / 1000)}k` : Number.isInteger(value) ? String(value) : value.toFixed(1));

function Charts({ series }: { series: Series }) {
  const depth = useMemo(() => depthLines(series), [series]);
  const rates = useMemo(() => [
    { label: t.overview.completedL, token: "s-completed-fill", values: series.completed, isArea: true, width: 2 },
    { label: t.overview.submittedL, token: "text-3", values: series.submitted, dash: [3, 3] },
    { label: t.overview.failedL, token: "s-failed-fill", values: series.failed },
  ], [series]);
  const shares = useMemo(() => [{ label: t.overview.allQueues, token: "s-failed-fill", values: series.failedShare, isArea: true }], [series]);
  const waits = useMemo(() => series.wait
    ? [{ label: "p50", token: "q3", values: series.wait.p50 }, { label: "p95", token: "q1", values: series.wait.p95, width: 2 }, { label: "p99", token: "q2", values: series.wait.p99, dash: [5, 2] }]
    : [{ label: t.overview.oldestL, token: "q1", values: series.oldest, width: 2, isArea: true }], [series]);
  const seconds = (value: number) => duration(value * 1000);
  return (
    <div class="charts">
      <section class="card"><div class="chart-head"><h2>{t.overview.throughput}</h2><span class="unit">{t.overview.jobsPerSecond}</span><Legend items={rates.map((line) => ({ ...line, dash: !!line.dash, isArea: false }))} /></div>
        <Chart label={t.overview.throughput} at={series.at} lines={rates} format={(value) => `${figure(value)} /s`} axis={axisCount} floor={4} /></section>
      <section class="card"><div class="chart-head"><h2>{series.wait ? t.overview.wait : t.overview.oldestChart}</h2><span class="unit">{series.wait ? "" : t.overview.oldestUnit}</span><Legend items={waits.map((line) => ({ label: line.label, token: line.token }))} /></div>
        <Chart label={series.wait ? t.overview.wait : t.overview.oldestChart} at={series.at} lines={waits} format={seconds} axis={(value) => shortDuration(value * 1000)} floor={2} /></section>
      <section class="card"><div class="chart-head"><h2>{t.overview.depth}</h2><span class="unit">{t.overview.waitingUnit}</span><Legend items={depth.map((line) => ({ ...line, isArea: true }))} /></div>
        <Chart label={t.overview.depth} at={series.at} lines={depth} isStacked format={(value) => count(Math.round(value))} axis={axisCount} floor={4} /></section>
      <section class="card"><div class="chart-head"><h2>{t.overview.failedShare}</h2><span class="unit">{t.overview.shareUnit}</span><Legend items={[{ label: t.overview.allQueues, token: "s-failed-fill" }]} /></div>
        <Chart label={t.overview.failedShare} at={series.at} lines={shares} format={(value) => `${figure(value)} %`} axis={(value) => `${figure(value)} %`} floor={2} /></section>
    </div>
  );
}

const SEVERITY: Record<string, [string, string]> = { error: ["sev-1", "alert"], warning: ["sev-2", "alert"], info: ["sev-3", "info"] };

/** Words for an item: title, cause, and the link of its next step. */
function words(item: AttentionItem): { title: preact.ComponentChildren; cause: string; act: string; href: string } {
  const queue = item.queue ?? "";
  const facts = item.facts;
  const jobsOf = (state: string) => link(["jobs"], { queue, state, type: item.type ?? null });
  const text = typeof facts.detail === "string" ? facts.detail : typeof facts.cause === "string" ? facts.cause : "";
  const number = (key: string) => (typeof facts[key] === "number" ? (facts[key] as number) : 0);
  switch (item.code) {
    case "no_worker": {
      const last = typeof facts.last_seen_at === "string" ? relative(facts.last_seen_at, now.value) : null;
      return { title: <>{t.attention.no_worker.title} <code>{item.type ?? queue}</code></>, cause: text || t.attention.no_worker.cause(queue, last), act: t.attention.no_worker.act, href: jobsOf("scheduled") };
    }
    case "paused_with_work":
      return { title: <><code>{queue}</code> {t.attention.paused_with_work.title}</>, cause: text || t.attention.paused_with_work.cause(number("waiting")), act: t.attention.paused_with_work.act, href: link(["queues", queue]) };
    case "dead_letters":
      return { title: <><code>{queue}</code> {t.attention.dead_letters.title}</>, cause: t.attention.dead_letters.cause(number("count")), act: t.attention.dead_letters.act, href: link(["dead-letters"], { queue }) };
    case "store_refuses":
      return { title: t.attention.store_refuses.title, cause: text, act: t.attention.store_refuses.act, href: link(["system"]) };
    case "schedule_missed": {
      const name = String(facts.schedule ?? facts.name ?? "");
      return { title: <>{t.attention.schedule_missed.title} <code>{name}</code></>, cause: text, act: t.attention.schedule_missed.act, href: link(name ? ["schedules", name] : ["schedules"]) };
    }
    case "webhook_failing": {
      const name = String(facts.webhook ?? facts.name ?? "");
      return { title: <>{t.attention.webhook_failing.title} <code>{name}</code></>, cause: text, act: t.attention.webhook_failing.act, href: link(name ? ["webhooks", name] : ["webhooks"]) };
    }
    default: {
      const known = (t.attention as unknown as Record<string, { title: string; act: string } | undefined>)[item.code];
      const target = item.code.startsWith("dead") ? link(["dead-letters"], { queue }) : item.code === "disk_low" || item.code === "node_behind" ? link(["system"]) : queue ? link(["queues", queue]) : link(["system"]);
      const shown = text || Object.entries(facts).slice(0, 2).map(([key, value]) => `${key.replaceAll("_", " ")} ${typeof value === "number" ? count(value) : String(value)}`).join(", ");
      return { title: <>{queue ? <code>{queue}</code> : null} {known?.title ?? item.code.replaceAll("_", " ")}</>, cause: shown, act: known?.act ?? t.attention.other, href: target };
    }
  }
}

function AttentionRow({ item }: { item: AttentionItem }) {
  const { title, cause, act, href } = words(item);
  const [tone, icon] = SEVERITY[item.severity] ?? SEVERITY.info!;
  const action = item.action;
  const may = action && mayOffer(action.method, action.path);
  const run = () => call(action!.method, action!.path, { body: action!.body ?? {} }).then(refresh, (error: unknown) => toast(errorText(error), "error"));
  return (
    <li>
      <Icon name={icon} class={`sev ${tone}`} label={t.overview.severity[item.severity] ?? item.severity} />
      <span class="t">{title}</span>
      <span class="since num" title={item.since ?? undefined}>{item.since ? shortDuration(age(item.since)) : ""}</span>
      <p class="cause">{cause}</p>
      {may ? <button class="link act plain" type="button" onClick={run}>{act}</button> : <a class="link act" href={href}>{act}</a>}
    </li>
  );
}

function AttentionCard() {
  const list = useResource<Attention>(queues.value ? "attention" : null, () => loadAttention(queues.value ?? [], info.value), 1_500);
  const items = list.data?.items ?? [];
  return (
    <section class="card attn" aria-labelledby="attn">
      <div class="card-head"><h2 id="attn">{t.overview.attention}</h2>{items.length ? <span class="count">{items.length}</span> : null}</div>
      {list.data === null ? (list.error ? <Failure error={list.error} what={t.overview.attention} retry={list.reload} /> : <Loading />)
        : items.length ? <ol>{items.slice(0, 8).map((item, index) => <AttentionRow key={`${item.code}${item.queue}${item.type}${index}`} item={item} />)}</ol>
          : <div class="attn-none"><svg class="g g-lg s-completed" aria-hidden="true"><use href="#g-completed" /></svg><b>{t.overview.nothing}</b><p class="muted">{list.data.source === "server" ? t.overview.checkedServer : t.overview.checked}</p></div>}
      {list.data?.source === "page" && items.length ? <div class="attn-foot">{t.overview.pageSource}</div> : null}
    </section>
  );
}

export function Overview() {
  const [range, setRange] = useState(1);
  const [, window, step] = RANGES[range]!;
  const fromServer = useResource<Series | null>(`series ${window}`, () => loadSeries(window, step, null), 5_000);
  const own = useMemo(() => (fromServer.data ? null : pageSeries()), [sampleCount.value, fromServer.data]);
  const series = fromServer.data ?? own;
  if (!stats.value || !series) return <main class="page" id="content" tabIndex={-1}><div class="page-head"><h1>{t.overview.title}</h1></div><section class="card">{figuresError.value ? <Failure error={figuresError.value} what={t.overview.title} retry={refresh} /> : <Loading />}</section></main>;
  const rows = [...(queues.value ?? [])].sort((a, b) => (b.counts.scheduled ?? 0) - (a.counts.scheduled ?? 0)).slice(0, 8);
  return (
    <main class="page" id="content" tabIndex={-1}>
      <div class="page-head"><h1>{t.overview.title}</h1>
        <div class="right">
          {series.source === "server"
            ? <div class="seg" role="group" aria-label={t.overview.range}>{RANGES.map(([name], index) => <button key={name} type="button" aria-pressed={index === range} onClick={() => setRange(index)}>{name}</button>)}</div>
            : <span class="faint source" title={t.overview.sinceOpenText}>{t.overview.sinceOpen}{series.at[0] ? <>, <Time at={new Date(series.at[0]).toISOString()} mode="clock" /></> : null}</span>}
        </div>
      </div>
      <Figures series={series} />
      <div class="over">
        <Charts series={series} />
        <AttentionCard />
      </div>
      <section class="card">
        <div class="card-head"><h2>{t.overview.queues}</h2><span class="count">{queues.value?.length ?? 0}</span><div class="right"><a class="link" href={link(["queues"])}>{t.overview.allOfQueues}</a></div></div>
        {rows.length ? <QueueTable queues={rows} /> : <Empty icon="queues" title={t.queues.empty} text={t.queues.emptyText} command={COMMANDS.submit} />}
      </section>
    </main>
  );
}
