// One queue: counts, pause, settings.

import { Button, Count, Failure, Glyph, Icon, Loading, Time } from "../components/basic";
import { errorText } from "../components/dialog";
import { SettingsEditor } from "../components/settings-editor";
import { call, get, mayOffer, post, segment } from "../lib/api";
import { info, stats, workers } from "../lib/app";
import { duration, figure, parseDuration, stateClass } from "../lib/format";
import { refresh } from "../lib/live";
import { useResource } from "../lib/resource";
import { link, open } from "../lib/router";
import { HOUR, lately, rangeOf, useSeries } from "../lib/series";
import { Charts } from "./overview";
import { STATES, type Queue } from "../lib/types";
import { ask, toast } from "../lib/ui";
import { t } from "../strings";

function askDelete(queue: Queue): void {
  const live = STATES.slice(0, 5).reduce((sum, state) => sum + (queue.counts[state] ?? 0), 0);
  ask({
    title: t.queues.deleteTitle(queue.name), body: `${t.queues.deleteText}${live ? ` ${t.queues.deleteForce(live)}` : ""}`, keep: t.common.cancel, act: t.queues.deleteAct, isDanger: true, ...(live > 1000 ? { typed: queue.name } : {}),
    run: async () => {
      await call("DELETE", `v1/queues/${segment(queue.name)}${live ? "?force=true" : ""}`);
      toast(t.queues.deleted(queue.name));
      refresh();
      open(link(["queues"]));
    },
  });
}

export function QueuePage({ id }: { id: string }) {
  const queue = useResource<Queue>(id, () => get<Queue>(`v1/queues/${segment(id)}`));
  const range = rangeOf(info.value, HOUR);
  const series = useSeries(range, id).data;
  const data = queue.data;
  const head = <div class="crumbs"><a href={link(["queues"])}>{t.nav.queues}</a><Icon name="right" /><span>{id}</span></div>;
  if (!data) return <main class="page" id="content" tabIndex={-1}>{head}<section class="card">{queue.error ? <Failure error={queue.error} what={t.queues.title} retry={queue.reload} /> : <Loading />}</section></main>;
  const figures = stats.value?.queues[id];
  const of = (name: "submitted" | "completed" | "failed") => lately(series, (columns) => columns[name]) ?? figures?.rates[name] ?? 0;
  const taking = (workers.value ?? []).filter((worker) => worker.queues.includes(id));
  const toggle = () => post(`v1/queues/${segment(id)}/${data.paused ? "resume" : "pause"}`).then(() => (toast(data.paused ? t.queues.resumedDone(id) : t.queues.pausedDone(id)), queue.reload(), refresh()), (error: unknown) => toast(errorText(error), "error"));
  return (
    <main class="page" id="content" tabIndex={-1}>
      <div class="job-head">{head}
        <div class="job-title"><h1>{data.name}</h1>{data.paused ? <span class="pill s-retrying"><Icon name="pause" />{t.queues.paused}</span> : null}<span class="faint">{t.queues.profile} {data.profile}</span>
          <div class="right">
            {mayOffer("POST", "v1/queues/q/pause") ? <Button kind="btn-primary" icon={data.paused ? "play" : "pause"} onClick={toggle}>{data.paused ? t.queues.resume : t.queues.pause}</Button> : null}
            <a class="btn" href={link(["jobs"], { queue: id })}><Icon name="jobs" />{t.queues.jobs}</a>
            {mayOffer("POST", "v1/queues/q/jobs") ? <a class="btn" href={link(["submit"], { queue: id })}><Icon name="plus" />{t.jobsPage.submit}</a> : null}
            {id !== "default" && mayOffer("DELETE", "v1/queues/q") ? <Button kind="btn-danger" onClick={() => askDelete(data)}>{t.common.delete}</Button> : null}
          </div>
        </div>
      </div>
      <section class="card state-counts" aria-label={t.queues.counts}>
        {STATES.map((state) => <a key={state} class={stateClass(state)} href={link(["jobs"], { queue: id, state })}><span><Glyph state={state} />{t.state[state]}</span><b class="num"><Count value={data.counts[state] ?? 0} /></b></a>)}
      </section>
      <section class="card">
        <dl class="facts">
          <div><dt>{t.overview.oldest}</dt><dd>{data.oldest_scheduled_at ? <Time at={data.oldest_scheduled_at} /> : <span class="faint">{t.overview.noneWaits}</span>}</dd></div>
          <div><dt>{t.overview.completed}</dt><dd>{figure(of("completed"))} <small>/s</small></dd></div>
          <div><dt>{t.overview.failedAttempts}</dt><dd>{figure(of("failed"))} <small>/s</small></dd></div>
          <div><dt>{t.system.submitted}</dt><dd>{figure(of("submitted"))} <small>/s</small></dd></div>
          <div><dt>{t.queues.target}</dt><dd>{data.settings.wait_target ? duration(parseDuration(data.settings.wait_target) ?? 0) : <span class="faint">{t.common.none}</span>}</dd></div>
          <div><dt>{t.queues.workers}</dt><dd>{taking.length ? <a class="link" href={link(["workers"], { queue: id })}>{t.plural(taking.length, "worker")}</a> : <span class="faint">{t.queues.noWorkers}</span>}</dd></div>
        </dl>
      </section>
      {series ? <Charts series={series} queue={id} /> : <section class="card charts-wait"><Loading /></section>}
      <SettingsEditor key={data.profile} queue={data} />
    </main>
  );
}
