// The form that submits a job. The payload is sent byte for byte as typed.

import { useEffect, useState } from "preact/hooks";
import { Button, Loading } from "../components/basic";
import { errorText, Field } from "../components/dialog";
import { ApiError, call, get, mayOffer, segment, send, token } from "../lib/api";
import { queues } from "../lib/app";
import { curl } from "../lib/curl";
import { parseExact, pretty } from "../lib/exact-json";
import { refresh } from "../lib/live";
import { link, open, route } from "../lib/router";
import { bodyOf, commandOf, EMPTY, policyDifference, type Form } from "../lib/submission";
import { PRIORITIES, type Job, type Json, type Queue } from "../lib/types";
import { copy, toast } from "../lib/ui";
import { t } from "../strings";
import { loadPayload } from "./job";

const base64 = (data: Uint8Array) => btoa(Array.from(data, (value) => String.fromCharCode(value)).join(""));

/** The form of a copy: everything that the job was submitted with, except keys and dependencies. */
async function copyOf(id: string): Promise<Form> {
  const [job, payload] = await Promise.all([get<Job>(`v1/jobs/${segment(id)}`), loadPayload(id)]);
  const queue = await get<Queue>(`v1/queues/${segment(job.queue)}`).catch(() => null);
  const tags = Object.entries(job.tags).map(([name, value]) => (value === null ? name : `${name}=${value}`)).join(", ");
  const data = payload.kind === "json" ? { payload: pretty(parseExact(payload.text)), binary: null } : { payload: "", binary: base64(payload.data) };
  const policy = queue ? policyDifference(job.policy as Json, queue.settings as Json) : {};
  return {
    ...EMPTY, ...data, queue: job.queue, type: job.type, priority: job.priority, tags, correlation: job.correlation_id ?? "", callback: job.callback_url ?? "",
    policy: Object.keys(policy).length ? JSON.stringify(policy) : "",
  };
}

