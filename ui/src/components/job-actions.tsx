// Actions on one job. Only those that the server lists as legal are offered.

import { useState } from "preact/hooks";
import { call, mayOffer, token } from "../lib/api";
import { cli, curl } from "../lib/curl";
import { refresh } from "../lib/live";
import { link, open } from "../lib/router";
import { parseTags } from "../lib/submission";
import { PRIORITIES, type Action, type Job, type Json } from "../lib/types";
import { ask, copy, toast } from "../lib/ui";
import { t } from "../strings";
import { Button, Icon } from "./basic";
import { errorText, Field, Modal } from "./dialog";

interface Verb { method: string; suffix: string; body: Json | undefined; icon?: string; command: string }

const VERBS: Record<Exclude<Action, "edit">, Verb> = {
  run_now: { method: "POST", suffix: "/run-now", body: {}, icon: "bolt", command: "run-now" },
  requeue: { method: "POST", suffix: "/requeue", body: {}, icon: "undo", command: "requeue" },
  submit: { method: "POST", suffix: "/submit", body: {}, icon: "play", command: "submit" },
  cancel: { method: "POST", suffix: "/cancel", body: {}, command: "cancel" },
  force_cancel: { method: "POST", suffix: "/cancel", body: { force: true }, command: "cancel" },
  dead_letter: { method: "POST", suffix: "/dead-letter", body: {}, command: "dead-letter" },
  delete: { method: "DELETE", suffix: "", body: undefined, command: "delete" },
};

async function perform(job: Job, action: Exclude<Action, "edit">, reason: string): Promise<void> {
  const verb = VERBS[action];
  const body = verb.body && reason ? { ...(verb.body as { [key: string]: Json }), reason } : verb.body;
  const answer = await call<{ id?: string; state?: string } | undefined>(verb.method, `v1/jobs/${job.id}${verb.suffix}`, body === undefined ? {} : { body });
  const isAsked = action === "cancel" && answer?.state === "running";
  toast(isAsked ? t.job.cancelAsked : t.job.done[action]!);
  if (action === "delete") open(link(["jobs"], { queue: job.queue }));
  else if (answer?.id && answer.id !== job.id) open(link(["jobs", answer.id]));
  refresh();
}

function start(job: Job, action: Exclude<Action, "edit">): void {
  const words = t.job.ask[action];
  if (!words) {
    perform(job, action, "").catch((error: unknown) => toast(errorText(error), "error"));
    return;
  }
  const [title, body, act] = words;
  let reason = "";
  const hasReason = action !== "delete";
  ask({
    title, keep: t.common.cancel, act, isDanger: true,
    body: <><p>{body}</p>{hasReason ? <Field label={t.job.reason}><input class="input" onInput={(event) => (reason = event.currentTarget.value)} /></Field> : null}</>,
    run: () => perform(job, action, reason),
  });
}

function tagText(tags: Record<string, string | null>): string {
  return Object.entries(tags).map(([name, value]) => (value === null ? name : `${name}=${value}`)).join(", ");
}

function EditDialog({ job, close }: { job: Job; close: () => void }) {
  const limit = job.policy.retry?.limit;
  const before = { type: job.type, priority: job.priority, tags: tagText(job.tags), correlation: job.correlation_id ?? "", callback: job.callback_url ?? "", limit: limit === undefined ? "" : String(limit) };
  const [value, setValue] = useState(before);
  const [failure, setFailure] = useState<string | null>(null);
  const set = (key: keyof typeof before) => (event: { currentTarget: { value: string } }) => setValue({ ...value, [key]: event.currentTarget.value });
  const save = async (event: Event) => {
    event.preventDefault();
    const body: { [key: string]: Json } = {};
    if (value.type !== before.type) body.type = value.type;
    if (value.priority !== before.priority) body.priority = value.priority;
    if (value.tags !== before.tags) body.tags = parseTags(value.tags);
    if (value.correlation !== before.correlation) body.correlation_id = value.correlation || null;
    if (value.callback !== before.callback) body.callback_url = value.callback || null;
    if (value.limit !== before.limit) body.retry = { limit: Number(value.limit) };
    if (!Object.keys(body).length) return setFailure(t.edit.unchanged);
    try {
      await call("PATCH", `v1/jobs/${job.id}`, { body });
      toast(t.job.done.edit!);
      refresh();
      close();
    } catch (error) {
      setFailure(errorText(error));
    }
  };
  return (
    <Modal label={t.edit.title} close={close}>
      <form class="form" onSubmit={save}>
        <h2>{t.edit.title}</h2>
        <Field label={t.submit.type}><input class="input mono" value={value.type} onInput={set("type")} data-autofocus /></Field>
        <Field label={t.submit.priority}><select class="input" value={value.priority} onChange={set("priority")}>{PRIORITIES.map((name) => <option key={name}>{name}</option>)}</select></Field>
        <Field label={t.submit.tags} hint={t.submit.tagsHint}><input class="input mono" value={value.tags} onInput={set("tags")} /></Field>
        <Field label={t.submit.correlation}><input class="input mono" value={value.correlation} onInput={set("correlation")} /></Field>
        <Field label={t.submit.callback}><input class="input mono" value={value.callback} onInput={set("callback")} /></Field>
        <Field label={t.submit.limit}><input class="input" inputMode="numeric" value={value.limit} onInput={set("limit")} /></Field>
        <p class="faint">{t.edit.note}</p>
        {failure ? <div class="err" role="alert">{failure}</div> : null}
        <div class="acts"><Button onClick={close}>{t.common.close}</Button><Button kind="btn-primary" type="submit">{t.edit.act}</Button></div>
      </form>
    </Modal>
  );
}

