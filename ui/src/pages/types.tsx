// All types of jobs with an event in the range: how many, how they ended, how long they waited and ran.

import { Count, Empty, Failure, Loading } from "../components/basic";
import { BAD_SHARE } from "../components/queue-table";
import { get, query } from "../lib/api";
import { count, duration, figure } from "../lib/format";
import { useResource } from "../lib/resource";
import { link, route, setQuery } from "../lib/router";
import { HOUR, RANGES, share, type Range } from "../lib/series";
import type { JobType } from "../lib/types";
import { COMMANDS, t } from "../strings";

/** Ranges of types: their points are 30 s long. */
export const TYPE_RANGES = RANGES.filter((range) => range.seconds >= 30);

/** The range of the URL. */
export function chosenRange(): Range {
  return TYPE_RANGES.find((range) => range.window === route.value.query.get("range")) ?? HOUR;
}

export function RangeButtons({ chosen }: { chosen: Range }) {
  return <div class="seg" role="group" aria-label={t.overview.range}>{TYPE_RANGES.map((range) => <button key={range.window} type="button" aria-pressed={range === chosen} onClick={() => setQuery({ range: range.window }, true)}>{range.name}</button>)}</div>;
}

/** A quantile in seconds. */
export function Seconds({ value }: { value: number | undefined }) {
  return value === undefined ? <span class="zero">{t.time.none}</span> : <>{duration(value * 1000)}</>;
}

/** The share of failed attempts. */
export function FailedShare({ stats }: { stats: JobType }) {
  const failed = share(stats.failed, stats.completed) ?? 0;
  return <span class={failed >= BAD_SHARE ? "bad" : failed ? "" : "zero"} title={t.types.shares(count(stats.completed), count(stats.failed))}>{failed ? `${figure(failed)} %` : "0 %"}</span>;
}

export function Types() {
  const range = chosenRange();
  const list = useResource<{ types: JobType[] }>(`types ${range.window}`, () => get(`v1/types${query({ window: range.window })}`), 2_500);
  const rows = list.data?.types ?? [];
  return (
    <main class="page" id="content" tabIndex={-1}>
      <div class="page-head"><h1>{t.types.title}</h1>{list.data ? <span class="count">{rows.length}</span> : null}<div class="right"><RangeButtons chosen={range} /></div></div>
      <section class="card">
        {!list.data ? (list.error ? <Failure error={list.error} what={t.types.what} retry={list.reload} /> : <Loading />) : !rows.length ? <Empty icon="types" title={t.types.empty} text={t.types.emptyText} command={COMMANDS.submit} /> : (
          <div class="scroll-x"><table class="table types-table">
            <thead><tr><th scope="col">{t.types.name}</th><th scope="col" class="hide-sm">{t.types.queues}</th><th scope="col" class="r hide-sm">{t.types.submitted}</th><th scope="col" class="r">{t.types.completed}</th><th scope="col" class="r">{t.types.failed}</th><th scope="col" class="r hide-sm">{t.types.waitP50}</th><th scope="col" class="r hide-sm">{t.types.waitP95}</th><th scope="col" class="r hide-sm">{t.types.runP50}</th><th scope="col" class="r hide-sm">{t.types.runP95}</th></tr></thead>
            <tbody>{rows.map((stats) => (
              <tr key={stats.type}>
                <td><a class="qname mono" href={link(["types", stats.type], { range: range === HOUR ? null : range.window })}>{stats.type}</a></td>
                <td class="hide-sm muted">{stats.queues.slice(0, 3).map((queue, index) => <span key={queue}>{index ? ", " : ""}<a class="link" href={link(["queues", queue])}>{queue}</a></span>)}{stats.queues.length > 3 ? ` ${t.overview.nMore(stats.queues.length - 3)}` : ""}</td>
                <td class="r hide-sm"><Count value={stats.submitted} /></td><td class="r"><Count value={stats.completed} /></td><td class="r"><FailedShare stats={stats} /></td>
                <td class="r hide-sm muted"><Seconds value={stats.wait?.p50} /></td><td class="r hide-sm"><Seconds value={stats.wait?.p95} /></td><td class="r hide-sm muted"><Seconds value={stats.run?.p50} /></td><td class="r hide-sm"><Seconds value={stats.run?.p95} /></td>
              </tr>
            ))}</tbody>
          </table></div>
        )}
      </section>
    </main>
  );
}
