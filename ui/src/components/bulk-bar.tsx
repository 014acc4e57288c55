// The bar below a table with a selection: dry run, actions, progress, stop, undo.

import { useEffect, useRef, useState } from "preact/hooks";
import { mayOffer } from "../lib/api";
import { info } from "../lib/app";
import { count, duration } from "../lib/format";
import { refresh } from "../lib/live";
import { dryRun, followOperation, narrow, runOnSelection, startOperation, stopOperation, timeLeft, undoOperation, type BulkAction, type Filter, type Progress } from "../lib/operations";
import { link } from "../lib/router";
import type { Job, Operation } from "../lib/types";
import { ask, toast } from "../lib/ui";
import { t } from "../strings";
import { Button } from "./basic";
import { errorText } from "./dialog";

const ACTIONS: BulkAction[] = ["requeue", "cancel", "delete"];
/** Jobs per second; 0 is as fast as the server goes. */
const RATES = [200, 1_000, 0];
const TYPED_FROM = 1_000;

/** Reports the end of an operation, with undo where the server offers it. */
export function announce(operation: Operation): void {
  const past = t.jobsPage.past[operation.action]!;
  const text = `${operation.state === "stopped" ? t.jobsPage.stopped(operation.changed, past) : t.jobsPage.done(operation.changed, past)}${operation.refused ? t.jobsPage.refused(operation.refused) : ""}`;
  const undo = () => void undoOperation(operation.id).then(() => (toast(t.operations.undoing), refresh()), (error: unknown) => toast(errorText(error), "error"));
  toast(text, "done", operation.undo_until && operation.changed ? { label: t.common.undo, run: undo } : undefined);
}

interface Props { chosen: Job[]; filter: Filter | null; clear: () => void; /** Names the bar: how many match. */ matches: (amount: number | null) => void }
type Dry = Partial<Record<BulkAction, Operation>>;

