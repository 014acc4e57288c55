// Jobs: state tabs, filters in the URL, saved views, selection, everything that matches.

import { signal } from "@preact/signals";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Button, CopyButton, Count, Empty, Failure, Glyph, Icon, Loading, StateWord, Tags, Time } from "../components/basic";
import { BulkBar } from "../components/bulk-bar";
import { isTyping } from "../components/keys";
import { get, mayOffer, query } from "../lib/api";
import { queues, stats } from "../lib/app";
import { canOperate } from "../lib/operations";
import { activeFilters, parseFilter, wordOf } from "../lib/filters";
import { duration } from "../lib/format";
import { useResource } from "../lib/resource";
import { holdRows, moveCursor } from "../lib/rows";
import { link, open, route, setQuery } from "../lib/router";
import { STATES, type AttentionItem, type Counts, type Job, type Jobs } from "../lib/types";
import { overlay, store, stored, toast } from "../lib/ui";
import { removeView, savedViews, saveView, viewLink } from "../lib/views";
import { COMMANDS, t } from "../strings";

const FIELDS = "id,queue,type,state,priority,attempt,policy,tags,error,created_at,started_at,attempt_ended_at,run_at,waiting_on,workflow,actions,counters";
const PAGE = 100;

function StateTabs({ counts, state }: { counts: Counts | null; state: string }) {
  const tabs = useRef<HTMLElement>(null);
  useEffect(() => {
    const [box, current] = [tabs.current, tabs.current?.querySelector<HTMLElement>("[aria-current]")];
    if (box && current) box.scrollLeft = current.offsetLeft - box.clientWidth / 2 + current.clientWidth / 2;
  }, [state]);
  const total = counts ? STATES.reduce((sum, name) => sum + (counts[name] ?? 0), 0) : null;
  const to = (value: string) => link(["jobs"], { ...activeFilters(route.value.query), state: value || null });
  return (
    <nav class="state-tabs" aria-label={t.common.state} ref={tabs}>
      <a href={to("")} aria-current={state === "" ? "page" : undefined}>{t.jobsPage.all} <span class="n"><Count value={total} /></span></a>
      {STATES.map((name) => <a key={name} href={to(name)} aria-current={state === name ? "page" : undefined}><Glyph state={name} />{t.state[name]} <span class="n"><Count value={counts ? (counts[name] ?? 0) : null} /></span></a>)}
    </nav>
  );
}

