import http from "node:http";
import https from "node:https";

import { ConnectionError, ProblemError } from "./errors.js";
import type { Problem } from "./errors.js";

/** How to reach a server. It is plain data, so that a thread can have a connection of its own. */
export interface Endpoint {
  url: string;
  token?: string;
  /** Certificates of authorities, in PEM form. */
  ca?: string[];
}

/** One HTTP request; `body` is JSON text. */
export interface HttpRequest {
  method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  path: string;
  body?: string;
  headers?: Record<string, string>;
  /** Longest time without an answer. */
  timeoutMs: number;
  signal?: AbortSignal | undefined;
  /**
   * Ends a request that waits, without the loss of an answer that is on its way: only the sending
   * side is closed. The request resolves with that answer, or rejects with the abort reason.
   */
  hangup?: AbortSignal | undefined;
}

/** A successful answer. */
export interface HttpAnswer {
  status: number;
  text: string;
}

/** Time for an answer that is on its way when the caller hangs up. */
const HANGUP_MS = 1_000;

/** Sends requests over kept connections. Never retries. */
export class Transport {
  private readonly agent: http.Agent | https.Agent;
  private readonly request: typeof http.request;
  private readonly base: URL;
  private readonly headers: Record<string, string>;

  constructor(endpoint: Endpoint) {
    const base = URL.canParse(endpoint.url) ? new URL(endpoint.url) : undefined;
    if (base?.protocol !== "https:" && base?.protocol !== "http:") {
      throw new TypeError(`invalid server URL ${endpoint.url}: expected http://… or https://…`);
    }
    this.base = base;
    const module = base.protocol === "https:" ? https : http;
    this.request = module.request as typeof http.request;
    // A kept connection is dropped before the server would close it.
    const agentOptions = { keepAlive: true, noDelay: true, scheduling: "lifo", timeout: 70_000 } as const;
    this.agent = new module.Agent(endpoint.ca === undefined ? agentOptions : { ...agentOptions, ca: endpoint.ca });
    this.headers = { accept: "application/json" };
    if (endpoint.token !== undefined) this.headers["authorization"] = `Bearer ${endpoint.token}`;
  }

  /** Closes all connections. */
  close(): void {
    this.agent.destroy();
  }

  /** Resolves with a 2xx answer. Rejects with a ProblemError, a ConnectionError or the abort reason. */
  send(request: HttpRequest): Promise<HttpAnswer> {
    return new Promise((resolve, reject) => {
      const { signal, hangup } = request;
      if (signal?.aborted || hangup?.aborted) {
        reject(signal?.aborted ? signal.reason : hangup?.reason);
        return;
      }
      const headers: Record<string, string | number> = { ...this.headers, ...request.headers };
      if (request.body !== undefined) {
        headers["content-type"] = "application/json";
        headers["content-length"] = Buffer.byteLength(request.body);
      }
      let isSent = false;
      const call = this.request({
        agent: this.agent,
        protocol: this.base.protocol,
        hostname: this.base.hostname.replace(/^\[|\]$/g, ""),
        port: this.base.port,
        method: request.method,
        path: this.base.pathname.replace(/\/$/, "") + request.path,
        headers,
      });
      const onAbort = () => call.destroy();
      let hangupTimer: NodeJS.Timeout | undefined;
      const onHangup = () => {
        if (isSent) call.socket?.end();
        hangupTimer = setTimeout(onAbort, isSent ? HANGUP_MS : 0);
      };
      const timer = setTimeout(
        () => call.destroy(new Error(`no answer within ${request.timeoutMs} ms`)),
        request.timeoutMs,
      );
      const finish = () => {
        clearTimeout(timer);
        clearTimeout(hangupTimer);
        signal?.removeEventListener("abort", onAbort);
        hangup?.removeEventListener("abort", onHangup);
      };
      const fail = (error: Error) => {
        finish();
        if (signal?.aborted) reject(signal.reason);
        else if (hangup?.aborted) reject(hangup.reason);
        else reject(this.connectionError(request, error, isSent));
      };
      signal?.addEventListener("abort", onAbort, { once: true });
      hangup?.addEventListener("abort", onHangup, { once: true });
      call.on("error", fail);
      call.on("socket", (socket) => {
        if (socket.connecting) socket.once("connect", () => (isSent = true));
        else isSent = true;
      });
      call.on("response", (response) => {
        const chunks: Buffer[] = [];
        response.on("data", (chunk: Buffer) => chunks.push(chunk));
        response.on("error", fail);
        response.on("aborted", () => fail(new Error("the answer is incomplete")));
        response.on("end", () => {
          finish();
          const text = (chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks)).toString("utf8");
          const status = response.statusCode ?? 0;
          if (status >= 200 && status < 300) resolve({ status, text });
          else reject(problemOf(status, text, response.headers["retry-after"]));
        });
      });
      call.end(request.body);
    });
  }

  /** Resolves with the body of a stream without an end. Rejects as `send` does. */
  open(request: HttpRequest): Promise<http.IncomingMessage> {
    return new Promise((resolve, reject) => {
      const { signal } = request;
      if (signal?.aborted) {
        reject(signal.reason);
        return;
      }
      const call = this.request({
        agent: this.agent,
        protocol: this.base.protocol,
        hostname: this.base.hostname.replace(/^\[|\]$/g, ""),
        port: this.base.port,
        method: request.method,
        path: this.base.pathname.replace(/\/$/, "") + request.path,
        headers: { ...this.headers, ...request.headers },
        ...(signal === undefined ? {} : { signal }),
      });
      const timer = setTimeout(
        () => call.destroy(new Error(`no answer within ${request.timeoutMs} ms`)),
        request.timeoutMs,
      );
      call.on("error", (error) => {
        clearTimeout(timer);
        reject(signal?.aborted ? signal.reason : this.connectionError(request, error, false));
      });
      call.on("response", (response) => {
        clearTimeout(timer);
        const status = response.statusCode ?? 0;
        if (status >= 200 && status < 300) {
          resolve(response);
          return;
        }
        const chunks: Buffer[] = [];
        response.on("data", (chunk: Buffer) => chunks.push(chunk));
        response.on("error", (error) => reject(this.connectionError(request, error, true)));
        response.on("end", () =>
          reject(problemOf(status, Buffer.concat(chunks).toString("utf8"), response.headers["retry-after"])),
        );
      });
      call.end();
    });
  }

  /** A request that never reached the server is safe to repeat; otherwise its effect is unknown. */
  private connectionError(request: HttpRequest, error: Error, isSent: boolean): ConnectionError {
    const cause = error.message || (error as NodeJS.ErrnoException).code || "the connection was closed";
    const message = `no answer from ${this.base.origin}: ${request.method} ${request.path}: ${cause}`;
    return new ConnectionError(message, isSent ? "unknown" : "safe", { cause: error });
  }
}

/** Returns the error of an answer; one that is no problem document comes from a proxy. */
function problemOf(status: number, text: string, retryAfter: string | undefined): ProblemError {
  const seconds = Number(retryAfter);
  const waitMs = retryAfter !== undefined && Number.isFinite(seconds) ? seconds * 1_000 : undefined;
  try {
    const problem = JSON.parse(text) as Problem;
    if (typeof problem.code === "string") return new ProblemError({ ...problem, status }, waitMs);
  } catch {
    // Not JSON: handled below.
  }
  const retry = status >= 500 ? "unknown" : status === 429 ? "safe" : "never";
  return new ProblemError({ status, code: "http_error", detail: `answer with status ${status}`, retry }, waitMs);
}