export function Submit() {
  const from = route.value.query.get("from");
  const isEdit = from !== null && route.value.query.get("replace") !== null;
  const [isReplaced, setReplaced] = useState(isEdit);
  const [form, setForm] = useState<Form | null>(from ? null : { ...EMPTY, queue: route.value.query.get("queue") || "default", type: route.value.query.get("type") ?? "" });
  const [failure, setFailure] = useState<{ field: string | null; text: string } | null>(null);
  const [isBusy, setBusy] = useState(false);
  useEffect(() => {
    if (from) copyOf(from).then(setForm, (error: unknown) => (setForm(EMPTY), setFailure({ field: null, text: errorText(error) })));
  }, [from]);
  if (!form) return <main class="page" id="content" tabIndex={-1}><Loading /></main>;
  const set = (key: keyof Form) => (event: { currentTarget: { value: string } }) => setForm({ ...form, [key]: event.currentTarget.value });
  const jsonError = () => {
    if (form.binary !== null || !form.payload.trim()) return null;
    try {
      parseExact(form.payload);
      return null;
    } catch (error) {
      return t.submit.notJson((error as Error).message);
    }
  };
  const policyError = () => {
    try {
      commandOf(form);
      return null;
    } catch (error) {
      return t.submit.notJson((error as Error).message);
    }
  };
  const path = `v1/queues/${segment(form.queue)}/jobs`;
  const submit = async (event: Event) => {
    event.preventDefault();
    const notJson = jsonError();
    if (notJson) return setFailure({ field: "payload", text: notJson });
    const notPolicy = policyError();
    if (notPolicy) return setFailure({ field: "policy", text: notPolicy });
    setBusy(true);
    try {
      const answer = (await (await send("POST", path, { raw: bodyOf(form) })).json()) as { id: string; duplicate: boolean };
      if (isReplaced && !answer.duplicate) await call("DELETE", `v1/jobs/${segment(from!)}`).catch((error: unknown) => toast(errorText(error), "error"));
      toast(answer.duplicate ? t.submit.same : t.submit.done(answer.id));
      refresh();
      open(link(["jobs", answer.id]));
    } catch (error) {
      setFailure({ field: error instanceof ApiError ? error.field : null, text: errorText(error) });
    }
    setBusy(false);
  };
  const errorOf = (...fields: string[]) => (failure?.field && fields.includes(failure.field) ? failure.text : null);
  const copyAs = async (write: (form: Form) => string) => {
    const notPolicy = policyError();
    if (notPolicy) return setFailure({ field: "policy", text: notPolicy });
    toast((await copy(write(form))) ? t.common.copied : t.common.copyFailed);
  };
  return (
    <main class="page" id="content" tabIndex={-1}>
      <div class="page-head"><h1>{isEdit ? t.submit.replace : from ? t.submit.duplicate : t.submit.title}</h1></div>
      <form class="card form-page" onSubmit={submit}>
        <div class="form-grid">
          <Field label={t.submit.queue} error={errorOf("queue")}><input class="input mono" list="queue-names" value={form.queue} onInput={set("queue")} required /></Field>
          <datalist id="queue-names">{(queues.value ?? []).map((queue) => <option key={queue.name} value={queue.name} />)}</datalist>
          <Field label={t.submit.type} error={errorOf("type")}><input class="input mono" value={form.type} onInput={set("type")} placeholder="email.send" required /></Field>
          <Field label={t.submit.priority}><select class="input" value={form.priority} onChange={set("priority")}>{PRIORITIES.map((name) => <option key={name}>{name}</option>)}</select></Field>
          <Field label={t.submit.when}><select class="input" value={form.when} onChange={set("when")}><option value="now">{t.submit.now}</option><option value="delay">{t.submit.delay}</option><option value="at">{t.submit.at}</option></select></Field>
          {form.when !== "now" ? <Field label={form.when === "delay" ? t.submit.delay : t.submit.at} hint={form.when === "delay" ? t.submit.delayHint : t.submit.atHint} error={errorOf("delay", "run_at")}><input class="input mono" value={form.time} onInput={set("time")} /></Field> : null}
        </div>
        {form.binary !== null ? <p class="note">{t.submit.binary}</p> : <Field label={t.submit.payload} hint={t.submit.payloadHint} error={errorOf("payload")}><textarea class="input area mono" rows={10} spellcheck={false} value={form.payload} onInput={set("payload")} /></Field>}
        {isEdit && mayOffer("DELETE", "v1/jobs/j") ? <label class="optline"><input class="check" type="checkbox" checked={isReplaced} onChange={() => setReplaced(!isReplaced)} />{t.submit.deleteOld}</label> : null}
        <details class="more-fields" open={form.policy !== ""}><summary>{t.submit.more}</summary>
          <div class="form-grid">
            <Field label={t.submit.tags} hint={t.submit.tagsHint} error={errorOf("tags")}><input class="input mono" value={form.tags} onInput={set("tags")} /></Field>
            <Field label={t.submit.key} error={errorOf("idempotency_key")}><input class="input mono" value={form.key} onInput={set("key")} /></Field>
            <Field label={t.submit.correlation} error={errorOf("correlation_id")}><input class="input mono" value={form.correlation} onInput={set("correlation")} /></Field>
            <Field label={t.submit.callback} error={errorOf("callback_url")}><input class="input mono" value={form.callback} onInput={set("callback")} /></Field>
            <Field label={t.submit.limit} error={errorOf("retry.limit", "retry")}><input class="input" inputMode="numeric" value={form.limit} onInput={set("limit")} /></Field>
            <Field label={t.submit.policy} hint={t.submit.policyHint} error={errorOf("policy", "execution_timeout", "lease", "lifetime", "retention", "max_reclaims")}><input class="input mono" value={form.policy} onInput={set("policy")} placeholder={`{"execution_timeout":"10m"}`} /></Field>
            <label class="optline"><input class="check" type="checkbox" checked={form.hold} onChange={(event) => setForm({ ...form, hold: event.currentTarget.checked })} />{t.submit.hold}</label>
          </div>
        </details>
        {failure ? <div class="err" role="alert">{failure.text}</div> : null}
        <div class="foot-acts"><Button icon="term" onClick={() => copyAs((form) => curl("POST", path, bodyOf(form), !!token.value))}>{t.submit.curl}</Button><Button icon="term" onClick={() => copyAs(commandOf)}>{t.submit.cli}</Button><span class="grow" /><Button kind="btn-primary" type="submit" disabled={isBusy || !form.type}>{t.submit.act}</Button></div>
      </form>
    </main>
  );
}
