// One type of jobs: how long it waits and runs, which errors it ends with, who takes it, new versions.

import { useMemo } from "preact/hooks";
import { Count, Empty, Failure, Icon, JobLink, Loading, Time } from "../components/basic";
import { Chart, Legend } from "../components/chart";
import { BAD_SHARE } from "../components/queue-table";
import { get, query, segment } from "../lib/api";
import { axisDuration, duration, figure, shortDuration } from "../lib/format";
import { useResource } from "../lib/resource";
import { link } from "../lib/router";
import { columns, deployMarks, share, type Quantiles, type Range } from "../lib/series";
import type { JobTypeDetail, Quantile } from "../lib/types";
import { t } from "../strings";
import { chosenRange, RangeButtons } from "./types";

function Figure({ name, value, unit, note, isBad }: { name: string; value: string; unit?: string; note: string; isBad?: boolean }) {
  return <div class="stat"><div class="k">{name}</div><div class={`v ${isBad ? "bad" : ""}`}>{value}{unit ? <small>{unit}</small> : null}</div><div class="d">{note}</div></div>;
}

/** A duration in seconds as a figure and its unit. */
function split(seconds: number | undefined): { value: string; unit: string } {
  if (seconds === undefined) return { value: t.time.none, unit: "" };
  const [value = "", ...unit] = shortDuration(seconds * 1000).split(" ");
  return { value, unit: unit.join(" ") };
}

function Figures({ detail, range }: { detail: JobTypeDetail; range: Range }) {
  const { stats } = detail;
  const failed = share(stats.failed, stats.completed) ?? 0;
  const p50 = (quantile: Quantile | null) => (quantile ? `p50 ${duration(quantile.p50 * 1000)}` : t.overview.noStart);
  return (
    <section class="card stats stats-5" aria-label={t.overview.key}>
      <div class="stat"><div class="k">{t.types.completed}</div><div class="v"><Count value={stats.completed} /></div><div class="d">{t.types.inWindow(range.name)}</div></div>
      <Figure name={t.types.failed} value={figure(failed)} unit="%" isBad={failed >= BAD_SHARE} note={t.plural(stats.failed, "attempt")} />
      <Figure name={t.types.waitP95} {...split(stats.wait?.p95)} note={p50(stats.wait)} />
      <Figure name={t.types.runP95} {...split(stats.run?.p95)} note={p50(stats.run)} />
      <Figure name={t.types.workers} value={String(detail.workers.length)} note={stats.queues.join(", ") || t.time.none} />
    </section>
  );
}

const quantileLines = (values: Quantiles) => [
  { label: "p50", token: "q3", values: values.p50 }, { label: "p95", token: "q1", values: values.p95, width: 2 }, { label: "p99", token: "q2", values: values.p99, dash: [5, 2] },
];

function Charts({ detail, range }: { detail: JobTypeDetail; range: Range }) {
  const at = useMemo(() => detail.series.map((point) => Date.parse(point.at)), [detail]);
  const series = useMemo(() => columns(detail.series, at, range.seconds, Date.parse(detail.now)), [detail]);
  const marks = useMemo(() => deployMarks(detail.deploys), [detail]);
  const rates = useMemo(() => [
    { label: t.overview.completedL, token: "s-completed-fill", values: series.completed, isArea: true, width: 2 }, { label: t.overview.submittedL, token: "text-3", values: series.submitted, dash: [3, 3] }, { label: t.overview.failedL, token: "s-failed-fill", values: series.failed },
  ], [series]);
  const shares = useMemo(() => [{ label: t.overview.failedShare, token: "s-failed-fill", values: series.failedShare, isArea: true }], [series]);
  const [waits, runs] = useMemo(() => [quantileLines(series.wait), quantileLines(series.run)], [series]);
  const seconds = (value: number) => duration(value * 1000);
  const legend = (lines: { label: string; token: string; dash?: number[] }[]) => <Legend items={lines.map(({ label, token, dash }) => ({ label, token, dash: !!dash }))} />;
  return (
    <div class="charts">
      <section class="card"><div class="chart-head"><h2>{t.types.wait}</h2>{legend(waits)}</div><Chart label={t.types.wait} at={at} lines={waits} format={seconds} isSeconds axis={(value) => axisDuration(value * 1000)} floor={0.1} spans marks={marks} /></section>
      <section class="card"><div class="chart-head"><h2>{t.types.run}</h2>{legend(runs)}</div><Chart label={t.types.run} at={at} lines={runs} format={seconds} isSeconds axis={(value) => axisDuration(value * 1000)} floor={0.1} spans marks={marks} /></section>
      <section class="card"><div class="chart-head"><h2>{t.overview.throughput}</h2><span class="unit">{t.overview.jobsPerSecond}</span>{legend(rates)}</div><Chart label={t.overview.throughput} at={at} lines={rates} format={(value) => `${figure(value)} /s`} axis={(value) => figure(value)} floor={1} marks={marks} /></section>
      <section class="card"><div class="chart-head"><h2>{t.overview.failedShare}</h2><span class="unit">{t.overview.shareUnit}</span></div><Chart label={t.overview.failedShare} at={at} lines={shares} format={(value) => `${figure(value)} %`} axis={(value) => `${figure(value)} %`} floor={2} marks={marks} /></section>
    </div>
  );
}

