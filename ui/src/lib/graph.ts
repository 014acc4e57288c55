// The graph of a workflow: nodes, folded groups, the failed path. Pure; the layout is elsewhere.

import type { Counts, Member, State } from "./types";

export interface GraphNode { id: string; label: string; state: State; members: Member[]; counts: Counts; isCause: boolean; isPropagated: boolean; waitsFor: number }
export interface GraphEdge { from: string; to: string; isAny: boolean; kind: "done" | "wait" | "fail" | "propagated" }
/** What a job says beside its state, by its id: how long it ran, its error, its next attempt. */
export type Notes = ReadonlyMap<string, string>;
export interface Graph { nodes: GraphNode[]; edges: GraphEdge[] }

const ENDED_BADLY = new Set<State>(["failed", "dead_letter", "cancelled"]);
const FOLD_MIN = 4;

/** Members that ended because a dependency did, and those that ended by themselves. */
export function causes(members: Member[]): { cause: Set<string>; propagated: Set<string> } {
  const byId = new Map(members.map((member) => [member.id, member]));
  const cause = new Set<string>();
  const propagated = new Set<string>();
  for (const member of members) {
    if (!ENDED_BADLY.has(member.state)) continue;
    const isPropagated = member.after.some((id) => ENDED_BADLY.has(byId.get(id)?.state ?? "completed"));
    (isPropagated ? propagated : cause).add(member.id);
  }
  return { cause, propagated };
}

/** Everything before a cause, and everything that it ended. */
export function failedPath(members: Member[]): Set<string> {
  const { cause, propagated } = causes(members);
  const path = new Set<string>(propagated);
  const byId = new Map(members.map((member) => [member.id, member]));
  const waiting = [...cause];
  for (let id = waiting.pop(); id !== undefined; id = waiting.pop()) {
    if (path.has(id) && !cause.has(id)) continue;
    path.add(id);
    const before = byId.get(id)?.after.filter((other) => !path.has(other)) ?? [];
    // One way back is enough to read the path: the last dependency.
    const last = before.at(-1);
    if (last) waiting.push(last);
  }
  return path;
}

/** The state of a group: the worst that needs a look, else what is going on. */
export function groupState(counts: Counts): State {
  const order: State[] = ["dead_letter", "failed", "running", "retrying", "scheduled", "delayed", "pending", "cancelled", "completed"];
  return order.find((state) => (counts[state] ?? 0) > 0) ?? "pending";
}

/** Folds members with the same type and the same neighbours' groups into one node. */
export function buildGraph(members: Member[], isFolded: boolean): Graph {
  const { cause, propagated } = causes(members);
  const groupOf = isFolded ? fold(members, cause) : new Map(members.map((member) => [member.id, member.id]));
  const nodes = new Map<string, GraphNode>();
  const byId = new Map(members.map((member) => [member.id, member]));
  for (const member of members) {
    const id = groupOf.get(member.id)!;
    const node = nodes.get(id) ?? { id, label: member.ref, state: member.state, members: [], counts: {}, isCause: false, isPropagated: false, waitsFor: 0 };
    node.members.push(member);
    node.counts[member.state] = (node.counts[member.state] ?? 0) + 1;
    nodes.set(id, node);
  }
  for (const node of nodes.values()) {
    node.state = groupState(node.counts);
    node.isCause = node.members.some((member) => cause.has(member.id));
    node.isPropagated = !node.isCause && node.members.some((member) => propagated.has(member.id));
    if (node.members.length > 1) node.label = node.members[0]!.type;
    else node.waitsFor = node.members[0]!.after.filter((id) => byId.has(id) && byId.get(id)!.state !== "completed").length;
  }
  return { nodes: [...nodes.values()], edges: edgesOf(members, groupOf, cause, propagated) };
}

function edgesOf(members: Member[], groupOf: Map<string, string>, cause: Set<string>, propagated: Set<string>): GraphEdge[] {
  const path = failedPath(members);
  const byId = new Map(members.map((member) => [member.id, member]));
  const edges = new Map<string, GraphEdge>();
  const add = (from: string, to: Member, isAny: boolean) => {
    const source = byId.get(from);
    if (!source) return;
    const [start, end] = [groupOf.get(from)!, groupOf.get(to.id)!];
    if (start === end) return;
    const isBad = cause.has(from) || propagated.has(from);
    const kind = !isAny && isBad && propagated.has(to.id) ? "propagated" : !isAny && path.has(from) && path.has(to.id) && !isBad ? "fail" : source.state === "completed" ? "done" : "wait";
    const key = `${start} ${end}`;
    const rank = { propagated: 3, fail: 2, wait: 1, done: 0 };
    const old = edges.get(key);
    if (!old || rank[kind] > rank[old.kind]) edges.set(key, { from: start, to: end, isAny, kind });
  };
  for (const member of members) {
    for (const id of member.after) add(id, member, false);
    for (const id of member.after_any) add(id, member, true);
  }
  return [...edges.values()];
}

/** The depth of each member: one more than its deepest dependency. */
export function depths(members: Member[]): Map<string, number> {
  const byId = new Map(members.map((member) => [member.id, member]));
  const depth = new Map<string, number>();
  // Members come in the order of submission, but dependencies may be of any order: repeat until stable.
  for (let round = 0; round < 101; round += 1) {
    let hasChanged = false;
    for (const member of members) {
      const before = [...member.after, ...member.after_any].filter((id) => byId.has(id));
      const value = before.length ? 1 + Math.max(...before.map((id) => depth.get(id) ?? 0)) : 0;
      if (depth.get(member.id) !== value) (depth.set(member.id, value), (hasChanged = true));
    }
    if (!hasChanged) break;
  }
  return depth;
}

/**
 * Gives each member its group. Members of one depth, queue and type whose dependencies are in the
 * same groups fold together; a cause of a failure always stands alone.
 */
export function fold(members: Member[], cause: Set<string>): Map<string, string> {
  const depth = depths(members);
  const ordered = [...members].sort((a, b) => (depth.get(a.id) ?? 0) - (depth.get(b.id) ?? 0));
  const groupOf = new Map<string, string>();
  const sizes = new Map<string, string[]>();
  for (const member of ordered) {
    const before = [...new Set([...member.after, ...member.after_any].map((id) => groupOf.get(id)).filter(Boolean))].sort().join(",");
    const key = cause.has(member.id) ? member.id : `${depth.get(member.id)}|${member.queue}|${member.type}|${before.length > 400 ? before.length : before}`;
    const group = sizes.get(key) ?? [];
    group.push(member.id);
    sizes.set(key, group);
    groupOf.set(member.id, key);
  }
  for (const [, ids] of sizes) if (ids.length < FOLD_MIN) for (const id of ids) groupOf.set(id, id);
  return groupOf;
}
