// The table of queues, on the overview and on its own page.

import { post, segment } from "../lib/api";
import { refresh } from "../lib/live";
import { toast } from "../lib/ui";
import { Button, Count, Icon } from "./basic";
import { errorText } from "./dialog";
import { Spark } from "./chart";
import { age, stats, workers } from "../lib/app";
import { duration, figure, parseDuration, shortDuration } from "../lib/format";
import { link } from "../lib/router";
import { last, lately, share, type Range, type Series } from "../lib/series";
import type { Queue } from "../lib/types";
import { t } from "../strings";

const LIVE_WORKER_MS = 120_000;

/** Workers that claimed from a queue within two minutes. */
export function workersOf(queue: string): number | null {
  if (!workers.value) return null;
  return workers.value.filter((worker) => worker.queues.includes(queue) && age(worker.last_seen_at) < LIVE_WORKER_MS).length;
}

/** Above this share of failed attempts a figure turns red. Sparklines of shares have one floor. */
export const BAD_SHARE = 5;
const SHARE_FLOOR = 10;

/** Pauses or resumes a queue. */
export function toggleQueue(queue: Queue): Promise<void> {
  const done = queue.paused ? t.queues.resumedDone(queue.name) : t.queues.pausedDone(queue.name);
  return post(`v1/queues/${segment(queue.name)}/${queue.paused ? "resume" : "pause"}`).then(() => (toast(done), refresh()), (error: unknown) => toast(errorText(error), "error"));
}

interface RowProps { queue: Queue; series: Series | null; range: Range; isUnserved: boolean; hasActions: boolean }

function Row({ queue, series, range, isUnserved, hasActions }: RowProps) {
  const figures = stats.value?.queues[queue.name];
  const columns = series?.queues[queue.name] ?? null;
  const p95 = columns ? last(columns.wait.p95) : null;
  const of = (name: "completed" | "failed") => lately(series, (values) => values[name], queue.name) ?? figures?.rates[name] ?? 0;
  const completed = of("completed");
  const failed = share(of("failed"), completed) ?? 0;
  const oldest = queue.oldest_scheduled_at ? age(queue.oldest_scheduled_at) : null;
  const target = queue.settings.wait_target ? parseDuration(queue.settings.wait_target) : null;
  const isLate = oldest !== null && target !== null && oldest > target;
  const taking = workersOf(queue.name);
  const counts = queue.counts;
  return (
    <tr>
      <td><span class="cell"><a class="qname" href={link(["queues", queue.name])}>{queue.name}</a>{queue.paused ? <span class="tag">{t.queues.paused}</span> : null}{isUnserved ? <Icon name="alert" class="sev sev-1" label={t.why.noWorker} /> : null}</span></td>
      <td class="r"><Count value={counts.scheduled ?? 0} /></td>
      <td class="r hide-sm"><Count value={counts.running ?? 0} /></td>
      <td class="r hide-sm"><Count value={counts.retrying ?? 0} /></td>
      <td class="r hide-sm"><Count value={counts.failed ?? 0} /></td>
      <td class="r hide-sm"><Count value={counts.dead_letter ?? 0} /></td>
      <td class="r">{oldest === null ? <span class="zero">{t.time.none}</span> : <span class={isLate ? "bad" : ""}>{shortDuration(oldest)}</span>}</td>
      <td class="r hide-sm hide-md">{target !== null ? shortDuration(target) : <span class="zero">{t.time.none}</span>}</td>
      <td class="hide-sm"><span class="cell-r">{columns ? <Spark values={columns.completed} label={`${t.queues.completedRate}, ${range.name}`} /> : null}<span class="w-num">{completed ? figure(completed) : <span class="zero">0</span>}</span></span></td>
      <td class="hide-sm"><span class="cell-r">{columns ? <Spark values={columns.failedShare} floor={SHARE_FLOOR} kind={failed >= BAD_SHARE ? "spark-bad" : "spark-calm"} label={`${t.queues.failedRate}, ${range.name}`} /> : null}<span class={`w-num ${failed >= BAD_SHARE ? "bad" : ""}`}>{failed ? `${figure(failed)} %` : <span class="zero">0 %</span>}</span></span></td>
      <td class="r hide-sm hide-md">{p95 === null ? <span class="zero">{t.time.none}</span> : <span class={target !== null && p95 * 1000 > target ? "bad" : ""}>{duration(p95 * 1000)}</span>}</td>
      <td class="r hide-sm">{taking === null ? t.time.none : taking ? taking : <span class="zero">0</span>}</td>
      {hasActions ? <td class="r"><Button kind="btn-sm" icon={queue.paused ? "play" : "pause"} onClick={() => void toggleQueue(queue)}>{queue.paused ? t.queues.resume : t.queues.pause}</Button></td> : null}
    </tr>
  );
}

interface Props { queues: Queue[]; series: Series | null; range: Range; /** Queues that the server finds without a worker. */ unserved: Set<string>; /** Whether rows can be paused. */ hasActions?: boolean }

export function QueueTable({ queues, series, range, unserved, hasActions = false }: Props) {
  return (
    <div class="scroll-x">
      <table class="table queues-table">
        <thead><tr>
          <th scope="col">{t.common.queue}</th><th scope="col" class="r">{t.queues.waiting}</th><th scope="col" class="r hide-sm">{t.queues.running}</th><th scope="col" class="r hide-sm">{t.queues.retrying}</th><th scope="col" class="r hide-sm">{t.queues.failed}</th>
          <th scope="col" class="r hide-sm">{t.queues.dead}</th><th scope="col" class="r">{t.queues.oldest}</th><th scope="col" class="r hide-sm hide-md">{t.queues.target}</th><th scope="col" class="r hide-sm">{t.queues.completedRate}, {range.name}</th><th scope="col" class="r hide-sm">{t.queues.failedRate}, {range.name}</th><th scope="col" class="r hide-sm hide-md">{t.overview.waitP95}</th><th scope="col" class="r hide-sm">{t.queues.workers}</th>{hasActions ? <th scope="col" class="r"><span class="sr">{t.workers.actions}</span></th> : null}
        </tr></thead>
        <tbody>{queues.map((queue) => <Row key={queue.name} queue={queue} series={series} range={range} isUnserved={unserved.has(queue.name)} hasActions={hasActions} />)}</tbody>
      </table>
    </div>
  );
}
