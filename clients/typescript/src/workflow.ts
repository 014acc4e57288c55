import { NewJob } from "./job.js";
import type { JobState } from "./records.js";

/** A job, or a nested form in its place. */
export type WorkflowNode =
  NewJob<any> | { chain: WorkflowNode[] } | { group: WorkflowNode[] } | { chord: WorkflowChord };

/** Jobs side by side, and one after all of them. */
export interface WorkflowChord {
  group: WorkflowNode[];
  finally: WorkflowNode;
}

/** The jobs of a workflow: `jobs` is any graph, connected by `ref` and `after: ["#ref"]`. */
export type WorkflowForm =
  { jobs: NewJob<any>[] } | { chain: WorkflowNode[] } | { group: WorkflowNode[] } | { chord: WorkflowChord };

/** Ids of a new workflow. */
export interface WorkflowCreated {
  id: string;
  /** Ids of the jobs by `ref`, or by number for a job without `ref`. */
  jobs: Record<string, string>;
}

/** A workflow as the server has it. */
export interface WorkflowRecord {
  id: string;
  name: string | null;
  state: "running" | "completed" | "failed" | "cancelled";
  counts: Partial<Record<JobState, number>>;
  jobs: { ref: string; id: string; state: JobState; after: string[] }[];
  [field: string]: unknown;
}

/** Returns the wire form. */
export function formToWire(form: WorkflowForm | WorkflowNode): Record<string, unknown> {
  if (form instanceof NewJob) return { queue: form.queue, ...form.fields };
  if ("jobs" in form) return { jobs: form.jobs.map(formToWire) };
  if ("chain" in form) return { chain: form.chain.map(formToWire) };
  if ("group" in form) return { group: form.group.map(formToWire) };
  return { chord: { group: form.chord.group.map(formToWire), finally: formToWire(form.chord.finally) } };
}

/** Returns a form with other jobs in the places of its jobs. */
export function mapForm<F extends WorkflowForm | WorkflowNode>(form: F, change: (job: NewJob<any>) => NewJob<any>): F {
  const map = <N extends WorkflowForm | WorkflowNode>(node: N) => mapForm(node, change);
  const mapped = (): WorkflowForm | WorkflowNode => {
    if (form instanceof NewJob) return change(form);
    if ("jobs" in form) return { jobs: form.jobs.map(map) };
    if ("chain" in form) return { chain: form.chain.map(map) };
    if ("group" in form) return { group: form.group.map(map) };
    return { chord: { group: form.chord.group.map(map), finally: map(form.chord.finally) } };
  };
  return mapped() as F;
}

/** Checks the payloads of all jobs against their schemas. */
export async function checkForm(form: WorkflowForm | WorkflowNode): Promise<void> {
  if (form instanceof NewJob) await form.check();
  else if ("jobs" in form) await Promise.all(form.jobs.map(checkForm));
  else if ("chain" in form) await Promise.all(form.chain.map(checkForm));
  else if ("group" in form) await Promise.all(form.group.map(checkForm));
  else await Promise.all([...form.chord.group, form.chord.finally].map(checkForm));
}
