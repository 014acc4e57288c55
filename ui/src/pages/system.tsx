// The server itself: store, durability, disk, clock, latencies of the store.

import { Empty, Failure, Loading } from "../components/basic";
import { send, url } from "../lib/api";
import { figuresError, info, stats } from "../lib/app";
import { bytes, count, duration, parseDuration } from "../lib/format";
import { refresh } from "../lib/live";
import { histograms, parseMetrics, quantile, type Histogram } from "../lib/metrics";
import { useResource } from "../lib/resource";
import { t } from "../strings";

function Rows({ rows }: { rows: [string, preact.ComponentChildren][] }) {
  return <dl class="kv">{rows.map(([name, value]) => <div class="kv-row" key={name}><dt>{name}</dt><dd>{value}</dd></div>)}</dl>;
}

/** What a histogram measures: words for those of the store, the name of the metric for others. */
function metricName({ name, labels }: Histogram): preact.ComponentChildren {
  const word = t.system.metrics_of[name.replace(/^longshore_/, "")];
  return word ? <><b class="qname">{word}</b> <span class="muted">{labels.replace(/^\w+ /, "")}</span></> : <><code>{name.replace(/^longshore_/, "")}</code> <span class="faint hide-sm">{labels}</span></>;
}

/** The clock of the server counts whole microseconds. */
function mean({ sum, count: amount }: Histogram): string {
  return sum > 0 ? duration((sum / amount) * 1000) : `< ${duration(0.001)}`;
}

/** Inside the smallest bucket, only its limit is known. */
function quantileText(item: Histogram, share: number): string {
  const least = Math.min(...item.buckets.map(([le]) => le));
  const value = quantile(item, share);
  return value < least ? `< ${duration(least * 1000)}` : duration(value * 1000);
}

function Latencies() {
  const text = useResource<string>("metrics", () => send("GET", "metrics").then((response) => response.text()), 4_000);
  if (!text.data) return text.error ? <Failure error={text.error} what={t.system.what} retry={text.reload} /> : <Loading />;
  const found = histograms(parseMetrics(text.data)).filter((item) => item.count > 0);
  if (!found.length) return <Empty icon="info" title={t.system.none} />;
  return (
    <div class="scroll-x"><table class="table dense">
      <thead><tr><th scope="col">{t.system.metric}</th><th scope="col" class="r">{t.system.count}</th><th scope="col" class="r hide-sm">{t.system.mean}</th><th scope="col" class="r">{t.system.p50}</th><th scope="col" class="r">{t.system.p99}</th></tr></thead>
      <tbody>{found.slice(0, 14).map((item) => <tr key={item.name + item.labels}><td class="metric-name">{metricName(item)}</td><td class="r">{count(item.count)}</td><td class="r hide-sm">{mean(item)}</td><td class="r">{quantileText(item, 0.5)}</td><td class="r">{quantileText(item, 0.99)}</td></tr>)}</tbody>
    </table></div>
  );
}

export function System() {
  const server = info.value;
  if (!server) return <main class="page" id="content" tabIndex={-1}><div class="page-head"><h1>{t.system.title}</h1></div><section class="card">{figuresError.value ? <Failure error={figuresError.value} what={t.system.title} retry={refresh} /> : <Loading />}</section></main>;
  const { store } = server;
  const since = stats.value?.totals.since_start;
  return (
    <main class="page" id="content" tabIndex={-1}>
      <div class="page-head"><h1>{t.system.title}</h1></div>
      <div class="grid-3">
        <section class="card"><div class="card-head"><h2>{t.system.server}</h2></div><Rows rows={[[t.system.version, server.version], [t.system.api, server.api], [t.system.uptime, duration(parseDuration(server.uptime) ?? 0)], [t.system.clock, server.virtual_clock ? t.system.virtual : t.system.real], [t.system.profile, server.default_profile], [t.system.auto, server.auto_queues ? t.system.autoYes : t.system.autoNo]]} /></section>
        <section class="card"><div class="card-head"><h2>{t.system.store}</h2></div><Rows rows={[[t.system.kind, store.kind], [t.system.accepts, store.writable ? <span class="good">{t.system.accepted}</span> : <span class="bad">{t.system.refused}: {store.refusing}</span>], [t.system.durability, store.durability], [t.system.free, store.free_bytes === null ? t.time.none : bytes(store.free_bytes)], [t.system.reserve, store.reserve_bytes === null ? t.time.none : bytes(store.reserve_bytes)]]} /></section>
        <section class="card"><div class="card-head"><h2>{t.system.since}</h2></div><Rows rows={since ? [[t.system.submitted, count(since.submitted)], [t.system.claimed, count(since.claimed)], [t.system.completed, count(since.completed)], [t.system.failed, count(since.failed)]] : []} /><div class="card-head"><h2>{t.system.links}</h2></div><p class="card-body link-list"><a class="link" href={url("openapi.json")}>{t.system.openapi}</a><a class="link" href={url("metrics")}>{t.system.metrics}</a></p></section>
      </div>
      <section class="card"><div class="card-head"><h2>{t.system.what}</h2><div class="right">{t.system.commitText}</div></div><Latencies /></section>
    </main>
  );
}
