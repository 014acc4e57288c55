// Requeue of one group of dead letters: a few jobs first, then the rest. The server runs it.

import { useState } from "preact/hooks";
import { mayOffer } from "../lib/api";
import { info, now } from "../lib/app";
import { count, duration, relative } from "../lib/format";
import { refresh } from "../lib/live";
import { canUndo, continueOperation, followOperation, startOperation, stopOperation, timeLeft, undoOperation } from "../lib/operations";
import { setQuery } from "../lib/router";
import type { Group, Operation } from "../lib/types";
import { ask, toast } from "../lib/ui";
import { t } from "../strings";
import { Button, JobLink, StateWord } from "./basic";
import { announce } from "./bulk-bar";
import { errorText } from "./dialog";

const CANARY = 5;
const RATES = [20, 100, 0];
const TYPED_FROM = 1_000;

type Step = 1 | 2 | 3 | 4;

/** How far an operation has come: nothing, the canary, the decision and the rest, the end. */
export function stepOf(operation: Operation | null): Step {
  if (!operation || operation.undo) return 1;
  if (operation.state === "done" || operation.state === "stopped") return 4;
  return operation.canary && operation.state === "running" && !operation.canary.continued_at ? 2 : 3;
}

function Steps({ step, operation, amount, rate }: { step: Step; operation: Operation | null; amount: number; rate: number }) {
  const of = (index: number) => (index < step ? "done" : index === step ? "here" : "todo");
  const total = operation?.matched ?? amount;
  const size = operation ? (operation.canary?.size ?? 0) : Math.min(CANARY, amount);
  const completed = operation?.canary?.outcomes.completed ?? 0;
  const rest = operation?.canary ? total - size : Math.max(0, amount - size);
  const pace = operation ? operation.rate : rate || null;
  const names: [string, string][] = [
    [t.dead.sample, t.dead.sampleText(size, total)], [t.dead.canaryStep, operation?.canary ? t.dead.canaryDone(completed, size) : ""], [t.dead.rest, pace ? t.dead.restAt(rest, pace) : t.dead.restText(rest)],
  ];
  return <ol class="steps">{names.map(([name, text], index) => <li key={name} class={of(index + 1)}><span class="dot">{index + 1 < step ? "✓" : index + 1}</span><b>{name}</b>{text}</li>)}</ol>;
}

const ENDED_BADLY = ["failed", "dead_letter", "cancelled"];

function CanaryJobs({ operation }: { operation: Operation }) {
  const jobs = operation.canary?.jobs ?? [];
  return (
    <ul class="canary">
      {jobs.map((job) => (
        <li key={job.id}><StateWord state={job.state ?? "cancelled"} word={job.state === null ? t.dead.gone : undefined} /> <JobLink id={job.id} /><span class="t">{job.error_code ? <code>{job.error_code}</code> : job.state === "scheduled" ? t.dead.needsWorker : ""}</span></li>
      ))}
    </ul>
  );
}

interface Props { group: Group; operation: Operation | null; /** The queue that the page is limited to; empty for all. */ queue: string }