function FilterBar({ filters }: { filters: Record<string, string> }) {
  const [text, setText] = useState("");
  const [views, setViews] = useState(false);
  const [name, setName] = useState<string | null>(null);
  const apply = (event: Event) => {
    event.preventDefault();
    const parsed = parseFilter(text, queues.value?.map((queue) => queue.name));
    if (!parsed) return;
    setText("");
    if ("job" in parsed) open(link(["jobs", parsed.job]));
    else setQuery({ ...parsed.filters, cursor: null });
  };
  const save = (event: Event) => {
    event.preventDefault();
    if (!name?.trim()) return;
    const current = new URLSearchParams(route.value.query);
    current.delete("cursor");
    current.delete("view");
    saveView({ name: name.trim(), query: current.toString() });
    toast(t.jobsPage.saved(name.trim()));
    setName(null);
    setQuery({ view: name.trim() }, true);
  };
  return (
    <div class="filter">
      <form class="filter-box" onSubmit={apply} role="search">
        <Icon name="search" />
        {Object.entries(filters).map(([parameter, value]) => (
          <span class="chip" key={parameter}><span class="k">{wordOf(parameter)}</span><span class="v trunc" title={value}>{value}</span><button type="button" aria-label={t.jobsPage.remove(wordOf(parameter))} onClick={() => setQuery({ [parameter]: null, cursor: null })}><Icon name="x" /></button></span>
        ))}
        <input value={text} placeholder={Object.keys(filters).length ? t.jobsPage.filterShort : t.jobsPage.filterHint} aria-label={t.jobsPage.filterLabel} title={t.jobsPage.filterHint} onInput={(event) => setText(event.currentTarget.value)} list="filter-words" />
        <datalist id="filter-words">{(queues.value ?? []).map((queue) => <option key={queue.name} value={`queue:${queue.name}`} />)}</datalist>
      </form>
      {name === null ? <Button icon="bookmark" onClick={() => setName(route.value.query.get("view") ?? "")}>{t.jobsPage.save}</Button> : (
        <form class="inline" onSubmit={save}><input class="input" placeholder={t.jobsPage.viewName} aria-label={t.jobsPage.viewName} value={name} onInput={(event) => setName(event.currentTarget.value)} autofocus /><Button kind="btn-primary" type="submit" disabled={!name.trim()}>{t.common.save}</Button></form>
      )}
      <ColumnsMenu />
      <div class="menu-wrap">
        <button class="btn" type="button" aria-expanded={views} aria-haspopup="true" onClick={() => setViews(!views)}>{t.jobsPage.views}<Icon name="down" /></button>
        {views ? (
          <div class="menu-pop" onClick={() => setViews(false)}>
            {savedViews.value.length ? savedViews.value.map((view) => (
              <div class="menu-row" key={view.name}><a href={viewLink(view)}><Icon name="bookmark" />{view.name}</a><button type="button" class="copy" aria-label={`${t.common.clear} ${view.name}`} onClick={(event) => (event.stopPropagation(), removeView(view.name))}><Icon name="x" /></button></div>
            )) : <p class="menu-none">{t.jobsPage.noViews}</p>}
          </div>
        ) : null}
      </div>
    </div>
  );
}

/** Columns that may be left out, with their class. */
const COLUMNS: [name: string, label: string][] = [["queue", t.common.queue], ["priority", t.jobsPage.priority], ["attempt", t.jobsPage.attempt], ["ran", t.jobsPage.ran], ["tags", t.jobsPage.tags]];
const hiddenColumns = signal<ReadonlySet<string>>(new Set((stored("longshore.columns") ?? "").split(",").filter(Boolean)));

function toggleColumn(name: string): void {
  const next = new Set(hiddenColumns.value);
  if (!next.delete(name)) next.add(name);
  hiddenColumns.value = next;
  store("longshore.columns", [...next].join(","));
}

function ColumnsMenu() {
  const [isOpen, setOpen] = useState(false);
  return (
    <div class="menu-wrap hide-sm">
      <button class="btn" type="button" aria-expanded={isOpen} aria-haspopup="true" onClick={() => setOpen(!isOpen)}><Icon name="cols" />{t.jobsPage.columns}</button>
      {isOpen ? <div class="menu-pop right-pop">{COLUMNS.map(([name, label]) => <label key={name} class="menu-item menu-check"><input class="check" type="checkbox" checked={!hiddenColumns.value.has(name)} onChange={() => toggleColumn(name)} />{label}</label>)}</div> : null}
    </div>
  );
}

/** What the server says about ready jobs of a queue and a type: `queue type` or `queue`. */
type Troubles = ReadonlyMap<string, string>;

/** Why ready jobs do not run, from what needs attention. */
function useTroubles(): Troubles {
  const list = useResource<{ items: AttentionItem[] }>("attention", () => get("v1/attention"), 5_000);
  return useMemo(() => {
    const found = new Map<string, string>();
    for (const item of list.data?.items ?? []) {
      if (item.code === "paused_with_work" && item.queue) found.set(item.queue, t.jobsPage.queuePaused);
      if (item.code === "no_worker" && item.queue) found.set(item.type ? `${item.queue} ${item.type}` : item.queue, t.jobsPage.noWorker);
    }
    return found;
  }, [list.data]);
}

