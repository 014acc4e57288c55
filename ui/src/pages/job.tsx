// One job: what it is, its timeline, why it waits, what it carries.

import { useState } from "preact/hooks";
import { CopyButton, Empty, Failure, Icon, JobLink, Loading, Pill, QueueLink, StateWord, Tags, Time } from "../components/basic";
import { JobActions } from "../components/job-actions";
import { Lanes } from "../components/lanes";
import { BinaryView, JsonView } from "../components/viewer";
import { WhyCard } from "../components/why";
import { ApiError, get, mayOffer, query, segment, self, send } from "../lib/api";
import { now } from "../lib/app";
import { compact, member, parseExact } from "../lib/exact-json";
import { clock, duration, parseDuration } from "../lib/format";
import { useResource } from "../lib/resource";
import { link } from "../lib/router";
import { attemptName, buildTimeline, lastRequeue, outcomeState } from "../lib/timeline";
import type { Attempt, AuditEntry, Delivery, Job, Transition, Why, Workflow } from "../lib/types";
import { t } from "../strings";

type Carried = "result" | "progress" | "checkpoint";
interface Loaded { job: Job; raw: Record<Carried, string | null>; attempts: Attempt[]; history: Transition[]; why: Why | null; deliveries: Delivery[] }

/** Values of the record as the server wrote them, without rounding. */
function rawValues(text: string): Record<Carried, string | null> {
  const record = parseExact(text);
  const of = (key: Carried) => {
    const node = member(record, key);
    return node === null || (node.kind === "literal" && node.raw === "null") ? null : compact(node);
  };
  return { result: of("result"), progress: of("progress"), checkpoint: of("checkpoint") };
}

async function optional<T>(read: Promise<T>, otherwise: T): Promise<T> {
  try {
    return await read;
  } catch (error) {
    if (error instanceof ApiError && error.status >= 400 && error.status < 500 && error.status !== 401) return otherwise;
    throw error;
  }
}

async function load(id: string): Promise<Loaded> {
  const path = `v1/jobs/${segment(id)}`;
  const [text, attempts, history, why] = await Promise.all([
    send("GET", path).then((response) => response.text()), get<{ attempts: Attempt[] }>(`${path}/attempts`), get<{ history: Transition[] }>(`${path}/history`), optional(get<Why | null>(`${path}/why`), null),
  ]);
  const job = JSON.parse(text) as Job;
  const deliveries = job.completed_at || job.callback_url ? (await optional(get<{ deliveries: Delivery[] }>(`${path}/deliveries`), { deliveries: [] })).deliveries : [];
  return { job, raw: rawValues(text), attempts: attempts.attempts, history: history.history, why, deliveries };
}

/** How many attempts the policy allows, or `null`. */
function limitOf(job: Job): number | null {
  const limit = job.policy.retry?.limit;
  return limit === undefined ? null : job.policy.retry?.counts === "retries" ? limit + 1 : limit;
}

function Facts({ job }: { job: Job }) {
  const of = limitOf(job);
  const flow = useResource<Workflow>(job.workflow, () => get<Workflow>(`v1/workflows/${segment(job.workflow!)}${query({ limit: 1 })}`), null);
  const first: [string, string | null] = job.state === "retrying" ? [t.job.nextAttempt, job.run_at] : job.state === "running" ? [t.job.started, job.started_at] : job.completed_at ? [t.job.ended, job.completed_at] : job.run_at ? [t.job.dueAt, job.run_at] : [t.job.readySince, job.scheduled_at];
  return (
    <section class="card">
      <dl class="facts">
        <div><dt>{first[0]}</dt><dd><Time at={first[1]} /></dd></div>
        <div><dt>{t.job.attempt}</dt><dd>{of ? t.job.of(job.attempt, of) : job.attempt}{job.cancel_requested ? <small> {t.job.cancelRequested}</small> : null}</dd></div>
        <div><dt>{t.job.queue}</dt><dd><QueueLink name={job.queue} /></dd></div>
        <div><dt>{t.job.priority}</dt><dd>{job.priority}{job.effective_priority !== job.priority ? <small> {t.job.effective(job.effective_priority)}</small> : null}</dd></div>
        <div><dt>{t.job.created}</dt><dd><Time at={job.created_at} /></dd></div>
        {job.workflow ? <div><dt>{t.job.workflow}</dt><dd><a class="link" href={link(["workflows", job.workflow])}>{flow.data?.name ?? job.workflow.slice(0, 8)}</a></dd></div> : null}
        <div><dt>{t.job.tags}</dt><dd><Tags tags={job.tags} /></dd></div>
      </dl>
    </section>
  );
}

