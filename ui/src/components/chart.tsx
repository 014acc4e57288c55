// Charts over time with uPlot, and sparklines. Colours are read from the tokens of the theme.

import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { clock } from "../lib/format";
import { theme } from "../lib/ui";

export interface Line { label: string; token: string; values: (number | null)[]; width?: number; dash?: number[]; isArea?: boolean }

interface Props {
  label: string;
  at: number[];
  lines: Line[];
  isStacked?: boolean;
  format: (value: number) => string;
  /** Smallest top of the axis, so that a calm chart looks calm. */
  floor?: number;
  axis?: (value: number) => string;
  height?: number;
  /** A dashed line with a word. */
  target?: { value: number; label: string };
  /** Dotted lines with a name: the same in every chart of a page. */
  marks?: { at: number; label: string }[];
  /** The values are seconds: the axis has steps of a clock. */
  isSeconds?: boolean;
  /** Draws lines across missing values: quantiles of intervals without an event are missing. */
  spans?: boolean;
}

const sync = uPlot.sync("page");
const HEIGHT = 148;

/** Sums of the layers from the last to the first: the first is on top. */
export function stack(lines: Line[]): (number | null)[][] {
  const sums: number[] = [];
  const layers: (number | null)[][] = [];
  for (const line of [...lines].reverse()) {
    layers.unshift(line.values.map((value, index) => {
      sums[index] = (sums[index] ?? 0) + (value ?? 0);
      return sums[index]!;
    }));
  }
  return layers;
}

/** The room of a chart: its own height, or all that its card has. */
function sizeOf(host: HTMLElement, props: Props): { width: number; height: number } {
  return { width: host.clientWidth, height: props.height ?? Math.max(HEIGHT, host.clientHeight) };
}

/** Steps of an axis of durations, in seconds. */
const SECONDS = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 14_400, 43_200, 86_400];

/** Half of a label of the axis of time, in pixels. */
const LABEL_HALF = 26;

/** Whether a label at an instant has room between the axis of values and the edge. */
function isWhole(plot: uPlot, value: number): boolean {
  const left = plot.valToPos(value, "x");
  return left >= LABEL_HALF / 2 && left <= plot.bbox.width / devicePixelRatio - LABEL_HALF + 16;
}

function options(host: HTMLElement, props: Props, box: HTMLElement, latest: { current: Props }): uPlot.Options {
  const style = getComputedStyle(document.documentElement);
  const color = (token: string) => style.getPropertyValue(`--${token}`).trim();
  const font = `10.5px ${style.getPropertyValue("--font")}`;
  const alpha = (value: string) => `${value}24`;
  return {
    ...sizeOf(host, props), legend: { show: false }, padding: [14, 16, 0, 0],
    cursor: { sync: { key: sync.key, setSeries: false }, points: { show: false }, drag: { x: false, y: false }, y: false },
    scales: { x: { time: true, range: (_, min, max) => (max - min < 30 ? [max - 60, max] : [min, max]) }, y: { range: (_, __, max) => [0, Math.max(props.floor ?? 1, (max ?? 0) * 1.08, latest.current.target && latest.current.target.value < 20 * (max ?? 0) ? latest.current.target.value * 1.15 : 0)] } },
    axes: [
      { stroke: color("text-3"), font, grid: { show: false }, ticks: { show: false }, size: 22, gap: 4, space: 54, values: (plot, splits) => splits.map((value) => (isWhole(plot, value) ? clock(value * 1000, splits.length > 1 && (splits[1]! - splits[0]!) < 60) : "")) },
      { stroke: color("text-3"), font, grid: { stroke: color("grid"), width: 1 }, ticks: { show: false }, size: 46, gap: 6, space: 26, ...(props.isSeconds ? { incrs: SECONDS } : {}), values: (_, splits) => splits.map((value) => (latest.current.axis ?? latest.current.format)(value)) },
    ],
    series: [{}, ...props.lines.map((line): uPlot.Series => {
      const stroke = color(line.token);
      return { label: line.label, stroke: props.isStacked ? color("surface") : stroke, width: props.isStacked ? 1 : (line.width ?? 1.6), ...(line.dash ? { dash: line.dash } : {}), ...(props.isStacked ? { fill: stroke } : line.isArea ? { fill: alpha(stroke) } : {}), points: { show: false }, spanGaps: props.spans ?? false };
    })],
    hooks: { setCursor: [(plot) => drawBox(plot, box, latest.current)], draw: [(plot) => (drawTarget(plot, latest.current.target, color("s-retrying"), font), drawMarks(plot, latest.current.marks ?? [], color("text-2"), font))] },
  };
}

/** The dashed line of a target, with its word above it. */
function drawTarget(plot: uPlot, target: Props["target"], color: string, font: string): void {
  if (!target) return;
  const { ctx, bbox } = plot;
  const y = Math.round(plot.valToPos(target.value, "y", true));
  if (y < bbox.top) return;
  ctx.save();
  ctx.strokeStyle = color;
  ctx.fillStyle = color;
  ctx.lineWidth = devicePixelRatio;
  ctx.setLineDash([4 * devicePixelRatio, 3 * devicePixelRatio]);
  ctx.beginPath();
  ctx.moveTo(bbox.left, y);
  ctx.lineTo(bbox.left + bbox.width, y);
  ctx.stroke();
  ctx.font = font.replace("10.5px", `${10.5 * devicePixelRatio}px`);
  ctx.textBaseline = "bottom";
  ctx.textAlign = "left";
  ctx.fillText(target.label, bbox.left + 4 * devicePixelRatio, y - 2 * devicePixelRatio);
  ctx.restore();
}

