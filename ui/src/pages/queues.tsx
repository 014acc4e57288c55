// All queues.

import { useState } from "preact/hooks";
import { Button, Empty, Failure, Loading } from "../components/basic";
import { errorText, Field, Modal } from "../components/dialog";
import { QueueTable } from "../components/queue-table";
import { call, mayOffer, segment } from "../lib/api";
import { useAttention, withoutWorker } from "../lib/attention";
import { figuresError, info, queues } from "../lib/app";
import { refresh } from "../lib/live";
import { link, open } from "../lib/router";
import { HOUR, rangeOf, useSeries } from "../lib/series";
import { COMMANDS, PROFILES, t } from "../strings";

function CreateQueue({ close }: { close: () => void }) {
  const [name, setName] = useState("");
  const [profile, setProfile] = useState("standard");
  const [failure, setFailure] = useState<string | null>(null);
  const create = async (event: Event) => {
    event.preventDefault();
    try {
      await call("PUT", `v1/queues/${segment(name)}`, { body: { profile } });
      refresh();
      close();
      open(link(["queues", name]));
    } catch (error) {
      setFailure(errorText(error));
    }
  };
  return (
    <Modal label={t.queues.createTitle} close={close}>
      <form class="form" onSubmit={create}>
        <h2>{t.queues.createTitle}</h2>
        <Field label={t.queues.name} hint={t.queues.nameHint} error={failure}><input class="input mono" value={name} onInput={(event) => setName(event.currentTarget.value)} required data-autofocus /></Field>
        <Field label={t.queues.profile}><select class="input" value={profile} onChange={(event) => setProfile(event.currentTarget.value)}>{PROFILES.map((value) => <option key={value}>{value}</option>)}</select></Field>
        <div class="acts"><Button onClick={close}>{t.common.close}</Button><Button kind="btn-primary" type="submit" disabled={!name}>{t.queues.createAct}</Button></div>
      </form>
    </Modal>
  );
}

export function Queues() {
  const range = rangeOf(info.value, HOUR);
  const series = useSeries(range, null).data;
  const attention = useAttention().data?.items ?? [];
  const [isCreating, setCreating] = useState(false);
  const rows = queues.value;
  return (
    <main class="page" id="content" tabIndex={-1}>
      <div class="page-head"><h1>{t.queues.title}</h1>{rows ? <span class="count">{rows.length}</span> : null}
        <div class="right">{mayOffer("PUT", "v1/queues/q") ? <Button icon="plus" kind="btn-primary" onClick={() => setCreating(true)}>{t.queues.create}</Button> : null}</div>
      </div>
      <section class="card">
        {!rows ? (figuresError.value ? <Failure error={figuresError.value} what={t.queues.title} retry={refresh} /> : <Loading />)
          : rows.length ? <QueueTable queues={rows} series={series} range={range} unserved={withoutWorker(attention)} hasActions={mayOffer("POST", "v1/queues/q/pause")} /> : <Empty icon="queues" title={t.queues.empty} text={t.queues.emptyText} command={COMMANDS.submitTo("mail")} />}
      </section>
      {isCreating ? <CreateQueue close={() => setCreating(false)} /> : null}
    </main>
  );
}
