// Workers: who claims what, and what they are told.

import { Button, Count, Empty, Failure, Loading, Time } from "../components/basic";
import { errorText } from "../components/dialog";
import { mayOffer, post, segment } from "../lib/api";
import { age, expireFigures, figuresError, workers } from "../lib/app";
import { refresh } from "../lib/live";
import { link, route } from "../lib/router";
import type { Worker } from "../lib/types";
import { ask, toast } from "../lib/ui";
import { COMMANDS, t } from "../strings";

const GONE_MS = 120_000;

const isGone = (worker: Worker): boolean => age(worker.last_seen_at) > GONE_MS;

async function tell(worker: Worker, verb: "quiet" | "stop" | "resume", done: string): Promise<void> {
  await post(`v1/workers/${segment(worker.name)}/${verb}`);
  toast(done);
  expireFigures();
  refresh();
}

function Row({ worker }: { worker: Worker }) {
  const may = mayOffer("POST", "v1/workers/w/quiet");
  const fail = (error: unknown) => toast(errorText(error), "error");
  const stop = () => ask({ title: t.workers.stopTitle(worker.name), body: t.workers.stopText, keep: t.common.cancel, act: t.workers.stopAct, isDanger: true, run: () => tell(worker, "stop", t.workers.stopDone(worker.name)) });
  const directive = <span class={`state ${worker.directive === "run" ? (isGone(worker) ? "s-cancelled" : "s-completed") : "s-retrying"}`}><i class="dot" />{isGone(worker) && worker.directive === "run" ? <span class="faint">{t.workers.gone}</span> : (t.workers.directives[worker.directive] ?? worker.directive)}</span>;
  return (
    <tr>
      <td><code class="qname">{worker.name}</code><span class="line2">{directive} <Time at={worker.last_seen_at} /></span></td>
      <td class="hide-sm">{directive}</td>
      <td class="hide-sm"><code>{worker.version ?? t.time.none}</code></td>
      <td class="hide-sm fill trunc" title={worker.types.join(", ")}>{worker.types.length ? worker.types.join(", ") : t.workers.allTypes}</td>
      <td class="hide-sm">{worker.queues.map((queue) => <span key={queue}><a class="link" href={link(["queues", queue])}>{queue}</a> </span>)}</td>
      <td class="r hide-sm"><Count value={worker.running} /></td>
      <td class="r muted hide-sm"><Time at={worker.last_seen_at} /></td>
      {may ? <td class="r"><span class="cell-r">{worker.directive === "run" ? <Button kind="btn-sm" onClick={() => tell(worker, "quiet", t.workers.quietDone(worker.name)).catch(fail)}>{t.workers.quiet}</Button> : <Button kind="btn-sm" onClick={() => tell(worker, "resume", t.workers.resumeDone(worker.name)).catch(fail)}>{t.workers.resume}</Button>}{worker.directive !== "stop" ? <Button kind="btn-sm btn-danger" onClick={stop}>{t.workers.stop}</Button> : null}</span></td> : null}
    </tr>
  );
}

export function Workers() {
  const [queue, name] = [route.value.query.get("queue"), route.value.query.get("worker")];
  const all = workers.value;
  const rows = (all ?? []).filter((worker) => (!queue || worker.queues.includes(queue)) && (!name || worker.name === name)).sort((a, b) => Number(isGone(a)) - Number(isGone(b)) || a.name.localeCompare(b.name));
  const may = mayOffer("POST", "v1/workers/w/quiet");
  return (
    <main class="page" id="content" tabIndex={-1}>
      <div class="page-head"><h1>{t.workers.title}</h1>{all ? <span class="count">{rows.length}</span> : null}{queue || name ? <a class="btn btn-sm" href={link(["workers"])}>{queue ?? name} ×</a> : null}</div>
      <section class="card">
        {!all ? (figuresError.value ? <Failure error={figuresError.value} what={t.workers.title} retry={refresh} /> : <Loading />) : !rows.length ? <Empty icon="workers" title={t.workers.empty} text={t.workers.emptyText} command={COMMANDS.work("default")} /> : (
          <div class="scroll-x"><table class="table workers-table">
            <thead><tr><th scope="col">{t.workers.name}</th><th scope="col" class="hide-sm">{t.workers.directive}</th><th scope="col" class="hide-sm">{t.workers.version}</th><th scope="col" class="hide-sm">{t.workers.types}</th><th scope="col" class="hide-sm">{t.workers.queues}</th><th scope="col" class="r hide-sm">{t.workers.running}</th><th scope="col" class="r hide-sm">{t.workers.seen}</th>{may ? <th scope="col" class="r"><span class="sr">{t.workers.actions}</span></th> : null}</tr></thead>
            <tbody>{rows.map((worker) => <Row key={worker.name} worker={worker} />)}</tbody>
          </table></div>
        )}
      </section>
    </main>
  );
}
