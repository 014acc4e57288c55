// The lane chart of one job.

import { useEffect, useRef, useState } from "preact/hooks";
import { clock, date, duration, stateClass } from "../lib/format";
import { gridTimes, outcomeState, type Mark, type Timeline } from "../lib/timeline";
import { t } from "../strings";

/** The width of an element, kept up to date. */
export function useWidth(): [preact.RefObject<HTMLDivElement | null>, number] {
  const ref = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  useEffect(() => {
    if (!ref.current) return;
    const observer = new ResizeObserver(([entry]) => entry && setWidth(Math.floor(entry.contentRect.width)));
    observer.observe(ref.current);
    return () => observer.disconnect();
  }, []);
  return [ref, width];
}

function GlyphAt({ state, x, y, size, soft }: { state: string; x: number; y: number; size: number; soft?: boolean }) {
  return <use href={`#g-${state.replace("_", "-")}`} x={x - size / 2} y={y - size / 2} width={size} height={size} class={`lane-g ${soft ? "lane-g-soft" : ""} ${stateClass(state)}`} />;
}

/** Marks of a lane: those that would overlap stand side by side, in order. */
function Marks({ marks, x, y, right }: { marks: Mark[]; x: (at: number) => number; y: number; right: number }) {
  let free = -Infinity;
  return (
    <>
      {marks.map((mark, index) => {
        const at = Math.max(x(mark.at), free);
        const next = marks[index + 1];
        const room = (next ? x(next.at) : right) - at - 14;
        const width = mark.text.length * 5.9 + 10;
        const hasText = mark.text !== "" && room > width;
        free = at + 15;
        return (
          <g key={index}><title>{`${mark.text} ${clock(mark.at)}`}</title><GlyphAt state={mark.state} x={at} y={y} size={13} />{hasText ? <text class="lane-note" x={at + 11} y={y + 4}>{mark.text}</text> : null}</g>
        );
      })}
    </>
  );
}