/** The last column: the error, or what a waiting job waits for. */
function Reason({ job, troubles }: { job: Job; troubles: Troubles }) {
  const trouble = job.state === "scheduled" ? (troubles.get(job.queue) ?? troubles.get(`${job.queue} ${job.type}`)) : undefined;
  if (trouble) return <span class="trouble"><Icon name="alert" class="sev sev-2" />{trouble}</span>;
  if (job.error && job.state !== "completed") return <><code>{job.error.code ?? job.error.category}</code> {job.error.message}</>;
  if (job.state === "pending" && job.waiting_on) return <>{t.jobsPage.waitsFor(job.waiting_on)}</>;
  if (job.run_at) return <Time at={job.run_at} />;
  return null;
}

function ranFor(job: Job): string {
  if (!job.started_at || !job.attempt_ended_at) return t.time.none;
  return duration(Date.parse(job.attempt_ended_at) - Date.parse(job.started_at));
}

interface RowProps { job: Job; troubles: Troubles; isSelected: boolean; isCurrent: boolean; select: () => void }

function Row({ job, troubles, isSelected, isCurrent, select }: RowProps) {
  const limit = job.policy?.retry?.limit;
  const attempts = limit !== undefined && job.policy?.retry?.counts === "retries" ? limit + 1 : limit;
  return (
    <tr class={`${isSelected ? "sel" : ""} ${isCurrent ? "cur" : ""}`} data-row={job.id}>
      <td><input class="check" type="checkbox" checked={isSelected} aria-label={`${t.jobsPage.select} ${job.type} ${job.id.slice(0, 8)}`} onChange={select} /></td>
      <td class="hide-sm"><StateWord state={job.state} /></td>
      <td class="jobcell"><span class="only-sm"><Glyph state={job.state} title={t.state[job.state] ?? job.state} /></span> <a class="jobname" href={link(["jobs", job.id])}><code>{job.type}</code> <span class="job-id">{job.id.slice(0, 8)}</span></a><span class="sub2 only-sm"><Reason job={job} troubles={troubles} /></span></td>
      <td class="hide-sm muted c-queue">{job.queue}</td>
      <td class={`hide-sm c-priority ${job.priority === "normal" ? "muted" : ""}`}>{job.priority}</td>
      <td class="r hide-sm c-attempt">{attempts ? t.jobsPage.of(job.attempt, attempts) : job.attempt}</td>
      <td class="r hide-sm muted hide-md c-ran">{ranFor(job)}</td>
      <td class="hide-sm hide-md c-tags"><Tags tags={job.tags} /></td>
      <td class="fill trunc hide-sm" title={job.error?.message}><Reason job={job} troubles={troubles} /></td>
      <td class="r muted"><Time at={job.created_at} /></td>
    </tr>
  );
}

interface Cursor { current: string | null; rows: Job[]; toggle: (job: Job) => void; move: (id: string | null) => void }

/** Keys of the table: j and k move, x selects, Enter opens, Escape leaves the row. */
function useRowKeys(cursor: Cursor): void {
  const state = useRef(cursor);
  state.current = cursor;
  useEffect(() => {
    const onKeyDown = (event: KeyboardEvent) => {
      if (isTyping(event) || event.ctrlKey || event.metaKey || event.altKey || overlay.value || document.querySelector("[role=dialog]")) return;
      const { current, rows, toggle, move } = state.current;
      const step = event.key === "j" ? 1 : event.key === "k" ? -1 : 0;
      if (step) {
        const next = moveCursor(rows, current, step);
        move(next);
        if (next) document.querySelector(`[data-row="${CSS.escape(next)}"]`)?.scrollIntoView({ block: "nearest" });
      }
      if (event.key === "Escape") move(null);
      const job = rows.find((row) => row.id === current);
      if (event.key === "x" && job) toggle(job);
      if (event.key === "Enter" && job && (event.target === document.body || (event.target as HTMLElement).id === "content")) open(link(["jobs", job.id]));
    };
    document.addEventListener("keydown", onKeyDown);
    return () => document.removeEventListener("keydown", onKeyDown);
  }, []);
}

interface Held { rows: Job[]; waiting: number; take: () => void }

