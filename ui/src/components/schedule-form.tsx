// The form of a schedule.

import { useState } from "preact/hooks";
import { call, segment } from "../lib/api";
import { parseExact } from "../lib/exact-json";
import { refresh } from "../lib/live";
import type { Json, Schedule } from "../lib/types";
import { toast } from "../lib/ui";
import { t } from "../strings";
import { Button } from "./basic";
import { errorText, Field, Modal } from "./dialog";

interface Props { schedule: Schedule | null; /** The payload as the server wrote it. */ payload?: string | null; close: () => void }

export function ScheduleForm({ schedule, payload: written, close }: Props) {
  const { type, payload, ...rest } = schedule?.job ?? {};
  const [value, setValue] = useState({
    name: schedule?.name ?? "", cron: schedule ? (schedule.cron ?? "") : "*/5 * * * *", every: schedule?.every ?? "", timezone: schedule?.timezone ?? "UTC", queue: schedule?.queue ?? "default", type: String(type ?? ""),
    payload: written ?? (payload === undefined ? "{}" : JSON.stringify(payload)), misfire: schedule?.misfire ?? "one", overlap: schedule?.overlap ?? "allow", jitter: schedule?.jitter ?? "",
  });
  const [failure, setFailure] = useState<string | null>(null);
  const set = (key: keyof typeof value) => (event: { currentTarget: { value: string } }) => setValue({ ...value, [key]: event.currentTarget.value });
  const save = async (event: Event) => {
    event.preventDefault();
    try {
      parseExact(value.payload);
      const body: { [key: string]: Json } = { timezone: value.timezone, queue: value.queue, misfire: value.misfire, overlap: value.overlap };
      if (value.cron.trim()) body.cron = value.cron.trim();
      if (value.every.trim()) body.every = value.every.trim();
      if (value.jitter?.trim()) body.jitter = value.jitter.trim();
      const job = JSON.stringify({ ...rest, type: value.type });
      // The payload keeps its digits: it is inserted as typed.
      const raw = `${JSON.stringify(body).slice(0, -1)},"job":${job.slice(0, -1)},"payload":${value.payload.trim()}}}`;
      await call("PUT", `v1/schedules/${segment(value.name)}`, { raw });
      toast(t.schedules.saved(value.name));
      refresh();
      close();
    } catch (error) {
      setFailure(error instanceof SyntaxError ? t.submit.notJson(error.message) : errorText(error));
    }
  };
  return (
    <Modal label={t.schedules.create} close={close}>
      <form class="form" onSubmit={save}>
        <h2>{schedule ? schedule.name : t.schedules.create}</h2>
        <div class="form-grid">
          {schedule ? null : <Field label={t.common.name}><input class="input mono" value={value.name} onInput={set("name")} required data-autofocus /></Field>}
          <Field label={t.schedules.cron}><input class="input mono" value={value.cron} onInput={set("cron")} /></Field>
          <Field label={t.schedules.everyField}><input class="input mono" value={value.every} onInput={set("every")} placeholder="90s" /></Field>
          <Field label={t.schedules.zone}><input class="input mono" value={value.timezone} onInput={set("timezone")} /></Field>
          <Field label={t.common.queue}><input class="input mono" value={value.queue} onInput={set("queue")} required /></Field>
          <Field label={t.common.type}><input class="input mono" value={value.type} onInput={set("type")} required /></Field>
          <Field label={t.schedules.misfire}><select class="input" value={value.misfire} onChange={set("misfire")}>{["skip", "one", "all"].map((name) => <option key={name}>{name}</option>)}</select></Field>
          <Field label={t.schedules.overlap}><select class="input" value={value.overlap} onChange={set("overlap")}>{["allow", "skip"].map((name) => <option key={name}>{name}</option>)}</select></Field>
          <Field label={t.schedules.jitter}><input class="input mono" value={value.jitter} onInput={set("jitter")} placeholder="30s" /></Field>
        </div>
        <Field label={t.schedules.payload}><textarea class="input area mono" rows={4} value={value.payload} onInput={set("payload")} /></Field>
        {failure ? <div class="err" role="alert">{failure}</div> : null}
        <div class="acts"><Button onClick={close}>{t.common.close}</Button><Button kind="btn-primary" type="submit" disabled={!value.name || !value.type}>{t.schedules.save}</Button></div>
      </form>
    </Modal>
  );
}