/** Dotted vertical lines with a name above. A name that finds no room is left out; its line stays. */
function drawMarks(plot: uPlot, marks: { at: number; label: string }[], color: string, font: string): void {
  const { ctx, bbox } = plot;
  const scale = devicePixelRatio;
  ctx.save();
  ctx.strokeStyle = color;
  ctx.fillStyle = color;
  ctx.lineWidth = scale;
  ctx.font = font.replace("10.5px", `${10.5 * scale}px`);
  ctx.textBaseline = "bottom";
  ctx.textAlign = "left";
  let free = bbox.left;
  for (const mark of marks) {
    const x = Math.round(plot.valToPos(mark.at / 1000, "x", true)) + 0.5;
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.setLineDash([2 * scale, 3 * scale]);
    ctx.beginPath();
    ctx.moveTo(x, bbox.top - 4 * scale);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    const width = ctx.measureText(mark.label).width;
    const left = x - width - 4 * scale >= free ? x - width - 4 * scale : x + 4 * scale;
    if (left < free || left + width > bbox.left + bbox.width) continue;
    ctx.fillText(mark.label, left, bbox.top - 1 * scale);
    free = left + width + 8 * scale;
  }
  ctx.restore();
}

/** The box at the crosshair: exact values and the instant. */
function drawBox(plot: uPlot, box: HTMLElement, props: Props): void {
  const index = plot.cursor.idx;
  const isShown = index !== null && index !== undefined && (plot.cursor.left ?? -1) >= 0;
  box.hidden = !isShown;
  if (!isShown) return;
  const rows = props.lines.map((line) => {
    const row = document.createElement("div");
    const value = line.values[index];
    row.append(line.label, Object.assign(document.createElement("b"), { textContent: value === null || value === undefined ? "–" : props.format(value) }));
    return row;
  });
  const head = Object.assign(document.createElement("div"), { className: "faint", textContent: clock(props.at[index]!) });
  box.replaceChildren(head, ...rows);
  const left = plot.cursor.left! + 46;
  const isRight = left > plot.width / 2;
  box.style.left = isRight ? "auto" : `${left + 12}px`;
  box.style.right = isRight ? `${plot.width - left + 12}px` : "auto";
}

export function Chart(props: Props) {
  const host = useRef<HTMLDivElement>(null);
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const latest = useRef(props);
  latest.current = props;
  const data = (): uPlot.AlignedData => [props.at.map((value) => value / 1000), ...(props.isStacked ? stack(props.lines) : props.lines.map((line) => line.values))];
  const shape = props.lines.map((line) => `${line.label}:${line.token}`).join("|");
  useEffect(() => {
    if (!host.current || !box.current) return;
    const create = () => {
      plot.current?.destroy();
      if (host.current && box.current) plot.current = new uPlot(options(host.current, latest.current, box.current, latest), data(), host.current);
    };
    create();
    const observer = new ResizeObserver(() => plot.current && host.current && host.current.clientWidth > 0 && plot.current.setSize(sizeOf(host.current, latest.current)));
    observer.observe(host.current);
    const system = matchMedia("(prefers-color-scheme: dark)");
    system.addEventListener("change", create);
    return () => {
      observer.disconnect();
      system.removeEventListener("change", create);
      plot.current?.destroy();
      plot.current = null;
    };
  }, [shape, props.isStacked, theme.value]);
  useEffect(() => {
    plot.current?.setData(data());
  }, [props.at, props.lines, props.marks]);
  return <div class={`chart ${props.height === undefined ? "chart-fill" : ""}`} role="img" aria-label={props.label}><div class="chart-host" ref={host} /><div class="chart-box" ref={box} hidden /></div>;
}

/** A small line without axes. `floor` is the least top of the scale. */
export function Spark({ values, floor = 1, kind = "spark-acc", label }: { values: (number | null)[]; floor?: number; kind?: string; label: string }) {
  // What is not known yet at the end is left out: it is no zero.
  const known = values.slice(0, values.findLastIndex((value) => value !== null) + 1).map((value) => value ?? 0);
  const top = Math.max(floor, ...known);
  const x = (index: number) => (known.length > 1 ? (index / (known.length - 1)) * 76 : 0);
  const y = (value: number) => 21 - (value / top) * 19;
  const path = known.length > 1 ? known.map((value, index) => `${index ? "L" : "M"}${x(index).toFixed(1)} ${y(value).toFixed(1)}`).join("") : "M0 21L76 21";
  return (
    <svg class={`spark ${kind}`} viewBox="0 0 76 22" role="img" aria-label={label}>
      <path class="f" d={`${path}L76 22L0 22Z`} /><path class="l" d={path} />
    </svg>
  );
}

/** A key of a chart's line or area. */
export function Legend({ items }: { items: { label: string; token: string; dash?: boolean; isArea?: boolean }[] }) {
  return (
    <span class="legend">
      {items.map((item) => (
        <span key={item.label}>
          <svg class={`sw tk-${item.token}`} viewBox="0 0 10 8" aria-hidden="true">{item.isArea ? <rect width="10" height="8" rx="2" /> : <path d="M0 4h10" stroke-dasharray={item.dash ? "3 2" : undefined} />}</svg>
          <span class="trunc">{item.label}</span>
        </span>
      ))}
    </span>
  );
}
