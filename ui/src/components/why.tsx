// Why a job does not run: the server's reasons in words, with links to what blocks it.

import { call, mayOffer, post, segment } from "../lib/api";
import { now } from "../lib/app";
import { relative } from "../lib/format";
import { refresh } from "../lib/live";
import { link } from "../lib/router";
import type { Job, Reason, Why } from "../lib/types";
import { toast } from "../lib/ui";
import { COMMANDS, t } from "../strings";
import { Button, Command, Icon, JobLink, Time } from "./basic";
import { errorText } from "./dialog";

const ICONS: Record<string, string> = { queue_paused: "pause", held: "pause", waiting_on: "link", delayed_until: "clock", backoff_until: "undo", lifetime: "clock", behind: "queues", no_worker: "alert", concurrency: "stop", rate: "stop", running: "play" };
const LINKS_MAX = 5;

function JobLinks({ ids }: { ids: string[] }) {
  return <>{ids.slice(0, LINKS_MAX).map((id) => <span key={id}><JobLink id={id} /> </span>)}{ids.length > LINKS_MAX ? <span class="faint">{t.overview.nMore(ids.length - LINKS_MAX)}</span> : null}</>;
}

function Words({ reason, job }: { reason: Reason; job: Job }) {
  switch (reason.code) {
    case "queue_paused": {
      const [lead, rest] = t.why.queue_paused(reason.queue ?? job.queue);
      const resume = () => post(`v1/queues/${segment(reason.queue ?? job.queue)}/resume`).then(refresh, (error: unknown) => toast(errorText(error), "error"));
      return <><b>{lead}</b> {rest} {mayOffer("POST", "v1/queues/q/resume") ? <button class="link plain" type="button" onClick={resume}>{t.why.resume}</button> : null}</>;
    }
    case "held": return <><b>{t.why.held[0]}</b> {t.why.held[1]}</>;
    case "waiting_on": {
      const [lead, rest] = t.why.waiting_on(reason.count ?? 0);
      return <><b>{lead}</b> {reason.after?.length ? <><JobLinks ids={reason.after} /> {t.why.after}. </> : null}{reason.after_any?.length ? <><JobLinks ids={reason.after_any} /> {t.why.after_any}. </> : null}{!reason.after?.length && !reason.after_any?.length ? rest : null}</>;
    }
    case "delayed_until": return <><b>{t.why.delayed_until}</b> {t.why.startsAt} <Time at={reason.at} />.</>;
    case "backoff_until": return <><b>{t.why.backoff_until(reason.failures ?? 0)}</b> {t.why.startsAt} <Time at={reason.at} />.</>;
    case "lifetime": return <><b>{t.why.lifetime}</b> {t.why.endsAt} <Time at={reason.at} />.</>;
    case "behind": return <><b>{t.why.behind(reason.ahead ?? 0)}</b> {t.why.behindText} <a class="link" href={link(["jobs"], { queue: job.queue, state: "scheduled" })}>{t.why.see}</a></>;
    case "no_worker": return (
      <><b>{t.why.no_worker}</b> {reason.last_seen_at ? t.why.last(relative(reason.last_seen_at, now.value)) : t.why.never} {reason.types?.length ? <>{t.why.types} {reason.types.map((type) => <code key={type}>{type} </code>)}</> : null}<a class="link" href={link(["workers"])}>{t.why.workers}</a>
        <span class="why-cmd">{t.why.startCommand} <Command text={COMMANDS.work(reason.queue ?? job.queue)} /></span></>
    );
    case "concurrency": return <b>{t.why.concurrency(reason.limit ?? 0)}</b>;
    case "rate": return <b>{t.why.rate(reason.limit ?? 0)}</b>;
    case "running": return <><b>{t.why.running}</b> {reason.worker ? <>{t.why.on} <a class="link mono" href={link(["workers"], { worker: reason.worker })}>{reason.worker}</a></> : null}. {reason.expires_at ? <>{t.why.lease} <Time at={reason.expires_at} /> {t.why.without}</> : null}</>;
    default: return <b>{reason.code}</b>;
  }
}

export function WhyCard({ job, why }: { job: Job; why: Why }) {
  const isEnded = ["completed", "failed", "dead_letter", "cancelled"].includes(why.state);
  const title = isEnded ? t.job.whyEnded : why.state === "running" ? t.job.whyRunning : t.job.why;
  const action = why.action;
  const run = () => action && call(action.method, action.path, { body: action.body ?? {} }).then(() => (toast(t.job.done.requeue!), refresh()), (error: unknown) => toast(errorText(error), "error"));
  return (
    <section class={`card ${isEnded || why.state === "running" || why.runnable ? "" : "why"}`} aria-labelledby="why-title">
      <div class="card-head"><h2 id="why-title">{title}</h2></div>
      {isEnded ? <p class="lead">{t.why.ended[why.state]} {why.error ? <><code>{why.error.code ?? why.error.category}</code> {why.error.message}</> : null}</p> : null}
      {why.runnable ? <p class="lead">{t.why.runnable}</p> : null}
      {why.requeued_as ? <p class="lead">{t.why.requeuedAs} <JobLink id={why.requeued_as} /></p> : null}
      {why.reasons.length ? (
        <ul class="reasons">{why.reasons.map((reason, index) => <li key={index}><Icon name={ICONS[reason.code] ?? "info"} class={reason.code === "no_worker" || reason.code === "queue_paused" ? "sev-2" : ""} /><p><Words reason={reason} job={job} /> <span class="code-tag">{reason.code}</span></p></li>)}</ul>
      ) : null}
      {action && mayOffer(action.method, action.path) && (action.job ?? job.id) !== job.id ? <div class="foot-acts"><Button onClick={run} icon="undo">{action.label}</Button><JobLink id={action.job!} /></div> : null}
    </section>
  );
}
