// The form that submits a job. The payload is sent byte for byte as typed.

import { useEffect, useState } from "preact/hooks";
import { Button, Loading } from "../components/basic";
import { errorText, Field } from "../components/dialog";
import { parseTags } from "../components/job-actions";
import { ApiError, get, segment, send, token } from "../lib/api";
import { queues } from "../lib/app";
import { cli, curl } from "../lib/curl";
import { parseExact, pretty } from "../lib/exact-json";
import { refresh } from "../lib/live";
import { link, open, route } from "../lib/router";
import { PRIORITIES, type Job, type Json } from "../lib/types";
import { copy, toast } from "../lib/ui";
import { t } from "../strings";
import { loadPayload } from "./job";

interface Form { queue: string; type: string; payload: string; binary: string | null; priority: string; when: "now" | "delay" | "at"; time: string; tags: string; key: string; correlation: string; callback: string; limit: string; hold: boolean }

const EMPTY: Form = { queue: "default", type: "", payload: "{}", binary: null, priority: "normal", when: "now", time: "", tags: "", key: "", correlation: "", callback: "", limit: "", hold: false };

/** The body of the request. The payload is inserted as it is, so that no digit is lost. */
export function bodyOf(form: Form): string {
  const fields: { [key: string]: Json } = { type: form.type };
  if (form.priority !== "normal") fields.priority = form.priority;
  if (form.when === "delay" && form.time) fields.delay = form.time;
  if (form.when === "at" && form.time) fields.run_at = form.time;
  if (form.tags.trim()) fields.tags = parseTags(form.tags);
  if (form.key) fields.idempotency_key = form.key;
  if (form.correlation) fields.correlation_id = form.correlation;
  if (form.callback) fields.callback_url = form.callback;
  if (form.limit) fields.retry = { limit: Number(form.limit) };
  if (form.hold) fields.hold = true;
  if (form.binary !== null) fields.payload_base64 = form.binary;
  const text = JSON.stringify(fields);
  return form.binary !== null || !form.payload.trim() ? text : `${text.slice(0, -1)},"payload":${form.payload.trim()}}`;
}

const base64 = (data: Uint8Array) => btoa(Array.from(data, (value) => String.fromCharCode(value)).join(""));

async function copyOf(id: string): Promise<Form> {
  const [job, payload] = await Promise.all([get<Job>(`v1/jobs/${segment(id)}`), loadPayload(id)]);
  const tags = Object.entries(job.tags).map(([name, value]) => (value === null ? name : `${name}=${value}`)).join(", ");
  const data = payload.kind === "json" ? { payload: pretty(parseExact(payload.text)), binary: null } : { payload: "", binary: base64(payload.data) };
  return { ...EMPTY, ...data, queue: job.queue, type: job.type, priority: job.priority, tags, correlation: job.correlation_id ?? "", callback: job.callback_url ?? "" };
}

export function Submit() {
  const from = route.value.query.get("from");
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
  const path = `v1/queues/${segment(form.queue)}/jobs`;
  const submit = async (event: Event) => {
    event.preventDefault();
    const notJson = jsonError();
    if (notJson) return setFailure({ field: "payload", text: notJson });
    setBusy(true);
    try {
      const answer = (await (await send("POST", path, { raw: bodyOf(form) })).json()) as { id: string; duplicate: boolean };
      toast(answer.duplicate ? t.submit.same : t.submit.done(answer.id));
      refresh();
      open(link(["jobs", answer.id]));
    } catch (error) {
      setFailure({ field: error instanceof ApiError ? error.field : null, text: errorText(error) });
    }
    setBusy(false);
  };
  const errorOf = (...fields: string[]) => (failure?.field && fields.includes(failure.field) ? failure.text : null);
  const copyText = async (text: string) => toast((await copy(text)) ? t.common.copied : t.common.copyFailed);
  return (
    <main class="page" id="content" tabIndex={-1}>
      <div class="page-head"><h1>{from ? t.submit.duplicate : t.submit.title}</h1></div>
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
        <details class="more-fields"><summary>{t.submit.more}</summary>
          <div class="form-grid">
            <Field label={t.submit.tags} hint={t.submit.tagsHint} error={errorOf("tags")}><input class="input mono" value={form.tags} onInput={set("tags")} /></Field>
            <Field label={t.submit.key} error={errorOf("idempotency_key")}><input class="input mono" value={form.key} onInput={set("key")} /></Field>
            <Field label={t.submit.correlation} error={errorOf("correlation_id")}><input class="input mono" value={form.correlation} onInput={set("correlation")} /></Field>
            <Field label={t.submit.callback} error={errorOf("callback_url")}><input class="input mono" value={form.callback} onInput={set("callback")} /></Field>
            <Field label={t.submit.limit} error={errorOf("retry.limit", "retry")}><input class="input" inputMode="numeric" value={form.limit} onInput={set("limit")} /></Field>
            <label class="optline"><input class="check" type="checkbox" checked={form.hold} onChange={(event) => setForm({ ...form, hold: event.currentTarget.checked })} />{t.submit.hold}</label>
          </div>
        </details>
        {failure ? <div class="err" role="alert">{failure.text}</div> : null}
        <div class="foot-acts"><Button icon="term" onClick={() => copyText(curl("POST", path, bodyOf(form), !!token.value))}>{t.submit.curl}</Button><Button icon="term" onClick={() => copyText(cli("submit", "-q", form.queue, "-t", form.type, "-p", form.payload.trim()))}>{t.submit.cli}</Button><span class="grow" /><Button kind="btn-primary" type="submit" disabled={isBusy || !form.type}>{t.submit.act}</Button></div>
      </form>
    </main>
  );
}
