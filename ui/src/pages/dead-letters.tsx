// Dead letters: groups by code and shape of the message, and a requeue with a canary.

import { useEffect, useRef, useState } from "preact/hooks";
import { Button, Empty, Failure, Icon, JobLink, Loading, StateWord, Time } from "../components/basic";
import { announce } from "../components/bulk-bar";
import { errorText } from "../components/dialog";
import { get, mayOffer, post } from "../lib/api";
import { now, queues, stats } from "../lib/app";
import { followOperation, runOnIds, runOperation, type Progress } from "../lib/bulk";
import { count, relative } from "../lib/format";
import { loadGroups, sampleOf, type Groups } from "../lib/groups";
import { refresh, revision } from "../lib/live";
import { useResource } from "../lib/resource";
import { link, route, setQuery } from "../lib/router";
import type { Group, Job } from "../lib/types";
import { ask, toast } from "../lib/ui";
import { COMMANDS, t } from "../strings";

const CANARY = 5;

/** The shape of a message, with its holes marked. */
function Shape({ text }: { text: string }) {
  return <>{text.split(/(‹[^›]*›|<[a-z]+>|\{[a-z]+\})/).map((part, index) => (index % 2 ? <span key={index} class="hole">{part.slice(1, -1)}</span> : part))}</>;
}

function GroupRow({ group, total, isOpen }: { group: Group; total: number; isOpen: boolean }) {
  return (
    <li aria-current={isOpen ? "true" : undefined}>
      <div class="big">{count(group.count)}<span class="share">{group.approximate ? t.dead.approximate : total ? `${Math.max(1, Math.round((100 * group.count) / total))} %` : ""}</span></div>
      <div class="gmain"><button class="code-name plain" type="button" onClick={() => setQuery({ group: group.id })}>{group.code ?? t.dead.noCode}</button><div class="msg"><Shape text={group.shape} /></div><div class="where">{[...(group.queues ?? []), ...group.types].slice(0, 4).join(" · ")}</div></div>
      <div class="trend faint">{group.last_hour ? t.dead.lastHour(group.last_hour) : ""}</div>
      <div class="when"><b><Time at={group.last_at} /></b>{t.dead.first(relative(group.first_at, now.value))}</div>
    </li>
  );
}

interface Canary { ids: string[]; startedAt: string; rest: string[]; operation: string | null }

function Steps({ step, canary, done, group }: { step: 1 | 2 | 3; canary: Canary | null; done: number; group: Group }) {
  const of = (index: number) => (index < step ? "done" : index === step ? "here" : "todo");
  const size = canary?.ids.length ?? Math.min(CANARY, group.count);
  const names: [string, string][] = [[t.dead.sample, t.dead.sampleText(size, group.count)], [t.dead.canaryStep, canary ? t.dead.canaryDone(done, size) : ""], [t.dead.rest, t.dead.restText(Math.max(0, group.count - size))]];
  return <ol class="steps">{names.map(([name, text], index) => <li key={name} class={of(index + 1)}><span class="dot">{index + 1 < step ? "✓" : index + 1}</span><b>{name}</b>{text}</li>)}</ol>;
}

