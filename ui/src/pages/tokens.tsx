// Tokens, and the audit of what operators did.

import { useState } from "preact/hooks";
import { Button, Empty, Failure, Loading, Time } from "../components/basic";
import { errorText, Field, Modal } from "../components/dialog";
import { call, get, mayOffer, post, query, segment } from "../lib/api";
import { useResource } from "../lib/resource";
import { route, setQuery } from "../lib/router";
import type { AuditEntry, Json, Token } from "../lib/types";
import { ask, toast } from "../lib/ui";
import { COMMANDS, t } from "../strings";
import { Shown } from "./webhooks";

function TokenForm({ close }: { close: () => void }) {
  const [value, setValue] = useState({ name: "", queues: "*", expires: "" });
  const [actions, setActions] = useState<string[]>(["read"]);
  const [failure, setFailure] = useState<string | null>(null);
  const [made, setMade] = useState<string | null>(null);
  const set = (key: keyof typeof value) => (event: { currentTarget: { value: string } }) => setValue({ ...value, [key]: event.currentTarget.value });
  const create = async (event: Event) => {
    event.preventDefault();
    try {
      const body: { [key: string]: Json } = { name: value.name, actions, queues: value.queues.split(",").map((part) => part.trim()).filter(Boolean) };
      if (value.expires) body.expires_at = value.expires;
      setMade((await post<Token>("v1/tokens", body)).token ?? "");
    } catch (error) {
      setFailure(errorText(error));
    }
  };
  if (made !== null) return <Shown title={t.tokens.shown} text={t.tokens.shownText} value={made} close={close} />;
  return (
    <Modal label={t.tokens.create} close={close}>
      <form class="form" onSubmit={create}>
        <h2>{t.tokens.create}</h2>
        <Field label={t.common.name}><input class="input" value={value.name} onInput={set("name")} required data-autofocus /></Field>
        <fieldset class="checks"><legend>{t.tokens.actions}</legend>{t.tokens.actionNames.map((name) => <label class="optline" key={name}><input class="check" type="checkbox" checked={actions.includes(name)} onChange={() => setActions(actions.includes(name) ? actions.filter((item) => item !== name) : [...actions, name])} />{name}</label>)}</fieldset>
        <Field label={t.tokens.queues} hint={t.tokens.queuesHint}><input class="input mono" value={value.queues} onInput={set("queues")} /></Field>
        <Field label={t.tokens.expires} hint={t.tokens.expiresHint}><input class="input mono" value={value.expires} onInput={set("expires")} /></Field>
        {failure ? <div class="err" role="alert">{failure}</div> : null}
        <div class="acts"><Button onClick={close}>{t.common.close}</Button><Button kind="btn-primary" type="submit" disabled={!value.name || !actions.length}>{t.tokens.createAct}</Button></div>
      </form>
    </Modal>
  );
}

function Audit() {
  const cursor = route.value.query.get("cursor") ?? "";
  const list = useResource<{ entries: AuditEntry[]; next?: string | null }>(`audit ${cursor}`, () => get(`v1/audit${query({ limit: 100, cursor })}`));
  const rows = list.data?.entries ?? [];
  return (
    <section class="card"><div class="card-head"><h2>{t.tokens.audit}</h2></div>
      {!list.data ? (list.error ? <Failure error={list.error} what={t.tokens.audit} retry={list.reload} /> : <Loading />) : !rows.length ? <p class="card-body muted">{t.tokens.noAudit}</p> : (
        <>
          <div class="scroll-x"><table class="table dense">
            <thead><tr><th scope="col">{t.tokens.who}</th><th scope="col">{t.tokens.action}</th><th scope="col">{t.tokens.target}</th><th scope="col" class="hide-sm">{t.tokens.outcome}</th><th scope="col" class="hide-sm">{t.tokens.address}</th><th scope="col" class="r">{t.tokens.at}</th></tr></thead>
            <tbody>{rows.map((entry, index) => <tr key={index}><td>{entry.name ?? entry.token ?? t.time.none}</td><td><code>{entry.action}</code></td><td class="fill trunc" title={entry.target ?? ""}><code>{entry.target}</code></td><td class={`hide-sm ${entry.outcome === "refused" ? "warn" : ""}`}>{entry.outcome}</td><td class="hide-sm muted num">{entry.address}</td><td class="r muted"><Time at={entry.at} /></td></tr>)}</tbody>
          </table></div>
          {list.data.next ? <div class="pager"><span class="grow" /><Button kind="btn-sm" onClick={() => setQuery({ cursor: list.data!.next ?? null })}>{t.common.older}</Button></div> : null}
        </>
      )}
    </section>
  );
}

export function Tokens() {
  const list = useResource<{ tokens: Token[] }>("tokens", () => get("v1/tokens"));
  const [isCreating, setCreating] = useState(false);
  const rows = list.data?.tokens ?? [];
  const revoke = (token: Token) => ask({ title: t.tokens.revokeTitle(token.name), body: t.tokens.revokeText, keep: t.common.cancel, act: t.tokens.revokeAct, isDanger: true, run: async () => { await call("DELETE", `v1/tokens/${segment(token.id)}`); toast(t.tokens.revoked(token.name)); list.reload(); } });
  return (
    <main class="page" id="content" tabIndex={-1}>
      <div class="page-head"><h1>{t.tokens.title}</h1><div class="right">{list.data && mayOffer("POST", "v1/tokens") ? <Button kind="btn-primary" icon="plus" onClick={() => setCreating(true)}>{t.tokens.create}</Button> : null}</div></div>
      <section class="card"><div class="card-head"><h2>{t.tokens.tokens}</h2>{list.data ? <span class="count">{rows.length}</span> : null}</div>
        {!list.data ? (list.error ? <Failure error={list.error} what={t.tokens.what} retry={list.reload} /> : <Loading />) : !rows.length ? <Empty icon="tokens" title={t.tokens.empty} text={t.tokens.emptyText} command={COMMANDS.token} /> : (
          <div class="scroll-x"><table class="table">
            <thead><tr><th scope="col">{t.tokens.name}</th><th scope="col" class="hide-sm">{t.tokens.actions}</th><th scope="col" class="hide-sm">{t.tokens.queues}</th><th scope="col" class="r hide-sm">{t.tokens.expires}</th><th scope="col" class="r hide-sm">{t.tokens.used}</th><th scope="col" class="r"><span class="sr">{t.workers.actions}</span></th></tr></thead>
            <tbody>{rows.map((token) => <tr key={token.id}><td><span class="qname">{token.name}</span> <span class="job-id">{token.id.slice(0, 8)}</span><span class="line2">{token.actions.join(", ")}</span></td><td class="hide-sm muted">{token.actions.join(", ")}</td><td class="hide-sm"><code>{token.queues.join(", ")}</code></td><td class="r hide-sm">{token.expires_at ? <Time at={token.expires_at} /> : <span class="zero">{t.time.never}</span>}</td><td class="r hide-sm muted">{token.last_used_at ? <Time at={token.last_used_at} /> : t.time.never}</td><td class="r"><Button kind="btn-sm btn-danger" onClick={() => revoke(token)}>{t.tokens.revoke}</Button></td></tr>)}</tbody>
          </table></div>
        )}
      </section>
      {list.error?.isAbsent ? null : <Audit />}
      {isCreating ? <TokenForm close={() => (setCreating(false), list.reload())} /> : null}
    </main>
  );
}
