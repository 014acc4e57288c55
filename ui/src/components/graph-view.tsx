// The graph of a workflow: laid out in a worker, drawn where it is visible, moved by drag and wheel.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { count, stateClass } from "../lib/format";
import type { Graph, GraphNode, Notes } from "../lib/graph";
import type { LayoutAnswer, LayoutRequest } from "../lib/layout.worker";
import { t } from "../strings";
import { Icon } from "./basic";

const WIDTH = 118;
const HEIGHT = 42;
const ZOOM_MIN = 0.08;

let worker: Worker | null = null;
let nextId = 1;

function layout(graph: Graph): Promise<LayoutAnswer> {
  worker ??= new Worker(new URL("../lib/layout.worker.ts", import.meta.url), { type: "module" });
  const request: LayoutRequest = { id: nextId++, nodes: graph.nodes.map((node) => node.id), edges: graph.edges.map((edge) => [edge.from, edge.to]), width: WIDTH, height: HEIGHT };
  const current = worker;
  return new Promise((resolve) => {
    const onMessage = (event: MessageEvent<LayoutAnswer>) => {
      if (event.data.id !== request.id) return;
      current.removeEventListener("message", onMessage);
      resolve(event.data);
    };
    current.addEventListener("message", onMessage);
    current.postMessage(request);
  });
}

/** Layouts change with the shape of the graph only, not with states. */
function useLayout(graph: Graph): LayoutAnswer | null {
  const shape = useMemo(() => `${graph.nodes.map((node) => node.id).join()}|${graph.edges.map((edge) => `${edge.from}>${edge.to}`).join()}`, [graph]);
  const [answer, setAnswer] = useState<{ shape: string; layout: LayoutAnswer } | null>(null);
  useEffect(() => {
    let isCurrent = true;
    void layout(graph).then((value) => isCurrent && setAnswer({ shape, layout: value }));
    return () => {
      isCurrent = false;
    };
  }, [shape]);
  return answer?.layout ?? null;
}

const cut = (text: string, length: number) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);

/** The second line of a node: progress of a group, cause, run time. */
function subText(node: GraphNode, notes: Notes): string {
  if (node.members.length > 1) {
    const done = node.counts.completed ?? 0;
    return t.workflows.groupDone(done, node.members.length);
  }
  if (node.isPropagated) return t.workflows.byDependency;
  if (node.state === "pending" && node.waitsFor) return t.workflows.waits(node.waitsFor);
  return notes.get(node.members[0]!.id) ?? t.state[node.state]!.toLowerCase();
}

interface NodeProps { node: GraphNode; notes: Notes; x: number; y: number; isSelected: boolean; select: () => void; hasPath: boolean }

function NodeBox({ node, notes, x, y, isSelected, select, hasPath }: NodeProps) {
  const isGroup = node.members.length > 1;
  const classes = ["node", stateClass(node.state), node.state === "pending" && !isGroup ? "wait" : "", hasPath && node.isCause ? "root" : "", hasPath && node.isPropagated ? "prop" : ""].join(" ");
  const done = isGroup ? (node.counts.completed ?? 0) / node.members.length : 0;
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === "Enter" || event.key === " ") (event.preventDefault(), select());
  };
  return (
    <g class={classes} transform={`translate(${x} ${y})`} role="button" tabIndex={0} aria-label={`${cut(node.label, 13)} ${cut(subText(node, notes), 15)}`} onClick={select} onKeyDown={onKeyDown} data-node={node.id}>
      {node.label.length > 13 ? <title>{node.label}</title> : null}
      {isSelected ? <rect class="halo" x={-4} y={-4} width={WIDTH + 8} height={HEIGHT + 8} /> : null}
      {isGroup ? <rect class="under" x={4} y={4} width={WIDTH} height={HEIGHT} /> : null}
      <rect class="box" width={WIDTH} height={HEIGHT} />
      <use class="gl-n" href={`#g-${node.state.replace("_", "-")}`} x={10} y={14} width={14} height={14} />
      <text x={32} y={18}>{cut(node.label, 13)}</text>{" "}
      <text class="sub" x={32} y={32}>{cut(subText(node, notes), 15)}</text>
      {isGroup ? <g><rect class="gbar-bg" x={32} y={36} width={WIDTH - 42} height={2.5} rx={1} /><rect class="gbar" x={32} y={36} width={(WIDTH - 42) * done} height={2.5} rx={1} /></g> : null}
    </g>
  );
}

