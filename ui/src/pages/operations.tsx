// Operations on many jobs: progress, continue, stop, undo.

import { Button, Empty, Failure, Loading, StateWord, Time } from "../components/basic";
import { errorText } from "../components/dialog";
import { get, mayOffer } from "../lib/api";
import { now } from "../lib/app";
import { count, duration } from "../lib/format";
import { refresh } from "../lib/live";
import { canUndo, continueOperation, isActive, stopOperation, timeLeft, undoOperation } from "../lib/operations";
import { useResource } from "../lib/resource";
import { link, route, setQuery } from "../lib/router";
import type { Operation } from "../lib/types";
import { toast } from "../lib/ui";
import { COMMANDS, t } from "../strings";

const STATE: Record<Operation["state"], string> = { running: "running", waiting: "delayed", stopped: "cancelled", done: "completed" };

/** The filter in words; a group is a link. */
function Filter({ filter }: { filter: Operation["filter"] }) {
  const { group, ...rest } = filter;
  return <>{group ? <a class="link" href={link(["dead-letters"], { group, queue: rest.queue ?? null })}>{t.operations.group}</a> : <a class="link" href={link(["jobs"], rest)}>{Object.entries(rest).map(([name, value]) => `${name} ${value}`).join(", ")}</a>}</>;
}

function Row({ operation }: { operation: Operation }) {
  const act = (call: (id: string) => Promise<Operation>) => call(operation.id).then(refresh, (error: unknown) => toast(errorText(error), "error"));
  const may = mayOffer("POST", "v1/operations/o/stop");
  const left = timeLeft(operation);
  const width = operation.matched ? (1000 * Math.min(1, (operation.changed + operation.refused) / operation.matched)) : 1000;
  const progress = operation.undo ? t.operations.undone(operation.undo.undone, operation.undo.kept) : t.jobsPage.progress(count(operation.changed), count(operation.matched));
  return (
    <tr>
      <td><StateWord state={operation.undo ? "cancelled" : STATE[operation.state]} word={operation.undo ? t.operations.undo(operation.undo.state) : t.operations.state[operation.state]!} /></td>
      <td><b>{t.jobsPage.verb[operation.action]}</b> <Filter filter={operation.filter} /><span class="line2">{progress}, <Time at={operation.created_at} /></span></td>
      <td class="hide-sm wide"><svg class="progress" viewBox="0 0 1000 8" preserveAspectRatio="none" aria-hidden="true"><rect class="progress-bg" width="1000" height="8" /><rect class="seg-c s-completed" width={width} height="8" /></svg></td>
      <td class="r hide-sm">{progress}</td>
      <td class="r hide-sm">{operation.refused ? count(operation.refused) : <span class="zero">0</span>}</td>
      <td class="r hide-sm muted">{operation.rate ? `${count(operation.rate)} /s` : t.time.none}{operation.state === "running" && left !== null && left >= 1_000 ? `, ${t.operations.left(duration(left))}` : ""}</td>
      <td class="r hide-sm muted"><Time at={operation.created_at} /></td>
      <td class="r"><span class="cell-r">
        {may && operation.state === "waiting" ? <Button kind="btn-sm btn-primary" onClick={() => act(continueOperation)}>{t.operations.goOn}</Button> : null}
        {may && isActive(operation) ? <Button kind="btn-sm" onClick={() => act(stopOperation)}>{t.jobsPage.stop}</Button> : null}
        {may && !isActive(operation) && canUndo(operation, now.value) ? <Button kind="btn-sm" icon="undo" onClick={() => act(undoOperation)}>{t.common.undo}</Button> : null}
      </span></td>
    </tr>
  );
}

export function Operations() {
  const cursor = route.value.query.get("cursor") ?? "";
  const list = useResource<{ operations: Operation[]; next: string | null }>(`operations ${cursor}`, () => get(`v1/operations?limit=100${cursor ? `&cursor=${encodeURIComponent(cursor)}` : ""}`));
  const rows = (list.data?.operations ?? []).filter((operation) => !operation.dry_run);
  return (
    <main class="page" id="content" tabIndex={-1}>
      <div class="page-head"><h1>{t.operations.title}</h1>{list.data ? <span class="count">{rows.length}</span> : null}</div>
      <section class="card">
        {!list.data ? (list.error ? <Failure error={list.error} what={t.operations.title} retry={list.reload} /> : <Loading />) : !rows.length ? <Empty icon="bolt" title={t.operations.empty} text={t.operations.emptyText} command={COMMANDS.operation} /> : (
          <div class="scroll-x"><table class="table">
            <thead><tr><th scope="col">{t.common.state}</th><th scope="col">{t.operations.what}</th><th scope="col" class="hide-sm wide">{t.workflows.progress}</th><th scope="col" class="r hide-sm">{t.operations.jobs}</th><th scope="col" class="r hide-sm">{t.operations.refused}</th><th scope="col" class="r hide-sm">{t.jobsPage.rateCol}</th><th scope="col" class="r hide-sm">{t.operations.started}</th><th scope="col" class="r"><span class="sr">{t.workers.actions}</span></th></tr></thead>
            <tbody>{rows.map((operation) => <Row key={operation.id} operation={operation} />)}</tbody>
          </table></div>
        )}
        {list.data?.next || cursor ? <div class="pager"><span class="grow" />{cursor ? <Button kind="btn-sm" onClick={() => setQuery({ cursor: null })}>{t.common.newest}</Button> : null}{list.data?.next ? <Button kind="btn-sm" onClick={() => setQuery({ cursor: list.data!.next })}>{t.common.older}</Button> : null}</div> : null}
      </section>
    </main>
  );
}