/** Who caused a transition, by its time. */
type Actors = ReadonlyMap<string, string>;
const UNKNOWN: Actors = new Map();
const NONE: Transition[] = [];

/** Causes that are calls of operators, with the end of the call's path. */
const CALLS: Record<string, string> = { requeue: "/requeue", cancel: "/cancel", dead_letter: "/dead-letter", run_now: "/run-now" };
const ACTORS_MAX = 8;
const AUDIT_LAG_MS = 2_000;

/** Who caused the transitions of a job, from the audit log where the token may read it. */
function useActors(id: string, history: Transition[]): Actors {
  const calls = history.filter((entry) => CALLS[entry.cause]).slice(-ACTORS_MAX);
  const key = calls.length && self.value && mayOffer("GET", "v1/audit") ? `actors ${id} ${calls.map((entry) => entry.at).join(" ")}` : null;
  const found = useResource<Actors>(key, async () => {
    const actors = new Map<string, string>();
    await Promise.all(calls.map(async (entry) => {
      const before = new Date(Date.parse(entry.at) + AUDIT_LAG_MS).toISOString();
      const { entries } = await get<{ entries: AuditEntry[] }>(`v1/audit${query({ before, limit: 50 })}`);
      const call = entries.findLast((other) => other.at >= entry.at && other.target?.includes(id) && other.target.endsWith(CALLS[entry.cause]!) && other.outcome === "ok");
      if (call) actors.set(entry.at, call.name ?? t.job.local);
    }));
    return actors;
  }, null);
  return found.data ?? UNKNOWN;
}

function TimelineCard({ data, actors }: { data: Loaded; actors: Actors }) {
  const requeued = lastRequeue(data.history);
  const [isSince, setSince] = useState(false);
  const word = (entry: Transition) => {
    const cause = t.job.cause[entry.cause] ?? entry.cause;
    const actor = actors.get(entry.at);
    return actor ? t.job.by(cause, actor) : cause;
  };
  const line = buildTimeline(data.job, data.history, data.attempts, data.deliveries, now.value, isSince ? requeued : null, word);
  return (
    <section class="card" aria-labelledby="timeline">
      <div class="card-head"><h2 id="timeline">{t.job.timeline}</h2><span class="faint num hide-sm">{clock(line.from)} – {clock(line.to)}</span>
        <div class="right"><span class="hide-sm">{t.time.utc}</span>{requeued !== null ? <div class="seg" role="group" aria-label={t.job.timeline}><button type="button" aria-pressed={!isSince} onClick={() => setSince(false)}>{t.job.all}</button><button type="button" aria-pressed={isSince} onClick={() => setSince(true)}>{t.job.sinceRequeue}</button></div> : null}</div>
      </div>
      <Lanes line={line} />
    </section>
  );
}

function AttemptsCard({ attempts, limit }: { attempts: Attempt[]; limit: number | null }) {
  return (
    <section class="card">
      <div class="card-head"><h2>{t.job.attempts}</h2>{attempts.length ? <span class="count">{attempts.length}</span> : null}</div>
      {attempts.length ? (
        <div class="scroll-x"><table class="table dense attempts-table">
          <thead><tr><th scope="col">{t.job.attempt}</th><th scope="col">{t.job.outcome}</th><th scope="col" class="hide-sm">{t.job.worker}</th><th scope="col" class="r hide-sm">{t.job.ran}</th><th scope="col">{t.job.error}</th><th scope="col" class="r hide-sm">{t.job.then}</th><th scope="col" class="r">{t.job.endedAt}</th></tr></thead>
          <tbody>{attempts.map((attempt, index) => ({ attempt, index })).reverse().map(({ attempt, index }) => (
            <tr key={attempt.id}>
              <td><b>#{attemptName(attempts, index)}</b> {limit ? <span class="faint">{t.job.of(attempt.number, limit)}</span> : null}</td>
              <td><StateWord state={outcomeState(attempt.outcome)} word={attempt.outcome ? (t.outcome[attempt.outcome] ?? attempt.outcome) : t.job.running} /></td>
              <td class="hide-sm"><code>{attempt.worker ?? t.time.none}</code></td>
              <td class="r hide-sm">{duration((attempt.ended_at ? Date.parse(attempt.ended_at) : now.value) - Date.parse(attempt.started_at))}</td>
              <td class="fill trunc" title={attempt.error?.message}>{attempt.error ? <><code>{attempt.error.code ?? attempt.error.category}</code> {attempt.error.message}</> : null}</td>
              <td class="r hide-sm muted">{attempt.next_delay && (parseDuration(attempt.next_delay) ?? 0) > 0 ? duration(parseDuration(attempt.next_delay)!) : ""}</td>
              <td class="r muted">{attempt.ended_at ? <Time at={attempt.ended_at} mode="clock" /> : t.time.none}</td>
            </tr>
          ))}</tbody>
        </table></div>
      ) : <p class="card-body muted">{t.job.noAttempts}</p>}
    </section>
  );
}

