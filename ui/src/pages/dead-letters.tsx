// Dead letters: the server's groups by code and shape of the message, and a requeue with a canary.

import { useMemo, useRef } from "preact/hooks";
import { Empty, Failure, Loading, Time } from "../components/basic";
import { CanaryBox } from "../components/canary";
import { Chart } from "../components/chart";
import { get, query } from "../lib/api";
import { info, now, queues, stats } from "../lib/app";
import { count, relative } from "../lib/format";
import { useResource } from "../lib/resource";
import { link, route, setQuery } from "../lib/router";
import { DAY, rangeOf, useSeries } from "../lib/series";
import type { Group, Job, Operation } from "../lib/types";
import { COMMANDS, t } from "../strings";

/** The shape of a message, with its holes marked. */
function Shape({ text }: { text: string }) {
  return <>{text.split(/(‹[^›]*›)/).map((part, index) => (index % 2 ? <span key={index} class="hole">{part.slice(1, -1)}</span> : part))}</>;
}

/** Where the detail stands below the list, the choice of a group shows it. */
function showDetail(): void {
  if (innerWidth <= 1240) setTimeout(() => document.querySelector(".dl > :last-child")?.scrollIntoView({ block: "start" }), 60);
}

function GroupRow({ group, total, isOpen }: { group: Group; total: number; isOpen: boolean }) {
  const share = total ? `${Math.max(1, Math.round((100 * group.count) / total))} %` : "";
  return (
    <li aria-current={isOpen ? "true" : undefined}>
      <div class="big">{count(group.count)}<span class="share">{share}</span></div>
      <div class="gmain"><button class="code-name plain" type="button" onClick={() => (setQuery({ group: group.id }), showDetail())}>{group.code ?? t.dead.noCode}</button><div class="msg"><Shape text={group.shape} /></div><div class="where">{[...group.queues, ...group.types].slice(0, 5).join(" · ")}</div></div>
      <div class="trend">{group.last_hour ? t.dead.lastHour(group.last_hour) : <span class="zero">0</span>}</div>
      <div class="when"><b><Time at={group.last_at} /></b>{t.dead.first(relative(group.first_at, now.value))}</div>
    </li>
  );
}

/** The operation that matters for a group: the newest one that requeues it, unless it ended long ago. */
export function operationOf(operations: Operation[], group: string, queue: string, at: number): Operation | null {
  const isHere = ({ filter }: Operation) => filter.group === group && (!queue || !filter.queue || filter.queue === queue);
  const newest = operations.find((operation) => isHere(operation) && operation.action === "requeue" && !operation.dry_run);
  if (!newest) return null;
  const isOld = newest.ended_at !== null && at - Date.parse(newest.ended_at) > 300_000;
  return isOld ? null : newest;
}

function DeadChart({ queue }: { queue: string }) {
  const range = rangeOf(info.value, DAY);
  const series = useSeries(range, queue || null);
  const lines = useMemo(() => [{ label: t.dead.title, token: "s-dead-letter-fill", values: series.data?.totals.deadLetters ?? [], isArea: true, width: 2 }], [series.data]);
  if (!series.data) return null;
  return (
    <section class="card">
      <div class="chart-head"><h2>{t.dead.kept}</h2><span class="unit">{t.dead.lastRange(range.name)}</span></div>
      <Chart label={t.dead.kept} at={series.data.at} lines={lines} format={(value) => count(value)} axis={(value) => (Number.isInteger(value) ? count(value) : "")} floor={4} height={104} marks={series.data.deploys} />
    </section>
  );
}