/** The rows of a page. While `isHeld` no row moves: new ones are counted, and wait for `take`. */
function useRows(key: string, fresh: Job[], isHeld: boolean): Held {
  const shown = useRef<{ key: string; rows: Job[] }>({ key, rows: [] });
  const [, setRound] = useState(0);
  if (shown.current.key !== key || !isHeld || !shown.current.rows.length) shown.current = { key, rows: fresh };
  const held = holdRows(shown.current.rows, fresh);
  shown.current.rows = held.rows;
  const take = () => {
    shown.current = { key, rows: fresh };
    setRound((round) => round + 1);
  };
  return { ...held, take };
}

function EmptyJobs({ filters, state }: { filters: Record<string, string>; state: string }) {
  const names = [...Object.keys(filters).map(wordOf), ...(state ? [t.common.state] : [])];
  if (!names.length) return <Empty icon="jobs" title={t.jobsPage.emptyNone} text={t.jobsPage.emptyNoneText} command={COMMANDS.submit} />;
  const last = names[names.length - 1]!;
  return <Empty icon="search" title={t.jobsPage.emptyTitle} text={filters.tag && !state ? t.jobsPage.emptyTag(filters.tag) : t.jobsPage.emptyFilter(last)}><Button onClick={() => (state ? setQuery({ state: null }) : setQuery({ [Object.keys(filters).at(-1)!]: null }))}>{t.jobsPage.remove(last)}</Button></Empty>;
}