const MAIN: Action[] = ["run_now", "requeue", "submit"];
const DANGER: Action[] = ["cancel", "force_cancel", "dead_letter", "delete"];

export function JobActions({ job }: { job: Job }) {
  const [isEditing, setEditing] = useState(false);
  const [isOpen, setOpen] = useState(false);
  const offered = job.actions.filter((action) => {
    if (action === "edit") return mayOffer("PATCH", `v1/jobs/${job.id}`);
    const verb = VERBS[action];
    return verb && mayOffer(verb.method, `v1/jobs/${job.id}${verb.suffix}`);
  });
  const main = MAIN.find((action) => offered.includes(action)) as Exclude<Action, "edit"> | undefined;
  const others = DANGER.filter((action) => offered.includes(action)) as Exclude<Action, "edit">[];
  const [danger, ...menu] = others;
  const copyText = async (text: string) => toast((await copy(text)) ? t.common.copied : t.common.copyFailed);
  const extra = offered.filter((action) => MAIN.includes(action) && action !== main) as Exclude<Action, "edit">[];
  return (
    <div class="right">
      {main ? <Button kind="btn-primary" {...(VERBS[main].icon ? { icon: VERBS[main].icon } : {})} onClick={() => start(job, main)}>{t.job.actions[main]}</Button> : null}
      {offered.includes("edit") ? <Button icon="edit" onClick={() => setEditing(true)}>{t.job.actions.edit}</Button> : null}
      {danger ? <Button kind="btn-danger" onClick={() => start(job, danger)}>{t.job.actions[danger]}</Button> : null}
      <div class="menu-wrap">
        <button class="btn" type="button" aria-label={t.job.more2} aria-expanded={isOpen} aria-haspopup="true" onClick={() => setOpen(!isOpen)}><Icon name="more" /></button>
        {isOpen ? (
          <div class="menu-pop right-pop" onClick={() => setOpen(false)}>
            {[...extra, ...menu].map((action) => <button key={action} type="button" class={`menu-item ${DANGER.includes(action) ? "is-danger" : ""}`} onClick={() => start(job, action)}>{t.job.actions[action]}</button>)}
            {mayOffer("POST", "v1/queues/q/jobs") ? <a class="menu-item" href={link(["submit"], { from: job.id })}>{t.job.duplicate}</a> : null}
            {mayOffer("POST", "v1/queues/q/jobs") && job.completed_at && job.state !== "completed" ? <a class="menu-item" href={link(["submit"], { from: job.id, replace: "1" })}>{t.job.editRequeue}</a> : null}
            <button type="button" class="menu-item" onClick={() => copyText(curl("GET", `v1/jobs/${job.id}`, null, !!token.value))}>{t.job.curl}</button>
            <button type="button" class="menu-item" onClick={() => copyText(cli("jobs", "get", job.id))}>{t.job.cli}</button>
            {main ? <button type="button" class="menu-item" onClick={() => copyText(curl(VERBS[main].method, `v1/jobs/${job.id}${VERBS[main].suffix}`, JSON.stringify(VERBS[main].body), !!token.value))}>{t.job.curl}: {t.job.actions[main]}</button> : null}
          </div>
        ) : null}
      </div>
      {isEditing ? <EditDialog job={job} close={() => setEditing(false)} /> : null}
    </div>
  );
}
