// Support of the tests in a real browser: the real server, a proxy with a path prefix, Chromium.

import { spawn, type ChildProcess } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer, request, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium, type Browser } from "playwright-core";

const root = process.env.UI_ROOT ?? new URL("../..", import.meta.url).pathname;

/** The program under test: `LONGSHORE_BIN`, or that of the debug build. */
export const PROGRAM = process.env.LONGSHORE_BIN ?? join(process.env.CARGO_TARGET_DIR ?? join(root, "target"), "debug/longshore");

/** Removes terminal colours. */
const plain = (text: string) => text.replace(/\u001b\[[0-9;]*m/g, "");

export interface Running { url: string; port: number; api: Api; stop: () => Promise<void> }

/** Starts a server on a free port, or on a given one. Resolves when it answers. */
export async function startServer(...options: string[]): Promise<Running> {
  const folder = mkdtempSync(join(tmpdir(), "longshore-ui-"));
  const hasStore = options.some((option) => option.startsWith("--store") || option.startsWith("--data"));
  const hasListen = options.some((option) => option.startsWith("--listen"));
  const child = spawn(PROGRAM, ["serve", ...(hasListen ? [] : ["--listen", "127.0.0.1:0"]), "--log-format", "text", ...(hasStore ? [] : ["--store", "memory:"]), ...options], { cwd: folder, stdio: ["ignore", "pipe", "pipe"] });
  const url = await address(child);
  return { url, port: Number(new URL(url).port), api: new Api(url), stop: async () => { await end(child); rmSync(folder, { recursive: true, force: true }); } };
}

function address(child: ChildProcess): Promise<string> {
  return new Promise((resolve, reject) => {
    let text = "";
    const read = (data: Buffer) => {
      text += plain(data.toString());
      const found = /(?:http:\/\/|address[=: "]+|listening on )(127\.0\.0\.1:[1-9]\d*)/.exec(text);
      if (found) resolve(`http://${found[1]}`);
    };
    child.stdout?.on("data", read);
    child.stderr?.on("data", read);
    child.on("exit", () => reject(new Error(`the server ended: ${text}`)));
  });
}

function end(child: ChildProcess): Promise<void> {
  return new Promise((resolve) => {
    if (child.exitCode !== null) return resolve();
    child.on("exit", () => resolve());
    child.kill("SIGKILL");
  });
}

type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
// eslint-disable-next-line @typescript-eslint/no-explicit-any
type Answer = any;

/** Calls of the API. */
export class Api {
  token: string | null = null;
  constructor(readonly url: string) {}

  async call(method: string, path: string, body?: Json | string): Promise<Answer> {
    const content = body === undefined ? undefined : typeof body === "string" ? body : JSON.stringify(body);
    const headers: Record<string, string> = content === undefined ? {} : { "content-type": "application/json" };
    if (this.token) headers.authorization = `Bearer ${this.token}`;
    const response = await fetch(`${this.url}/${path}`, { method, headers, body: content });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
    return text ? JSON.parse(text) : undefined;
  }
  get = (path: string) => this.call("GET", path);
  post = (path: string, body: Json | string = {}) => this.call("POST", path, body);
  put = (path: string, body: Json) => this.call("PUT", path, body);
  submit = (queue: string, body: Json | string) => this.post(`v1/queues/${queue}/jobs`, body);
  advance = (by: string) => this.post("v1/clock/advance", { by });
  /** Whether the server has a path. */
  async has(path: string): Promise<boolean> {
    return (await fetch(`${this.url}/${path}`)).status !== 404;
  }
  async claim(queue: string, worker = "w1", limit = 1, types?: string[]): Promise<Answer[]> {
    return (await this.post("v1/claims", { queues: [queue], worker, limit, ...(types ? { types } : {}) })).jobs;
  }
  async fail(job: Answer, code: string, message: string, category = "temporary"): Promise<void> {
    await this.post(`v1/jobs/${job.id}/fail`, { lease: job.lease.token, error: { category, code, message } });
  }
  async complete(job: Answer, result: Json = null): Promise<void> {
    await this.post(`v1/jobs/${job.id}/complete`, { lease: job.lease.token, result });
  }
}

const TYPES: Record<string, string> = { html: "text/html; charset=utf-8", js: "text/javascript; charset=utf-8", css: "text/css; charset=utf-8", svg: "image/svg+xml" };
const CSP = "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

export interface ProxyOptions {
  /** Hides from the page that the clock is virtual, and since when the server runs: for pictures, whose day is simulated. */
  hidesClock?: boolean;
}

/**
 * A reverse proxy below `/prefix/`, as an operator may have one. Where the server was built without
 * the dashboard, or with `LONGSHORE_UI=dist`, the proxy serves the files of dist/ with the same policy.
 */
export async function startProxy(target: string, { hidesClock = false }: ProxyOptions = {}): Promise<{ url: string; stop: () => Promise<void> }> {
  const dist = join(root, "ui/dist");
  const isEmbedded = process.env.LONGSHORE_UI !== "dist" && (await (await fetch(`${target}/`)).text()).includes('id="app"');
  const server: Server = createServer((incoming, outgoing) => {
    const path = (incoming.url ?? "/").replace(/^\/prefix/, "");
    const file = join(dist, path === "/" ? "index.html" : path.split("?")[0]!);
    if (!isEmbedded && (path === "/" || path.startsWith("/ui/")) && existsSync(file)) {
      outgoing.writeHead(200, { "content-type": TYPES[file.split(".").pop()!] ?? "text/plain", "content-security-policy": CSP });
      outgoing.end(readFileSync(file));
      return;
    }
    const forward = request(`${target}${path}`, { method: incoming.method, headers: incoming.headers }, (answer) => {
      if (hidesClock && path === "/v1/info") return void hideClock(answer, outgoing);
      outgoing.writeHead(answer.statusCode ?? 502, answer.headers);
      answer.pipe(outgoing);
      answer.on("error", () => outgoing.destroy());
    });
    forward.on("error", () => outgoing.destroy());
    outgoing.on("close", () => forward.destroy());
    incoming.pipe(forward);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  return { url: `http://127.0.0.1:${port}/prefix/`, stop: () => new Promise((resolve) => (server.closeAllConnections(), server.close(() => resolve()))) };
}

async function hideClock(answer: IncomingMessage, outgoing: ServerResponse): Promise<void> {
  let text = "";
  for await (const part of answer) text += String(part);
  outgoing.writeHead(answer.statusCode ?? 502, { "content-type": "application/json" });
  outgoing.end(text.replace(/"virtual_clock":\s*true/, '"virtual_clock":false').replace(/"uptime":\s*"[^"]*"/, '"uptime":"3h"'));
}

const FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--font-render-hinting=none", "--hide-scrollbars"];

export function startBrowser(): Promise<Browser> {
  return chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", headless: true, args: FLAGS });
}
