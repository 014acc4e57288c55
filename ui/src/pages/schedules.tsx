// All schedules: when they fire next, how their last ticks ended, pause and run now.

import { useEffect, useRef, useState } from "preact/hooks";
import { Button, Empty, Failure, Icon, Loading, Time } from "../components/basic";
import { errorText } from "../components/dialog";
import { ScheduleForm } from "../components/schedule-form";
import { get, mayOffer, post, query, segment } from "../lib/api";
import { refresh } from "../lib/live";
import { useResource } from "../lib/resource";
import { link, open, route, setQuery } from "../lib/router";
import type { AttentionItem, Schedule, Tick } from "../lib/types";
import { toast } from "../lib/ui";
import { COMMANDS, t } from "../strings";

const OUTCOME: Record<string, string> = { fired: "s-completed", skipped_overlap: "s-retrying", skipped_misfire: "s-retrying", refused: "s-failed" };

/** The last ticks as a strip, the oldest on the left. */
export function TickStrip({ ticks }: { ticks: Tick[] }) {
  const shown = ticks.slice(0, 24).reverse();
  return <span class="strip">{shown.map((tick, index) => <i key={index} class={OUTCOME[tick.outcome] ?? ""} title={`${tick.due_at} ${t.schedules.outcomes[tick.outcome] ?? tick.outcome}`} />)}<span class="sr">{shown.map((tick) => t.schedules.outcomes[tick.outcome] ?? tick.outcome).join(", ")}</span></span>;
}

/** Cron expression or period in words. */
export function rule(schedule: Schedule): string {
  return schedule.cron ?? t.schedules.every(schedule.every ?? "");
}

/** Submits the job of a schedule now. */
export async function trigger(name: string): Promise<void> {
  try {
    const answer = await post<{ id: string }>(`v1/schedules/${segment(name)}/trigger`);
    toast(t.schedules.triggered, "done", { label: t.common.open, run: () => open(link(["jobs", answer.id])) });
    refresh();
  } catch (error) {
    toast(errorText(error), "error");
  }
}

/** The ticks of a row that is in view. They are read again only after another tick. */
function Strip({ schedule }: { schedule: Schedule }) {
  const [isSeen, setSeen] = useState(false);
  const box = useRef<HTMLSpanElement>(null);
  useEffect(() => {
    const observer = new IntersectionObserver(([entry]) => entry?.isIntersecting && setSeen(true), { rootMargin: "200px" });
    if (box.current) observer.observe(box.current);
    return () => observer.disconnect();
  }, []);
  const key = isSeen && schedule.last ? `ticks ${schedule.name} ${schedule.last.due_at} ${schedule.last.outcome}` : null;
  const ticks = useResource<{ ticks: Tick[] }>(key, () => get(`v1/schedules/${segment(schedule.name)}/ticks`), null);
  const kept = useRef<Tick[]>([]);
  if (ticks.data) kept.current = ticks.data.ticks;
  return <span ref={box} class="strip-box">{kept.current.length ? <TickStrip ticks={kept.current} /> : null}</span>;
}

interface Missed { name: string; outcome: string; dueAt: string; detail: string }

/** Schedules that missed a tick, from what the server says needs attention. */
function MissedCard() {
  const list = useResource<{ items: AttentionItem[] }>("attention", () => get("v1/attention"), 5_000);
  const text = (item: AttentionItem, key: string) => (typeof item.facts[key] === "string" ? (item.facts[key] as string) : "");
  const rows: Missed[] = (list.data?.items ?? []).filter((item) => item.code === "schedule_missed").map((item) => ({ name: text(item, "schedule"), outcome: text(item, "outcome"), dueAt: text(item, "due_at"), detail: text(item, "detail") }));
  if (!rows.length) return null;
  const may = mayOffer("POST", "v1/schedules/s/trigger");
  return (
    <section class="card">
      <div class="card-head"><h2>{t.schedules.missed}</h2><span class="count">{rows.length}</span></div>
      <ul class="missed">{rows.map((row) => <li key={row.name}><Icon name="alert" class="sev sev-2" /><a class="qname" href={link(["schedules", row.name])}>{row.name}</a><span class="muted trunc">{row.detail || t.schedules.outcomes[row.outcome] || row.outcome}</span><span class="faint"><Time at={row.dueAt || null} /></span>{may ? <Button kind="btn-sm" onClick={() => trigger(row.name)}>{t.schedules.trigger}</Button> : null}</li>)}</ul>
    </section>
  );
}

