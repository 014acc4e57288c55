// One workflow: progress, graph, the selected job.

import { useMemo, useState } from "preact/hooks";
import { Button, Empty, Failure, Glyph, Icon, JobLink, Loading, Pill, StateWord } from "../components/basic";
import { errorText } from "../components/dialog";
import { GraphView } from "../components/graph-view";
import { get, mayOffer, post, query, segment } from "../lib/api";
import { now } from "../lib/app";
import { count, duration, relative, stateClass } from "../lib/format";
import { buildGraph, causes, failedPath, type GraphNode, type Notes } from "../lib/graph";
import { refresh } from "../lib/live";
import { useResource } from "../lib/resource";
import { link } from "../lib/router";
import { STATES, type Job, type Jobs, type Member, type WorkflowWithJobs } from "../lib/types";
import { ask, toast } from "../lib/ui";
import { t } from "../strings";
import { ProgressBar } from "./workflows";

const MEMBERS_MAX = 5_000;

async function load(id: string): Promise<WorkflowWithJobs> {
  let all = await get<WorkflowWithJobs>(`v1/workflows/${segment(id)}${query({ limit: 1000 })}`);
  while (all.next && all.jobs.length < MEMBERS_MAX) {
    const page = await get<WorkflowWithJobs>(`v1/workflows/${segment(id)}${query({ limit: 1000, cursor: all.next })}`);
    all = { ...page, jobs: [...all.jobs, ...page.jobs] };
  }
  return all;
}

/** Above this size the notes are left out: they are one more page of jobs at each update. */
const NOTES_MAX = 500;
const NONE: Notes = new Map();

function noteOf(job: Job, at: number): string | null {
  if (job.error && ENDED_BADLY.includes(job.state)) return job.error.code ?? job.error.category;
  if (job.state === "retrying" && job.run_at) return relative(job.run_at, at);
  if (job.state === "running" && job.started_at) return t.workflows.runsFor(duration(at - Date.parse(job.started_at)));
  if (job.started_at && job.attempt_ended_at) return duration(Date.parse(job.attempt_ended_at) - Date.parse(job.started_at));
  return null;
}

const ENDED_BADLY = ["failed", "dead_letter", "cancelled"];

/** Run times and errors of the members of a small workflow. */
function useNotes(id: string, total: number): Notes {
  const jobs = useResource<Jobs>(total > 0 && total <= NOTES_MAX ? `notes ${id}` : null, () => get<Jobs>(`v1/jobs${query({ workflow: id, limit: 1000, fields: "id,state,error,run_at,started_at,attempt_ended_at" })}`), 2_000);
  return useMemo(() => {
    if (!jobs.data) return NONE;
    return new Map(jobs.data.jobs.flatMap((job) => {
      const note = noteOf(job, now.value);
      return note === null ? [] : [[job.id, note] as const];
    }));
  }, [jobs.data]);
}

function OneJob({ member, members, retry }: { member: Member; members: Member[]; retry: { amount: number; run: () => void } | null }) {
  const job = useResource<Job>(member.id + member.state, () => get<Job>(`v1/jobs/${member.id}`), 2_000);
  const { propagated } = useMemo(() => causes(members), [members]);
  const ended = useMemo(() => {
    const found = new Set<string>([member.id]);
    for (let size = 0; size !== found.size;) {
      size = found.size;
      for (const other of members) if (propagated.has(other.id) && other.after.some((id) => found.has(id))) found.add(other.id);
    }
    return found.size - 1;
  }, [member, members]);
  const data = job.data;
  return (
    <>
      <div class="panel-sec">
        <div class={`state ${stateClass(member.state)}`}><Glyph state={member.state} large /><b class="panel-title wrap">{member.ref}</b></div>
        <p class="muted"><code>{member.type}</code> {t.overview.inQueue("")}<a class="link" href={link(["queues", member.queue])}>{member.queue}</a>{data ? <>, {t.job.attempt.toLowerCase()} {data.attempt}</> : null}</p>
        {data?.error && member.state !== "completed" ? <div class="err"><code>{data.error.code ?? data.error.category}</code><span class="wrap">{data.error.message}</span><span class="faint">{data.error.category}{data.error.category === "permanent" ? `, ${t.dead.permanent}` : ""}</span></div> : null}
      </div>
      {ended > 0 ? <div class="panel-sec"><h2>{t.workflows.endedHere}</h2><p class="muted">{t.workflows.endedText(ended)}</p></div> : null}
      {retry ? <div class="panel-sec"><h2>{t.workflows.nextStep}</h2><p class="muted">{t.workflows.nextText(ended)}</p></div> : null}
      <div class="panel-sec"><div class="foot-row">{retry ? <Button icon="undo" onClick={retry.run}>{t.workflows.retryThese(retry.amount)}</Button> : null}<a class="btn" href={link(["jobs", member.id])}>{t.workflows.openJob}</a></div></div>
    </>
  );
}