/** Runs a few jobs of a group first, then the rest. */
function CanaryCard({ group, groups }: { group: Group; groups: Groups }) {
  const [canary, setCanary] = useState<Canary | null>(null);
  const [jobs, setJobs] = useState<Job[]>([]);
  const [progress, setProgress] = useState<Progress | null>(null);
  const isStopped = useRef(false);
  const isServer = groups.source === "server";
  const frozen = useRef(group);
  if (!canary) frozen.current = group;
  const shown = frozen.current;

  useEffect(() => {
    if (!canary || !canary.ids.length) return;
    Promise.all(canary.ids.map((id) => get<Job>(`v1/jobs/${id}`).catch(() => null))).then((found) => setJobs(found.filter((job): job is Job => job !== null)));
  }, [canary, revision.value]);

  const start = async () => {
    try {
      if (isServer) {
        const end = await runOperation({ action: "requeue", filter: { group: shown.id }, canary: CANARY }, setProgress, () => isStopped.current);
        const listed = end.operation?.canary;
        const ids = Array.isArray(listed) ? listed.map((item) => (typeof item === "string" ? item : String((item as { id?: string })?.id ?? ""))).filter(Boolean) : [];
        setCanary({ ids, startedAt: new Date(now.value).toISOString(), rest: [], operation: end.operation?.id ?? null });
        setProgress(null);
        return;
      }
      const sample = sampleOf(shown.ids ?? [], Math.min(CANARY, shown.count));
      const answers = await Promise.all(sample.map((id) => post<{ id: string }>(`v1/jobs/${id}/requeue`)));
      setCanary({ ids: answers.map((answer) => answer.id), startedAt: new Date(now.value).toISOString(), rest: (shown.ids ?? []).filter((id) => !sample.includes(id)), operation: null });
      refresh();
    } catch (error) {
      toast(errorText(error), "error");
    }
  };
  const runRest = async () => {
    if (!canary) return;
    isStopped.current = false;
    try {
      const end = canary.operation
        ? (await post(`v1/operations/${canary.operation}/continue`), await followOperation(canary.operation, setProgress, () => isStopped.current))
        : await runOnIds("requeue", canary.rest, setProgress, () => isStopped.current);
      announce("requeue", end, isStopped.current);
    } catch (error) {
      toast(errorText(error), "error");
    }
    setProgress(null);
    setCanary(null);
    setQuery({ group: null });
    refresh();
  };
  const keepRest = () => {
    isStopped.current = true;
    if (canary?.operation) void post(`v1/operations/${canary.operation}/stop`).catch(() => undefined);
    setCanary(null);
    refresh();
  };
  const askAll = () => ask({ title: t.jobsPage.confirmTitle(t.jobsPage.verb.requeue!, t.jobs(shown.count)), body: t.jobsPage.confirm.requeue, keep: t.jobsPage.keep, act: t.dead.requeueAll(count(shown.count)), run: async () => {
    const end = isServer ? await runOperation({ action: "requeue", filter: { group: shown.id } }, setProgress, () => isStopped.current) : await runOnIds("requeue", shown.ids ?? [], setProgress, () => isStopped.current);
    announce("requeue", end, false);
    setProgress(null);
    refresh();
  } });

  const done = jobs.filter((job) => job.state === "completed").length;
  const failed = jobs.filter((job) => ["failed", "dead_letter", "cancelled"].includes(job.state)).length;
  const rest = canary ? shown.count - canary.ids.length : 0;
  const isGood = canary !== null && canary.ids.length > 0 && done === canary.ids.length;
  if (!mayOffer("POST", "v1/jobs/j/requeue")) return null;
  return (
    <section class="canary-box">
      <div class="card-head"><h2>{t.dead.canary}</h2>{canary ? <div class="right">{t.dead.startedAgo(relative(canary.startedAt, now.value))}</div> : null}</div>
      <Steps step={!canary ? 1 : isGood ? 3 : 2} canary={canary} done={done} group={shown} />
      {canary ? <ul class="canary">{jobs.map((job) => <li key={job.id}><StateWord state={job.state} /> <JobLink id={job.id} /><span class="t">{job.state === "scheduled" ? t.dead.needsWorker : ""}</span></li>)}</ul> : <p class="card-body muted dl-intro">{t.dead.canaryText}</p>}
      {canary && failed ? <p class="card-body bad dl-intro" role="status">{t.dead.canaryFailed(failed)}</p> : null}
      {isGood ? <p class="card-body good dl-intro" role="status">{t.dead.canaryGood}</p> : null}
      {progress ? <p class="card-body muted dl-intro" role="status">{t.jobsPage.progress(count(progress.done), progress.total === null ? "…" : count(progress.total))}</p> : null}
      <div class="foot-acts">
        {!canary ? <><Button kind="btn-primary" icon="undo" onClick={start} disabled={!!progress}>{t.dead.start(Math.min(CANARY, shown.count))}</Button><Button onClick={askAll} disabled={!!progress}>{t.dead.requeueAll(count(shown.count))}</Button></>
          : <><Button kind="btn-danger" icon="stop" onClick={keepRest}>{t.dead.stop}</Button><span class="grow" />{rest > 0 ? <Button kind={isGood ? "btn-primary" : ""} disabled={!isGood || !!progress} onClick={runRest}>{isGood ? t.dead.requeueRest(rest) : t.dead.after(rest)}</Button> : null}</>}
      </div>
    </section>
  );
}

