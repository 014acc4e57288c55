// HTTP calls to the server that serves this page. All paths are relative to the page, so that a
// prefix of a reverse proxy is kept.

import { signal } from "@preact/signals";
import { callKind, isAllowed } from "./permissions";
import type { Json, Self } from "./types";

/** Key of the stored token. It stands before its first use: `readToken` runs while this module loads. */
const KEY = "longshore.token";

/** Token of this tab, kept until the tab is closed. */
export const token = signal<string | null>(readToken());
/** Whether the server asked for a token that the page does not have. */
export const tokenWanted = signal<false | "missing" | "refused">(false);
/** Calls that the token may not do: the server answered 403. */
export const forbidden = signal<ReadonlySet<string>>(new Set());
/** Calls that this server does not have: 404 or 405 on the path itself. */
export const absent = signal<ReadonlySet<string>>(new Set());
/** Who calls, with its token; `null` until the server has said it. */
export const self = signal<Self | null>(null);
/** When the last answer of the server arrived, and the failure since then. */
export const connection = signal<{ answeredAt: number; lostAt: number | null }>({ answeredAt: Date.now(), lostAt: null });

function readToken(): string | null {
  try {
    return sessionStorage.getItem(KEY);
  } catch {
    return null;
  }
}

/** Sets the token of this tab, or forgets it. */
export function setToken(value: string | null): void {
  token.value = value;
  self.value = null;
  tokenWanted.value = false;
  forbidden.value = new Set();
  try {
    if (value) sessionStorage.setItem(KEY, value);
    else sessionStorage.removeItem(KEY);
  } catch {
    // Without storage the token lives as long as the page.
  }
}

/** A refusal or a failure of a call. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    readonly detail: string,
    readonly retry: string | null = null,
    readonly requestId: string | null = null,
    readonly field: string | null = null,
    readonly allowed: string[] | null = null,
  ) {
    super(`${code}: ${detail}`);
  }

  /** Whether the server does not know the path or the method at all. */
  get isAbsent(): boolean {
    return (this.status === 404 && this.code === "not_found") || this.status === 405;
  }
}

interface Problem { code?: string; detail?: string; title?: string; retry?: string; request_id?: string; field?: string; allowed?: string[] }

async function toError(response: Response): Promise<ApiError> {
  const id = response.headers.get("x-request-id");
  try {
    const problem = (await response.json()) as Problem;
    const detail = problem.detail ?? problem.title ?? "";
    return new ApiError(response.status, problem.code ?? `http_${response.status}`, detail, problem.retry ?? null, problem.request_id ?? id, problem.field ?? null, problem.allowed ?? null);
  } catch {
    return new ApiError(response.status, `http_${response.status}`, response.statusText, null, id);
  }
}

/** Absolute URL of a path of the API. */
export function url(path: string): string {
  return new URL(path.replace(/^\//, ""), new URL(".", document.baseURI)).href;
}

/** Headers that every call carries. */
export function authorization(): Record<string, string> {
  return token.value ? { authorization: `Bearer ${token.value}` } : {};
}

function remember(set: typeof absent, kind: string): void {
  if (!set.value.has(kind)) set.value = new Set([...set.value, kind]);
}

function forget(set: typeof absent, kind: string): void {
  if (!set.value.has(kind)) return;
  const next = new Set(set.value);
  next.delete(kind);
  set.value = next;
}

/** Whether the page may offer a call: the token allows it, and the server has not refused it. */
export function mayOffer(method: string, path: string): boolean {
  const kind = callKind(method, path);
  if (self.value && !isAllowed(self.value, kind)) return false;
  return !forbidden.value.has(kind) && !absent.value.has(kind);
}

interface Options { body?: Json; raw?: string; signal?: AbortSignal }

/** Sends a request and returns the response of a success. */
export async function send(method: string, path: string, options: Options = {}): Promise<Response> {
  const content = options.raw ?? (options.body === undefined ? undefined : JSON.stringify(options.body));
  const headers: Record<string, string> = { ...authorization(), accept: "application/json" };
  if (content !== undefined) headers["content-type"] = "application/json";
  let response: Response;
  try {
    response = await fetch(url(path), { method, headers, body: content, signal: options.signal, cache: "no-store", credentials: "omit", redirect: "error" });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    if (connection.value.lostAt === null) connection.value = { ...connection.value, lostAt: Date.now() };
    throw new ApiError(0, "connection_lost", "The server does not answer.", method === "GET" ? "safe" : "unknown");
  }
  connection.value = { answeredAt: Date.now(), lostAt: null };
  const kind = callKind(method, path);
  if (response.ok) {
    forget(absent, kind);
    forget(forbidden, kind);
    return response;
  }
  const error = await toError(response);
  if (error.status === 401) tokenWanted.value = token.value ? "refused" : "missing";
  if (error.status === 403) remember(forbidden, kind);
  if (error.isAbsent) remember(absent, kind);
  throw error;
}

/** Sends a request and returns its JSON. */
export async function call<T>(method: string, path: string, options: Options = {}): Promise<T> {
  const response = await send(method, path, options);
  if (response.status === 204) return undefined as T;
  return (await response.json()) as T;
}

export const get = <T>(path: string, abort?: AbortSignal): Promise<T> => call<T>("GET", path, abort ? { signal: abort } : {});
export const post = <T>(path: string, body: Json = {}): Promise<T> => call<T>("POST", path, { body });
export const segment = encodeURIComponent;

/** A query string of the parameters that have a value. */
export function query(parameters: Record<string, string | number | null | undefined>): string {
  const search = new URLSearchParams();
  for (const [key, value] of Object.entries(parameters)) if (value !== null && value !== undefined && value !== "") search.set(key, String(value));
  const text = search.toString();
  return text ? `?${text}` : "";
}