export function BulkBar({ chosen, filter, clear, matches }: Props) {
  const [dry, setDry] = useState<Dry>({});
  const [progress, setProgress] = useState<(Progress & { action: BulkAction }) | null>(null);
  const [operation, setOperation] = useState<Operation | null>(null);
  // A virtual clock stands still: a pace would never end.
  const [rate, setRate] = useState(info.value?.virtual_clock ? 0 : RATES[0]!);
  const isStopped = useRef(false);
  const key = filter ? JSON.stringify(filter) : null;
  useEffect(() => {
    setDry({});
    matches(null);
    if (!filter) return;
    let isOver = false;
    const fail = (error: unknown) => !isOver && toast(errorText(error), "error");
    const parts = ACTIONS.flatMap((action) => {
      const part = narrow(action, filter);
      return part ? [dryRun(action, part).then((result) => (!isOver && setDry((old) => ({ ...old, [action]: result })), result.matched))] : [];
    });
    // The parts of two actions overlap: the largest one is what matches.
    Promise.all(parts).then((found) => !isOver && matches(Math.max(0, ...found)), fail);
    return () => {
      isOver = true;
    };
  }, [key]);

  const legal = (action: BulkAction) => chosen.filter((job) => job.actions.includes(action));
  const amount = (action: BulkAction): number => (filter ? (dry[action] ? dry[action].matched - dry[action].refused : 0) : legal(action).length);
  const runOperation = async (action: BulkAction, part: Filter) => {
    const started = await startOperation({ action, filter: part, ...(rate ? { rate } : {}) });
    setOperation(started);
    announce(await followOperation(started.id, setOperation));
  };
  const runSelection = async (action: BulkAction) => {
    isStopped.current = false;
    const report = (value: Progress) => setProgress({ ...value, action });
    const end = await runOnSelection(action, legal(action).map((job) => job.id), report, () => isStopped.current);
    const past = t.jobsPage.past[action]!;
    toast(`${isStopped.current ? t.jobsPage.stopped(end.done, past) : t.jobsPage.done(end.done, past)}${end.refused ? t.jobsPage.refused(end.refused) : ""}`);
  };
  const run = async (action: BulkAction) => {
    try {
      const part = filter ? narrow(action, filter) : null;
      if (part) await runOperation(action, part);
      else await runSelection(action);
    } catch (error) {
      toast(errorText(error), "error");
    }
    setProgress(null);
    setOperation(null);
    clear();
    refresh();
  };
  const confirm = (action: BulkAction) => {
    const title = `${t.jobsPage.verb[action]!} ${count(amount(action))} ${amount(action) === 1 ? "job" : "jobs"}`;
    ask({ title: `${title}?`, body: t.jobsPage.confirm[action], keep: t.jobsPage.keep, act: title, isDanger: action !== "requeue", ...(amount(action) >= TYPED_FROM ? { typed: count(amount(action)) } : {}), run: () => void run(action) });
  };
  if (operation) return <Running operation={operation} />;
  if (progress) {
    return (
      <section class="bulk" role="status" aria-live="polite">
        <div><div class="head">{t.jobsPage.gerund[progress.action]} {t.jobsPage.progress(count(progress.done), count(progress.total))}</div><div class="sub">{progress.refused ? t.jobsPage.refusedOf(progress.refused) : t.jobsPage.oneByOne}</div></div>
        <div class="acts"><Button icon="stop" onClick={() => (isStopped.current = true)}>{t.jobsPage.stop}</Button></div>
      </section>
    );
  }
  const offered = ACTIONS.filter((action) => amount(action) > 0 && mayOffer("POST", filter ? "v1/operations" : "v1/jobs/bulk"));
  const first = offered[0];
  const found = filter ? Math.max(0, ...Object.values(dry).map((result) => result.matched)) : 0;
  const refused = first && dry[first] ? dry[first].refused : 0;
  return (
    <section class="bulk" aria-label={t.jobsPage.select}>
      <div>
        <div class="head">{filter ? (Object.keys(dry).length ? t.jobsPage.allMatching(found) : t.jobsPage.counting) : t.jobsPage.selected(chosen.length)}</div>
        <div class="sub">{filter ? `${t.jobsPage.dryRun}: ` : ""}{offered.map((action) => t.jobsPage.dryResult(count(amount(action)), t.jobsPage.past[action]!)).join(", ")}{filter && refused ? t.jobsPage.refused(refused) : ""}</div>
      </div>
      {filter && first ? (
        <>
          <div class="sep" />
          <div class="rate sub"><label>{t.jobsPage.rate} <select class="bulk-rate" value={String(rate)} onChange={(event) => setRate(Number(event.currentTarget.value))}>{RATES.map((value) => <option key={value} value={String(value)}>{value ? `${count(value)} /s` : t.jobsPage.unpaced}</option>)}</select></label>
            <div>{rate ? t.jobsPage.takes(duration((amount(first) * 1000) / rate)) : null}{rate && first !== "delete" ? ", " : ""}{first !== "delete" ? t.jobsPage.undoFor : ""}</div></div>
        </>
      ) : null}
      <div class="sep" />
      <div class="acts">
        {[...offered].reverse().map((action) => <Button key={action} kind={action === first ? "btn-go" : ""} icon={action === "requeue" ? "undo" : undefined} onClick={() => confirm(action)}>{t.jobsPage.verb[action]} {count(amount(action))}{action === "requeue" ? "" : "…"}</Button>)}
        <button class="btn btn-x" type="button" aria-label={t.common.clear} onClick={clear}>×</button>
      </div>
    </section>
  );
}

function Running({ operation }: { operation: Operation }) {
  const left = timeLeft(operation);
  const stop = () => stopOperation(operation.id).catch((error: unknown) => toast(errorText(error), "error"));
  return (
    <section class="bulk" role="status" aria-live="polite">
      <div>
        <div class="head">{t.jobsPage.gerund[operation.action]} {t.jobsPage.progress(count(operation.changed), count(operation.matched))}</div>
        <div class="sub">{operation.rate ? `${count(operation.rate)} /s` : t.jobsPage.unpaced}{left !== null && left >= 1_000 ? `, ${t.operations.left(duration(left))}` : ""}{operation.refused ? t.jobsPage.refused(operation.refused) : ""}. <a class="bulk-link" href={link(["operations"])}>{t.jobsPage.onServer}</a></div>
      </div>
      <div class="acts"><Button icon="stop" onClick={stop}>{t.jobsPage.stop}</Button></div>
    </section>
  );
}