function Detail({ group, groups, queue }: { group: Group; groups: Groups; queue: string }) {
  const example = useResource<Job>(group.example, () => get<Job>(`v1/jobs/${group.example}`), null);
  const job = example.data;
  return (
    <div class="stackcol">
      <section class="card">
        <div class="card-head"><h2 class="trunc"><code>{group.code ?? t.dead.noCode}</code></h2><span class="count">{count(group.count)}</span><div class="right"><a class="link" href={link(["jobs"], { state: "dead_letter", error_code: group.code, queue, type: group.types.length === 1 ? group.types[0]! : null })}>{t.dead.list}</a></div></div>
        <CanaryCard key={group.id} group={group} groups={groups} />
      </section>
      <section class="card">
        <div class="card-head"><h2>{t.dead.one}</h2><div class="right"><a class="link" href={link(["jobs", group.example])}>{t.dead.openJob}</a></div></div>
        {job ? <div class="card-body dl-one"><p class="mono wrap">{job.error?.message}</p><dl class="kv flat"><div class="kv-row"><dt>{t.dead.category}</dt><dd>{job.error?.category}{job.error?.category === "permanent" ? `, ${t.dead.permanent}` : ""}</dd></div><div class="kv-row"><dt>{t.common.type}</dt><dd><code>{job.type}</code></dd></div><div class="kv-row"><dt>{t.common.queue}</dt><dd>{job.queue}</dd></div><div class="kv-row"><dt>{t.job.attempts}</dt><dd>{job.attempt}</dd></div></dl></div> : <Loading />}
      </section>
    </div>
  );
}

export function DeadLetters() {
  const queue = route.value.query.get("queue") ?? "";
  const list = useResource<Groups>(`groups ${queue}`, () => loadGroups(queue || null), 2_000);
  const total = (queue ? stats.value?.queues[queue] : stats.value?.totals)?.counts.dead_letter ?? 0;
  const groups = list.data?.groups ?? [];
  const wanted = route.value.query.get("group");
  const kept = useRef<Group | null>(null);
  const found = groups.find((group) => group.id === wanted);
  if (found) kept.current = found;
  const chosen = found ?? (wanted && kept.current?.id === wanted ? kept.current : groups[0]);
  return (
    <main class="page" id="content" tabIndex={-1}>
      <div class="page-head"><h1>{t.dead.title}</h1>{list.data && groups.length ? <span class="muted">{t.dead.summary(total, groups.length)}</span> : null}
        <div class="right"><select class="input compact" aria-label={t.common.queue} value={queue} onChange={(event) => setQuery({ queue: event.currentTarget.value || null, group: null })}><option value="">{t.dead.allQueues}</option>{(queues.value ?? []).map((item) => <option key={item.name}>{item.name}</option>)}</select></div>
      </div>
      {!list.data ? <section class="card">{list.error ? <Failure error={list.error} what={t.dead.title} retry={list.reload} /> : <Loading />}</section> : !groups.length && !chosen ? (
        <section class="card"><Empty icon="dead" title={t.dead.empty} text={t.dead.emptyText} command={COMMANDS.deadLetters} /></section>
      ) : (
        <div class="dl">
          <section class="card">
            <div class="card-head"><h2>{t.dead.groups}</h2><span class="count">{groups.length}</span><div class="right hide-sm">{t.dead.same}</div></div>
            {list.data.source === "page" ? <p class="note page-note"><Icon name="info" />{list.data.isComplete ? t.dead.complete : t.dead.partial(list.data.read)}</p> : null}
            <div class="groups-h"><span class="r">{t.dead.jobsCol}</span><span>{t.dead.error}</span><span /><span class="r">{t.dead.last}</span></div>
            <ol class="groups">{groups.slice(0, 200).map((group) => <GroupRow key={group.id} group={group} total={total} isOpen={group.id === chosen?.id} />)}</ol>
          </section>
          {chosen ? <Detail key={chosen.id} group={chosen} groups={list.data} queue={queue} /> : null}
        </div>
      )}
    </main>
  );
}