export function Schedules() {
  const cursor = route.value.query.get("cursor") ?? "";
  const list = useResource<{ schedules: Schedule[]; next: string | null }>(`schedules ${cursor}`, () => get(`v1/schedules${query({ limit: 100, cursor })}`), 1_000);
  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set());
  const [isCreating, setCreating] = useState(false);
  const rows = list.data?.schedules ?? [];
  const chosen = rows.filter((schedule) => selected.has(schedule.name));
  const toggle = (name: string) => setSelected((old) => {
    const next = new Set(old);
    if (!next.delete(name)) next.add(name);
    return next;
  });
  const may = mayOffer("POST", "v1/schedules/s/pause");
  const each = async (verb: "pause" | "resume") => {
    for (const schedule of chosen) await post(`v1/schedules/${segment(schedule.name)}/${verb}`).catch((error: unknown) => toast(errorText(error), "error"));
    setSelected(new Set());
    list.reload();
  };
  const one = (schedule: Schedule) => post(`v1/schedules/${segment(schedule.name)}/${schedule.paused ? "resume" : "pause"}`).then(list.reload, (error: unknown) => toast(errorText(error), "error"));
  return (
    <main class="page" id="content" tabIndex={-1}>
      <div class="page-head"><h1>{t.schedules.title}</h1>{list.data ? <span class="count">{rows.length}</span> : null}<div class="right">{list.data && mayOffer("PUT", "v1/schedules/s") ? <Button kind="btn-primary" icon="plus" onClick={() => setCreating(true)}>{t.schedules.create}</Button> : null}</div></div>
      <MissedCard />
      <section class="card">
        {!list.data ? (list.error ? <Failure error={list.error} what={t.schedules.what} retry={list.reload} /> : <Loading />) : !rows.length ? <Empty icon="schedules" title={t.schedules.empty} text={t.schedules.emptyText} command={COMMANDS.schedule} /> : (
          <div class="scroll-x"><table class="table">
            <thead><tr>{may ? <th scope="col"><input class="check" type="checkbox" aria-label={t.schedules.selectAll} checked={chosen.length === rows.length} ref={(input) => { if (input) input.indeterminate = chosen.length > 0 && chosen.length < rows.length; }} onChange={() => setSelected(chosen.length === rows.length ? new Set() : new Set(rows.map((schedule) => schedule.name)))} /></th> : null}<th scope="col">{t.schedules.name}</th><th scope="col" class="hide-sm">{t.schedules.when}</th><th scope="col" class="hide-sm">{t.schedules.zone}</th><th scope="col" class="hide-sm">{t.common.queue}</th><th scope="col" class="hide-sm">{t.common.type}</th><th scope="col" class="hide-sm">{t.schedules.last}</th><th scope="col" class="r hide-sm">{t.schedules.next}</th><th scope="col" class="r"><span class="sr">{t.workers.actions}</span></th></tr></thead>
            <tbody>{rows.map((schedule) => (
              <tr key={schedule.name} class={selected.has(schedule.name) ? "sel" : ""}>
                {may ? <td><input class="check" type="checkbox" aria-label={`${t.jobsPage.select} ${schedule.name}`} checked={selected.has(schedule.name)} onChange={() => toggle(schedule.name)} /></td> : null}
                <td><span class="cell"><a class="qname" href={link(["schedules", schedule.name])}>{schedule.name}</a>{schedule.paused ? <span class="tag" title={schedule.pause_note ?? undefined}>{t.schedules.paused}</span> : null}</span><span class="line2"><code>{rule(schedule)}</code>{schedule.paused ? null : <> <Time at={schedule.next[0] ?? null} /></>}</span></td>
                <td class="hide-sm"><code>{rule(schedule)}</code></td><td class="hide-sm muted">{schedule.timezone}</td><td class="hide-sm"><a class="link" href={link(["queues", schedule.queue])}>{schedule.queue}</a></td><td class="hide-sm"><code>{schedule.job.type}</code></td>
                <td class="hide-sm"><Strip schedule={schedule} /></td><td class="r hide-sm">{schedule.paused ? <span class="zero">{t.time.none}</span> : <Time at={schedule.next[0] ?? null} />}</td>
                <td class="r"><span class="cell-r">{mayOffer("POST", "v1/schedules/s/trigger") ? <Button kind="btn-sm" onClick={() => trigger(schedule.name)}>{t.schedules.trigger}</Button> : null}{may ? <Button kind="btn-sm hide-sm" onClick={() => one(schedule)}>{schedule.paused ? t.schedules.resume : t.schedules.pause}</Button> : null}</span></td>
              </tr>
            ))}</tbody>
          </table></div>
        )}
        {list.data?.next || cursor ? <div class="pager"><span class="grow" />{cursor ? <Button kind="btn-sm" onClick={() => setQuery({ cursor: null })}>{t.common.first}</Button> : null}{list.data?.next ? <Button kind="btn-sm" onClick={() => setQuery({ cursor: list.data!.next })}>{t.common.next}</Button> : null}</div> : null}
      </section>
      {chosen.length ? <section class="bulk"><div class="head">{t.schedules.selected(chosen.length)}</div><div class="acts"><Button onClick={() => each("resume")}>{t.schedules.resumeAll(chosen.length)}</Button><Button kind="btn-go" onClick={() => each("pause")}>{t.schedules.pauseAll(chosen.length)}</Button></div></section> : null}
      {isCreating ? <ScheduleForm schedule={null} close={() => (setCreating(false), list.reload())} /> : null}
    </main>
  );
}