export function CanaryBox({ group, operation, queue }: Props) {
  // A virtual clock stands still: a pace would never end.
  const [rate, setRate] = useState(info.value?.virtual_clock ? 0 : RATES[0]!);
  const [isBusy, setBusy] = useState(false);
  const step = stepOf(operation);
  if (!mayOffer("POST", "v1/operations")) return null;
  const guarded = async (work: () => Promise<unknown>) => {
    setBusy(true);
    try {
      await work();
    } catch (error) {
      toast(errorText(error), "error");
    }
    setBusy(false);
    refresh();
  };
  // The group stays chosen, however its place in the list changes.
  const start = (canary: number | null) => guarded(async () => {
    setQuery({ group: group.id }, true);
    // With a queue in its filter, a token for that queue is enough.
    const only = queue || (group.queues.length === 1 ? group.queues[0]! : "");
    const started = await startOperation({ action: "requeue", filter: { group: group.id, ...(only ? { queue: only } : {}) }, ...(rate ? { rate } : {}), ...(canary ? { canary } : {}) });
    if (!canary) announce(await followOperation(started.id, refresh));
  });
  const goOn = () => guarded(async () => {
    await continueOperation(operation!.id);
    refresh();
    announce(await followOperation(operation!.id, () => undefined));
  });
  const stop = () => guarded(() => stopOperation(operation!.id));
  const undo = () => guarded(async () => {
    await undoOperation(operation!.id);
    toast(t.operations.undoing);
  });
  const askAll = () => ask({
    title: t.jobsPage.confirmTitle(t.jobsPage.verb.requeue!, t.jobs(group.count)), body: t.jobsPage.confirm.requeue, keep: t.jobsPage.keep, act: t.dead.requeueAll(count(group.count)),
    ...(group.count >= TYPED_FROM ? { typed: count(group.count) } : {}), run: () => void start(null),
  });
  const failed = operation?.canary ? ENDED_BADLY.reduce((sum, state) => sum + (operation.canary!.outcomes[state] ?? 0), 0) : 0;
  const isDecided = operation?.state === "waiting";
  const isGood = isDecided && failed === 0;
  const left = operation ? timeLeft(operation) : null;
  return (
    <section class="canary-box" data-step={step}>
      <div class="card-head"><h2>{t.dead.canary}</h2><div class="right">{operation && step > 1 ? t.dead.startedAgo(relative(operation.created_at, now.value)) : (
        <label class="faint">{t.jobsPage.rate} <select class="quiet-select" value={String(rate)} onChange={(event) => setRate(Number(event.currentTarget.value))}>{RATES.map((value) => <option key={value} value={String(value)}>{value ? `${count(value)} /s` : t.jobsPage.unpaced}</option>)}</select></label>
      )}</div></div>
      <Steps step={step} operation={step > 1 ? operation : null} amount={group.count} rate={rate} />
      {step === 1 ? <p class="card-body muted dl-intro">{t.dead.canaryText}</p> : operation?.canary ? <CanaryJobs operation={operation} /> : null}
      {step > 1 && failed ? <p class="card-body bad dl-intro" role="status">{t.dead.canaryFailed(failed)}</p> : null}
      {isGood ? <p class="card-body good dl-intro" role="status">{t.dead.canaryGood}</p> : null}
      {operation && step === 3 && !isDecided ? <p class="card-body muted dl-intro" role="status">{t.jobsPage.progress(count(operation.changed), count(operation.matched))}{left !== null && left >= 1_000 ? `, ${t.operations.left(duration(left))}` : ""}</p> : null}
      {operation && step === 4 ? <p class="card-body muted dl-intro" role="status">{operation.state === "stopped" ? t.jobsPage.stopped(operation.changed, t.jobsPage.past.requeue!) : t.jobsPage.done(operation.changed, t.jobsPage.past.requeue!)}{operation.refused ? t.jobsPage.refused(operation.refused) : ""}.</p> : null}
      <div class="foot-acts">
        {step === 1 ? (
          <><Button kind="btn-primary" icon="undo" onClick={() => start(CANARY)} disabled={isBusy || !group.count}>{t.dead.start(Math.min(CANARY, group.count))}</Button><Button onClick={askAll} disabled={isBusy || !group.count}>{t.dead.requeueAll(count(group.count))}</Button></>
        ) : null}
        {operation && (step === 2 || step === 3) ? (
          <><Button kind="btn-danger" icon="stop" onClick={stop}>{t.dead.stop}</Button><span class="grow" />
            {isDecided ? <Button kind={isGood ? "btn-primary" : ""} disabled={isBusy} onClick={goOn}>{isGood ? t.dead.requeueRest(operation.remaining) : t.dead.anyway(operation.remaining)}</Button> : step === 2 ? <Button disabled>{t.dead.after(operation.remaining)}</Button> : null}</>
        ) : null}
        {operation && step === 4 ? (
          <>{canUndo(operation, now.value) ? <Button icon="undo" disabled={isBusy} onClick={undo}>{t.common.undo}</Button> : null}<span class="grow" />
            {group.count ? <Button kind="btn-primary" icon="undo" onClick={() => start(CANARY)} disabled={isBusy}>{t.dead.start(Math.min(CANARY, group.count))}</Button> : null}</>
        ) : null}
      </div>
    </section>
  );
}
