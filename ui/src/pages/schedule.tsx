// One schedule: the next ten due times in both zones, its ticks.

import { useState } from "preact/hooks";
import { Button, Empty, Failure, Icon, JobLink, Loading, StateWord, Time } from "../components/basic";
import { Field } from "../components/dialog";
import { ScheduleForm } from "../components/schedule-form";
import { JsonView } from "../components/viewer";
import { call, get, mayOffer, post, segment, send } from "../lib/api";
import { compact, member, parseExact, pretty } from "../lib/exact-json";
import { useResource } from "../lib/resource";
import { link, open } from "../lib/router";
import type { Schedule, Tick } from "../lib/types";
import { ask, toast } from "../lib/ui";
import { t } from "../strings";
import { rule, TickStrip, trigger } from "./schedules";

/** A time in a zone; the zone of the browser if none is given. */
function inZone(at: string, zone?: string): string {
  try {
    return new Intl.DateTimeFormat("en-GB", { weekday: "short", day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit", ...(zone ? { timeZone: zone } : {}) }).format(new Date(at));
  } catch {
    return at;
  }
}

const STATE: Record<string, string> = { fired: "completed", skipped_overlap: "cancelled", skipped_misfire: "cancelled", refused: "failed" };

interface Loaded { schedule: Schedule; /** The job and its payload as the server wrote them: numbers keep all their digits. */ job: string; payload: string | null }

async function load(path: string): Promise<Loaded> {
  const text = await (await send("GET", path)).text();
  const job = member(parseExact(text), "job");
  const payload = job && member(job, "payload");
  return { schedule: JSON.parse(text) as Schedule, job: job ? compact(job) : "{}", payload: payload ? pretty(payload) : null };
}

export function SchedulePage({ id }: { id: string }) {
  const path = `v1/schedules/${segment(id)}`;
  const resource = useResource<Loaded>(id, () => load(path));
  const ticks = useResource<{ ticks: Tick[] }>(`ticks ${id}`, () => get(`${path}/ticks`));
  const [isEditing, setEditing] = useState(false);
  const schedule = resource.data?.schedule;
  if (!schedule) return <main class="page" id="content" tabIndex={-1}><section class="card">{resource.error ? (resource.error.code === "schedule_not_found" ? <Empty icon="schedules" title={t.schedules.notFound}><a class="btn" href={link(["schedules"])}>{t.nav.schedules}</a></Empty> : <Failure error={resource.error} what={t.schedules.what} retry={resource.reload} />) : <Loading />}</section></main>;
  let note = "";
  const pause = () => ask({ title: t.schedules.pauseTitle(id), body: <><p>{t.schedules.pauseText}</p><Field label={t.schedules.note}><input class="input" onInput={(event) => (note = event.currentTarget.value)} /></Field></>, keep: t.common.cancel, act: t.schedules.pauseAct, run: async () => { await post(`${path}/pause`, note ? { note } : {}); resource.reload(); } });
  const remove = () => ask({ title: t.schedules.deleteTitle(id), body: t.schedules.deleteText, keep: t.common.cancel, act: t.schedules.deleteAct, isDanger: true, run: async () => { await call("DELETE", path); toast(t.schedules.deleteAct); open(link(["schedules"])); } });
  const rows = ticks.data?.ticks ?? [];
  return (
    <main class="page" id="content" tabIndex={-1}>
      <div class="job-head"><nav class="crumbs" aria-label={t.schedules.title}><a href={link(["schedules"])}>{t.nav.schedules}</a><Icon name="right" /><span>{id}</span></nav>
        <div class="job-title"><h1 class="wrap">{id}</h1>{schedule.paused ? <span class="pill s-retrying"><Icon name="pause" />{t.schedules.paused}</span> : null}<code class="muted">{rule(schedule)}</code>
          <div class="right">
            {mayOffer("POST", `${path}/trigger`) ? <Button kind="btn-primary" icon="bolt" onClick={() => trigger(id)}>{t.schedules.trigger}</Button> : null}
            {mayOffer("POST", `${path}/pause`) ? (schedule.paused ? <Button icon="play" onClick={() => post(`${path}/resume`).then(resource.reload)}>{t.schedules.resume}</Button> : <Button icon="pause" onClick={pause}>{t.schedules.pause}</Button>) : null}
            {mayOffer("PUT", path) ? <Button icon="edit" onClick={() => setEditing(true)}>{t.schedules.edit}</Button> : null}
            {mayOffer("DELETE", path) ? <Button kind="btn-danger" onClick={remove}>{t.common.delete}</Button> : null}
          </div>
        </div>
      </div>
      {schedule.paused && schedule.pause_note ? <p class="note"><Icon name="info" />{schedule.pause_note}</p> : null}
      <div class="cols">
        <div class="stackcol">
          <section class="card"><div class="card-head"><h2>{t.schedules.ticks}</h2><div class="right"><TickStrip ticks={rows} /></div></div>
            {rows.length ? <div class="scroll-x"><table class="table dense"><thead><tr><th scope="col">{t.schedules.outcome}</th><th scope="col">{t.schedules.job}</th><th scope="col">{t.schedules.detail}</th><th scope="col" class="r">{t.schedules.due}</th></tr></thead><tbody>{rows.map((tick, index) => <tr key={index}><td><StateWord state={STATE[tick.outcome] ?? "pending"} word={t.schedules.outcomes[tick.outcome] ?? tick.outcome} /></td><td>{tick.job ? <JobLink id={tick.job} /> : t.time.none}</td><td class="fill trunc">{tick.detail}</td><td class="r muted"><Time at={tick.due_at} /></td></tr>)}</tbody></table></div> : <p class="card-body muted">{t.schedules.noTicks}</p>}
          </section>
          <section class="card"><div class="card-head line"><h2>{t.schedules.job}</h2><div class="right"><a class="link" href={link(["queues", schedule.queue])}>{schedule.queue}</a></div></div><JsonView text={resource.data!.job} /></section>
        </div>
        <section class="card"><div class="card-head"><h2>{t.schedules.nextTen}</h2></div>
          <div class="scroll-x"><table class="table dense"><thead><tr><th scope="col">{schedule.timezone}</th><th scope="col">{t.schedules.local}</th></tr></thead><tbody>{schedule.next.map((at) => <tr key={at}><td class="num" title={at}>{inZone(at, schedule.timezone)}</td><td class="num muted">{inZone(at)}</td></tr>)}</tbody></table></div>
          <dl class="kv">{([[t.schedules.misfire, schedule.misfire], [t.schedules.overlap, schedule.overlap], [t.schedules.jitter, schedule.jitter ?? t.common.none]] as const).map(([name, value]) => <div class="kv-row" key={name}><dt>{name}</dt><dd>{value}</dd></div>)}</dl>
        </section>
      </div>
      {isEditing ? <ScheduleForm schedule={schedule} payload={resource.data!.payload} close={() => (setEditing(false), resource.reload())} /> : null}
    </main>
  );
}
