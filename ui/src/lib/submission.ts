// What the submit form holds, as the body of a request and as a command of the program.

import { cli, quote } from "./curl";
import { at, flatten, set } from "./settings";
import type { Json } from "./types";

export interface Form {
  queue: string; type: string; payload: string; binary: string | null; priority: string; when: "now" | "delay" | "at"; time: string; tags: string;
  key: string; correlation: string; callback: string; limit: string; hold: boolean;
  /** Fields of the policy that differ from the queue's settings, as JSON. */
  policy: string;
}

export const EMPTY: Form = { queue: "default", type: "", payload: "{}", binary: null, priority: "normal", when: "now", time: "", tags: "", key: "", correlation: "", callback: "", limit: "", hold: false, policy: "" };

/** Fields of a policy that a submission may set. */
export const POLICY_FIELDS = ["retry", "execution_timeout", "lease", "lifetime", "retention", "max_reclaims"];

/** Parses `tenant=acme, batch-7` into a map of tags. */
export function parseTags(text: string): Record<string, string | null> {
  return Object.fromEntries(text.split(",").map((part) => part.trim()).filter(Boolean).map((part) => {
    const sign = part.indexOf("=");
    return sign < 0 ? [part, null] : [part.slice(0, sign).trim(), part.slice(sign + 1).trim()];
  }));
}

/** The fields of a job's policy that its queue would not give it. */
export function policyDifference(policy: Json, settings: Json): { [key: string]: Json } {
  let found: { [key: string]: Json } = {};
  for (const { path } of flatten(policy)) {
    if (!POLICY_FIELDS.includes(path.split(".")[0]!)) continue;
    const value = at(policy, path);
    if (JSON.stringify(value) !== JSON.stringify(at(settings, path))) found = set(found, path, value);
  }
  return found;
}

function policyOf(form: Form): { [key: string]: Json } {
  const policy = form.policy.trim() ? (JSON.parse(form.policy) as { [key: string]: Json }) : {};
  return form.limit ? set(policy, "retry.limit", Number(form.limit)) : policy;
}

/** The body of the request. The payload is inserted as it is, so that no digit is lost. */
export function bodyOf(form: Form): string {
  const fields: { [key: string]: Json } = { type: form.type, ...policyOf(form) };
  if (form.priority !== "normal") fields.priority = form.priority;
  if (form.when === "delay" && form.time) fields.delay = form.time;
  if (form.when === "at" && form.time) fields.run_at = form.time;
  if (form.tags.trim()) fields.tags = parseTags(form.tags);
  if (form.key) fields.idempotency_key = form.key;
  if (form.correlation) fields.correlation_id = form.correlation;
  if (form.callback) fields.callback_url = form.callback;
  if (form.hold) fields.hold = true;
  if (form.binary !== null) fields.payload_base64 = form.binary;
  const text = JSON.stringify(fields);
  return form.binary !== null || !form.payload.trim() ? text : `${text.slice(0, -1)},"payload":${form.payload.trim()}}`;
}

/** The command that submits the same job. */
export function commandOf(form: Form): string {
  const words = ["submit", "-q", form.queue, "-t", form.type];
  const add = (option: string, value: string) => value && words.push(option, value);
  if (form.priority !== "normal") add("--priority", form.priority);
  if (form.when === "delay") add("--delay", form.time);
  if (form.when === "at") add("--run-at", form.time);
  for (const [name, value] of Object.entries(parseTags(form.tags))) add("--tag", value === null ? name : `${name}=${value}`);
  add("--idempotency-key", form.key);
  add("--correlation-id", form.correlation);
  add("--callback-url", form.callback);
  for (const [field, value] of Object.entries(policyOf(form))) {
    const text = value === null ? "unlimited" : typeof value === "object" ? JSON.stringify(value) : String(value);
    add(`--${field.replaceAll("_", "-")}`, text);
  }
  if (form.hold) words.push("--hold");
  if (form.binary !== null) return `printf %s ${quote(form.binary)} | base64 -d | ${cli(...words, "--payload-file", "-", "--binary")}`;
  if (form.payload.trim()) words.push("-p", form.payload.trim());
  return cli(...words);
}
