// All workflows, newest first.

import { Button, Empty, Failure, Glyph, Loading, StateWord, Time } from "../components/basic";
import { get, query } from "../lib/api";
import { count, stateClass } from "../lib/format";
import { useResource } from "../lib/resource";
import { link, route, setQuery } from "../lib/router";
import { STATES, type Counts, type Workflow } from "../lib/types";
import { COMMANDS, t } from "../strings";

/** A bar of the members by state. */
export function ProgressBar({ counts, total }: { counts: Counts; total: number }) {
  const order = ["completed", "running", "scheduled", "delayed", "retrying", "pending", "cancelled", "failed", "dead_letter"] as const;
  let x = 0;
  return (
    <svg class="progress" viewBox="0 0 1000 8" preserveAspectRatio="none" role="img" aria-label={order.filter((state) => counts[state]).map((state) => `${counts[state]} ${t.state[state]}`).join(", ")}>
      <rect class="progress-bg" width="1000" height="8" />
      {order.map((state) => {
        const width = total ? (1000 * (counts[state] ?? 0)) / total : 0;
        const at = x;
        x += width;
        return width ? <rect key={state} class={`seg-c ${stateClass(state)}`} x={at} width={Math.max(2, width - 1)} height="8" /> : null;
      })}
    </svg>
  );
}

const FILTERS = ["", "running", "failed", "completed", "cancelled"];

export function Workflows() {
  const state = route.value.query.get("state") ?? "";
  const cursor = route.value.query.get("cursor") ?? "";
  const list = useResource<{ workflows: Workflow[]; next: string | null }>(`${state} ${cursor}`, () => get(`v1/workflows${query({ state, cursor, limit: 100 })}`));
  const rows = list.data?.workflows ?? [];
  return (
    <main class="page" id="content" tabIndex={-1}>
      <div class="page-head"><h1>{t.workflows.title}</h1><div class="right"><div class="seg" role="group" aria-label={t.common.state}>{FILTERS.map((name) => <button key={name} type="button" aria-pressed={state === name} onClick={() => setQuery({ state: name || null, cursor: null })}>{name ? t.workflows.state[name] : t.common.all}</button>)}</div></div></div>
      <section class="card">
        {!list.data ? (list.error ? <Failure error={list.error} what={t.workflows.title} retry={list.reload} /> : <Loading />) : !rows.length ? (
          <Empty icon="workflows" title={t.workflows.empty} text={t.workflows.emptyText} command={COMMANDS.workflow} />
        ) : (
          <>
            <div class="scroll-x"><table class="table">
              <thead><tr><th scope="col">{t.workflows.name}</th><th scope="col">{t.common.state}</th><th scope="col" class="hide-sm wide">{t.workflows.progress}</th><th scope="col" class="r">{t.workflows.members}</th><th scope="col" class="hide-sm"><span class="sr">{t.state.failed}</span></th><th scope="col" class="r hide-sm">{t.workflows.created}</th></tr></thead>
              <tbody>{rows.map((workflow) => (
                <tr key={workflow.id}>
                  <td><a class="qname" href={link(["workflows", workflow.id])}>{workflow.name ?? t.workflows.unnamed}</a> <span class="job-id hide-sm">{workflow.id.slice(0, 8)}</span>{workflow.open ? <span class="tag">{t.workflows.open}</span> : null}</td>
                  <td><StateWord state={workflow.state} word={t.workflows.state[workflow.state] ?? workflow.state} /></td>
                  <td class="hide-sm"><ProgressBar counts={workflow.counts} total={workflow.total} /></td>
                  <td class="r">{t.workflows.groupDone(workflow.ended, workflow.total)}</td>
                  <td class="hide-sm"><span class="cell">{STATES.filter((name) => (name === "failed" || name === "dead_letter" || name === "retrying") && workflow.counts[name]).map((name) => <span key={name} class="cell tight"><Glyph state={name} title={t.state[name]!} />{count(workflow.counts[name]!)}</span>)}</span></td>
                  <td class="r hide-sm muted"><Time at={workflow.created_at} /></td>
                </tr>
              ))}</tbody>
            </table></div>
            {list.data.next || cursor ? <div class="pager"><span class="grow" />{cursor ? <Button kind="btn-sm" onClick={() => setQuery({ cursor: null })}>{t.common.newest}</Button> : null}{list.data.next ? <Button kind="btn-sm" onClick={() => setQuery({ cursor: list.data!.next })}>{t.common.older}</Button> : null}</div> : null}
          </>
        )}
      </section>
    </main>
  );
}