function PathList({ members, notes, select }: { members: Member[]; notes: Notes; select: (id: string) => void }) {
  const path = useMemo(() => failedPath(members), [members]);
  const { cause, propagated } = useMemo(() => causes(members), [members]);
  const rows = members.filter((member) => path.has(member.id));
  if (!rows.length) return null;
  return (
    <div class="panel-sec"><h2>{t.workflows.path}<span class="faint">{t.jobs(rows.length)}</span></h2>
      <ol class="trace">{rows.slice(0, 30).map((member) => <li key={member.id}><Glyph state={member.state} /><button class={`plain trunc ${cause.has(member.id) ? "on" : ""}`} type="button" onClick={() => select(member.id)}>{member.ref}</button><span class="t">{propagated.has(member.id) ? t.workflows.byDependency : (notes.get(member.id) ?? t.state[member.state]!.toLowerCase())}</span></li>)}</ol>
    </div>
  );
}

/** What the panel shows while no node is chosen. */
function Summary({ workflow }: { workflow: WorkflowWithJobs }) {
  return (
    <div class="panel-sec"><h2>{t.workflows.members}<span class="faint">{t.workflows.groupDone(workflow.ended, workflow.total)}</span></h2>
      <ul class="canary">{STATES.filter((state) => workflow.counts[state]).map((state) => <li key={state}><StateWord state={state} /><span class="t"><a class="link" href={link(["jobs"], { workflow: workflow.id, state })}>{count(workflow.counts[state]!)}</a></span></li>)}</ul>
      <p class="muted">{t.workflows.pick}</p>
    </div>
  );
}

function GroupPanel({ node, workflow }: { node: GraphNode; workflow: string }) {
  return (
    <div class="panel-sec">
      <div class={`state ${stateClass(node.state)}`}><Glyph state={node.state} large /><b class="panel-title wrap">{node.label}</b></div>
      <p class="muted">{t.workflows.group(node.members.length)}</p>
      <ul class="canary">{STATES.filter((state) => node.counts[state]).map((state) => <li key={state}><StateWord state={state} /><span class="t"><a class="link" href={link(["jobs"], { workflow, state })}>{count(node.counts[state]!)}</a></span></li>)}</ul>
      <ul class="canary">{node.members.slice(0, 12).map((member) => <li key={member.id}><Glyph state={member.state} /><span class="trunc">{member.ref}</span><span class="t"><JobLink id={member.id} /></span></li>)}</ul>
      <div><a class="btn" href={link(["jobs"], { workflow })}>{t.workflows.list}</a></div>
    </div>
  );
}

