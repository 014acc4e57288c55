// One queue: counts, pause, settings with the profile's locks as the server names them.

import { useState } from "preact/hooks";
import { Button, Count, Failure, Glyph, Icon, Loading, Time } from "../components/basic";
import { errorText } from "../components/dialog";
import { Spark } from "../components/chart";
import { ApiError, call, get, mayOffer, post, segment } from "../lib/api";
import { stats, workers } from "../lib/app";
import { figure, stateClass } from "../lib/format";
import { refresh } from "../lib/live";
import { useResource } from "../lib/resource";
import { link, open } from "../lib/router";
import { HOUR, useSeries } from "../lib/series";
import { at, flatten, read, set, without } from "../lib/settings";
import { STATES, type Json, type Queue } from "../lib/types";
import { ask, toast } from "../lib/ui";
import { t } from "../strings";
import { PROFILES } from "./queues";

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

/** Fields whose values come from a closed set; the server checks them again. */
const CHOICES: Record<string, string[]> = {
  "retry.counts": ["starts", "failures", "retries"], "retry.backoff.kind": ["constant", "linear", "exponential", "list"], "retry.jitter.kind": ["none", "symmetric", "full"], "retry.on_permanent": ["failed", "dead_letter", "retry"],
  "retry.on_exhausted": ["dead_letter", "failed"], "retry.on_timeout": ["retry", "final"], "retry.on_system": ["retry", "final"], on_lease_expiry: ["reclaim_counted", "reclaim_free", "fail_timeout", "fail_retryable"], reclaim: ["eager", "lazy"],
  fencing: ["required", "optional"], "idempotency.scope": ["type", "queue", "global", "off"], requeue_order: ["submission", "tail"], submit: ["auto", "explicit"], manual_requeue: ["in_place", "clone"], cancel_running: ["cooperative", "immediate"],
};

function SettingsEditor({ queue }: { queue: Queue }) {
  const [changes, setChanges] = useState<Record<string, string>>({});
  const [profile, setProfile] = useState(queue.profile);
  const [locks, setLocks] = useState<Record<string, string>>({});
  const [failure, setFailure] = useState<string | null>(null);
  const may = mayOffer("PUT", "v1/queues/q");
  const list = flatten(queue.settings as Json);
  const changed = Object.keys(changes).length + (profile === queue.profile ? 0 : 1);
  const save = async (event: Event) => {
    event.preventDefault();
    // `settings` of a PUT replaces all earlier overrides, and the API answers resolved values only:
    // all values are sent, without those that the profile locks.
    let settings: { [key: string]: Json } = profile === queue.profile ? (queue.settings as { [key: string]: Json }) : {};
    for (const [path, text] of Object.entries(changes)) settings = set(settings, path, read(text, at(queue.settings as Json, path)));
    const found = { ...locks };
    for (let round = 0; round <= list.length; round += 1) {
      try {
        await call("PUT", `v1/queues/${segment(queue.name)}`, { body: { profile, settings } });
        setChanges({});
        setFailure(null);
        setLocks(found);
        toast(t.queues.saved(queue.name));
        return refresh();
      } catch (error) {
        const field = error instanceof ApiError && error.code === "validation" ? error.field?.replace(/^settings\./, "") : null;
        const isOwn = !field || Object.keys(changes).some((path) => path === field || path.startsWith(`${field}.`));
        if (field) setLocks({ ...found, [field]: errorText(error) });
        if (isOwn || found[field!]) return setFailure(errorText(error));
        found[field!] = errorText(error);
        settings = without(settings, field!);
      }
    }
  };
  const change = (path: string, text: string, before: string) => {
    const next = { ...changes };
    if (text === before) delete next[path];
    else next[path] = text;
    setChanges(next);
  };
  return (
    <form class="card" onSubmit={save}>
      <div class="card-head line"><h2>{t.queues.settings}</h2><div class="right">{t.queues.jobsKeep}</div></div>
      <div class="settings-profile"><label for="profile">{t.queues.profile}</label><select id="profile" class="input" value={profile} disabled={!may} onChange={(event) => setProfile(event.currentTarget.value)}>{PROFILES.map((name) => <option key={name}>{name}</option>)}</select><span class="faint">{t.queues.profileHint}</span></div>
      <div class="settings">
        {list.map(({ path, text }) => {
          const lock = Object.entries(locks).find(([locked]) => path === locked || path.startsWith(`${locked}.`))?.[1];
          const value = changes[path] ?? text;
          const choices = CHOICES[path] ?? (text === "true" || text === "false" ? ["true", "false"] : null);
          const common = { id: `set-${path}`, class: "input mono", disabled: !may, title: lock };
          return (
            <div class={`setting ${changes[path] !== undefined ? "is-changed" : ""} ${lock ? "is-locked" : ""}`} key={path}>
              <label for={`set-${path}`}><code>{path}</code>{lock ? <Icon name="alert" class="sev sev-2" label={lock} /> : null}</label>
              {choices ? <select {...common} value={value} onChange={(event) => change(path, event.currentTarget.value, text)}>{choices.map((choice) => <option key={choice}>{choice}</option>)}</select>
                : <input {...common} value={value} onInput={(event) => change(path, event.currentTarget.value, text)} />}
              {lock ? <span class="field-e">{lock}</span> : null}
            </div>
          );
        })}
      </div>
      {failure ? <div class="card-body"><div class="err" role="alert">{failure}</div></div> : null}
      {may ? (
        <div class="foot-acts"><span class="faint">{changed ? t.queues.replaces : t.queues.overridesHint}</span><span class="grow" />
          {changed ? <Button onClick={() => (setChanges({}), setProfile(queue.profile), setLocks({}), setFailure(null))}>{t.queues.reset}</Button> : null}
          <Button kind={changed ? "btn-primary" : ""} type="submit" disabled={!changed}>{t.common.save}{changed ? ` ${t.queues.changed(changed)}` : ""}</Button>
        </div>
      ) : null}
    </form>
  );
}

export function QueuePage({ id }: { id: string }) {
  const queue = useResource<Queue>(id, () => get<Queue>(`v1/queues/${segment(id)}`));
  const series = useSeries(HOUR, id).data;
  const data = queue.data;
  const head = <div class="crumbs"><a href={link(["queues"])}>{t.nav.queues}</a><Icon name="right" /><span>{id}</span></div>;
  if (!data) return <main class="page" id="content" tabIndex={-1}>{head}<section class="card">{queue.error ? <Failure error={queue.error} what={t.queues.title} retry={queue.reload} /> : <Loading />}</section></main>;
  const figures = stats.value?.queues[id];
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
          <div><dt>{t.overview.completed}</dt><dd>{figure(figures?.rates.completed ?? 0)} <small>/s</small></dd></div>
          <div><dt>{t.overview.failedAttempts}</dt><dd>{figure(figures?.rates.failed ?? 0)} <small>/s</small></dd></div>
          <div><dt>{t.overview.submittedL}</dt><dd>{figure(figures?.rates.submitted ?? 0)} <small>/s</small></dd></div>
          <div><dt>{t.queues.completedRate}, {HOUR.name}</dt><dd>{series ? <Spark values={series.totals.completed} label={`${t.queues.completedRate}, ${HOUR.name}`} /> : t.time.none}</dd></div>
          <div><dt>{t.queues.workers}</dt><dd>{taking.length ? <a class="link" href={link(["workers"], { queue: id })}>{t.plural(taking.length, "worker")}</a> : <span class="faint">{t.queues.noWorkers}</span>}</dd></div>
        </dl>
      </section>
      <SettingsEditor key={data.profile} queue={data} />
    </main>
  );
}
