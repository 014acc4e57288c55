// Settings of a queue as a flat list of paths and texts, and back into the object of a PUT.

import type { Json } from "./types";

export interface Setting { path: string; text: string }

const isObject = (value: Json | undefined): value is { [key: string]: Json } => typeof value === "object" && value !== null && !Array.isArray(value);

/** All values of settings by their path: `retry.backoff.base`. */
export function flatten(settings: Json, prefix = ""): Setting[] {
  if (!isObject(settings)) return [];
  return Object.entries(settings).flatMap(([key, value]) => {
    const path = prefix ? `${prefix}.${key}` : key;
    return isObject(value) ? flatten(value, path) : [{ path, text: write(value) }];
  });
}

/** Whether a path is another one, or below it. */
export function isUnder(path: string, other: string): boolean {
  return path === other || path.startsWith(`${other}.`);
}

/** The text of a value in the editor. */
export function write(value: Json): string {
  if (value === null) return "null";
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** The value of a text, by the kind of the value that it replaces. */
export function read(text: string, before: Json): Json {
  const trimmed = text.trim();
  if (trimmed === "null") return null;
  if (typeof before === "string") return trimmed;
  if (typeof before === "number" || before === null || typeof before === "boolean" || Array.isArray(before)) {
    try {
      return JSON.parse(trimmed) as Json;
    } catch {
      return trimmed;
    }
  }
  return trimmed;
}

/** The value at a path. */
export function at(settings: Json, path: string): Json {
  return path.split(".").reduce<Json>((value, key) => (isObject(value) ? (value[key] ?? null) : null), settings);
}

/** Sets the value at a path of a copy. */
export function set(settings: { [key: string]: Json }, path: string, value: Json): { [key: string]: Json } {
  const [first = "", ...rest] = path.split(".");
  if (!rest.length) return { ...settings, [first]: value };
  const inner = settings[first];
  return { ...settings, [first]: set(isObject(inner) ? inner : {}, rest.join("."), value) };
}

/** Removes the value at a path from a copy. */
export function without(settings: { [key: string]: Json }, path: string): { [key: string]: Json } {
  const [first = "", ...rest] = path.split(".");
  const { [first]: inner, ...others } = settings;
  if (!rest.length || !isObject(inner)) return others;
  const left = without(inner, rest.join("."));
  return Object.keys(left).length ? { ...others, [first]: left } : others;
}

/** A text is a new value; `null` goes back to the value of the profile. */
export type Changes = Record<string, string | null>;
export type Settings = { [key: string]: Json };

/** The overrides after the changes: what is not mentioned stays as it is. */
export function overridesAfter(overrides: Settings, settings: Json, changes: Changes): Settings {
  let result = overrides;
  for (const [path, text] of Object.entries(changes)) result = text === null ? without(result, path) : set(result, path, read(text, at(settings, path)));
  return result;
}