export function WorkflowPage({ id }: { id: string }) {
  // Members are read again as a whole: large workflows less often.
  const [size, setSize] = useState(0);
  const resource = useResource<WorkflowWithJobs>(id, () => load(id).then((read) => (setSize(read.jobs.length), read)), Math.max(1_000, 2 * size));
  const data = resource.data;
  const [selected, select] = useState<string | null>(null);
  const [folding, setFolded] = useState<boolean | null>(null);
  const [hasPath, setPath] = useState(true);
  const [follow, setFollow] = useState(false);
  const notes = useNotes(id, data?.total ?? 0);
  const isFolded = folding ?? (data?.jobs.length ?? 0) > 40;
  const graph = useMemo(() => (data ? buildGraph(data.jobs, isFolded) : null), [data, isFolded]);
  if (!data || !graph) return <main class="page" id="content" tabIndex={-1}><section class="card">{resource.error ? (resource.error.status === 404 ? <Empty icon="workflows" title={t.workflows.empty}><a class="btn" href={link(["workflows"])}>{t.nav.workflows}</a></Empty> : <Failure error={resource.error} what={t.workflows.title} retry={resource.reload} />) : <Loading />}</section></main>;
  const failed = (data.counts.failed ?? 0) + (data.counts.dead_letter ?? 0);
  const live = data.total - data.ended;
  const act = (verb: string, done: string) => post(`v1/workflows/${segment(id)}/${verb}`).then(() => (toast(done), refresh()), (error: unknown) => toast(errorText(error), "error"));
  const cancel = () => ask({ title: t.workflows.cancelTitle, body: t.workflows.cancelText(live), keep: t.common.cancel, act: t.workflows.cancelAct, isDanger: true, run: () => act("cancel", t.workflows.cancelled) });
  const cause = graph.nodes.find((node) => node.isCause);
  const node = graph.nodes.find((item) => item.id === selected) ?? (selected === null ? cause : undefined);
  const member = data.jobs.find((item) => item.id === selected) ?? (node && node.members.length === 1 ? node.members[0] : undefined);
  return (
    <main class="wf" id="content" tabIndex={-1}>
      <div class="wf-head">
        <div class="job-title"><nav class="crumbs" aria-label={t.workflows.title}><a href={link(["workflows"])}>{t.nav.workflows}</a><Icon name="right" /></nav><h1 class="wrap sans">{data.name ?? id.slice(0, 8)}</h1><Pill state={data.state} word={t.workflows.state[data.state] ?? data.state} /><span class="muted hide-sm">{t.workflows.started(relative(data.created_at, now.value))}</span>
          <div class="right">
            {live > 0 && mayOffer("POST", "v1/workflows/w/cancel") ? <Button kind="btn-danger" onClick={cancel}>{t.workflows.cancel}</Button> : null}
            {data.open && mayOffer("POST", "v1/workflows/w/close") ? <Button onClick={() => act("close", t.workflows.closed)}>{t.workflows.close}</Button> : null}
            {failed > 0 && mayOffer("POST", "v1/workflows/w/retry") ? <Button kind="btn-primary" icon="undo" onClick={() => act("retry", t.workflows.retried)}>{t.workflows.retry(failed)}</Button> : null}
          </div>
        </div>
        <div class="wf-prog"><ProgressBar counts={data.counts} total={data.total} /><span class="legend">{STATES.filter((state) => data.counts[state]).map((state) => <span key={state}><Glyph state={state} />{count(data.counts[state]!)} {t.state[state]!.toLowerCase()}</span>)}</span></div>
        {data.jobs.length < data.total ? <p class="faint">{t.workflows.partial(data.jobs.length, data.total)}</p> : null}
      </div>
      <GraphView graph={graph} notes={notes} selected={node?.id ?? null} select={select} hasPath={hasPath} setPath={setPath} follow={follow} setFollow={setFollow} isFolded={isFolded} setFolded={setFolded} hasFailed={!!cause} />
      <aside class="panel" aria-label={t.job.more} tabIndex={0}>
        {member ? <OneJob member={member} members={data.jobs} retry={member.id === cause?.members[0]?.id && mayOffer("POST", "v1/workflows/w/retry") ? { amount: failed, run: () => act("retry", t.workflows.retried) } : null} /> : node ? <GroupPanel node={node} workflow={id} /> : <Summary workflow={data} />}
        {cause ? <PathList members={data.jobs} notes={notes} select={select} /> : null}
      </aside>
    </main>
  );
}
