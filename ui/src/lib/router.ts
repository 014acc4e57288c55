// Routes in the fragment of the URL: `#/jobs?queue=mail`. They need no rewriting at a reverse proxy.

import { computed, signal } from "@preact/signals";

export interface Route { path: string[]; query: URLSearchParams }

function parse(hash: string): Route {
  const [path = "", search = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const parts = path.split("/").filter(Boolean).map(decode);
  return { path: parts.length ? parts : ["overview"], query: new URLSearchParams(search) };
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

const hash = signal(typeof location === "undefined" ? "" : location.hash);
export const route = computed<Route>(() => parse(hash.value));

/** Follows the URL. Call once. */
export function startRouter(): void {
  addEventListener("hashchange", () => {
    hash.value = location.hash;
  });
}

/** The link to a page. */
export function link(path: (string | number)[], parameters: Record<string, string | null | undefined> = {}): string {
  const search = new URLSearchParams();
  for (const [key, value] of Object.entries(parameters)) if (value) search.set(key, value);
  const text = search.toString();
  return `#/${path.map((part) => encodeURIComponent(part)).join("/")}${text ? `?${text}` : ""}`;
}

/** Opens a page. */
export function open(target: string, replace = false): void {
  if (replace) {
    history.replaceState(null, "", target);
    hash.value = target;
  } else {
    location.hash = target;
  }
}

/** Changes parameters of the present page; `null` removes one. */
export function setQuery(changes: Record<string, string | null>, replace = false): void {
  const next = new URLSearchParams(route.value.query);
  for (const [key, value] of Object.entries(changes)) {
    if (value === null || value === "") next.delete(key);
    else next.set(key, value);
  }
  open(link(route.value.path, Object.fromEntries(next)), replace);
}
