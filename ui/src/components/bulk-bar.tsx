// The bar below a table with a selection: dry run, actions, progress, stop.

import { useEffect, useRef, useState } from "preact/hooks";
import { mayOffer, post } from "../lib/api";
import { dryRun, narrow, runOnFilter, runOnIds, type BulkAction, type Filter, type Progress } from "../lib/bulk";
import { count } from "../lib/format";
import { refresh } from "../lib/live";
import type { Job } from "../lib/types";
import { ask, toast } from "../lib/ui";
import { t } from "../strings";
import { Button } from "./basic";
import { errorText } from "./dialog";

const ACTIONS: BulkAction[] = ["requeue", "cancel", "delete"];

/** Reports the end of a bulk action, with undo where the server offers it. */
export function announce(action: BulkAction, end: Progress, isStopped: boolean): void {
  const past = t.jobsPage.past[action]!;
  const text = `${isStopped ? t.jobsPage.stopped(end.done, past) : t.jobsPage.done(end.done, past)}${end.refused ? t.jobsPage.refused(end.refused) : ""}`;
  const operation = end.operation;
  const undo = operation && action !== "delete" ? { label: t.common.undo, run: () => void post(`v1/operations/${operation.id}/undo`).then(refresh, (error: unknown) => toast(errorText(error), "error")) } : undefined;
  toast(text, "done", undo);
}

interface Props { chosen: Job[]; filter: Filter | null; clear: () => void }

export function BulkBar({ chosen, filter, clear }: Props) {
  const [dry, setDry] = useState<Partial<Record<BulkAction, { matched: number; more: boolean }>>>({});
  const [progress, setProgress] = useState<(Progress & { action: BulkAction }) | null>(null);
  const isStopped = useRef(false);
  const key = filter ? JSON.stringify(filter) : null;
  useEffect(() => {
    setDry({});
    if (!filter) return;
    for (const action of ACTIONS) {
      const part = narrow(action, filter);
      if (part) dryRun(action, part).then((result) => setDry((old) => ({ ...old, [action]: result })), () => undefined);
    }
  }, [key]);

  const legal = (action: BulkAction) => chosen.filter((job) => job.actions.includes(action));
  const amount = (action: BulkAction): number => (filter ? (dry[action]?.matched ?? 0) : legal(action).length);
  const label = (action: BulkAction): string => (filter && dry[action]?.more ? t.jobsPage.dryMore(dry[action]!.matched) : count(amount(action)));
  const run = async (action: BulkAction) => {
    isStopped.current = false;
    const report = (value: Progress) => setProgress({ ...value, action });
    report({ done: 0, refused: 0, total: filter ? null : amount(action), isOver: false, operation: null });
    try {
      const total = filter && !dry[action]?.more ? amount(action) : null;
      const part = filter ? narrow(action, filter) : null;
      const end = part ? await runOnFilter(action, part, total, report, () => isStopped.current) : await runOnIds(action, legal(action).map((job) => job.id), report, () => isStopped.current);
      announce(action, end, isStopped.current);
    } catch (error) {
      toast(errorText(error), "error");
    }
    setProgress(null);
    clear();
    refresh();
  };
  const confirm = (action: BulkAction) => {
    const verb = t.jobsPage.verb[action]!;
    const many = label(action);
    const title = `${verb} ${many} ${amount(action) === 1 ? "job" : "jobs"}`;
    ask({ title: `${title}?`, body: t.jobsPage.confirm[action], keep: t.jobsPage.keep, act: title, isDanger: action !== "requeue", ...(amount(action) >= 1000 ? { typed: String(amount(action)) } : {}), run: () => void run(action) });
  };
  if (progress) {
    return (
      <section class="bulk" role="status" aria-live="polite">
        <div><div class="head">{t.jobsPage.gerund[progress.action]} {t.jobsPage.progress(count(progress.done), progress.total === null ? "…" : count(progress.total))}</div><div class="sub">{progress.operation ? t.jobsPage.onServer : t.jobsPage.fromPage}{progress.refused ? t.jobsPage.refused(progress.refused) : ""}</div></div>
        <div class="acts"><Button icon="stop" onClick={() => (isStopped.current = true)}>{t.jobsPage.stop}</Button></div>
      </section>
    );
  }
  const offered = ACTIONS.filter((action) => amount(action) > 0 && (mayOffer("POST", "v1/jobs/bulk") || !filter));
  const first = offered[0];
  return (
    <section class="bulk" aria-label={t.jobsPage.select}>
      <div>
        <div class="head">{filter ? t.jobsPage.allMatch.split(",")[0] : t.jobsPage.selected(chosen.length)}</div>
        <div class="sub">{filter ? <>{t.jobsPage.dryRun}: {ACTIONS.filter((action) => dry[action]?.matched).map((action) => t.jobsPage.dryResult(label(action), t.jobsPage.past[action]!)).join(", ")}</> : ACTIONS.filter((action) => amount(action)).map((action) => t.jobsPage.dryResult(label(action), t.jobsPage.past[action]!)).join(", ")}</div>
      </div>
      <div class="sep" />
      <div class="acts">
        {[...offered].reverse().map((action) => <Button key={action} kind={action === first ? "btn-go" : ""} icon={action === "requeue" ? "undo" : undefined} onClick={() => confirm(action)}>{t.jobsPage.verb[action]} {label(action)}{action === "requeue" ? "" : "…"}</Button>)}
        <button class="btn btn-x" type="button" aria-label={t.common.clear} onClick={clear}>×</button>
      </div>
    </section>
  );
}