export function JobsPage() {
  const parameters = route.value.query;
  const state = parameters.get("state") ?? "";
  const cursor = parameters.get("cursor") ?? "";
  const filters = activeFilters(parameters);
  const key = query({ ...filters, state, cursor });
  const list = useResource<Jobs>(key || "all", () => get<Jobs>(`v1/jobs${query({ ...filters, state, cursor, limit: PAGE, fields: FIELDS })}`));
  const troubles = useTroubles();
  const [selected, setSelected] = useState<ReadonlyMap<string, Job>>(new Map());
  const [isAll, setAll] = useState(false);
  const [matched, setMatched] = useState<number | null>(null);
  const [current, setCurrent] = useState<string | null>(null);
  const [isOver, setOver] = useState(false);
  useEffect(() => (setSelected(new Map()), setAll(false), setCurrent(null)), [key]);
  // Nothing moves under the pointer, the cursor or a selection.
  const { rows, waiting, take } = useRows(key, list.data?.jobs ?? [], isOver || current !== null || selected.size > 0);
  const toggle = (job: Job) => {
    setAll(false);
    setSelected((old) => {
      const next = new Map(old);
      if (!next.delete(job.id)) next.set(job.id, job);
      return next;
    });
  };
  useRowKeys({ current, rows, toggle, move: setCurrent });
  // A selected job stays selected after it has left the page.
  const chosen = [...selected.values()].map((job) => rows.find((row) => row.id === job.id) ?? job);
  const areAllSelected = rows.length > 0 && rows.every((job) => selected.has(job.id));
  const selectPage = () => (setAll(false), setSelected(areAllSelected ? new Map() : new Map(rows.map((job) => [job.id, job]))));
  const counts = filters.queue ? (stats.value?.queues[filters.queue]?.counts ?? null) : (stats.value?.totals.counts ?? null);
  const bulkFilter = { ...filters, ...(state ? { state } : {}) };
  return (
    <main class="page" id="content" tabIndex={-1}>
      <div class="page-head"><h1>{t.jobsPage.title}</h1>{parameters.get("view") ? <span class="view-name"><Icon name="bookmark" />{parameters.get("view")}<CopyButton text={location.href} label={t.jobsPage.copyView} /></span> : null}{filters.queue ? <span class="faint">{t.jobsPage.countsOf(filters.queue)}</span> : null}
        <div class="right">{mayOffer("POST", "v1/queues/q/jobs") ? <a class="btn btn-primary" href={link(["submit"], { queue: filters.queue ?? null })}><Icon name="plus" />{t.jobsPage.submit}<kbd>n</kbd></a> : null}</div>
      </div>
      <StateTabs counts={counts} state={state} />
      <FilterBar filters={filters} />
      <section class="card jobs-card">
        {!list.data ? (list.error ? <Failure error={list.error} what={t.jobsPage.title} retry={list.reload} /> : <Loading />) : rows.length === 0 && !list.data.next ? <EmptyJobs filters={filters} state={state} /> : (
          <>
            {areAllSelected && (list.data.next || isAll) ? (
              <div class="sel-note">
                {isAll ? <><span>{t.jobsPage.allMatch(matched, rows.length)}</span><button class="link plain" type="button" onClick={() => setAll(false)}>{t.jobsPage.onlyThese(rows.length)}</button></>
                  : <><span>{t.jobsPage.allListed(rows.length)}</span>{canOperate(bulkFilter) ? <button class="link plain" type="button" onClick={() => setAll(true)}>{t.jobsPage.takeAll}</button> : <span>{t.jobsPage.cannotAll}</span>}</>}
                <button class="link plain" type="button" onClick={() => (setSelected(new Map()), setAll(false))}>{t.common.clear}</button>
              </div>
            ) : null}
            {waiting > 0 ? <div class="new-rows" role="status"><button class="link plain" type="button" onClick={take}>{t.jobsPage.newRows(waiting)}</button></div> : null}
            <div class="scroll-x"><table class={`table dense jobs-table ${[...hiddenColumns.value].map((name) => `no-${name}`).join(" ")}`}>
              <thead><tr>
                <th scope="col"><input class="check" type="checkbox" aria-label={t.jobsPage.selectAll} checked={areAllSelected} ref={(input) => { if (input) input.indeterminate = chosen.length > 0 && !areAllSelected; }} onChange={selectPage} /></th>
                <th scope="col" class="hide-sm">{t.common.state}</th><th scope="col">{t.jobsPage.job}</th><th scope="col" class="hide-sm c-queue">{t.common.queue}</th><th scope="col" class="hide-sm c-priority">{t.jobsPage.priority}</th><th scope="col" class="r hide-sm c-attempt">{t.jobsPage.attempt}</th>
                <th scope="col" class="r hide-sm hide-md c-ran">{t.jobsPage.ran}</th><th scope="col" class="hide-sm hide-md c-tags">{t.jobsPage.tags}</th><th scope="col" class="hide-sm">{t.jobsPage.reason}</th><th scope="col" class="r sorted" aria-sort="descending">{t.jobsPage.created}</th>
              </tr></thead>
              <tbody onPointerEnter={(event) => event.pointerType === "mouse" && setOver(true)} onPointerLeave={() => setOver(false)}>{rows.map((job) => <Row key={job.id} job={job} troubles={troubles} isSelected={isAll || selected.has(job.id)} isCurrent={job.id === current} select={() => toggle(job)} />)}</tbody>
            </table></div>
            <div class="pager">
              <span class="keys-hint hide-sm"><kbd>j</kbd><kbd>k</kbd><kbd>x</kbd><kbd>↵</kbd>{t.jobsPage.keys}</span>
              {rows.length < PAGE && list.data.next ? <span>{t.jobsPage.short}</span> : null}<span class="grow" />
              {cursor ? <Button kind="btn-sm" onClick={() => setQuery({ cursor: null })}>{t.common.newest}</Button> : null}
              {list.data.next ? <Button kind="btn-sm" onClick={() => (setQuery({ cursor: list.data!.next }), scrollTo(0, 0))}>{t.common.older}</Button> : null}
            </div>
          </>
        )}
      </section>
      {chosen.length || isAll ? <BulkBar chosen={chosen} filter={isAll ? bulkFilter : null} matches={setMatched} clear={() => (setSelected(new Map()), setAll(false), list.reload())} /> : null}
    </main>
  );
}