type Payload = { kind: "json"; text: string } | { kind: "binary"; data: Uint8Array };

/** Reads the payload, byte for byte. */
export async function loadPayload(id: string): Promise<Payload> {
  const response = await send("GET", `v1/jobs/${segment(id)}/payload`);
  const data = new Uint8Array(await response.arrayBuffer());
  if (response.headers.get("content-type")?.startsWith("application/json")) return { kind: "json", text: new TextDecoder().decode(data) };
  return { kind: "binary", data };
}

const TABS = ["payload", "result", "error", "progress", "checkpoint", "policy", "history"] as const;
type Tab = (typeof TABS)[number];

function DataCard({ data, actors }: { data: Loaded; actors: Actors }) {
  const [chosen, setTab] = useState<Tab | null>(null);
  const { job, raw } = data;
  const tab: Tab = chosen ?? "payload";
  const payload = useResource<Payload>(`payload ${job.id}`, () => loadPayload(job.id), null);
  const shown = TABS.filter((name) => (name === "progress" || name === "checkpoint" ? raw[name] !== null : true));
  const names: Record<Tab, string> = { payload: t.job.payload, result: t.job.result, error: t.job.error, progress: t.job.progress, checkpoint: t.job.checkpoint, policy: t.job.policy, history: t.job.history };
  return (
    <section class="card">
      <div class="card-head line"><div class="seg scroll-seg" role="tablist" aria-label={t.job.payload}>{shown.map((name) => <button key={name} role="tab" type="button" id={`tab-${name}`} aria-controls="job-data" aria-selected={tab === name} onClick={() => setTab(name)}>{names[name]}</button>)}</div></div>
      <div id="job-data" role="tabpanel" aria-labelledby={`tab-${tab}`}>
        {tab === "payload" ? (payload.data ? (payload.data.kind === "json" ? <JsonView text={payload.data.text} /> : <BinaryView data={payload.data.data} />) : payload.error ? <Failure error={payload.error} what={t.job.payload} retry={payload.reload} /> : <Loading />) : null}
        {tab === "result" ? (raw.result === null ? <p class="card-body muted">{t.job.noResult}</p> : <JsonView text={raw.result} />) : null}
        {tab === "progress" && raw.progress !== null ? <JsonView text={raw.progress} /> : null}
        {tab === "checkpoint" && raw.checkpoint !== null ? <JsonView text={raw.checkpoint} /> : null}
        {tab === "policy" ? <JsonView text={JSON.stringify(job.policy)} /> : null}
        {tab === "error" ? (job.error ? <div class="card-body stackcol"><div class="err"><code>{job.error.code ?? job.error.category}</code><span class="wrap">{job.error.message}</span><span class="faint">{job.error.category}, <Time at={job.error.at} /></span></div>{job.error.cause ? <pre class="code plain boxed" tabIndex={0}>{job.error.cause}</pre> : null}</div> : <p class="card-body muted">{t.job.noError}</p>) : null}
        {tab === "history" ? <ol class="history">{[...data.history].reverse().map((entry, index) => <li key={index}><StateWord state={entry.to} /><span class="muted">{actors.has(entry.at) ? t.job.by(t.job.cause[entry.cause] ?? entry.cause, actors.get(entry.at)!) : (t.job.cause[entry.cause] ?? entry.cause)}</span><span class="faint num" title={entry.at}>{clock(entry.at)}.{entry.at.slice(20, 23)}</span></li>)}</ol> : null}
      </div>
    </section>
  );
}

