import { createServer } from "node:net";
import type { AddressInfo, Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";

import type { LogFields, Logger } from "longshore";

/** Waits for a condition; fails after ten seconds. */
export async function until<T>(what: string, condition: () => T | Promise<T>): Promise<NonNullable<T>> {
  const giveUpAt = Date.now() + 10_000;
  for (;;) {
    const value = await condition();
    if (value) return value;
    if (Date.now() > giveUpAt) throw new Error(`${what} did not happen within 10 s`);
    await sleep(10);
  }
}

/** A promise and the functions that end it. */
export function gate<T = void>(): { promise: Promise<T>; open: (value: T) => void } {
  let open: (value: T) => void = () => {};
  const promise = new Promise<T>((resolve) => (open = resolve));
  return { promise, open };
}

/** A logger that keeps its lines. */
export function memoryLogger(): Logger & {
  lines: { level: string; message: string; fields: LogFields | undefined }[];
} {
  const lines: { level: string; message: string; fields: LogFields | undefined }[] = [];
  const write = (level: string) => (message: string, fields?: LogFields) => void lines.push({ level, message, fields });
  return { lines, debug: write("debug"), info: write("info"), warn: write("warn"), error: write("error") };
}

/** Whether a signal aborts: resolves with its reason. */
export function aborted(signal: AbortSignal): Promise<{ code: string }> {
  if (signal.aborted) return Promise.resolve(signal.reason);
  return new Promise((resolve) => signal.addEventListener("abort", () => resolve(signal.reason), { once: true }));
}

/** A TCP proxy that can swallow answers. */
export class Proxy {
  /** Answers to swallow: the connection is closed instead. */
  answersToLose = 0;
  private readonly sockets = new Set<Socket>();

  private constructor(
    readonly url: string,
    private readonly close: () => void,
  ) {}

  static async start(target: string): Promise<Proxy> {
    const { connect } = await import("node:net");
    const { hostname, port } = new URL(target);
    let proxy: Proxy | undefined;
    const server = createServer((client) => {
      const upstream = connect(Number(port), hostname);
      for (const socket of [client, upstream]) {
        proxy?.sockets.add(socket);
        socket.on("error", () => {});
        socket.on("close", () => (client.destroy(), upstream.destroy()));
      }
      client.pipe(upstream);
      upstream.on("data", (chunk) => {
        if (proxy !== undefined && proxy.answersToLose > 0) {
          proxy.answersToLose -= 1;
          client.destroy();
        } else client.write(chunk);
      });
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const { port: own } = server.address() as AddressInfo;
    proxy = new Proxy(`http://127.0.0.1:${own}`, () => server.close());
    return proxy;
  }

  [Symbol.dispose](): void {
    this.close();
    for (const socket of this.sockets) socket.destroy();
  }
}
