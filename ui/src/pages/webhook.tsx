// One endpoint: deliveries, redeliver, test, secret.

import { useState } from "preact/hooks";
import { Button, Failure, Icon, JobLink, Loading, StateWord, Time } from "../components/basic";
import { errorText } from "../components/dialog";
import { call, get, mayOffer, post, segment } from "../lib/api";
import { useResource } from "../lib/resource";
import { link, open } from "../lib/router";
import type { Delivery, Webhook } from "../lib/types";
import { ask, toast } from "../lib/ui";
import { t } from "../strings";
import { Shown, WebhookForm } from "./webhooks";

const STATE: Record<string, string> = { delivered: "completed", failed: "failed", pending: "retrying" };

export function WebhookPage({ id }: { id: string }) {
  const path = `v1/webhooks/${segment(id)}`;
  const resource = useResource<Webhook>(id, () => get<Webhook>(path));
  const list = useResource<{ deliveries: Delivery[] }>(`deliveries ${id}`, () => get(`${path}/deliveries`));
  const [isEditing, setEditing] = useState(false);
  const [secret, setSecret] = useState<string | null>(null);
  const webhook = resource.data;
  if (!webhook) return <main class="page" id="content" tabIndex={-1}><section class="card">{resource.error ? <Failure error={resource.error} what={t.webhooks.what} retry={resource.reload} /> : <Loading />}</section></main>;
  const fail = (error: unknown) => toast(errorText(error), "error");
  const rotate = () => ask({ title: t.webhooks.rotateTitle, body: t.webhooks.rotateText, keep: t.common.cancel, act: t.webhooks.rotateAct, run: async () => setSecret((await post<{ secret?: string }>(`${path}/rotate`)).secret ?? null) });
  const remove = () => ask({ title: t.webhooks.deleteTitle(id), body: t.webhooks.deleteText, keep: t.common.cancel, act: t.webhooks.deleteAct, isDanger: true, run: async () => { await call("DELETE", path); open(link(["webhooks"])); } });
  const may = mayOffer("PUT", path);
  const rows = list.data?.deliveries ?? [];
  return (
    <main class="page" id="content" tabIndex={-1}>
      <div class="job-head"><nav class="crumbs" aria-label={t.webhooks.title}><a href={link(["webhooks"])}>{t.nav.webhooks}</a><Icon name="right" /><span>{id}</span></nav>
        <div class="job-title"><h1 class="wrap">{id}</h1>{webhook.enabled === false ? <span class="pill s-retrying">{t.webhooks.disabled}</span> : null}<code class="muted wrap">{webhook.url}</code>
          {may ? <div class="right"><Button kind="btn-primary" icon="bolt" onClick={() => post(`${path}/test`).then(() => (toast(t.webhooks.tested), list.reload()), fail)}>{t.webhooks.test}</Button><Button icon="edit" onClick={() => setEditing(true)}>{t.common.edit}</Button><Button onClick={rotate}>{t.webhooks.rotate}</Button><Button kind="btn-danger" onClick={remove}>{t.common.delete}</Button></div> : null}
        </div>
      </div>
      <section class="card"><dl class="facts">
        <div><dt>{t.common.state}</dt><dd>{webhook.enabled === false ? <span class="warn wrap">{webhook.disabled_reason ?? t.webhooks.disabled}</span> : t.webhooks.enabled}</dd></div>
        <div><dt>{t.webhooks.events}</dt><dd class="wrap">{webhook.events?.length ? webhook.events.map((event) => event.replace("job.", "")).join(", ") : t.webhooks.allEvents}</dd></div>
        <div><dt>{t.webhooks.queues}</dt><dd class="wrap">{(webhook.queues ?? ["*"]).map((name) => (name === "*" ? t.dead.allQueues : name)).join(", ")}</dd></div>
        {webhook.created_at ? <div><dt>{t.job.created}</dt><dd><Time at={webhook.created_at} /></dd></div> : null}
      </dl></section>
      <section class="card"><div class="card-head"><h2>{t.webhooks.deliveries}</h2>{rows.length ? <span class="count">{rows.length}</span> : null}</div>
        {!list.data ? (list.error ? <Failure error={list.error} what={t.webhooks.deliveries} retry={list.reload} /> : <Loading />) : !rows.length ? <p class="card-body muted">{t.webhooks.noDeliveries}</p> : (
          <div class="scroll-x"><table class="table dense">
            <thead><tr><th scope="col">{t.common.state}</th><th scope="col" class="hide-sm">{t.webhooks.event}</th><th scope="col">{t.webhooks.job}</th><th scope="col" class="r hide-sm">{t.webhooks.attempts}</th><th scope="col" class="hide-sm">{t.webhooks.last}</th><th scope="col" class="r hide-sm">{t.webhooks.nextAt}</th><th scope="col" class="r"><span class="sr">{t.workers.actions}</span></th></tr></thead>
            <tbody>{rows.map((delivery) => {
              const last = delivery.attempts.at(-1);
              return <tr key={delivery.id}><td><StateWord state={STATE[delivery.state] ?? "pending"} word={t.webhooks.state[delivery.state] ?? delivery.state} /><span class="line2">{delivery.event}</span></td><td class="hide-sm"><code>{delivery.event}</code></td><td>{delivery.job ? <JobLink id={delivery.job} /> : t.time.none}</td><td class="r hide-sm">{delivery.attempts.length}</td><td class="hide-sm fill trunc" title={last?.error ?? ""}>{last ? <><Time at={last.at} /> {last.status ?? ""} {last.error ?? ""} {last.duration_ms !== null ? `${last.duration_ms} ms` : ""}</> : t.time.none}</td><td class="r hide-sm"><Time at={delivery.next_at} /></td><td class="r">{mayOffer("POST", "v1/deliveries/d/redeliver") ? <Button kind="btn-sm" onClick={() => post(`v1/deliveries/${segment(delivery.id)}/redeliver`).then(() => (toast(t.webhooks.redelivered), list.reload()), fail)}>{t.webhooks.redeliver}</Button> : null}</td></tr>;
            })}</tbody>
          </table></div>
        )}
      </section>
      {isEditing ? <WebhookForm webhook={webhook} close={() => (setEditing(false), resource.reload())} /> : null}
      {secret ? <Shown title={t.webhooks.secret} text={t.webhooks.secretText} value={secret} close={() => setSecret(null)} /> : null}
    </main>
  );
}