function Detail({ group, operation, queue }: { group: Group; operation: Operation | null; queue: string }) {
  const example = useResource<Job>(group.example, () => get<Job>(`v1/jobs/${group.example}`), null);
  const job = example.data;
  return (
    <div class="stackcol">
      <section class="card">
        <div class="card-head"><h2 class="trunc"><code>{group.code ?? t.dead.noCode}</code></h2><span class="count">{count(group.count)}</span><div class="right"><a class="link" href={link(["jobs"], { state: "dead_letter", error_code: group.code, queue, type: group.types.length === 1 ? group.types[0]! : null })}>{t.dead.list}</a></div></div>
        <CanaryBox group={group} operation={operation} queue={queue} />
      </section>
      {group.example ? (
        <section class="card">
          <div class="card-head"><h2>{t.dead.one}</h2><div class="right"><a class="link" href={link(["jobs", group.example])}>{t.dead.openJob}</a></div></div>
          {job ? (
            <div class="card-body dl-one"><p class="mono wrap">{job.error?.message}</p>
              <dl class="kv flat">
                <div class="kv-row"><dt>{t.dead.category}</dt><dd>{job.error?.category}{job.error?.category === "permanent" ? `, ${t.dead.permanent}` : ""}</dd></div>
                <div class="kv-row"><dt>{t.common.type}</dt><dd><code>{job.type}</code></dd></div><div class="kv-row"><dt>{t.common.queue}</dt><dd>{job.queue}</dd></div>
                <div class="kv-row"><dt>{t.job.attempts}</dt><dd>{job.attempt}</dd></div><div class="kv-row"><dt>{t.dead.requeuedBefore}</dt><dd>{job.counters.requeues ? t.dead.times(job.counters.requeues) : t.time.never}</dd></div>
              </dl>
            </div>
          ) : example.error ? <p class="card-body muted">{t.job.notFound}</p> : <Loading />}
        </section>
      ) : null}
    </div>
  );
}

/** A group that has no dead letter left, while its operation is still of interest. */
const emptied = (id: string, operation: Operation): Group => ({ id, code: t.dead.emptied, shape: "", count: 0, first_at: operation.created_at, last_at: operation.created_at, last_hour: 0, types: [], queues: [], example: "" });

export function DeadLetters() {
  const queue = route.value.query.get("queue") ?? "";
  const wanted = route.value.query.get("group");
  const list = useResource<{ groups: Group[]; approximate: boolean }>(`groups ${queue}`, () => get(`v1/dead-letters/groups${query({ queue })}`));
  const operations = useResource<{ operations: Operation[] }>("operations", () => get("v1/operations?limit=100"));
  const total = (queue ? stats.value?.queues[queue] : stats.value?.totals)?.counts.dead_letter ?? 0;
  const groups = list.data?.groups ?? [];
  const kept = useRef<Group | null>(null);
  const found = groups.find((group) => group.id === wanted);
  if (found) kept.current = found;
  const operation = (id: string) => operationOf(operations.data?.operations ?? [], id, queue, now.value);
  const gone = wanted && !found ? (kept.current?.id === wanted ? { ...kept.current, count: 0 } : operation(wanted) ? emptied(wanted, operation(wanted)!) : null) : null;
  const chosen = found ?? gone ?? groups[0];
  return (
    <main class="page" id="content" tabIndex={-1}>
      <div class="page-head"><h1>{t.dead.title}</h1>{list.data && groups.length ? <span class="muted">{t.dead.summary(total, groups.length)}{list.data.approximate ? `, ${t.dead.approximate}` : ""}</span> : null}
        <div class="right"><select class="input compact" aria-label={t.common.queue} value={queue} onChange={(event) => setQuery({ queue: event.currentTarget.value || null, group: null })}><option value="">{t.dead.allQueues}</option>{(queues.value ?? []).map((item) => <option key={item.name}>{item.name}</option>)}</select></div>
      </div>
      {!list.data ? <section class="card">{list.error ? <Failure error={list.error} what={t.dead.what} retry={list.reload} /> : <Loading />}</section> : !chosen ? (
        <section class="card"><Empty icon="dead" title={t.dead.empty} text={t.dead.emptyText} command={COMMANDS.deadLetters} /></section>
      ) : (
        <div class="dl">
          <div class="stackcol">
            <DeadChart queue={queue} />
            <section class="card">
              <div class="card-head"><h2>{t.dead.groups}</h2><span class="count">{groups.length}</span><div class="right hide-sm">{t.dead.same}</div></div>
              <div class="groups-h"><span class="r">{t.dead.jobsCol}</span><span>{t.dead.error}</span><span class="r">{t.dead.lastHourCol}</span><span class="r">{t.dead.last}</span></div>
              <ol class="groups">{groups.map((group) => <GroupRow key={group.id} group={group} total={total} isOpen={group.id === chosen.id} />)}</ol>
            </section>
          </div>
          <Detail key={chosen.id} group={chosen} operation={operation(chosen.id)} queue={queue} />
        </div>
      )}
    </main>
  );
}