interface View { x: number; y: number; zoom: number }
interface Props { graph: Graph; notes: Notes; selected: string | null; select: (id: string | null) => void; hasPath: boolean; follow: boolean; setFollow: (value: boolean) => void; isFolded: boolean; setFolded: (value: boolean) => void; setPath: (value: boolean) => void; hasFailed: boolean }

export function GraphView(props: Props) {
  const { graph, selected, select, hasPath, follow } = props;
  const placed = useLayout(graph);
  const box = useRef<HTMLDivElement>(null);
  const [size, setSize] = useState({ width: 0, height: 0 });
  const [view, setView] = useState<View>({ x: 0, y: 0, zoom: 1 });
  const drag = useRef<{ x: number; y: number; view: View } | null>(null);

  useEffect(() => {
    if (!box.current) return;
    const observer = new ResizeObserver(([entry]) => entry && setSize({ width: entry.contentRect.width, height: entry.contentRect.height }));
    observer.observe(box.current);
    return () => observer.disconnect();
  }, []);

  const center = (id: string, zoom: number) => {
    const at = placed?.nodes[id];
    if (at) setView({ zoom, x: size.width / 2 - (at[0] + WIDTH / 2) * zoom, y: size.height / 2 - (at[1] + HEIGHT / 2) * zoom });
  };
  const fit = () => {
    if (!placed || !size.width) return;
    const zoom = Math.max(ZOOM_MIN, Math.min(1, (size.width - 32) / placed.width, (size.height - 32) / placed.height));
    setView({ zoom, x: (size.width - placed.width * zoom) / 2, y: (size.height - placed.height * zoom) / 2 });
  };
  // Text never shrinks below 10 px at first sight: a graph that does not fit starts at its cause.
  useEffect(() => {
    if (!placed || !size.width) return;
    const zoom = Math.min(1, (size.width - 32) / placed.width, (size.height - 32) / placed.height);
    const focus = graph.nodes.find((node) => node.isCause) ?? graph.nodes.find((node) => node.state === "running");
    if (zoom >= 0.82 || !focus) fit();
    else center(focus.id, 0.85);
  }, [placed, size.width > 0]);
  const running = graph.nodes.find((node) => node.state === "running")?.id ?? null;
  useEffect(() => {
    if (follow && running) center(running, Math.max(view.zoom, 0.7));
  }, [follow, running, placed]);

  const zoomBy = (factor: number, x = size.width / 2, y = size.height / 2) => setView((old) => {
    const zoom = Math.max(ZOOM_MIN, Math.min(2, old.zoom * factor));
    return { zoom, x: x - ((x - old.x) * zoom) / old.zoom, y: y - ((y - old.y) * zoom) / old.zoom };
  });
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const onWheel = (event: WheelEvent) => {
      event.preventDefault();
      const rect = element.getBoundingClientRect();
      if (event.ctrlKey || event.metaKey) zoomBy(Math.exp(-event.deltaY / 300), event.clientX - rect.left, event.clientY - rect.top);
      else setView((old) => ({ ...old, x: old.x - event.deltaX, y: old.y - event.deltaY }));
    };
    element.addEventListener("wheel", onWheel, { passive: false });
    return () => element.removeEventListener("wheel", onWheel);
  }, [size]);

  const margin = 200;
  const isVisible = (at: [number, number] | undefined) => !!at && at[0] * view.zoom + view.x > -margin - WIDTH && at[0] * view.zoom + view.x < size.width + margin && at[1] * view.zoom + view.y > -margin && at[1] * view.zoom + view.y < size.height + margin;
  return (
    <div class="canvas-wrap">
      <div class="canvas" ref={box} tabIndex={0} aria-label={t.workflows.graph} role="group"
        onPointerDown={(event) => { if (!(event.target as Element).closest(".node")) drag.current = { x: event.clientX, y: event.clientY, view }; }}
        onPointerMove={(event) => { if (drag.current) setView({ ...drag.current.view, x: drag.current.view.x + event.clientX - drag.current.x, y: drag.current.view.y + event.clientY - drag.current.y }); }}
        onPointerUp={() => (drag.current = null)} onPointerLeave={() => (drag.current = null)}>
        {placed ? (
          <svg class="graph" width={size.width} height={size.height} data-nodes={graph.nodes.length}>
            <g transform={`translate(${view.x} ${view.y}) scale(${view.zoom})`}>
              {graph.edges.map((edge) => {
                const [from, to] = [placed.nodes[edge.from], placed.nodes[edge.to]];
                if (!from || !to || !(isVisible(from) || isVisible(to))) return null;
                const [x1, y1, x2, y2] = [from[0] + WIDTH, from[1] + HEIGHT / 2, to[0], to[1] + HEIGHT / 2];
                const bend = Math.max(16, (x2 - x1) / 2);
                const kind = edge.kind === "fail" && hasPath ? "edge-fail" : edge.kind === "propagated" && hasPath ? "edge-prop" : edge.isAny || edge.kind === "wait" ? "edge-wait" : "edge-done";
                return <path key={`${edge.from} ${edge.to}`} class={`edge ${kind}`} d={`M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`} />;
              })}
              {graph.nodes.map((node) => {
                const at = placed.nodes[node.id];
                return at && isVisible(at) ? <NodeBox key={node.id} node={node} notes={props.notes} x={at[0]} y={at[1]} isSelected={selected === node.id} select={() => select(node.id)} hasPath={hasPath} /> : null;
              })}
            </g>
          </svg>
        ) : <p class="canvas-wait muted" role="status">{t.workflows.layout}</p>}
      </div>
      <div class="canvas-tools">
        <div class="tools"><button class="btn" type="button" aria-label={t.workflows.zoomOut} onClick={() => zoomBy(1 / 1.3)}><Icon name="minus" /></button><button class="btn" type="button" aria-label={t.workflows.zoomIn} onClick={() => zoomBy(1.3)}><Icon name="plus" /></button><button class="btn" type="button" aria-label={t.workflows.fit} onClick={fit}><Icon name="fit" /></button></div>
        <div class="tools">
          {props.hasFailed ? <button class="btn" type="button" aria-label={t.workflows.failedPath} aria-pressed={hasPath} onClick={() => props.setPath(!hasPath)}><Icon name="path" /><span class="hide-sm">{t.workflows.failedPath}</span></button> : null}
          <button class="btn" type="button" aria-label={t.workflows.follow} aria-pressed={follow} onClick={() => props.setFollow(!follow)}><Icon name="follow" /><span class="hide-sm">{t.workflows.follow}</span></button>
          <button class="btn" type="button" aria-label={t.workflows.fold} aria-pressed={props.isFolded} onClick={() => props.setFolded(!props.isFolded)}><Icon name="fold" /><span class="hide-sm">{t.workflows.fold}</span></button>
        </div>
      </div>
      {placed ? <MiniMap graph={graph} placed={placed} view={view} size={size} /> : null}
    </div>
  );
}

function MiniMap({ graph, placed, view, size }: { graph: Graph; placed: LayoutAnswer; view: View; size: { width: number; height: number } }) {
  const marks = useMemo(() => graph.nodes.map((node) => {
    const at = placed.nodes[node.id];
    return at ? <rect key={node.id} class={`mini-n ${stateClass(node.state)}`} x={at[0]} y={at[1]} width={WIDTH} height={HEIGHT} /> : null;
  }), [graph, placed]);
  const isWhole = placed.width * view.zoom <= size.width && placed.height * view.zoom <= size.height;
  if (isWhole) return null;
  return (
    <div class="mini" aria-hidden="true" title={count(graph.nodes.length)}>
      <svg viewBox={`0 0 ${placed.width} ${placed.height}`} preserveAspectRatio="xMidYMid meet">{marks}<rect class="mini-v" x={-view.x / view.zoom} y={-view.y / view.zoom} width={size.width / view.zoom} height={size.height / view.zoom} vector-effect="non-scaling-stroke" /></svg>
    </div>
  );
}