export function Lanes({ line }: { line: Timeline }) {
  const [ref, width] = useWidth();
  const isSmall = width < 640;
  const left = isSmall ? 8 : 92;
  const right = isSmall ? 8 : 10;
  const top = 26;
  const rowHeight = isSmall ? 50 : 38;
  const pad = isSmall ? 8 : 0;
  const lanes = [t.job.lanes.state, t.job.lanes.attempts, t.job.lanes.operator, ...(line.deliveries.length ? [t.job.lanes.deliveries] : [])];
  const height = top + rowHeight * lanes.length + 24;
  const span = line.to - line.from;
  const x = (at: number) => left + ((at - line.from) / span) * (width - left - right);
  const y = (lane: number) => top + lane * rowHeight + pad;
  const isDated = span > 2 * 86_400_000;
  const stamp = (at: number) => (isDated ? date(new Date(at).toISOString()).replace(/ \d{4}/, "") : clock(at, span < 30 * 60_000));
  const hasNow = line.now >= line.from && line.now <= line.to;
  const nowX = Math.round(x(line.now));
  const badge = Math.max(34, Math.min(width - 34, nowX));
  const label = `${t.job.timeline}: ${line.runs.length} ${t.job.attempts.toLowerCase()}, ${line.spans.map((part) => t.state[part.state]).join(", ")}`;
  return (
    <div class="lanes" ref={ref}>
      {width > 0 ? (
        <svg viewBox={`0 0 ${width} ${height}`} height={height} role="img" aria-label={label}>
          {hasNow && line.plan ? <rect class="future" x={nowX} y={top} width={Math.max(0, width - right - nowX)} height={rowHeight * lanes.length} /> : null}
          {gridTimes(line.from, line.to, isSmall ? 3 : Math.max(3, Math.floor(width / 120))).map((at) => (
            <g key={at}><line class="gl" x1={Math.round(x(at)) + 0.5} x2={Math.round(x(at)) + 0.5} y1={top} y2={top + rowHeight * lanes.length} /><text class="ax" x={Math.max(20, Math.min(width - 24, x(at)))} y={height - 6} text-anchor="middle">{stamp(at)}</text></g>
          ))}
          {lanes.map((name, index) => (
            <g key={name}><text class={isSmall ? "ax" : "lane-l"} x={0} y={isSmall ? top + index * rowHeight + 12 : y(index) + rowHeight / 2 + 4}>{name}</text><line class="lane-sep" x1={0} x2={width} y1={top + index * rowHeight + 0.5} y2={top + index * rowHeight + 0.5} /></g>
          ))}
          <line class="lane-sep" x1={0} x2={width} y1={top + lanes.length * rowHeight + 0.5} y2={top + lanes.length * rowHeight + 0.5} />
          {line.spans.map((part, index) => {
            const start = x(Math.max(part.from, line.from));
            const wide = Math.max(x(part.to) - start - 1, 2);
            const word = t.state[part.state]!.toLowerCase();
            return (
              <g key={index} class={stateClass(part.state)}><title>{`${word} ${clock(part.from)}, ${duration(part.to - part.from)}`}</title>
                <rect class="seg-r" x={start + 0.5} y={y(0) + 9} width={wide} height={20} rx={3} />
                {part.isOpen && line.plan ? <rect class="plan" x={x(part.to) + 0.5} y={y(0) + 9} width={Math.max(2, x(line.plan.at) - x(part.to) - 1)} height={20} rx={3} /> : null}
                {wide > word.length * 6.4 + 12 ? <text class="seg-t" x={start + wide / 2} y={y(0) + 23} text-anchor="middle">{word}</text> : wide > 15 ? <GlyphAt state={part.state} x={start + wide / 2} y={y(0) + 19} size={12} soft /> : null}
              </g>
            );
          })}
          {line.runs.map((run, index) => {
            const start = x(Math.max(run.from, line.from));
            const end = Math.max(x(run.to), start + 2);
            const next = line.runs[index + 1];
            const room = (next ? x(next.from) : width - right) - start;
            const drop = isSmall ? 5 : 0;
            return (
              <g key={index} class="s-running"><title>{`#${run.number} ${run.worker ?? ""} ${run.outcome ? t.outcome[run.outcome] : t.job.running} ${duration(run.to - run.from)}`}</title>
                <rect class="seg-solid" x={start} y={y(1) + 27 + drop} width={end - start} height={3} rx={1.5} />
                {room > 18 ? <text class="att-t" x={start} y={y(1) + 19}>#{run.number}</text> : null}
                {run.code && room > 34 + run.code.length * 6.4 ? <text class="lane-note" x={start + 18 + (run.number > 9 ? 6 : 0)} y={y(1) + 19}>{run.code}</text> : null}
                {run.outcome ? <GlyphAt state={outcomeState(run.outcome)} x={end} y={y(1) + 28.5 + drop} size={isSmall ? 11 : 13} /> : null}
              </g>
            );
          })}
          {line.plan ? <g><GlyphAt state={line.plan.state} x={x(line.plan.at)} y={y(1) + (isSmall ? 33.5 : 28.5)} size={isSmall ? 11 : 13} /><text class="lane-note" x={Math.min(x(line.plan.at), width - 34)} y={y(1) + 18} text-anchor="middle">{isSmall ? "" : stamp(line.plan.at)}</text></g> : null}
          <Marks marks={line.events} x={x} y={y(2) + 19} right={width - right} />
          {line.deliveries.length ? <Marks marks={line.deliveries} x={x} y={y(3) + 19} right={width - right} /> : null}
          {hasNow ? <g><line class="now" x1={nowX + 0.5} x2={nowX + 0.5} y1={top - 4} y2={top + rowHeight * lanes.length} /><rect class="now-b" x={badge - 34} y={4} width={68} height={18} rx={4} /><text class="now-t" x={badge} y={16.5} text-anchor="middle">{clock(line.now)}</text></g> : null}
        </svg>
      ) : null}
    </div>
  );
}