function MoreCard({ job, deliveries }: { job: Job; deliveries: Delivery[] }) {
  const rows: [string, preact.ComponentChildren][] = [];
  const add = (name: string, value: preact.ComponentChildren, isKnown: unknown = value) => isKnown && rows.push([name, value]);
  add(t.job.seq, <span class="num">{job.seq}</span>);
  add(t.job.updated, <Time at={job.updated_at} />);
  if (job.lease) add(t.job.worker, <code>{job.lease.worker ?? t.time.none}</code>), add(t.job.lease, <Time at={job.lease.expires_at} />);
  add(t.job.key, <code>{job.idempotency_key}</code>, job.idempotency_key);
  add(t.job.external, <code>{job.external_id}</code>, job.external_id);
  add(t.job.correlation, <a class="link mono" href={link(["jobs"], { correlation_id: job.correlation_id })}>{job.correlation_id}</a>, job.correlation_id);
  add(t.job.callback, <code>{job.callback_url}</code>, job.callback_url);
  add(t.job.parent, job.parent ? <JobLink id={job.parent} /> : null);
  add(t.job.requeuedFrom, job.requeued_from ? <JobLink id={job.requeued_from} /> : null);
  add(t.job.requeuedAs, job.requeued_as ? <JobLink id={job.requeued_as} /> : null);
  add(t.job.schedule, job.schedule ? <a class="link" href={link(["schedules", job.schedule.name])}>{job.schedule.name}</a> : null);
  add(t.job.after, <>{job.after.slice(0, 8).map((id) => <span key={id}><JobLink id={id} /> </span>)}</>, job.after.length);
  add(t.job.afterAny, <>{job.after_any.slice(0, 8).map((id) => <span key={id}><JobLink id={id} /> </span>)}</>, job.after_any.length);
  for (const delivery of deliveries) rows.push([t.job.deliveries, <><StateWord state={delivery.state === "delivered" ? "completed" : delivery.state === "failed" ? "failed" : "retrying"} word={t.webhooks.state[delivery.state] ?? delivery.state} /> {delivery.event}</>]);
  return <section class="card"><div class="card-head"><h2>{t.job.more}</h2></div><dl class="kv">{rows.map(([name, value], index) => <div class="kv-row" key={index}><dt>{name}</dt><dd>{value}</dd></div>)}</dl></section>;
}

export function JobPage({ id }: { id: string }) {
  const resource = useResource<Loaded>(id, () => load(id));
  const data = resource.data;
  const actors = useActors(id, data?.history ?? NONE);
  if (!data) {
    const isMissing = resource.error?.status === 404;
    return <main class="page" id="content" tabIndex={-1}><section class="card">{isMissing ? <Empty icon="search" title={t.job.notFound} text={t.job.notFoundText}><a class="btn" href={link(["jobs"])}>{t.nav.jobs}</a></Empty> : resource.error ? <Failure error={resource.error} what={t.nav.jobs} retry={resource.reload} /> : <Loading />}</section></main>;
  }
  const { job } = data;
  return (
    <main class="page" id="content" tabIndex={-1}>
      <div class="job-head">
        <nav class="crumbs" aria-label={t.nav.jobs}><a href={link(["jobs"])}>{t.nav.jobs}</a><Icon name="right" /><a href={link(["jobs"], { queue: job.queue })}>{job.queue}</a><Icon name="right" /><a class="trunc" href={link(["jobs"], { queue: job.queue, type: job.type })}>{job.type}</a></nav>
        <div class="job-title"><Pill state={job.state} /><h1 class="wrap">{job.type}</h1><span class="idline"><code>{job.id}</code><CopyButton text={job.id} /></span><JobActions job={job} /></div>
      </div>
      <Facts job={job} />
      <TimelineCard data={data} actors={actors} />
      <div class="cols">
        <div class="stackcol"><AttemptsCard attempts={data.attempts} limit={limitOf(job)} /><DataCard data={data} actors={actors} /></div>
        <div class="stackcol">{data.why ? <WhyCard job={job} why={data.why} /> : null}<MoreCard job={job} deliveries={data.deliveries} /></div>
      </div>
    </main>
  );
}
