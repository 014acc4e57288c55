import { spawn } from "node:child_process";
import type { ChildProcess } from "node:child_process";
import { createInterface } from "node:readline";

/** Options of a server for tests. */
export interface TestServerOptions {
  /** Program. Absent: `LONGSHORE_BIN`, then `longshore` of the PATH. */
  program?: string;
  /** Whether time stands still until it is advanced. Absent: true. */
  virtualClock?: boolean;
  /** Data directory. Absent: in memory. */
  data?: string;
  /** Port. Absent: a free one. */
  port?: number;
}

/** A server process of a test. */
export class TestServer {
  private constructor(
    readonly url: string,
    readonly process: ChildProcess,
  ) {}

  /** Starts a server and waits until it listens. */
  static async start(options: TestServerOptions = {}): Promise<TestServer> {
    const program = options.program ?? (process.env["LONGSHORE_BIN"] || "longshore");
    const store = options.data === undefined ? ["--store", "memory:"] : ["--data", options.data];
    const clock = (options.virtualClock ?? true) ? ["--virtual-clock"] : [];
    const args = [
      "--json",
      "serve",
      "--listen",
      `127.0.0.1:${options.port ?? 0}`,
      ...store,
      ...clock,
      "--log",
      "error",
    ];
    const child = spawn(program, args, { stdio: ["ignore", "pipe", "pipe"] });
    const url = await firstUrl(child, program);
    // The server does not keep a test alive, and ends with it.
    child.unref();
    for (const stream of [child.stdout, child.stderr]) (stream as unknown as { unref?: () => void })?.unref?.();
    const onExit = () => child.kill("SIGKILL");
    process.once("exit", onExit);
    child.once("exit", () => process.off("exit", onExit));
    return new TestServer(url, child);
  }

  /** Ends the server: at once, or with a drain. */
  async stop(signal: NodeJS.Signals = "SIGKILL"): Promise<void> {
    if (this.process.exitCode !== null || this.process.signalCode !== null) return;
    this.process.ref();
    const ended = new Promise((resolve) => this.process.once("exit", resolve));
    this.process.kill(signal);
    await ended;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }
}

/** Reads the URL from the banner, which is one JSON object. */
function firstUrl(child: ChildProcess, program: string): Promise<string> {
  return new Promise((resolve, reject) => {
    let errors = "";
    child.stderr?.on("data", (chunk: Buffer) => (errors = (errors + chunk.toString()).slice(-4_000)));
    child.once("error", (error) => {
      const hint = "set LONGSHORE_BIN to the program, or add it to the PATH";
      reject(new Error(`cannot start ${program}: ${error.message} (${hint})`));
    });
    child.once("exit", (code) => reject(new Error(`${program} ended with code ${code}: ${errors.trim()}`)));
    createInterface({ input: child.stdout! }).once("line", (line) => {
      child.removeAllListeners("exit");
      resolve((JSON.parse(line) as { url: string }).url);
    });
  });
}
