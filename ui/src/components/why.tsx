// Why a job does not run: the server's sentences as they are, with links to what they name.

import { call, mayOffer, post, segment } from "../lib/api";
import { refresh } from "../lib/live";
import { link } from "../lib/router";
import type { Job, Reason, Why } from "../lib/types";
import { toast } from "../lib/ui";
import { COMMANDS, t } from "../strings";
import { Button, Command, Icon, JobLink, Sentence, Time } from "./basic";
import { errorText } from "./dialog";

const ICONS: Record<string, string> = { queue_paused: "pause", held: "pause", waiting_on: "link", delayed_until: "clock", backoff_until: "undo", lifetime: "clock", behind: "queues", no_worker: "alert", concurrency: "stop", rate: "stop", running: "play" };
const TROUBLE = ["no_worker", "queue_paused"];
const LINKS_MAX = 5;

function JobLinks({ ids }: { ids: string[] }) {
  return <>{ids.slice(0, LINKS_MAX).map((id) => <span key={id}><JobLink id={id} /> </span>)}{ids.length > LINKS_MAX ? <span class="faint">{t.overview.nMore(ids.length - LINKS_MAX)}</span> : null}</>;
}

/** What the sentence of a reason names: jobs, the queue, the workers, an instant. */
function Links({ reason, job }: { reason: Reason; job: Job }) {
  const queue = reason.queue ?? job.queue;
  const resume = () => post(`v1/queues/${segment(queue)}/resume`).then(refresh, (error: unknown) => toast(errorText(error), "error"));
  const at = reason.at ?? reason.expires_at;
  switch (reason.code) {
    case "queue_paused": return mayOffer("POST", "v1/queues/q/resume") ? <button class="link plain" type="button" onClick={resume}>{t.why.resume}</button> : <a class="link" href={link(["queues", queue])}>{queue}</a>;
    case "waiting_on": return <><JobLinks ids={reason.after ?? []} /><JobLinks ids={reason.after_any ?? []} /></>;
    case "behind": return <a class="link" href={link(["jobs"], { queue: job.queue, state: "scheduled" })}>{t.why.see}</a>;
    case "no_worker": return <><a class="link" href={link(["workers"])}>{t.why.workers}</a><span class="why-cmd">{t.why.startCommand} <Command text={COMMANDS.work(queue)} /></span></>;
    case "running": return <>{reason.worker ? <a class="link mono" href={link(["workers"], { worker: reason.worker })}>{reason.worker}</a> : null} {at ? <span class="faint">{t.why.lease} <Time at={at} /></span> : null}</>;
    default: return at ? <span class="faint"><Time at={at} /></span> : null;
  }
}

/** A sentence without its first letter's case and its full stop. */
const plain = (text: string): string => text.toLowerCase().replace(/\.$/, "");

export function WhyCard({ job, why }: { job: Job; why: Why }) {
  const isEnded = ["completed", "failed", "dead_letter", "cancelled"].includes(why.state);
  const title = isEnded ? t.job.whyEnded : why.state === "running" ? t.job.whyRunning : t.job.why;
  const action = why.action;
  // A single reason is in the lead already: its row has the next step.
  const isTold = (reason: Reason) => why.reasons.length === 1 && plain(why.summary).includes(plain(reason.text));
  const isStuck = !isEnded && why.state !== "running" && (!why.runnable || why.reasons.some((reason) => TROUBLE.includes(reason.code)));
  const run = () => action && call(action.method, action.path, { body: action.body ?? {} }).then(() => (toast(t.job.done.requeue!), refresh()), (error: unknown) => toast(errorText(error), "error"));
  return (
    <section class={`card why-card ${isStuck ? "why" : ""}`} aria-labelledby="why-title">
      <div class="card-head"><h2 id="why-title">{title}</h2></div>
      <p class="lead"><Sentence text={why.summary} />{why.requeued_as ? <> <JobLink id={why.requeued_as} /></> : null}</p>
      {why.reasons.length ? (
        <ul class="reasons">{why.reasons.map((reason, index) => <li key={index}><Icon name={ICONS[reason.code] ?? "info"} class={TROUBLE.includes(reason.code) ? "sev-2" : ""} /><p>{isTold(reason) ? null : <><Sentence text={reason.text} /> </>}<Links reason={reason} job={job} /> <span class="code-tag">{reason.code}</span></p></li>)}</ul>
      ) : null}
      {action && mayOffer(action.method, action.path) && (action.job ?? job.id) !== job.id ? <div class="foot-acts"><Button onClick={run} icon="undo">{action.label}</Button><JobLink id={action.job!} /></div> : null}
    </section>
  );
}
