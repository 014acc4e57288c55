// Endpoints of webhooks.

import { useState } from "preact/hooks";
import { Button, Command, Empty, Failure, Loading } from "../components/basic";
import { errorText, Field, Modal } from "../components/dialog";
import { call, get, mayOffer, segment } from "../lib/api";
import { useResource } from "../lib/resource";
import { link } from "../lib/router";
import type { Json, Webhook } from "../lib/types";
import { toast } from "../lib/ui";
import { COMMANDS, t } from "../strings";

const EVENTS = ["job.completed", "job.failed", "job.dead_letter", "job.cancelled"];

/** A secret or token that the server shows once. */
export function Shown({ title, text, value, close }: { title: string; text: string; value: string; close: () => void }) {
  return <Modal label={title} close={close}><h2>{title}</h2><p class="muted">{text}</p><Command text={value} /><div class="acts"><Button kind="btn-primary" onClick={close}>{t.common.close}</Button></div></Modal>;
}

export function WebhookForm({ webhook, close }: { webhook: Webhook | null; close: () => void }) {
  const [name, setName] = useState(webhook?.name ?? "");
  const [url, setUrl] = useState(webhook?.url ?? "");
  const [events, setEvents] = useState<string[]>(webhook?.events ?? ["job.dead_letter", "job.failed"]);
  const [names, setNames] = useState((webhook?.queues ?? ["*"]).join(", "));
  const [isEnabled, setEnabled] = useState(webhook?.enabled ?? true);
  const [failure, setFailure] = useState<string | null>(null);
  const [secret, setSecret] = useState<string | null>(null);
  const save = async (event: Event) => {
    event.preventDefault();
    try {
      const body: Json = { url, events, queues: names.split(",").map((part) => part.trim()).filter(Boolean), enabled: isEnabled };
      const answer = await call<Webhook>("PUT", `v1/webhooks/${segment(name)}`, { body });
      toast(t.webhooks.saved(name));
      if (answer.secret) setSecret(answer.secret);
      else close();
    } catch (error) {
      setFailure(errorText(error));
    }
  };
  if (secret) return <Shown title={t.webhooks.secret} text={t.webhooks.secretText} value={secret} close={close} />;
  return (
    <Modal label={t.webhooks.create} close={close}>
      <form class="form" onSubmit={save}>
        <h2>{webhook?.name ?? t.webhooks.create}</h2>
        {webhook ? null : <Field label={t.common.name}><input class="input mono" value={name} onInput={(event) => setName(event.currentTarget.value)} required data-autofocus /></Field>}
        <Field label={t.webhooks.url}><input class="input mono" type="url" value={url} onInput={(event) => setUrl(event.currentTarget.value)} placeholder="https://example.com/hook" required /></Field>
        <fieldset class="checks"><legend>{t.webhooks.events}</legend>{EVENTS.map((event) => <label class="optline" key={event}><input class="check" type="checkbox" checked={events.includes(event)} onChange={() => setEvents(events.includes(event) ? events.filter((item) => item !== event) : [...events, event])} /><code>{event}</code></label>)}</fieldset>
        <Field label={t.webhooks.queues} hint={t.tokens.queuesHint}><input class="input mono" value={names} onInput={(event) => setNames(event.currentTarget.value)} /></Field>
        <label class="optline"><input class="check" type="checkbox" checked={isEnabled} onChange={() => setEnabled(!isEnabled)} />{t.webhooks.enabled}</label>
        {failure ? <div class="err" role="alert">{failure}</div> : null}
        <div class="acts"><Button onClick={close}>{t.common.close}</Button><Button kind="btn-primary" type="submit" disabled={!name || !url}>{t.webhooks.save}</Button></div>
      </form>
    </Modal>
  );
}

export function Webhooks() {
  const list = useResource<{ webhooks: Webhook[] }>("webhooks", () => get("v1/webhooks"));
  const [isCreating, setCreating] = useState(false);
  const rows = list.data?.webhooks ?? [];
  return (
    <main class="page" id="content" tabIndex={-1}>
      <div class="page-head"><h1>{t.webhooks.title}</h1>{list.data ? <span class="count">{rows.length}</span> : null}<div class="right">{list.data && mayOffer("PUT", "v1/webhooks/w") ? <Button kind="btn-primary" icon="plus" onClick={() => setCreating(true)}>{t.webhooks.create}</Button> : null}</div></div>
      <section class="card">
        {!list.data ? (list.error ? <Failure error={list.error} what={t.webhooks.what} retry={list.reload} /> : <Loading />) : !rows.length ? <Empty icon="webhooks" title={t.webhooks.empty} text={t.webhooks.emptyText} command={COMMANDS.webhook} /> : (
          <div class="scroll-x"><table class="table">
            <thead><tr><th scope="col">{t.webhooks.name}</th><th scope="col">{t.common.state}</th><th scope="col" class="hide-sm">{t.webhooks.url}</th><th scope="col" class="hide-sm">{t.webhooks.events}</th><th scope="col" class="hide-sm">{t.webhooks.queues}</th></tr></thead>
            <tbody>{rows.map((webhook) => <tr key={webhook.name}><td><a class="qname" href={link(["webhooks", webhook.name])}>{webhook.name}</a></td><td>{webhook.enabled === false ? <span class="warn">{t.webhooks.disabled}</span> : t.webhooks.enabled}</td><td class="hide-sm fill trunc" title={webhook.url ?? ""}><code>{webhook.url}</code></td><td class="hide-sm muted">{webhook.events?.length ? webhook.events.map((event) => event.replace("job.", "")).join(", ") : t.webhooks.allEvents}</td><td class="hide-sm muted">{webhook.queues?.join(", ")}</td></tr>)}</tbody>
          </table></div>
        )}
      </section>
      {isCreating ? <WebhookForm webhook={null} close={() => (setCreating(false), list.reload())} /> : null}
    </main>
  );
}