function Errors({ detail }: { detail: JobTypeDetail }) {
  return (
    <section class="card">
      <div class="card-head"><h2>{t.types.errors}</h2><span class="faint">{t.types.errorsOf(detail.errors_of)}</span></div>
      {detail.errors.length ? (
        <ol class="mix">{detail.errors.map(({ error, count, example }) => (
          <li key={error.code}>
            <div class="mix-head"><a class="link mono" href={link(["jobs"], { type: detail.stats.type, error_code: error.code, state: "retrying,failed,dead_letter" })}>{error.code ?? t.dead.noCode}</a><span class="num">{figure((100 * count) / detail.errors_of)} %</span></div>
            <svg class="mix-bar" viewBox="0 0 100 4" preserveAspectRatio="none" aria-hidden="true"><rect class="bg" width="100" height="4" /><rect class="fg" width={(100 * count) / detail.errors_of} height="4" /></svg>
            <p class="faint trunc" title={error.message}>{error.message}</p>
            <p class="faint">{t.jobs(count)}, {t.types.example} <JobLink id={example} /> <Time at={error.at} /></p>
          </li>
        ))}</ol>
      ) : <p class="card-body muted">{t.types.noErrors}</p>}
    </section>
  );
}

function Side({ detail }: { detail: JobTypeDetail }) {
  return (
    <>
      <section class="card">
        <div class="card-head"><h2>{t.types.workers}</h2>{detail.workers.length ? <span class="count">{detail.workers.length}</span> : null}</div>
        {detail.workers.length ? (
          <table class="table dense"><thead><tr><th scope="col">{t.workers.name}</th><th scope="col">{t.types.version}</th><th scope="col" class="r">{t.workers.running}</th><th scope="col" class="r">{t.types.seen}</th></tr></thead>
            <tbody>{detail.workers.slice(0, 12).map((worker) => <tr key={worker.name}><td class="fill trunc"><a class="link mono" href={link(["workers"], { worker: worker.name })}>{worker.name}</a></td><td><code>{worker.version ?? t.time.none}</code></td><td class="r"><Count value={worker.running} /></td><td class="r muted"><Time at={worker.last_seen_at} /></td></tr>)}</tbody></table>
        ) : <p class="card-body muted">{t.types.noWorkers}</p>}
      </section>
      <section class="card">
        <div class="card-head"><h2>{t.types.deploys}</h2></div>
        {detail.deploys.length ? <dl class="kv">{[...detail.deploys].reverse().slice(0, 8).map((deploy) => <div class="kv-row" key={deploy.at + deploy.queue}><dt><Time at={deploy.at} /></dt><dd><b>{deploy.version}</b> {t.overview.inQueue(deploy.queue)}, <span class="faint">{t.types.first} <code>{deploy.worker}</code></span></dd></div>)}</dl> : <p class="card-body muted">{t.types.noDeploy}</p>}
      </section>
    </>
  );
}

export function TypePage({ id }: { id: string }) {
  const range = chosenRange();
  const resource = useResource<JobTypeDetail>(`${id} ${range.window}`, () => get(`v1/types/${segment(id)}${query({ window: range.window, step: range.step })}`), 2_500);
  const detail = resource.data;
  return (
    <main class="page" id="content" tabIndex={-1}>
      <div class="job-head">
        <nav class="crumbs" aria-label={t.types.title}><a href={link(["types"])}>{t.nav.types}</a><Icon name="right" /><span class="trunc">{id}</span></nav>
        <div class="job-title"><h1 class="wrap">{id}</h1><div class="right"><RangeButtons chosen={range} /><a class="btn" href={link(["jobs"], { type: id })}>{t.types.list}</a></div></div>
      </div>
      {!detail ? <section class="card">{resource.error ? (resource.error.status === 400 ? <Empty icon="types" title={t.types.empty} /> : <Failure error={resource.error} what={t.types.what} retry={resource.reload} />) : <Loading />}</section> : (
        <>
          <Figures detail={detail} range={range} />
          <Charts detail={detail} range={range} />
          <div class="cols"><Errors detail={detail} /><div class="stackcol"><Side detail={detail} /></div></div>
        </>
      )}
    </main>
  );
}
